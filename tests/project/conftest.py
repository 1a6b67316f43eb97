"""A project that has run once, for tests that read it or copy it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from clickprism._util.resumable import EPOCH
from clickprism.project.create import init
from clickprism.project.run import Project, RunResult
from tests.project.worlds import TIME, add_day

TASTE = (1.5, 0.0, 0.0)


@dataclass(frozen=True)
class Ran:
    """A folder with `logs` and `shop`, and the first run of it."""

    folder: Path
    first: RunResult


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A project on two days of a shop, after its first run."""
    folder = tmp_path_factory.mktemp("project")
    add_day(folder / "logs", "a", TASTE, first_day=1)
    init(folder / "shop", f"{folder}/logs/*.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(EPOCH, TIME)
        return Ran(folder, Project(folder / "shop").run())


@pytest.fixture
def copied(ran: Ran, tmp_path: Path) -> Callable[[], Path]:
    """Return a function that copies the project to a folder of the test, with the times of its files."""

    def copy() -> Path:
        shutil.copytree(ran.folder, tmp_path / "copy", copy_function=shutil.copy2)
        return tmp_path / "copy"

    return copy
