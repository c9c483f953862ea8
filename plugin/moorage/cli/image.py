"""`moorage image`: the images that jobs on this node start from."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from moorage.cli.manual import AS_ROOT, DONE, WRONG_WORDS, Manual, Parser
from moorage.cli.output import as_json
from moorage.common.errors import FAILED, UsageError, UserError
from moorage.common.progress import Progress, size
from moorage.node.config.load import load
from moorage.root.images import add as adding
from moorage.root.images import catalog
from moorage.root.images import remove as removing
from moorage.root.images import verify as verification
from moorage.root.images.add import Login
from moorage.root.images.catalog import SHOWN_ID, Image
from moorage.root.images.prepare import prepare as preparing
from moorage.root.images.store import Store

Act = Callable[[Store, argparse.Namespace, Progress], int]
NAME: Final = "registry.example/kindest/node:v1.35.0"
ABOUT: Final = """\
Manage the images that jobs on this node start from.

The store belongs to root. Jobs see it read-only, and start containers from it without copying it. A cluster needs an
image for its nodes, such as those that kind publishes: add it, then prepare it."""
EXAMPLES: Final = (
    (f"moorage image add {NAME}", "add an image from a registry, over TLS"),
    ("moorage image add /tmp/node-image.tar", "add what `podman save` or `docker save` has written"),
    (f"moorage image prepare {NAME}", "make its clusters start faster"),
    ("moorage image list", "show what the store has"),
)
ADD: Final = Manual(
    "Put an image into the store.\n\nEvery digest is checked while the image is written; a wrong one leaves nothing.",
    examples=(
        *EXAMPLES[:2],
        (f"moorage image add --user robot --password-stdin {NAME} < password", "log in to the registry"),
    ),
)
LIST: Final = Manual(
    "Show the images of the store: name, id, size, date, and whether the image is prepared.",
    examples=(("moorage image list", "one line for each name"), ("moorage image list --json", "for programs")),
)
REMOVE: Final = Manual(
    """\
Remove images. Their names go at once; their files go once no job sees the store.

Without IMAGE it removes the files of images that were removed earlier and that no job sees any more.""",
    examples=((f"moorage image remove {NAME}", "no new job starts from this image"),),
)
PREPARE: Final = Manual(
    """\
Make clusters of a node image start faster. The image keeps its name.

A published node image has the images of Kubernetes in it as archives, and each cluster would copy and unpack them. In
a prepared image they are unpacked, and every cluster on this node uses these very files. No program of the image is
run: root reads its files, and writes them again as one layer.""",
    examples=((f"moorage image prepare {NAME}", "replace the image by the prepared one"),),
)
VERIFY: Final = Manual(
    "Read every byte of the images, and compare it with their digests.",
    examples=(("moorage image verify", "check all images of the store"),),
    codes=(DONE, (FAILED, "an image differs; its line says how"), WRONG_WORDS),
)


def main(words: Sequence[str]) -> int:
    arguments = parser().read(words)
    if os.geteuid() != 0:
        raise UserError("the image store belongs to root", "run it with sudo", code="M-IMAGE-1")
    os.umask(0o077)
    store, progress = Store.configured(load().store), Progress(sys.stderr)
    if arguments.act is _list and not store.lock.exists():
        # A look at the store does not make it.
        return _listed([], {}, arguments, progress)
    with store.locked():
        code: int = arguments.act(store, arguments, progress)
    return code


def parser() -> Parser:
    made = Parser(prog="moorage image", manual=Manual(ABOUT, AS_ROOT, EXAMPLES))
    add = _verb(made, "add", _add, "put an image into the store", ADD)
    add.add_argument("source", metavar="SOURCE", help="an archive, an OCI directory, or REGISTRY/NAME:TAG")
    add.add_argument("--name", metavar="NAME", type=_name, help="name the image so, whatever the archive says")
    add.add_argument("--replace", action="store_true", help="take over the name of an image that is in the store")
    add.add_argument("--user", metavar="USER", default="", help="log in to the registry as this user")
    add.add_argument("--password-stdin", action="store_true", help="read that user's password from standard input")
    add.add_argument("--authfile", metavar="FILE", type=Path, help="log in with this file of `podman login`")
    add.add_argument("--cert-dir", metavar="DIR", type=Path, help="trust the authority in DIR/ca.crt")
    listing = _verb(made, "list", _list, "show what the store has", LIST)
    listing.add_argument("--json", action="store_true", help="print {schema, images: [{id, names, size, ...}]}")
    remove = _verb(made, "remove", _remove, "remove images", REMOVE)
    remove.add_argument("image", metavar="IMAGE", nargs="*", help="a name, or an id of 6 or more digits")
    prepare = _verb(made, "prepare", _prepare, "make clusters of a node image start faster", PREPARE)
    prepare.add_argument("image", metavar="IMAGE", help="a name, or an id of 6 or more digits")
    prepare.add_argument("--name", metavar="NAME", type=_name, help="name the result so, and keep IMAGE as it is")
    verify = _verb(made, "verify", _verify, "check that images are unchanged", VERIFY)
    verify.add_argument("image", metavar="IMAGE", nargs="*", help="a name or an id; all images, if none is given")
    return made


def _add(store: Store, arguments: argparse.Namespace, progress: Progress) -> int:
    source = adding.source(arguments.source)
    if bool(arguments.user) != arguments.password_stdin:
        raise UsageError(
            "a user name goes with a password", "give both --user and --password-stdin, or neither", code="M-IMAGE-2"
        )
    if source.kind != "registry" and (arguments.user or arguments.authfile or arguments.cert_dir):
        raise UsageError(
            f"{arguments.source} is no registry to log in to", "leave out the options for that", code="M-IMAGE-3"
        )
    password = sys.stdin.readline().rstrip("\n") if arguments.user else ""
    login = Login(arguments.user, password, arguments.authfile, arguments.cert_dir)
    progress.phase(f"adding {arguments.source}")
    added = adding.add(
        store, source, name=arguments.name or "", replace=arguments.replace, login=login, watch=progress.tick
    )
    for image in added:
        progress.say(f"added {image.label} ({size(image.size)}) in {progress.elapsed:.1f} s")
    _sweep(store, progress)
    return 0


def _list(store: Store, arguments: argparse.Namespace, progress: Progress) -> int:
    return _listed(store.images(), preparing.records(store), arguments, progress)


def _listed(
    there: Sequence[Image], prepared: Mapping[str, object], arguments: argparse.Namespace, progress: Progress
) -> int:
    images = sorted(there, key=lambda image: (not image.names, image.names))
    if arguments.json:
        print(as_json(images=[asdict(image) | {"prepared": prepared.get(image.id)} for image in images]))
        return 0
    for image in images:
        kind = "prepared" if image.id in prepared else "as it came"
        day = time.strftime("%Y-%m-%d", time.gmtime(image.created))
        for name in image.names or ("(being removed)",):
            print(f"{name}  {image.id[:SHOWN_ID]}  {size(image.size)}  {day}  {kind}")
    if not images:
        progress.say("the store is empty: `moorage help image add` says how to fill it")
    return 0


def _remove(store: Store, arguments: argparse.Namespace, progress: Progress) -> int:
    there = store.images()
    for image in [catalog.find(there, wanted) for wanted in arguments.image]:
        removing.unname(store, image)
        progress.say(f"{image.label} can no longer be started")
    _sweep(store, progress)
    return 0


def _prepare(store: Store, arguments: argparse.Namespace, progress: Progress) -> int:
    image = catalog.find(store.images(), arguments.image)
    done = preparing.prepare(store, image, arguments.name or "", progress)
    progress.say(f"prepared {done.label} in {progress.elapsed:.1f} s: {preparing.records(store)[done.id]['summary']}")
    _sweep(store, progress)
    return 0


def _verify(store: Store, arguments: argparse.Namespace, progress: Progress) -> int:
    there = store.images()
    wanted = [catalog.find(there, name) for name in arguments.image] or there
    code = 0
    for image in wanted:
        progress.phase(f"reading {image.label} ({size(verification.size(store.graph, image))})")
        problems = list(verification.verify(store.graph, image, lambda _: progress.tick()))
        for problem in problems:
            print(f"{image.label}: {problem}: remove it, and add it again")
            code = FAILED
        if not problems:
            progress.say(f"{image.label} is unchanged")
    return code


def _sweep(store: Store, progress: Progress) -> None:
    waiting = removing.sweep(store)
    if waiting.images:
        jobs = ", ".join(map(str, waiting.jobs))
        progress.say(f"{size(waiting.size)} of removed images stay until no job uses the store (now: {jobs})")


def _name(text: str) -> str:
    if not adding.is_name(text):
        raise argparse.ArgumentTypeError(f"{text[:200]!r} is not the name of an image, such as localhost/node:v1")
    return text


def _verb(parser: Parser, name: str, act: Act, summary: str, manual: Manual) -> Parser:
    made = parser.verb(name, summary, manual)
    made.set_defaults(act=act)
    return made
