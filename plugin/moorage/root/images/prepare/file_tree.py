"""A tree of files made of the layers of an image, in memory.

A layer removes files of the layers below it by whiteouts (one name each) and by opaque directories (all names in them).
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from moorage.common.errors import MoorageError
from moorage.root.images.prepare import tar_entry
from moorage.root.images.prepare.tar_entry import Content, Entry
from moorage.root.images.tar_split import shown

WHITEOUT: Final = ".wh."
OPAQUE: Final = ".wh..wh..opq"
MOST_ENTRIES: Final = 1_000_000
# The entry of a directory that a layer needs but does not describe.
IMPLIED: Final = Entry()


@dataclass
class Tree:
    """A file or directory, and what is in it."""

    entry: Entry = IMPLIED
    children: dict[str, Tree] = field(default_factory=dict)
    # What this directory removes from the same directory in lower layers: these names, or all.
    whiteouts: set[str] = field(default_factory=set)
    opaque: bool = False

    def find(self, path: str) -> Tree | None:
        here: Tree | None = self
        for part in _parts(path):
            here = here.children.get(part) if here else None
        return here

    def directory(self, path: str) -> Tree:
        """The directory at this path, made if needed; it replaces anything else there."""
        here = self
        for part in _parts(path):
            there = here.children.get(part)
            if not there or not there.entry.is_directory:
                there = here.children[part] = Tree()
            here = there
        return here

    def put(self, path: str, what: Entry) -> Tree:
        """Put an entry at this path. A directory that is there already keeps its content."""
        *parents, name = _parts(path) or [""]
        if not name:
            self.entry = what
            return self
        parent = self.directory("/".join(parents))
        there = parent.children.get(name)
        if there and there.entry.is_directory and what.is_directory:
            there.entry = what
        else:
            there = parent.children[name] = Tree(what)
        return there

    def remove(self, path: str) -> Tree | None:
        *parents, name = _parts(path)
        parent = self.find("/".join(parents))
        return parent.children.pop(name, None) if parent else None

    def walk(self, path: str = "") -> Iterator[tuple[str, Tree]]:
        """Everything in this tree with its path, each directory before its content."""
        waiting = [(path, self)]
        while waiting:
            place, tree = waiting.pop()
            yield place, tree
            inner = sorted(tree.children.items(), reverse=True)
            waiting += [(f"{place}/{name}" if place else name, child) for name, child in inner]

    def removes(self) -> bool:
        """Whether this layer removes anything of the layers below it."""
        return any(tree.whiteouts or tree.opaque for _, tree in self.walk())


def layer(members: Iterable[tarfile.TarInfo], content: Callable[[tarfile.TarInfo, str], Content]) -> Tree:
    """The tree of one layer, with its whiteouts and opaque directories."""
    top = Tree()
    left = MOST_ENTRIES
    for member in members:
        left -= 1
        if not left:
            raise MoorageError(f"a layer has more than {MOST_ENTRIES} entries")
        path = tar_entry.path(member)
        parent, _, name = path.rpartition("/")
        if name == OPAQUE:
            top.directory(parent).opaque = True
        elif name.startswith(WHITEOUT):
            top.directory(parent).whiteouts.add(name.removeprefix(WHITEOUT))
        elif tar_entry.is_whiteout(member):
            top.directory(parent).whiteouts.add(name)
        elif member.islnk():
            top.put(path, _linked(top, member))
        elif found := tar_entry.parse(member, content(member, path)):
            there = top.put(path, found)
            there.opaque = there.opaque or tar_entry.is_opaque(member)
    return top


def applied(layer: Tree, below: Tree) -> Tree:
    """The tree `below` with a layer applied to it, as an overlay shows both. Neither is changed."""
    top = Tree()
    # Directories still to be merged: the new one, the layer's, and the one below it, if there is one.
    waiting: list[tuple[Tree, Tree, Tree | None]] = [(top, layer, below)]
    while waiting:
        merged, upper, lower = waiting.pop()
        merged.entry = lower.entry if lower and upper.entry is IMPLIED else upper.entry
        under = lower.children if lower and lower.entry.is_directory and not upper.opaque else {}
        merged.children = {name: child for name, child in under.items() if name not in upper.whiteouts}
        # A whiteout without a file below belongs to an overlay inside the image, and stays.
        merged.whiteouts, merged.opaque = upper.whiteouts - under.keys(), upper.opaque
        for name, child in upper.children.items():
            if child.entry.is_directory:
                there = merged.children.get(name)
                made = merged.children[name] = Tree()
                waiting.append((made, child, there if there and there.entry.is_directory else None))
            else:
                merged.children[name] = child
    return top


def _linked(top: Tree, member: tarfile.TarInfo) -> Entry:
    """The entry of a hard link: that of its target in the same layer, with the same content."""
    target = tarfile.TarInfo(member.linkname)
    there = top.find(tar_entry.path(target))
    if not there or there.entry.is_directory:
        raise MoorageError(f"{shown(member.name)} is a link to {shown(member.linkname)}, which its layer has not")
    return there.entry


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
