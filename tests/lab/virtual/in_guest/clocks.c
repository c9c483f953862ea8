/*
 * Reads the clocks from several processes at once, by the vDSO and by a system call in turn, and counts how often a time
 * was smaller than one that had been read before.
 *
 *     clocks SECONDS PROCESSES
 *
 * Prints a line for each clock: its name, the readings, the steps back, and the largest of them in nanoseconds.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct seen {
	_Atomic long latest, readings, backward, largest;
};

static const struct {
	clockid_t id;
	const char *name;
} clocks[] = { { CLOCK_MONOTONIC, "monotonic" }, { CLOCK_REALTIME, "realtime" } };

enum { CLOCKS = sizeof(clocks) / sizeof(*clocks) };

static long now(clockid_t id, int trap)
{
	struct timespec time;

	if (trap)
		syscall(SYS_clock_gettime, id, &time);
	else
		clock_gettime(id, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void raise_to(_Atomic long *place, long value)
{
	long found = *place;

	while (found < value && !__atomic_compare_exchange_n((long *)place, &found, value, 0, __ATOMIC_SEQ_CST,
							       __ATOMIC_SEQ_CST))
		;
}

static void look(struct seen *seen, clockid_t id, int trap)
{
	long before = seen->latest;
	long time = now(id, trap);

	seen->readings++;
	if (time < before) {
		seen->backward++;
		raise_to(&seen->largest, before - time);
	}
	raise_to(&seen->latest, time);
}

static void hammer(struct seen *seen, long end, int number)
{
	cpu_set_t set;

	/* One process each stays on a processor; the others go where the kernel puts them. */
	CPU_ZERO(&set);
	CPU_SET(number, &set);
	if (number < sysconf(_SC_NPROCESSORS_ONLN))
		sched_setaffinity(0, sizeof(set), &set);
	for (unsigned round = number; now(CLOCK_MONOTONIC, 0) < end; round++)
		for (int i = 0; i < CLOCKS; i++)
			for (int burst = 0; burst < 16; burst++)
				look(&seen[i], clocks[i].id, burst == round % 16);
}

int main(int argc, char **argv)
{
	int processes = argc == 3 ? atoi(argv[2]) : 0;
	size_t size = CLOCKS * sizeof(struct seen);
	struct seen *seen = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long end = now(CLOCK_MONOTONIC, 1);

	if (!processes || seen == MAP_FAILED)
		return 2;
	end += atol(argv[1]) * 1000000000L;
	for (int number = 0; number < processes; number++)
		if (!fork()) {
			hammer(seen, end, number);
			_exit(0);
		}
	while (wait(NULL) > 0)
		;
	for (int i = 0; i < CLOCKS; i++)
		printf("%s %ld %ld %ld\n", clocks[i].name, seen[i].readings, seen[i].backward, seen[i].largest);
	return 0;
}
