"""Subordinate ids by a formula, for sites where no directory of users hands them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ansible.errors import AnsibleFilterError

SIZE = 65536
# systemd keeps 524288 to 1879048191 for containers of its own, and 2147352576 to 2147418111 for foreign files; above
# that there are programs that take an id for a negative number.
LOWEST_START = 1879048192
HIGHEST_END = 2147352576


def start(uid: int, lowest_uid: int, highest_id: int) -> int:
    """Where the range of this user begins: the first range above the site's ids, and one more for each uid."""
    first = max(LOWEST_START, -(-(highest_id + 1) // SIZE) * SIZE)
    found = first + SIZE * (uid - lowest_uid)
    if uid < lowest_uid:
        raise AnsibleFilterError(f"user id {uid} is below moorage_subids.lowest_uid, {lowest_uid}: make that smaller")
    if found + SIZE > HIGHEST_END:
        room = max(0, (HIGHEST_END - first) // SIZE)
        raise AnsibleFilterError(
            f"user id {uid} has no range: there is room for {room} from {lowest_uid} on;"
            " let a directory of users hand them out (FreeIPA, SSSD), or write /etc/subuid yourself"
        )
    return found


def lines(users: Mapping[str, Sequence[str]], lowest_uid: int, highest_id: int) -> list[str]:
    """The lines of /etc/subuid, and of /etc/subgid, by the formula; `users` is what getent says of each: x, uid, ..."""
    uids = {name: int(entry[1]) for name, entry in sorted(users.items())}
    return [f"{name}:{start(uid, lowest_uid, highest_id)}:{SIZE}" for name, uid in uids.items()]


def missing(
    files: Mapping[str, str], users: Mapping[str, Sequence[str]], lowest_uid: int, highest_id: int
) -> list[dict[str, str]]:
    """The lines for those who have none in a file, by its text; what is there stays, and nothing may meet it."""
    return [
        {"file": file, "line": line}
        for file, text in files.items()
        for line in _missing(file, text, users, lowest_uid, highest_id)
    ]


def _missing(file: str, text: str, users: Mapping[str, Sequence[str]], lowest_uid: int, highest_id: int) -> list[str]:
    there = list(_granted(text))
    owners = {owner for owner, _, _ in there}
    found = lines(
        {name: entry for name, entry in users.items() if not owners & {name, entry[1]}}, lowest_uid, highest_id
    )
    for name, begin, end in _granted("\n".join(found)):
        for owner, other_begin, other_end in there:
            if begin < other_end and other_begin < end:
                raise AnsibleFilterError(
                    f"{file}: the range of {name}, {begin} to {end - 1}, would meet that of {owner} at {other_begin}:"
                    " set moorage_subids.highest_id above it"
                )
    return found


def _granted(text: str) -> Iterator[tuple[str, int, int]]:
    for line in text.splitlines():
        match line.strip().split(":"):
            case [owner, begin, count] if begin.isdecimal() and count.isdecimal():
                yield owner, int(begin), int(begin) + int(count)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., object]]:
        return {"moorage_subids": lines, "moorage_missing_subids": missing}
