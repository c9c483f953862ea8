"""The commands of a guide are found, and typed as they stand."""

from __future__ import annotations

import pytest

from moorage.common.command import CommandFailed, run
from virtual.guest import guide

GUIDE = """\
# A guide

Text.

## First steps

```bash
PYTHON=3.13
```

    ```bash lab node

```bash lab node
moorage doctor
moorage sweep
```

## Later
```text
fine
```
"""


def test_blocks_are_found_with_what_follows_the_fence() -> None:
    assert [(block.line, block.section, block.words, block.text) for block in guide.blocks(GUIDE)] == [
        (8, "First steps", ("bash",), "PYTHON=3.13\n"),
        (14, "First steps", ("bash", "lab", "node"), "moorage doctor\nmoorage sweep\n"),
        (20, "Later", ("text",), "fine\n"),
    ]


def test_only_what_is_marked_is_typed() -> None:
    assert [block.typed_by for block in guide.blocks(GUIDE)] == ["", "node", ""]
    assert [block.text for block in guide.steps(GUIDE)] == ["moorage doctor\nmoorage sweep\n"]


@pytest.mark.commands("env")
def test_a_block_ends_with_the_first_command_that_fails() -> None:
    block = guide.Block(1, "Later", ("bash", "lab", "node"), 'echo "$WHAT"\nfalse | true\necho never\n')
    with pytest.raises(CommandFailed) as failure:
        run(block.command({"WHAT": "first of all"}))
    assert failure.value.stdout == "first of all\n"
