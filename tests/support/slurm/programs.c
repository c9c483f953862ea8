/*
 * Slurm's programs as a plug-in sees them (24.11): sbatch, salloc, srun, slurmstepd or slurmd, whichever it is called as.
 *
 *     sbatch PLUGIN [ARGUMENT OF THE PLUGIN...] -- [--k8s[=VALUE]...] [WORD...]
 *
 * prints what the plug-in brought about: "option" the option it offers, "hook" the variables of the hooks, "job" those
 * of the job that tell of the option, "other" the rest, "task" the words that are run, and what each of its functions
 * returned.
 * FAILS names a function of Slurm that fails; STEP is the number of slurmstepd's step. With TIMED only "took" is
 * printed, in nanoseconds: from before the plug-in is loaded until it is unloaded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <slurm/spank.h>

#define OPTION "_SLURM_SPANK_OPTION_moorage_k8s"

extern char **environ;

static struct spank_option offered;
static char *value;
static int found;
static int timed;
static char *control[64];
static const char *task[64];

static int fails(const char *function)
{
    const char *wanted = getenv("FAILS");
    return wanted && strcmp(wanted, function) == 0;
}

spank_context_t spank_context(void)
{
    static const struct { const char *name; spank_context_t context; } programs[] = {
        {"sbatch", S_CTX_ALLOCATOR}, {"salloc", S_CTX_ALLOCATOR}, {"srun", S_CTX_LOCAL},
        {"slurmstepd", S_CTX_REMOTE}, {"slurmd", S_CTX_SLURMD},
    };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strcmp(program_invocation_short_name, programs[i].name) == 0)
            return programs[i].context;
    return S_CTX_ERROR;
}

void slurm_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: error: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
    (void)spank;
    if (fails("spank_option_register"))
        return ESPANK_ERROR;
    offered = *option;
    if (!timed)
        printf("option --%s=%s\n", option->name, option->arginfo);
    return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
    va_list arguments;
    const char *step = getenv("STEP");
    (void)spank;
    va_start(arguments, item);
    *va_arg(arguments, uint32_t *) = step ? (uint32_t)strtoul(step, NULL, 0) : SLURM_BATCH_SCRIPT;
    va_end(arguments);
    return fails("spank_get_item") ? ESPANK_ERROR : ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *buffer, int size)
{
    const char *known = getenv(name);
    (void)spank;
    if (!known)
        return ESPANK_ENV_NOEXIST;
    return snprintf(buffer, (size_t)size, "%s", known) < size ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

static char **controlled(const char *name)
{
    size_t length = strlen(name);
    char **entry = control;
    while (*entry && !(strncmp(*entry, name, length) == 0 && (*entry)[length] == '='))
        entry++;
    return entry;
}

spank_err_t spank_job_control_setenv(spank_t spank, const char *name, const char *text, int overwrite)
{
    (void)spank, (void)overwrite;
    if (fails("spank_job_control_setenv") || asprintf(controlled(name), "%s=%s", name, text) < 0)
        return ESPANK_ERROR;
    return ESPANK_SUCCESS;
}

spank_err_t spank_job_control_unsetenv(spank_t spank, const char *name)
{
    (void)spank;
    for (char **entry = controlled(name); *entry; entry++)
        entry[0] = entry[1];
    return ESPANK_SUCCESS;
}

spank_err_t spank_prepend_task_argv(spank_t spank, int argc, const char *argv[])
{
    (void)spank;
    if (fails("spank_prepend_task_argv"))
        return ESPANK_ERROR;
    memmove(task + argc, task, sizeof task - (size_t)argc * sizeof *task);
    memcpy(task, argv, (size_t)argc * sizeof *argv);
    return ESPANK_SUCCESS;
}

static void found_option(const char *text, int remote)
{
    if (offered.cb(offered.val, text, remote))
        errx(1, "the option is refused");
    value = text ? strdup(text) : NULL;
    found = 1;
}

/* What a job carries is taken up by each srun within it. */
static void take_up_control(void)
{
    for (char **entry = environ; *entry; entry++)
        if (strncmp(*entry, "SLURM_SPANK_", 12) == 0)
            *controlled("") = strdup(*entry + 12);
}

static void read_options(char **words)
{
    const char *handed_down = getenv("SLURM_SPANK_" OPTION);
    if (!offered.cb)
        return;
    if (handed_down)
        found_option(handed_down, 0);
    for (; *words && strncmp(*words, "--k8s", 5) == 0; words++)
        found_option((*words)[5] ? *words + 6 : NULL, 0);
    if (!found)
        return;
    setenv(OPTION, value ? value : "", 1);
    spank_job_control_setenv(NULL, OPTION, value ? value : "(null)", 1);
}

static void read_options_of_the_step(void)
{
    if (offered.cb && getenv(OPTION))
        found_option(getenv(OPTION), 1);
    unsetenv(OPTION);
}

static void show(void)
{
    for (char **entry = control; *entry; entry++) {
        printf("hook SPANK_%s\n", *entry);
        char *copy = NULL;
        if (asprintf(&copy, "SLURM_SPANK_%s", *entry) < 0 || putenv(copy))
            err(1, "putenv");
    }
    for (char **entry = environ; *entry; entry++)
        printf("%s %s\n",
               strncmp(*entry, "SLURM_SPANK_", 12) && strncmp(*entry, OPTION, strlen(OPTION)) ? "other" : "job", *entry);
}

static void call(void *plugin, const char *function, int argc, char **argv)
{
    spank_f *known = (spank_f *)dlsym(plugin, function);
    if (!known)
        errx(1, "%s", dlerror());
    int code = known(NULL, argc, argv);
    if (!timed)
        printf("%s %d\n", function, code);
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Slurm asks each plug-in for all of these. */
static void look_up(void *plugin)
{
    static const char *const names[] = {
        "plugin_name", "plugin_type", "plugin_version", "spank_options", "slurm_spank_init",
        "slurm_spank_slurmd_init", "slurm_spank_init_post_opt", "slurm_spank_local_user_init",
        "slurm_spank_user_init", "slurm_spank_task_init_privileged", "slurm_spank_task_init",
        "slurm_spank_task_post_fork", "slurm_spank_task_exit", "slurm_spank_job_prolog",
        "slurm_spank_job_epilog", "slurm_spank_slurmd_exit", "slurm_spank_exit",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        dlsym(plugin, names[i]);
}

/* As the program that this is called as; the words that follow are its own. */
static void act(void *plugin, int count, char **arguments, char **words)
{
    if (spank_context() == S_CTX_LOCAL)
        take_up_control();
    call(plugin, "slurm_spank_init", count, arguments);
    if (spank_context() == S_CTX_SLURMD)
        return;
    if (spank_context() == S_CTX_REMOTE)
        read_options_of_the_step();
    else
        read_options(words);
    call(plugin, "slurm_spank_init_post_opt", count, arguments);
    if (spank_context() != S_CTX_REMOTE) {
        if (!timed)
            show();
        return;
    }
    for (int i = 0; words[i]; i++)
        task[i] = words[i];
    call(plugin, "slurm_spank_task_init", count, arguments);
    for (const char **word = task; *word && !timed; word++)
        printf("task %s\n", *word);
}

int main(int argc, char **argv)
{
    timed = getenv("TIMED") != NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    int64_t begun = nanoseconds();
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_LAZY) : NULL;
    int count = 0;
    if (!plugin)
        errx(1, "%s", dlerror());
    look_up(plugin);
    while (2 + count < argc && strcmp(argv[2 + count], "--") != 0)
        count++;
    act(plugin, count, argv + 2, argv + 2 + count + 1);
    if (timed) {
        dlclose(plugin);
        printf("took %lld\n", (long long)(nanoseconds() - begun));
    }
    return 0;
}
