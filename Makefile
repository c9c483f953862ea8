# Moorage. `make help` says what there is.

MAKEFLAGS += --no-builtin-rules --no-print-directory
# The last two are most easily disturbed, and nothing is run after a part that fails.
PARTS = lint unit build demo native lab walk unstable clusters nodes ipv6 three endings survivals together sizes references guide pages rollout role upgrade bench-net starts
ARMS = warm cold
REPEAT = 2
ROUNDS = 9

.DEFAULT_GOAL = help
.PHONY: help check lint unit native lab test test-full demo bench-net bench-start rollout-check clean
.SILENT:

help:
	echo "Moorage: a Kubernetes cluster moored to a Slurm job."
	tools/expect check
	tools/expect demo
	tools/expect test
	echo
	sed -n 's/^#: //p' Makefile

#: make check      lint and unit tests: without root, and with nothing of apt's
check:
	tools/expect check
	tools/bootstrap --python-only tools/lint-and-unit

#: make demo       a job with a cluster in the virtual Slurm, from its submission until nothing of it is left;
#:                 RECORDING=docs/demo.svg keeps the picture that the README shows
demo:
	tools/expect demo
	tools/as-root tools/bootstrap tests/lab/lab demo $(RECORDING:%=--recording=%)

#: make test       lint, unit, native, lab: each is a verb of its own, too; what the lab is made of is built first
test:
	tools/expect test
	tools/as-root tools/bootstrap tools/check lint unit build native lab

#: make test-full  what takes longer, as well; PARTS="walk" runs one part
test-full:
	tools/expect test-full
	tools/as-root env MOORAGE_FULL=1 tools/bootstrap tools/check $(PARTS)

#: make lint       ruff, mypy, shellcheck, yamllint, ansible-lint
#: make unit       tests of decisions: they start no program that they do not name
lint unit:
	tools/bootstrap --python-only tools/check $@

#: make native     tests of the kernel, in namespaces of their own
#: make lab        tests on real Slurm, Podman and Kubernetes in virtual machines
native lab:
	tools/as-root tools/bootstrap tools/check $@

#: make bench-net    networks of a job against what they are built on, in namespaces of this machine; ROUNDS=3 is short
bench-net:
	tools/expect bench-net
	tools/as-root tools/bootstrap tests/bench-net --repeat=$(ROUNDS)

#: make bench-start  starts with Moorage and without, in turn; REPEAT=1 ARMS=warm for a first look
bench-start:
	tools/expect bench-start
	tools/as-root tools/bootstrap tests/lab/lab bench-start --repeat=$(REPEAT) $(ARMS:%=--form=%)

#: make rollout-check  the role on a bare node: installed, run again, tried with every fault, and off without a trace
rollout-check:
	tools/expect rollout-check
	tools/as-root tools/bootstrap tests/lab/lab rollout-check

#: make clean      empties the caches: yours (tools/cache prints where it is), and the machine's as root
clean:
	tools/clean
