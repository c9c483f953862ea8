/*
 * The option --k8s of sbatch.
 *
 * Slurm takes options from plug-ins in C only, so this offers one, hands its value to the hooks, and puts `moorage run`
 * before the script of a job. What the value means is decided elsewhere: by `moorage check-spec` when a job is
 * submitted, and by the Prolog, which trusts nothing that comes from here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 11, 0)
#error "Moorage needs Slurm 23.11 or newer"
#endif

SPANK_PLUGIN(moorage, 1)

#define PROGRAM "/opt/moorage/bin/moorage"
#ifndef CHECK_SECONDS
#define CHECK_SECONDS 30
#endif
#define LONGEST_ANSWER 4096

/* The names of plugin/moorage/common/spec.py. */
#define CONTROL "K8S"
#define OPTION "_SLURM_SPANK_OPTION_moorage_k8s"
#define HANDED_DOWN(name) "SLURM_SPANK_" name
#define RUN "/run/moorage/"

#define DIGITS(number) '0' + (number) / 10, '0' + (number) % 10

/* By this the Prolog tells which Slurm the file was built for. */
__attribute__((used)) static const char marker[] = {
    'm', 'o', 'o', 'r', 'a', 'g', 'e', '-', 's', 'h', 'i', 'm', ' ',
    DIGITS(SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER)), '.', DIGITS(SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER)), '\0',
};

/* What was asked for; NULL if nothing was. */
static char *spec;

static bool begins(const char *text, const char *with)
{
    return text && strncmp(text, with, strlen(with)) == 0;
}

static bool on(const char *value)
{
    return value && strcmp(value, "0") != 0;
}

/*
 * A moored job's environment carries its option on to each srun and sbatch within, which Slurm takes as if typed. It
 * passes the very string of the environment (24.11, 26.05), so this is told from an option that is typed there.
 */
static bool handed_down(const char *value)
{
    return value && value == getenv(HANDED_DOWN(OPTION)) && getenv(HANDED_DOWN(CONTROL));
}

/* Called for each place where the option is found, the most important last. */
static int keep(int val, const char *value, int remote)
{
    (void)val;
    if (!remote && handed_down(value))
        return 0;
    char *copy = strdup(value ? value : "1");
    if (!copy)
        return -1;
    free(spec);
    spec = copy;
    return 0;
}

static struct spank_option option = {
    .name = "k8s",
    .arginfo = "[SPEC]",
    .usage = "moor a Kubernetes cluster to the job: 1 or key=value,... (cluster=none: Podman alone); 0 is off",
    .has_arg = optional_argument,
    .cb = keep,
};

/* Leave nothing of the option behind, for neither the hooks, nor the node, nor the steps of the job. */
static void withdraw(spank_t spank)
{
    unsetenv(OPTION);
    unsetenv(HANDED_DOWN(OPTION));
    unsetenv(HANDED_DOWN(CONTROL));
    spank_job_control_unsetenv(spank, OPTION);
    spank_job_control_unsetenv(spank, CONTROL);
}

/* Take what is of a moored job out of a search path. */
static void shorten(char *path)
{
    for (char *place = path; place && (begins(place, RUN) || (place = strstr(path, ":" RUN))); place = path) {
        char *rest = strchrnul(place + 1, ':');
        rest += place == path && *rest;
        memmove(place, rest, strlen(rest) + 1);
    }
}

/* What a moored job's script was told is for that job alone; sbatch copies its environment after this (24.11). */
static void forget(void)
{
    static const char *const told[] = {"CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE", "CONTAINERS_STORAGE_CONF",
        "CONTAINERS_REGISTRIES_CONF", "XDG_RUNTIME_DIR", "K8S_CLUSTER_NAME", "K8S_CLUSTER_API", "K8S_CLUSTER_API_TOKEN",
        "K8S_PORT", "KUBECONFIG"};
    bool cluster = begins(getenv("KUBECONFIG"), RUN);
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (begins(getenv(told[i]), RUN) || (cluster && begins(told[i], "K8S_")))
            unsetenv(told[i]);
    shorten(getenv("PATH"));
}

/*
 * End sbatch, srun or salloc before anything is submitted. An error returned instead makes Slurm add two lines about a
 * plug-in that failed, and is passed over where the plug-in is optional (24.11).
 */
_Noreturn static void refuse(const char *line)
{
    slurm_error("%s", line);
    exit(EXIT_FAILURE);
}

static const char *program(int argc, char **argv)
{
    static const char key[] = "moorage=";
    for (int i = 0; i < argc; i++)
        if (begins(argv[i], key))
            return argv[i] + strlen(key);
    return PROGRAM;
}

static int64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Start `program check-spec -- value` with an environment of its own, and what it prints going to `output`. */
static int start(const char *program, const char *value, int output, pid_t *child)
{
    char *const argv[] = {(char *)program, "check-spec", "--", (char *)value, NULL};
    char *const environment[] = {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL};
    posix_spawn_file_actions_t files;
    int error = posix_spawn_file_actions_init(&files);
    if (error)
        return error;
    if (!(error = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0)) &&
        !(error = posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO)) &&
        !(error = posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO)))
        error = posix_spawn(child, program, &files, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

/* Keep the beginning of what is printed, until there is no more of it; false if that takes too long. */
static bool hear(int input, char *answer, size_t size)
{
    int64_t deadline = milliseconds() + CHECK_SECONDS * 1000;
    for (;;) {
        int64_t left = deadline - milliseconds();
        struct pollfd ready = {.fd = input, .events = POLLIN};
        int count = left > 0 ? poll(&ready, 1, (int)left) : 0;
        if (count == 0)
            return false;
        ssize_t length = count > 0 ? read(input, answer, size - 1) : -1;
        if (length < 0 && errno == EINTR)
            continue;
        if (length <= 0 || (size_t)length == size - 1)
            return true;
        answer += length;
        size -= (size_t)length;
    }
}

/* The last line of `answer`, which is cut there. */
static const char *last_line(char *answer)
{
    size_t length = strlen(answer);
    while (length && answer[length - 1] == '\n')
        answer[--length] = '\0';
    const char *newline = strrchr(answer, '\n');
    return newline ? newline + 1 : answer;
}

/*
 * It says yes by its exit code alone, and no with a line as well. Nobody gets the exit code where SIGCHLD is ignored,
 * which sbatch inherits from whatever started it.
 */
static bool agreed(pid_t child, const char *answer)
{
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR)
        ;
    return ended == child ? WIFEXITED(status) && WEXITSTATUS(status) == 0 : !*answer;
}

static void check(const char *program, const char *value)
{
    char answer[LONGEST_ANSWER] = "", line[LONGEST_ANSWER + 256];
    int ends[2];
    pid_t child;
    int error = pipe2(ends, O_CLOEXEC) < 0 ? errno : start(program, value, ends[1], &child);
    if (error) {
        snprintf(line, sizeof line, "moorage: --k8s cannot be checked: %s: %s: tell the administrator [M-SHIM-1]",
                 program, strerror(error));
        refuse(line);
    }
    close(ends[1]);
    bool in_time = hear(ends[0], answer, sizeof answer);
    close(ends[0]);
    /* If it is ending, this does not change its exit code; if not, it has no more to say and is not waited for. */
    kill(child, SIGKILL);
    if (in_time && agreed(child, answer))
        return;
    const char *reason = last_line(answer);
    if (begins(reason, "moorage: "))
        refuse(reason);
    snprintf(line, sizeof line, "moorage: --k8s cannot be checked: %s %s (%s): tell the administrator [M-SHIM-2]",
             program, in_time ? "failed" : "takes too long", *reason ? reason : "no word from it");
    refuse(line);
}

/* In no context does this return an error: on a node it would be drained (24.11). */
int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    (void)argc, (void)argv;
    spank_context_t context = spank_context();
    if (context != S_CTX_ALLOCATOR && context != S_CTX_LOCAL && context != S_CTX_REMOTE)
        return 0;
    if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
        slurm_error("moorage: --k8s cannot be offered: see whether another plug-in has this option [M-SHIM-5]");
    return 0;
}

/* At submission, with all options read. */
int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
    spank_context_t context = spank_context();
    if (context != S_CTX_ALLOCATOR && context != S_CTX_LOCAL)
        return 0;
    if (context == S_CTX_ALLOCATOR)
        forget();
    if (!on(spec)) {
        withdraw(spank);
        return 0;
    }
    /* The context does not tell sbatch from salloc. */
    if (!strstr(program_invocation_short_name, "sbatch"))
        refuse("moorage: --k8s works with sbatch alone: put the commands into a script for sbatch --k8s [M-SHIM-3]");
    check(program(argc, argv), spec);
    if (spank_job_control_setenv(spank, CONTROL, spec, 1) != ESPANK_SUCCESS)
        refuse("moorage: --k8s cannot be handed to Slurm: try again, or tell the administrator [M-SHIM-4]");
    return 0;
}

/*
 * The option may be lost on the way, by --export=NAME before 24.05 and by --export-file; the value for the hooks comes
 * through in the job's environment as well.
 */
static bool moored(spank_t spank)
{
    char value[2] = "";
    if (spec)
        return on(spec);
    spank_err_t found = spank_getenv(spank, HANDED_DOWN(CONTROL), value, sizeof value);
    return found == ESPANK_NOSPACE || (found == ESPANK_SUCCESS && on(value));
}

/* On the node, as the user, in the task's process. An error here fails the job and spares the node. */
int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
    uint32_t step = 0;
    if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step != SLURM_BATCH_SCRIPT || !moored(spank))
        return 0;
    const char *words[] = {program(argc, argv), "run", "--"};
    if (spank_prepend_task_argv(spank, sizeof words / sizeof *words, words) == ESPANK_SUCCESS)
        return 0;
    slurm_error("moorage: `moorage run` cannot be put before the script: tell the administrator [M-SHIM-6]");
    return -1;
}
