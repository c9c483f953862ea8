"""The kinds of values in a configuration: each has a reader that takes what YAML gives, or refuses it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Raises a ValueError that says what would have been right.
Reader = Callable[[Any], Any]


@dataclass(frozen=True)
class Entry:
    """One value in a configuration file."""

    name: str
    value: Any
    line: int


KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
_UNITS: Final = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": 1 << 40}
_SIZE: Final = re.compile(r"([0-9]{1,15})([KMGT]?)")
_IMAGE: Final = re.compile(
    r"[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*:[A-Za-z0-9_][A-Za-z0-9_.-]*(@sha256:[0-9a-f]{64})?"
)
# As wide as directories have those of users and groups, and never an option of a program.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .@\\+-]{0,254}\$?")
_PHRASE: Final = re.compile(r"[!-~]([ -~]{0,198}[!-~])?")
_PATH: Final = re.compile(r"(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)+")
_BIND: Final = re.compile(rf"{_PATH.pattern}(:{_PATH.pattern})?(:rw)?")
_PORTS: Final = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_HOST_RULE: Final = re.compile(r"[A-Za-z0-9.-]*\{host\}[A-Za-z0-9.-]*")
_INTERFACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}")
_SUBNET: Final = re.compile(r"(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})\.0\.0/16")
_ADDRESS: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")
_NETWORK: Final = re.compile(rf"{_ADDRESS.pattern}/[0-9]{{1,2}}")
_CDI: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*=[A-Za-z0-9{each}][A-Za-z0-9_.:{each}-]*"
# It is to stand in a label of Kubernetes'.
_GRES: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_-]{0,48}[A-Za-z0-9])?")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}=[ -~]{0,999}")


def size(least: int, most: int) -> Reader:
    """Bytes; K, M, G and T are powers of 1024, as Slurm has them."""

    def read(value: object) -> int:
        match = _SIZE.fullmatch(str(value)) if isinstance(value, (str, int)) else None
        number = int(match[1]) * _UNITS[match[2]] if match else -1
        if not least <= number <= most:
            raise ValueError(f"a size from {shown_size(least)} to {shown_size(most)}, such as {shown_size(least)}")
        return number

    return read


def shown_size(number: int) -> str:
    """The size in its largest whole unit."""
    whole = [unit for unit, worth in _UNITS.items() if number % worth == 0 and number >= worth]
    unit = whole[-1] if whole else ""
    return f"{number // _UNITS[unit]}{unit}"


def count(least: int, most: int) -> Reader:
    def read(value: object) -> int:
        # To Python, true is a number.
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return value

    return read


def seconds(least: float = 1, most: float = 3600) -> Reader:
    def read(value: object) -> float:
        if type(value) not in (int, float) or not least <= float(str(value)) <= most:
            raise ValueError(f"seconds, from {least:g} to {most:g}")
        return float(str(value))

    return read


def factor(least: float, most: float) -> Reader:
    def read(value: object) -> float:
        if type(value) not in (int, float) or not least <= float(str(value)) <= most:
            raise ValueError(f"a number from {least:g} to {most:g}")
        return float(str(value))

    return read


def choice(*known: str) -> Reader:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"one of {', '.join(known)}")
        return value

    return read


def choices(*known: str) -> Reader:
    """A list of some of these, each at most once."""

    def read(value: object) -> tuple[str, ...]:
        given = value if isinstance(value, list) else []
        if not given or any(one not in known for one in given) or len(set(given)) < len(given):
            raise ValueError(f"a list of one or more of {', '.join(known)}, each once")
        return tuple(given)

    return read


def _list(form: re.Pattern[str], right: str, fits: Callable[[str], bool] = bool) -> Reader:
    """Texts of this form, each once; it may be empty."""

    def read(value: object) -> tuple[str, ...]:
        given = value if isinstance(value, list) else [None]
        formed = all(isinstance(one, str) and form.fullmatch(one) and fits(one) for one in given)
        if not formed or len(set(given)) < len(given):
            raise ValueError(right)
        return tuple(given)

    return read


def names() -> Reader:
    """Users, groups or what else Slurm has names for."""
    # What YAML takes for a number may have been written otherwise: 007 is 7.
    return _list(_NAME, "a list of names, each once; [] for none, and a name of digits in quotes")


def devices(each: str) -> Reader:
    """Of character devices; `each` stands for a number in their names."""
    form = re.compile(rf"/dev(/[A-Za-z0-9_][A-Za-z0-9_.+{each}-]*)+")
    return _list(form, f"a list of devices below /dev, each once, such as [/dev/nvidia{each}]")


def cdi(each: str) -> Reader:
    """Names of devices by the Container Device Interface; `each` stands for a number in them."""
    form = re.compile(_CDI.format(each=each))
    return _list(form, f"a list of VENDOR/CLASS=NAME, each once, such as [nvidia.com/gpu={each}]")


def binds() -> Reader:
    return _list(_BIND, "a list of absolute paths, each once, as /SOURCE or /SOURCE:/TARGET, with :rw to be written to")


def assignments() -> Reader:
    """Variables of an environment."""
    return _list(_ASSIGNMENT, "a list of NAME=VALUE in ASCII, each once")


def gres() -> Reader:
    def read(value: object) -> str:
        if not isinstance(value, str) or not _GRES.fullmatch(value):
            raise ValueError("the name of a generic resource, as GresTypes= of slurm.conf has it")
        return value

    return read


def phrase() -> Reader:
    """Words for people."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not _PHRASE.fullmatch(value):
            raise ValueError("a few words in ASCII, at most 200 letters")
        return value

    return read


def absolute_path() -> Reader:
    """Plain enough to stand in a unit file, a mount table and a list of arguments."""

    def read(value: object) -> Path:
        if not isinstance(value, str) or not _PATH.fullmatch(value):
            raise ValueError("an absolute path of letters, digits and _ . + -, without .. or a / at its end")
        return Path(value)

    return read


def image() -> Reader:
    """With a tag: it is what says which one it is."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not _IMAGE.fullmatch(value):
            raise ValueError("the name of an image with its tag, such as kindest/node:v1.36.3")
        return value

    return read


def ports() -> Reader:
    def read(value: object) -> str:
        match = _PORTS.fullmatch(value) if isinstance(value, str) else None
        # Of a range of one port the kernel makes one of everybody's ports (seen on 6.18).
        if not match or not 0 < int(match[1]) < int(match[2]) < 1 << 16:
            raise ValueError("a range of ports, such as 600-1023")
        return match[0]

    return read


def host_rule() -> Reader:
    """For a resolver: what stands for the name of a node has to be in it."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not _HOST_RULE.fullmatch(value):
            raise ValueError("a name with {host} in it once, in quotes, such as '{host}-ib'")
        return value

    return read


def interface() -> Reader:
    def read(value: object) -> str:
        if not isinstance(value, str) or not _INTERFACE.fullmatch(value):
            raise ValueError("the name of a network interface, such as eth1")
        return value

    return read


def subnet() -> Reader:
    """Each node has a part of it."""

    def read(value: object) -> str:
        match = _SUBNET.fullmatch(value) if isinstance(value, str) else None
        if not match or not 0 < int(match[1]) < 224 or int(match[2]) > 255:
            raise ValueError("an IPv4 network of 16 bits, such as 10.89.0.0/16")
        return match[0]

    return read


def networks() -> Reader:
    return _list(_NETWORK, "a list of IPv4 networks, each once, such as [10.1.0.0/16]; [] for none", _is_network)


def addresses() -> Reader:
    return _list(_ADDRESS, "a list of IPv4 addresses, each once, such as [10.1.0.53]; [] for none", _is_network)


def network(shortest: int, longest: int) -> Reader:
    """With a prefix of so many bits."""

    def read(value: object) -> str:
        given = value if isinstance(value, str) and _NETWORK.fullmatch(value) and _is_network(value) else ""
        if given and shortest <= int(given.rpartition("/")[2]) <= longest:
            return given
        raise ValueError(f"an IPv4 network of {shortest} to {longest} bits, such as 100.96.0.0/16")

    return read


def _is_network(text: str) -> bool:
    # Only here: most configurations have none.
    from ipaddress import IPv4Network

    with suppress(ValueError):
        return bool(IPv4Network(text))
    return False


def overlap(one: str, other: str) -> bool:
    """Whether two networks have an address in common."""
    (first, bits), (second, further) = _numbers(one), _numbers(other)
    return not (first ^ second) >> 32 - min(bits, further)


def _numbers(network: str) -> tuple[int, int]:
    address, _, bits = network.partition("/")
    return int.from_bytes(bytes(map(int, address.split("."))), "big"), int(bits)


def images() -> Reader:
    return _list(_IMAGE, "a list of images with their tags, each once, such as [kindest/node:v1.35.4]; [] for none")


BYTES_PER_INODE: Final = 16384


def inodes(size: int) -> int:
    return size // BYTES_PER_INODE
