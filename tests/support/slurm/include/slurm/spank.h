/* As much of the plug-in interface as the shim uses; the numbers are of no account, both sides are built with them. */
#ifndef STAND_IN_SPANK_H
#define STAND_IN_SPANK_H

#include <slurm/slurm.h>

typedef struct spank_handle *spank_t;
typedef int spank_f(spank_t spank, int argc, char **argv);

extern spank_f slurm_spank_init;
extern spank_f slurm_spank_init_post_opt;
extern spank_f slurm_spank_task_init;

typedef enum { S_CTX_ERROR, S_CTX_LOCAL, S_CTX_REMOTE, S_CTX_ALLOCATOR, S_CTX_SLURMD, S_CTX_JOB_SCRIPT } spank_context_t;
typedef enum { S_JOB_STEPID } spank_item_t;
typedef enum { ESPANK_SUCCESS, ESPANK_ERROR, ESPANK_ENV_NOEXIST, ESPANK_NOSPACE } spank_err_t;

struct spank_option {
    char *name, *arginfo, *usage;
    int has_arg, val;
    int (*cb)(int val, const char *value, int remote);
};

spank_context_t spank_context(void);
spank_err_t spank_option_register(spank_t spank, struct spank_option *option);
spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...);
spank_err_t spank_getenv(spank_t spank, const char *name, char *value, int size);
spank_err_t spank_job_control_setenv(spank_t spank, const char *name, const char *value, int overwrite);
spank_err_t spank_job_control_unsetenv(spank_t spank, const char *name);
spank_err_t spank_prepend_task_argv(spank_t spank, int argc, const char *argv[]);
void slurm_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define SPANK_PLUGIN(name, version) \
    const char plugin_name[] = #name; \
    const char plugin_type[] = "spank"; \
    const unsigned int plugin_version = SLURM_VERSION_NUMBER; \
    const unsigned int spank_plugin_version = version;

#endif
