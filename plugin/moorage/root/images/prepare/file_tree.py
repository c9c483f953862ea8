"""A tree of files made of layers, one over the other; nothing of it is on disk."""

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
# Directories that a layer implies but does not describe.
IMPLIED: Final = Entry()


@dataclass
class Tree:
    """A file or directory, and what is in it."""

    entry: Entry = IMPLIED
    children: dict[str, Tree] = field(default_factory=dict)
    # What an upper layer removes of those below: some names, or all.
    gone: set[str] = field(default_factory=set)
    hides: bool = False

    def find(self, path: str) -> Tree | None:
        here: Tree | None = self
        for part in _parts(path):
            here = here.children.get(part) if here else None
        return here

    def directory(self, path: str) -> Tree:
        """The directory there; it takes the place of anything else."""
        here = self
        for part in _parts(path):
            there = here.children.get(part)
            if not there or not there.entry.is_directory:
                there = here.children[part] = Tree()
            here = there
        return here

    def put(self, path: str, what: Entry) -> Tree:
        """A directory that is there keeps what is in it."""
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
        """Everything in it with its path, each directory before what is in it."""
        waiting = [(path, self)]
        while waiting:
            place, tree = waiting.pop()
            yield place, tree
            inner = sorted(tree.children.items(), reverse=True)
            waiting += [(f"{place}/{name}" if place else name, child) for name, child in inner]

    def removes(self) -> bool:
        """Whether it means anything only with the layers below it."""
        return any(tree.gone or tree.hides for _, tree in self.walk())


def layer(members: Iterable[tarfile.TarInfo], content: Callable[[tarfile.TarInfo, str], Content]) -> Tree:
    """One layer; what it removes is in `gone`, and directories that hide others say so."""
    top = Tree()
    left = MOST_ENTRIES
    for member in members:
        left -= 1
        if not left:
            raise MoorageError(f"a layer has more than {MOST_ENTRIES} entries")
        path = tar_entry.path(member)
        parent, _, name = path.rpartition("/")
        if name == OPAQUE:
            top.directory(parent).hides = True
        elif name.startswith(WHITEOUT):
            top.directory(parent).gone.add(name.removeprefix(WHITEOUT))
        elif tar_entry.is_whiteout(member):
            top.directory(parent).gone.add(name)
        elif member.islnk():
            top.put(path, _linked(top, member))
        elif found := tar_entry.parse(member, content(member, path)):
            there = top.put(path, found)
            there.hides = there.hides or tar_entry.hides(member)
    return top


def over(lower: Tree, upper: Tree) -> Tree:
    """Both as one, as an overlay shows them; neither is changed."""
    top = Tree()
    waiting: list[tuple[Tree, Tree | None, Tree]] = [(top, lower, upper)]
    while waiting:
        target, below, above = waiting.pop()
        target.entry = above.entry if above.entry is not IMPLIED or below is None else below.entry
        visible = below.children if below and below.entry.is_directory and not above.hides else {}
        for name, child in visible.items():
            if name not in above.gone and name not in above.children:
                target.children[name] = child
        # A whiteout that removes nothing below is one that an inner overlay has left.
        target.gone, target.hides = {name for name in above.gone if name not in visible}, above.hides
        for name, child in above.children.items():
            if child.entry.is_directory:
                made = target.children[name] = Tree()
                there = visible.get(name) if name not in above.gone else None
                waiting.append((made, there if there and there.entry.is_directory else None, child))
            else:
                target.children[name] = child
    return top


def _linked(top: Tree, member: tarfile.TarInfo) -> Entry:
    """A further name of a file of the same layer: the same content says so."""
    target = tarfile.TarInfo(member.linkname)
    there = top.find(tar_entry.path(target))
    if not there or there.entry.is_directory:
        raise MoorageError(f"{shown(member.name)} is a link to {shown(member.linkname)}, which its layer has not")
    return there.entry


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
