/* SPDX-License-Identifier: GPL-2.0-only */
/* The vDSO's own answer to clock_gettime, without a system call. It runs in the processes of the guest. */
#ifndef LAB_VDSO_H
#define LAB_VDSO_H

#include "lab_clock.h"

/* The data lies in the page of this code. */
static inline volatile struct lab_clock *lab_clock(void)
{
	unsigned long here;

	asm("lea (%%rip),%0" : "=r" (here));
	return (void *)((here & ~4095UL) + LAB_CLOCK_OFFSET);
}

/* Whether it knows the time of this clock: 0 is CLOCK_REALTIME, 1 is CLOCK_MONOTONIC. */
static inline int lab_time(int id, unsigned long *sec, unsigned long *ns)
{
	volatile struct lab_clock *clock = lab_clock();
	volatile struct lab_moment *moment = id ? &clock->mono : &clock->real;
	unsigned long mult, gone, part;
	unsigned int number, shift;

	if (id & ~1)
		return 0;
	do {
		number = clock->number;
		asm volatile("" ::: "memory");
		mult = clock->mult;
		shift = clock->shift;
		*sec = moment->sec;
		part = moment->part;
		gone = lab_counter() - clock->last;
		asm volatile("" ::: "memory");
	} while ((number & 1) || clock->number != number);
	if (!mult)
		return 0;
	/* Another processor's counter may be a little behind. */
	if ((long)gone < 0)
		gone = 0;
	part = (unsigned long)(((unsigned __int128)gone * mult + part) >> shift);
	*sec += part / LAB_CLOCK_SECOND;
	*ns = part % LAB_CLOCK_SECOND;
	return 1;
}

#endif
