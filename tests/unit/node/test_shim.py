"""Whether the shim is there, and fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.node.shim import check, marker, release, stack


def shim(directory: Path, content: bytes) -> Path:
    path = directory / "moorage.so"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "built_for"),
    [
        (b"\x7fELF\0moorage-shim 24.11\0more", "24.11"),
        (b"moorage-shim 26.05\0", "26.05"),
        (b"moorage-shim 26.05", None),
        (b"moorage-shim 2605\0", None),
        (b"moorage-shim \0", None),
        (b"\x7fELF another plug-in\0", None),
        (b"", None),
    ],
)
def test_marker(tmp_path: Path, content: bytes, built_for: str | None) -> None:
    assert marker(shim(tmp_path, content)) == built_for


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("slurm-wlm 24.11.5\n", "24.11"),
        ("slurm 26.05.0-0rc1", "26.05"),
        ("24.11", "24.11"),
        ("slurm", None),
        ("", None),
        ("slurm 124.11.5", None),
    ],
)
def test_release(said: str, expected: str | None) -> None:
    assert release(said) == expected


class TestCheck:
    @pytest.mark.parametrize(
        "line", ["required {} moorage=/opt/moorage/bin/moorage", "optional\t{}", "\n # x\n required {} # y"]
    )
    def test_all_is_well(self, tmp_path: Path, line: str) -> None:
        path = shim(tmp_path, b"moorage-shim 24.11\0")
        assert check(f"optional /usr/lib/other.so\n{line.format(path)}\n", "slurm-wlm 24.11.5") is None

    @pytest.mark.parametrize(
        ("plugstack", "what", "remedy"),
        [
            ("", "plugstack.conf has no line for moorage.so", "add 'required PATH/moorage.so moorage=PATH/moorage'"),
            ("#required {}", "plugstack.conf has no line for moorage.so", "add 'required"),
            ("required {}.old", "plugstack.conf has no line for moorage.so", "add 'required"),
            ("required moorage.so", "plugstack.conf names the shim as moorage.so", "write its absolute path there"),
            ("required /no/moorage.so", "the shim /no/moorage.so is missing on this node", "build and install it"),
            ("required {}", "{} was built for Slurm 24.11 and this node runs 26.05", "build it again with the headers"),
        ],
    )
    def test_what_is_wrong(self, tmp_path: Path, plugstack: str, what: str, remedy: str) -> None:
        path = shim(tmp_path, b"moorage-shim 24.11\0")
        error = check(plugstack.format(path), "slurm 26.05.5")
        assert error is not None
        assert error.what == what.format(path)
        assert error.remedy.startswith(remedy)

    def test_another_file(self, tmp_path: Path) -> None:
        path = shim(tmp_path, b"")
        assert str(check(f"required {path}", "slurm 24.11.5")).startswith(f"{path} is not Moorage's shim: build")

    def test_another_slurm(self, tmp_path: Path) -> None:
        path = shim(tmp_path, b"moorage-shim 24.11\0")
        assert str(check(f"required {path}", "?")).startswith("the release of this node's Slurm is unknown: see")


class TestStack:
    def test_includes_are_followed(self, tmp_path: Path) -> None:
        (tmp_path / "stack.d").mkdir()
        (tmp_path / "stack.d" / "b.conf").write_text("required b.so\n")
        (tmp_path / "stack.d" / "a.conf").write_text(f"include {tmp_path}/last.conf # and so on\n")
        (tmp_path / "last.conf").write_text("optional last.so one  two\n")
        (tmp_path / "plugstack.conf").write_text(
            "# first\nrequired first.so\ninclude stack.d/*.conf\ninclude no/*.conf\n"
        )
        lines = [line for line in stack(tmp_path / "plugstack.conf").splitlines() if line]
        assert lines == ["required first.so", "optional last.so one two", "required b.so"]

    def test_no_file_no_plugins(self, tmp_path: Path) -> None:
        assert stack(tmp_path / "plugstack.conf") == ""

    def test_a_circle_ends(self, tmp_path: Path) -> None:
        (tmp_path / "plugstack.conf").write_text("include plugstack.conf\nrequired a.so\n")
        assert set(stack(tmp_path / "plugstack.conf").splitlines()) == {"required a.so"}
