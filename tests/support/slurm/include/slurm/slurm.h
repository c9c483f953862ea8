/* As much of Slurm's interface as the shim uses, so that it can be tried where there is no Slurm. */
#ifndef STAND_IN_SLURM_H
#define STAND_IN_SLURM_H

#ifndef SLURM_VERSION_NUMBER
#define SLURM_VERSION_NUMBER SLURM_VERSION_NUM(24, 11, 5)
#endif
#define SLURM_VERSION_NUM(major, minor, micro) (((major) << 16) + ((minor) << 8) + (micro))
#define SLURM_VERSION_MAJOR(number) (((number) >> 16) & 0xff)
#define SLURM_VERSION_MINOR(number) (((number) >> 8) & 0xff)

#define SLURM_BATCH_SCRIPT 0xfffffffb
#define SLURM_EXTERN_CONT 0xfffffffc

#endif
