"""moorage image: the images that jobs on this node start from."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, TypeAlias

from moorage.common.errors import FAILED, UsageError, UserError
from moorage.common.progress import Progress, size
from moorage.node.config.load import load
from moorage.root.images import add as adding
from moorage.root.images import catalog
from moorage.root.images import remove as removing
from moorage.root.images import verify as verification
from moorage.root.images.add import Login
from moorage.root.images.catalog import SHOWN_ID
from moorage.root.images.prepare import prepare as preparing
from moorage.root.images.store import Store

Act = Callable[[Store, argparse.Namespace, Progress], int]
Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
AS_WRITTEN: Final = argparse.RawDescriptionHelpFormatter
ABOUT: Final = """\
Keep the images that jobs on this node start from.

The store belongs to root. Jobs see it read-only, and start containers from it without copying it. A cluster needs an
image for its nodes, such as those that kind publishes: add it, then prepare it.

    moorage image add registry.example/kindest/node:v1.35.0     from a registry, over TLS
    moorage image add /tmp/node-image.tar                       what `podman save` or `docker save` has written
    moorage image prepare registry.example/kindest/node:v1.35.0
    moorage image list
"""
PREPARE: Final = """\
Make clusters of a node image start faster, and keep its name.

A published node image brings the images of Kubernetes along packed. Each cluster would copy and unpack them. Prepared,
they lie in it unpacked, and every cluster on this node uses these very files. No program of the image is run for that;
its files are read by root, and written anew as one layer.
"""
LOGIN: Final = """\
The password is read from standard input with --password-stdin:

    moorage image add --user robot --password-stdin registry.example/kindest/node:v1.35.0 < password

Every digest is checked while the image is written; one that is wrong leaves nothing in the store.
"""


def main(words: Sequence[str]) -> int:
    arguments = parser().parse_args(words)
    if os.geteuid() != 0:
        raise UserError("the store of images is root's", "run it with sudo")
    os.umask(0o077)
    store = Store.configured(load().store)
    with store.locked():
        code: int = arguments.act(store, arguments, Progress(sys.stderr))
    return code


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="moorage image", description=ABOUT, formatter_class=AS_WRITTEN)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    add = _verb(verbs, "add", _add, "put an image into the store", LOGIN)
    add.add_argument("source", metavar="SOURCE", help="an archive, an OCI directory, or REGISTRY/NAME:TAG")
    add.add_argument("--name", type=_name, help="call it so, and not as the archive does")
    add.add_argument("--replace", action="store_true", help="let it take the name of an image that is there")
    add.add_argument("--user", default="", help="log in to the registry as this user")
    add.add_argument("--password-stdin", action="store_true", help="with this password")
    add.add_argument("--authfile", type=Path, help="or as this file says, which `podman login` has written")
    add.add_argument("--cert-dir", type=Path, help="a directory with the registry's own authority (ca.crt)")
    listing = _verb(verbs, "list", _list, "show what the store has", "Show the images of the store.")
    listing.add_argument("--json", action="store_true", help="print a list of objects")
    what = "Remove images: their names at once, their files once no job sees the store."
    remove = _verb(verbs, "remove", _remove, "remove images, or without names what is left of removed ones", what)
    remove.add_argument("image", metavar="IMAGE", nargs="*", help="a name, or an id of 6 or more digits")
    prepare = _verb(verbs, "prepare", _prepare, "make clusters of a node image start faster", PREPARE)
    prepare.add_argument("image", metavar="IMAGE", help="a name, or an id of 6 or more digits")
    prepare.add_argument("--name", type=_name, help="call the prepared one so, and keep the other as it is")
    what = "Read every byte of the images, and compare with their digests. Ends with 1 if something is wrong."
    verify = _verb(verbs, "verify", _verify, "look whether images are what they were", what)
    verify.add_argument("image", metavar="IMAGE", nargs="*", help="a name or an id; all, if none is given")
    return parser


def _add(store: Store, arguments: argparse.Namespace, progress: Progress) -> int:
    source = adding.source(arguments.source)
    if bool(arguments.user) != arguments.password_stdin:
        raise UsageError("a user name goes with a password", "give both --user and --password-stdin, or neither")
    if source.kind != "registry" and (arguments.user or arguments.authfile or arguments.cert_dir):
        raise UsageError(f"{arguments.source} is no registry to log in to", "leave out the options for that")
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
    prepared = preparing.records(store)
    images = sorted(store.images(), key=lambda image: (not image.names, image.names))
    if arguments.json:
        print(json.dumps([asdict(image) | {"prepared": prepared.get(image.id)} for image in images]))
        return 0
    for image in images:
        kind = "prepared" if image.id in prepared else "as it came"
        day = time.strftime("%Y-%m-%d", time.gmtime(image.created))
        for name in image.names or ("(being removed)",):
            print(f"{name}  {image.id[:SHOWN_ID]}  {size(image.size)}  {day}  {kind}")
    if not images:
        progress.say("the store is empty: `moorage image add --help` says how to fill it")
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
            progress.say(f"{image.label} is what it was")
    return code


def _sweep(store: Store, progress: Progress) -> None:
    waiting = removing.sweep(store)
    if waiting.images:
        jobs = ", ".join(map(str, waiting.jobs))
        progress.say(f"{size(waiting.size)} of removed images stay until no job uses the store (now: {jobs})")


def _name(text: str) -> str:
    if not adding.is_name(text):
        raise argparse.ArgumentTypeError(f"{text[:200]!r} is no name of an image, such as localhost/node:v1")
    return text


def _verb(verbs: Verbs, name: str, act: Act, help: str, description: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=help, description=description, formatter_class=AS_WRITTEN)
    parser.set_defaults(act=act)
    return parser
