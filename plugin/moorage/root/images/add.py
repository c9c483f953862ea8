"""Adds images to the store, from an archive, a directory, or a registry."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.common import node_image
from moorage.common.errors import UsageError, UserError
from moorage.root.images import catalog, opaque, storage_layers
from moorage.root.images.catalog import Image
from moorage.root.images.store import LONG, Store

# registry/path:tag or registry/path@digest, as strict as registries are.
NAME: Final = re.compile(
    r"[a-z0-9]+(?:[._-][a-z0-9]+)*(?::[0-9]+)?(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
LONGEST_NAME: Final = 512
LOGIN_LIMIT: Final = 120.0


@dataclass(frozen=True)
class Login:
    """The login to a registry: user name and password, or a file with them, and certificates of its authority."""

    user: str = ""
    password: str = ""
    file: Path | None = None
    certificates: Path | None = None


@dataclass(frozen=True)
class Source:
    """`kind` is file, directory or registry."""

    kind: str
    place: str

    @property
    def registry(self) -> str:
        return self.place.partition("/")[0]


def source(given: str) -> Source:
    """The source that SOURCE names. It is a path if it begins with /, ./ or ../, or if it exists."""
    path = Path(given)
    if given.startswith(("/", "./", "../")) or path.exists():
        if not path.exists():
            raise UserError(
                f"there is no {given}", "give the path of an archive or of an OCI directory", code="M-IMAGE-4"
            )
        return Source("directory" if path.is_dir() else "file", os.fspath(path.absolute()))
    place = given.removeprefix("docker://")
    first = place.partition("/")[0]
    if not is_name(place) or "/" not in place or not ("." in first or ":" in first or first == "localhost"):
        raise UsageError(
            f"{given[:200]!r} is neither a file nor a full name", "give REGISTRY/NAME:TAG, or a path", code="M-IMAGE-5"
        )
    return Source("registry", place)


def is_name(text: str) -> bool:
    return len(text) <= LONGEST_NAME and NAME.fullmatch(text) is not None


def add(
    store: Store,
    given: Source,
    *,
    name: str = "",
    replace: bool = False,
    login: Login | None = None,
    watch: Callable[[], None] | None = None,
) -> list[Image]:
    """Add the images of a source to the store, and return them. On failure nothing of them stays."""

    def watched() -> None:
        store.insist_on_room()
        if watch:
            watch()

    with undone(store) as before:
        said = _fetch(store, given, login or Login(), watched)
        watched()
        after = store.images()
        added = _added(said, after)
        for image in added:
            protect(store, image)
        if name:
            _rename(store, before, added, name)
        _insist_on_names(before, store.images(), replace)
    ids = {image.id for image in added}
    return [image for image in store.images() if image.id in ids]


@contextmanager
def undone(store: Store) -> Iterator[list[Image]]:
    """If the block fails, give names back to the images that had them, and remove new images."""
    before = store.images()
    try:
        yield before
    except BaseException:
        after = store.images()
        for name, owner in catalog.moved(before, after).items():
            store.podman("tag", owner, name)
        for image in catalog.new(before, after):
            store.podman("rmi", "--force", image.id)
        raise


def protect(store: Store, image: Image) -> None:
    """Mark opaque directories, so that users do not see what upper layers have removed."""
    for layer in storage_layers.chain(store.graph, image.id):
        opaque.mark(layer.files)


def _fetch(store: Store, given: Source, login: Login, watch: Callable[[], None]) -> str:
    if given.kind != "registry":
        return store.podman("load", "--quiet", "--input", given.place, limit=LONG, watch=watch)
    with store.workshop() as place:
        words = _credentials(store, given, login, place)
        return store.podman("pull", "--quiet", *words, given.place, limit=LONG, watch=watch)


def _credentials(store: Store, given: Source, login: Login, place: Path) -> list[str | Path]:
    """Options of `podman pull`. A password appears in no list of processes, and in no file that stays."""
    words: list[str | Path] = ["--tls-verify=true"]
    if login.certificates:
        words += ["--cert-dir", login.certificates]
    file = login.file
    if login.user:
        file = place / "login.json"
        words_in = [*words, "--authfile", file, "--username", login.user, "--password-stdin", given.registry]
        store.podman("login", *words_in, input=login.password, limit=LOGIN_LIMIT)
    return [*words, "--authfile", file] if file else words


def _added(said: str, images: list[Image]) -> list[Image]:
    """The images that Podman reports: `podman pull` prints ids, `podman load` "Loaded image: NAME" for each name."""
    words = [line.rpartition(" ")[2].removeprefix("sha256:") for line in said.split("\n") if line.strip()]
    found = {image.id: image for image in (catalog.find(images, word) for word in words)}
    if not found:
        raise UserError(
            "there is no image in it",
            "give an archive that `podman save` or `docker save` has written",
            code="M-IMAGE-6",
        )
    return list(found.values())


def _rename(store: Store, before: list[Image], added: list[Image], name: str) -> None:
    """Give the one added image this name. Names that the archive brought go back to their earlier images."""
    if len(added) != 1:
        raise UserError(
            f"there are {len(added)} images in it, which cannot have one name", "leave out --name", code="M-IMAGE-7"
        )
    owners = {old: image.id for image in before for old in image.names}
    store.podman("tag", added[0].id, name)
    for brought in set(added[0].names) - {node_image.full_names(name)[0]}:
        if brought in owners:
            store.podman("tag", owners[brought], brought)
        else:
            store.podman("untag", added[0].id, brought)


def _insist_on_names(before: list[Image], after: list[Image], replace: bool) -> None:
    if catalog.unnamed(catalog.new(before, after)):
        raise UserError("the image has no name of its own", "give it one with --name", code="M-IMAGE-8")
    for name, owner in catalog.moved(before, after).items():
        if not replace:
            what = f"{name} is another image here already ({owner[: catalog.SHOWN_ID]})"
            raise UserError(
                what, "remove that first, give this one another with --name, or say --replace", code="M-IMAGE-9"
            )
