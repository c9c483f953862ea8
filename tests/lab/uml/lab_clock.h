/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel tells the vDSO of its clocks. It lies at the end of the vDSO's page: the kernel writes it, every
 * process reads it.
 */
#ifndef LAB_CLOCK_H
#define LAB_CLOCK_H

#define LAB_CLOCK_ROOM 64
#define LAB_CLOCK_OFFSET (4096 - LAB_CLOCK_ROOM)
#define LAB_CLOCK_SECOND 1000000000UL

/* A second and its part in nanoseconds, the part shifted like the timekeeper's. */
struct lab_moment {
	unsigned long sec;
	unsigned long part;
};

/* Odd numbers: it is being written. A multiplier of zero: ask the kernel. */
struct lab_clock {
	unsigned int number;
	unsigned int shift;
	unsigned long mult;
	unsigned long last;
	struct lab_moment real;
	struct lab_moment mono;
};

/* The fence keeps the processor from reading the counter before the loads that precede it. */
static inline unsigned long lab_counter(void)
{
	unsigned int low, high;

	asm volatile("lfence; rdtsc" : "=a" (low), "=d" (high) :: "memory");
	return ((unsigned long)high << 32) | low;
}

#endif
