"""A store of images, filled by a real Podman."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.root.images.store import Store
from support.engine import Engine, entered
from support.namespaces import MOUNT, fresh


@pytest.fixture
def engine() -> Iterator[Engine]:
    """Podman in a mount namespace of the test's own."""
    # Rootless users have to pass to what is in there.
    place = Path(tempfile.mkdtemp(prefix="moorage-images.", dir="/var/tmp"))
    place.chmod(0o755)
    try:
        with fresh(MOUNT):
            made = entered(place)
            if made is None:
                pytest.skip("needs Podman: install it, or make the lab's guests (make lab)")
            (place / "moorage.yaml").write_text(f"store: {{path: {place}/store, keep_free: 64M}}\n")
            (place / "files").mkdir()
            yield made
    finally:
        for left in place.parent.glob(f"{place.name}*"):
            shutil.rmtree(left)


@pytest.fixture
def files(engine: Engine) -> Path:
    """Where a test puts what it has made."""
    return engine.place / "files"


@pytest.fixture
def store(engine: Engine) -> Store:
    return Store(engine.place / "store")
