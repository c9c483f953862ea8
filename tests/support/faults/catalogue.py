"""Every fault of a node that tests know of, by its name. Guests and native tests make the same ones."""

from support.faults.changes import Change
from support.faults.fault import Effect, Fault
from support.faults.of_moorage import CONFIGURATION, KUBERNETES, LEFTOVERS, OTHERS, SCRATCH, STORE, UNITS
from support.faults.of_programs import NETWORKS, PROGRAMS, UPLINKS, USERS
from support.faults.of_the_system import KERNEL, SHIM, SLURM
from support.faults.places import Places

TABLES = (
    SHIM, SLURM, KERNEL, PROGRAMS, UPLINKS, USERS, NETWORKS,
    CONFIGURATION, UNITS, STORE, KUBERNETES, SCRATCH, LEFTOVERS, OTHERS,
)  # fmt: skip
FAULTS: dict[str, Fault] = {name: fault for table in TABLES for name, fault in table.items()}
# What a guest's job or journal is told of each, and what its doctor says.
GUEST = Places()
FAILS, DRAINS, AGENT = (
    {name: GUEST.pattern(fault.line) for name, fault in FAULTS.items() if fault.guest and fault.effect is effect}
    for effect in (Effect.FAILS, Effect.DRAINS, Effect.AGENT)
)
DOCTOR = {name: GUEST.pattern(fault.doctor) for name, fault in FAULTS.items() if fault.guest and fault.doctor}


def broken(name: str) -> Change:
    """The guest in which this runs has this fault."""
    how = FAULTS[name].guest
    if how is None:
        raise ValueError(f"no guest can have the fault '{name}'")
    return how(GUEST)
