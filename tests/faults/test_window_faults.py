"""Aggregates: the same for any arrival of the events, and after windows that were killed and run again.

CLICKPRISM_KILLS says at how many random moments a run is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from clickprism.log.ingest import ingest
from clickprism.log.store import LogStore
from tests.faults.children import aggregates, run_windows
from tests.faults.points import WINDOW_POINTS
from tests.log.raw_logs import impression, random_files, write_lines
from tests.waiting import LIMIT

KILLS = int(os.environ.get("CLICKPRISM_KILLS", "2"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return random_files(tmp_path_factory.mktemp("raw"), files=3, rows=120, seed=6)


@pytest.fixture(scope="module")
def untouched(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of events alone."""
    log = tmp_path_factory.mktemp("untouched") / "log"
    ingest(files, log, max_bad_ratio=1)
    return log


@pytest.fixture(scope="module")
def expected(untouched: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    found = aggregates(shutil.copytree(untouched, tmp_path_factory.mktemp("expected") / "log"))
    assert all(found)
    return found


def test_the_same_input_several_times_gives_the_same_snapshot(
    files: list[Path], expected: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    for _ in range(3):
        ingest(files, tmp_path / "log", max_bad_ratio=1)
    assert aggregates(tmp_path / "log") == expected


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_any_order_and_any_number_of_copies_give_the_same_snapshot(
    seed: int, files: list[Path], expected: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    """Lines in another order, some of them again, in other files, with windows made in between."""
    draw = random.Random(seed)
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    lines += draw.choices(lines, k=40)
    draw.shuffle(lines)
    for number in range(2):
        path = write_lines(tmp_path / f"{number}.jsonl", lines[number::2])
        ingest([path], tmp_path / "log", max_bad_ratio=1)
        found = aggregates(tmp_path / "log")
    assert found == expected


def test_windows_killed_at_every_commit_point_give_the_same_snapshot(
    killed: Callable[..., None], untouched: Path, expected: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    """Each run goes on where the one before was killed, until it is killed at the next point."""
    log = shutil.copytree(untouched, tmp_path / "log")
    for point in WINDOW_POINTS:
        killed(run_windows, str(log), fault=point)
        table, _, what = point.partition("-")
        assert bool(LogStore.open(log).table(table).files()) is (what == "committed")
    assert aggregates(log) == expected
    ingest([write_lines(tmp_path / "late.jsonl", [impression(999)])], log)
    assert aggregates(log) != expected


@pytest.mark.long
def test_windows_killed_at_random_moments_give_the_same_snapshot(
    forks: ForkServerContext, untouched: Path, expected: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    def start(log: Path) -> tuple[float, multiprocessing.process.BaseProcess]:
        process = forks.Process(target=run_windows, args=(str(log),))
        process.start()
        return time.monotonic(), process

    started, process = start(shutil.copytree(untouched, tmp_path / "whole"))
    process.join(LIMIT)
    whole, draw = time.monotonic() - started, random.Random(7)
    assert process.exitcode == 0
    for number in range(KILLS):
        log = shutil.copytree(untouched, tmp_path / f"log {number}")
        for _ in range(2):
            _, process = start(log)
            time.sleep(draw.uniform(0, whole))
            process.kill()
            process.join(LIMIT)
        assert aggregates(log) == expected
