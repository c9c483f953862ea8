// SPDX-License-Identifier: GPL-2.0-only
/*
 * The processor's counter as a clock source, and the timekeeper's numbers for the vDSO.
 *
 * A system call of a UML guest costs 8 us, and Go reads clocks all the time. Here kernel and vDSO compute the time from
 * the same counter with the same numbers, so that one never runs behind the other. The launcher says lab_tsc where the
 * host itself trusts the counter.
 */
#include <linux/build_bug.h>
#include <linux/clocksource.h>
#include <linux/init.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/pvclock_gtod.h>
#include <linux/timekeeper_internal.h>
#include <os.h>

#include "lab_clock.h"

#define MEASURED_NS (50 * NSEC_PER_MSEC)
#define TRIES 64

static bool trusted;
static struct lab_clock *page;

static int __init trust(char *unused)
{
	trusted = true;
	return 0;
}
early_param("lab_tsc", trust);

static u64 read_counter(struct clocksource *unused)
{
	return lab_counter();
}

static struct clocksource counter = {
	.name = "tsc",
	.rating = 400,
	.read = read_counter,
	.mask = CLOCKSOURCE_MASK(64),
	.flags = CLOCK_SOURCE_IS_CONTINUOUS,
};

struct reading {
	u64 count;
	u64 ns;
};

/* Of several readings the one during which the least time went by. */
static struct reading __init reading(void)
{
	struct reading best = {};
	u64 shortest = U64_MAX;

	for (int i = 0; i < TRIES; i++) {
		u64 before = lab_counter();
		u64 ns = os_nsecs();
		u64 took = lab_counter() - before;

		if (took < shortest) {
			shortest = took;
			best = (struct reading){ before + took / 2, ns };
		}
	}
	return best;
}

static u64 __init frequency(void)
{
	struct reading first = reading(), last;

	do {
		last = reading();
	} while (last.ns - first.ns < MEASURED_NS);
	return mul_u64_u64_div_u64(last.count - first.count, NSEC_PER_SEC, last.ns - first.ns);
}

static void keep(struct lab_moment *kept, u64 sec, u64 part, unsigned int shift)
{
	u64 second = LAB_CLOCK_SECOND << shift;

	while (part >= second) {
		part -= second;
		sec++;
	}
	kept->sec = sec;
	kept->part = part;
}

/* Called by the timekeeper with its lock held, whenever its numbers change. */
static int changed(struct notifier_block *unused, unsigned long was_set, void *data)
{
	struct timekeeper *tk = data;
	struct tk_read_base *base = &tk->tkr_mono;
	struct timespec64 *mono = &tk->wall_to_monotonic;

	WRITE_ONCE(page->number, page->number + 1);
	smp_wmb();
	page->shift = base->shift;
	page->last = base->cycle_last;
	keep(&page->real, tk->xtime_sec, base->xtime_nsec, base->shift);
	keep(&page->mono, tk->xtime_sec + mono->tv_sec, base->xtime_nsec + ((u64)mono->tv_nsec << base->shift),
	     base->shift);
	page->mult = base->clock == &counter ? base->mult : 0;
	smp_wmb();
	WRITE_ONCE(page->number, page->number + 1);
	return NOTIFY_OK;
}

static struct notifier_block notified = { .notifier_call = changed };

void __init lab_clock_place(void *vdso)
{
	BUILD_BUG_ON(sizeof(struct lab_clock) > LAB_CLOCK_ROOM);
	page = vdso + LAB_CLOCK_OFFSET;
}

static int __init start(void)
{
	u64 hz;

	if (!trusted || !page)
		return 0;
	hz = frequency();
	if (hz > U32_MAX)
		return -ERANGE;
	pvclock_gtod_register_notifier(&notified);
	return clocksource_register_hz(&counter, hz);
}
device_initcall(start);
