"""What `moorage load` starts, shows, and ends with."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.cli import load
from moorage.common import job
from moorage.common.errors import UserError
from moorage.common.progress import Progress
from support.described import described

FIELDS = described(spec={"cluster": "kind"})
SEVERAL = {"nodes": 2, "place": 1, "fabric": {"subnet": "10.89.0.0/16", "mtu": 1450, "hardware_address": "0a:"}}
# It tells how it was called, and what it was given.
PROGRAM = """\
#!/bin/sh
{{ printf '%s\\n' "$0 $*"; printf '%s\\n' "$XDG_RUNTIME_DIR"; cat; }} >{seen}
printf 'unpacking: 1\\n2\\n3\\n4\\n5\\nctr: no such file\\n' >&2
{ends}
"""

pytestmark = pytest.mark.commands("podman", "srun")


@pytest.fixture(autouse=True)
def stdin() -> Iterator[None]:
    kept = os.dup(0)
    yield
    os.dup2(kept, 0)
    os.close(kept)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run directory of a job with a cluster, whose podman and srun load an archive."""
    monkeypatch.setattr(job, "RUN", tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    for name in ("SLURM_STEP_NUM_NODES", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    run = tmp_path / "17"
    (run / "user").mkdir(parents=True)
    (run / "user/kubeconfig").touch()
    (run / "bin").mkdir()
    (tmp_path / "image.tar").write_bytes(b"an image")
    describe(run)
    program(run / "bin/podman")
    program(tmp_path / "srun")
    return run


def describe(run: Path, **more: object) -> None:
    (run / "job.json").write_text(json.dumps(FIELDS | more))


def several(run: Path) -> None:
    fabric = {**SEVERAL["fabric"], "hosts": ["n1", "n2"]}  # type: ignore[dict-item]
    describe(run, **{**SEVERAL, "fabric": fabric}, srun=str(run.parent / "srun"))


def program(path: Path, ends: str = "exit 0") -> None:
    path.write_text(PROGRAM.format(seen=path.with_suffix(".seen"), ends=ends))
    path.chmod(0o755)


def seen(path: Path) -> list[str]:
    return path.with_suffix(".seen").read_text().splitlines()


def test_the_archive_goes_into_the_node(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert load.main([str(run.parent / "image.tar")]) == 0
    called, directory, given = seen(run / "bin/podman")
    assert called == " ".join([f"{run}/bin/podman", "exec --interactive moorage-17-control-plane", *load.IMPORT])
    assert (directory, given) == (f"{run}/user", "an image")
    first, last = capfd.readouterr().err.splitlines()
    assert first.endswith("loading image.tar")
    assert last.startswith("moorage: loaded image.tar in ")


@pytest.mark.parametrize(("ends", "code"), [("exit 3", 3), ("kill -TERM $$", 143)])
def test_what_the_import_says_is_shown_if_it_fails(
    run: Path, ends: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    program(run / "bin/podman", ends)
    assert load.main([str(run.parent / "image.tar")]) == code
    assert capfd.readouterr().err.splitlines()[1:] == ["2", "3", "4", "5", "ctr: no such file"]


def test_an_archive_that_comes_in(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"from a pipe")
    os.close(writer)
    os.dup2(reader, 0)
    os.close(reader)
    assert load.main(["-"]) == 0
    assert seen(run / "bin/podman")[-1] == "from a pipe"
    assert "loaded what standard input has in" in capfd.readouterr().err


def test_on_several_nodes_every_one_gets_it(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    several(run)
    archive = str(run.parent / "image.tar")
    assert load.main([archive]) == 0
    called, _, given = seen(run.parent / "srun")
    assert {"--nodelist=n1,n2", "--ntasks=2", "--ntasks-per-node=1", "--input=all", "--overlap"} <= {*called.split()}
    assert called.endswith("moorage load --here -")
    assert given == "an image"
    assert "moorage: loaded image.tar" in capfd.readouterr().err
    assert load.main(["--here", archive]) == 0
    assert " exec --interactive moorage-17-worker1 " in seen(run / "bin/podman")[0]
    # The node where the command was typed tells how it goes.
    assert capfd.readouterr().err == ""
    (run / "bin/podman.seen").unlink()
    monkeypatch.setenv("SLURM_STEP_NUM_NODES", "2")
    assert load.main([archive]) == 0
    assert " exec --interactive moorage-17-worker1 " in seen(run / "bin/podman")[0]


def test_a_terminal_shows_how_much_is_read(run: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    # It leaves its input alone, so that there is something to show whenever it is looked at.
    (run / "bin/podman").write_text("#!/bin/sh\nexit 0\n")
    screen = Terminal()
    with (run.parent / "image.tar").open("rb") as archive:
        os.dup2(archive.fileno(), 0)
    os.lseek(0, 3, os.SEEK_SET)
    assert load.followed([str(run / "bin/podman")], {}, Path("image.tar"), Progress(screen)) == 0
    assert re.search(r"loading image\.tar: \d bytes of 8 bytes", screen.getvalue())


def test_no_archive(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no\.tar cannot be read \(No such file"):
        load.main([str(tmp_path / "no.tar")])
