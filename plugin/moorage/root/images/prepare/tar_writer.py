"""Writes a tree of files as one layer."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from moorage.common.errors import MoorageError
from moorage.root.images.prepare.file_tree import Tree
from moorage.root.images.prepare.tar_entry import Content, Entry
from moorage.root.images.tar_split import shown

BLOCK: Final = 1 << 20


class Pack:
    """A tar file that is being written. A file with several names is written once."""

    def __init__(self, file: _Counted) -> None:
        self._file = file
        self._tar = tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT, errors="surrogateescape")  # type: ignore[call-overload]  # noqa: SIM115
        self._names: dict[Content, str] = {}
        self.digest = ""
        self.size = 0

    def add(self, tree: Tree, place: str = "") -> tuple[int, int]:
        """Write a tree below `place`; the numbers of entries and bytes."""
        entries = size = 0
        for path, part in tree.walk(place):
            if path:
                size += self._entry(path, part.entry)
                entries += 1
        return entries, size

    def finish(self) -> None:
        self._tar.close()
        self.digest, self.size = self._file.digest, self._file.size

    def _entry(self, path: str, entry: Entry) -> int:
        if not entry.content:
            self._tar.addfile(entry.header(path))
            return 0
        earlier = self._names.get(entry.content)
        if earlier is not None:
            self._tar.addfile(replace(entry, kind=tarfile.LNKTYPE, target=earlier, size=0).header(path))
            return entry.size
        with entry.content.opened() as content:
            try:
                self._tar.addfile(entry.header(path), content)
            except OSError as error:
                if error.errno is not None:
                    raise
                raise MoorageError(f"{shown(path)} is shorter than its layer says") from error
        self._names[entry.content] = path
        return entry.size


class _Counted:
    """A file to write to, with the digest and the size of what was written."""

    def __init__(self, file: IO[bytes], watch: Callable[[], None]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._watch = watch
        self.size = 0

    def write(self, data: Any) -> int:  # noqa: ANN401
        before = self.size // BLOCK
        self.size += len(data)
        self._hash.update(data)
        if self.size // BLOCK != before:
            self._watch()
        return self._file.write(data)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def packed(target: Path, watch: Callable[[], None]) -> Iterator[Pack]:
    """Write a layer to `target`. `watch` is called after each MiB."""
    with target.open("xb") as file:
        pack = Pack(_Counted(file, watch))
        yield pack
        pack.finish()
