"""Ingests that are killed, and two at once: after a rerun the log is that of an undisturbed run.

CLICKPRISM_KILLS says at how many random moments a run is killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from clickprism.errors import DataError
from clickprism.log.engines.base import connect
from clickprism.log.forget import forget
from clickprism.log.ingest import ingest
from clickprism.log.read import SourceSettings
from clickprism.log.store import LogStore
from tests.faults.children import forget_user, run
from tests.faults.points import INGEST_POINTS
from tests.log.raw_logs import BROKEN, broken, everything, impression, ledger, random_files, stored, write_lines
from tests.log.scanning import files_with
from tests.waiting import LIMIT

KILLS = int(os.environ.get("CLICKPRISM_KILLS", "2"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("raw")
    return [str(path) for path in random_files(folder, files=3, rows=120, seed=5)]


@pytest.fixture(scope="module")
def undisturbed(files: list[str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    log = tmp_path_factory.mktemp("undisturbed") / "log"
    ingest(files, log, max_bad_ratio=1)
    return everything(log)


def start(forks: ForkServerContext, *args: Any, **options: Any) -> ForkServerProcess:
    process = forks.Process(target=run, args=args, kwargs=options)
    process.start()
    return process


@pytest.mark.parametrize("point", INGEST_POINTS)
def test_an_ingest_killed_at_a_commit_point_is_finished_by_the_next(
    point: str, killed: Callable[..., None], files: list[str], undisturbed: Any, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    killed(run, files, str(log), fault=point)
    plan = ingest(files, log, max_bad_ratio=1, dry_run=True)
    account = ingest(files, log, max_bad_ratio=1)
    assert replace(plan, seconds=0.0, dry_run=False) == replace(account, seconds=0.0)
    assert everything(log) == undisturbed
    if point != "files-committed":
        assert (account.files, account.rows_in) == (3, 120)
    assert not list((log / "staging").iterdir())


def shift_clock(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    before = SourceSettings.last_time.fget  # type: ignore[attr-defined]
    moved = property(lambda self: before(self) + timedelta(hours=0 if self.latest else hours))
    monkeypatch.setattr(SourceSettings, "last_time", moved)


@pytest.mark.parametrize("point", ["quarantine-committed", "events-committed"])
def test_an_ingest_resumed_later_judges_times_as_the_first_run_did(
    point: str, killed: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=36)).isoformat()
    path = write_lines(tmp_path / "a.jsonl", [impression(1), impression(2), impression(3, time=soon)])
    log = tmp_path / "log"
    killed(run, [str(path)], str(log), fault=point)
    shift_clock(monkeypatch, 24)
    account = ingest([path], log, max_bad_ratio=1)
    assert (account.rows_in, account.accepted, account.quarantined) == (3, 2, {"time-late": 1})
    assert [day.isoformat() for day in account.days] == ["2026-03-01"]
    assert (len(stored(log)), len(broken(log))) == (2, 1)
    assert ledger(log)[0][2:] == ("auto", 3, 2, 0, 1, 0)


def test_a_file_that_reads_differently_after_a_crash_is_refused(
    killed: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=12)).isoformat()
    path, log = write_lines(tmp_path / "a.jsonl", [impression(1), impression(2, time=soon)]), tmp_path / "log"
    killed(run, [str(path)], str(log), fault="events-committed")
    with monkeypatch.context() as patch:
        shift_clock(patch, -24)
        with pytest.raises(DataError, match=r"a run that did not end found 0 broken rows, this one 1\. Run the same"):
            ingest([path], log, max_bad_ratio=1)
    assert ingest([path], log).accepted == 2
    assert (len(stored(log)), broken(log)) == (2, [])


@pytest.mark.long
def test_an_ingest_killed_at_random_moments_loses_nothing(
    forks: ForkServerContext, files: list[str], undisturbed: Any, tmp_path: Path
) -> None:
    started = time.monotonic()
    process = start(forks, files, str(tmp_path / "whole"))
    process.join(LIMIT)
    whole = time.monotonic() - started
    assert process.exitcode == 0
    rng = random.Random(7)
    for number in range(KILLS):
        log = tmp_path / f"log {number}"
        for some in (files[:2], files):
            process = start(forks, some, str(log), many=1)
            time.sleep(rng.uniform(0, whole))
            process.kill()
            process.join(LIMIT)
        ingest(files, log, max_bad_ratio=1, many=1)
        assert everything(log) == undisturbed


def test_two_ingests_of_the_same_files_at_once_read_each_file_once(
    forks: ForkServerContext, files: list[str], undisturbed: Any, tmp_path: Path
) -> None:
    log, outs = tmp_path / "log", [tmp_path / "a.json", tmp_path / "b.json"]
    processes = [start(forks, files, str(log), out=str(out)) for out in outs]
    for process in processes:
        process.join(LIMIT)
        assert process.exitcode == 0
    accounts = [json.loads(out.read_text(encoding="utf-8")) for out in outs]
    assert sum(account["rows_in"] for account in accounts) == 120
    assert sum(account["files"] for account in accounts) == 3
    assert sum(account["known"] for account in accounts) == 3
    assert everything(log) == undisturbed


def test_two_ingests_of_overlapping_files_at_once_lose_nothing(
    forks: ForkServerContext, files: list[str], undisturbed: Any, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    processes = [start(forks, part, str(log)) for part in (files[:2], files[1:][::-1])]
    for process in processes:
        process.join(LIMIT)
        assert process.exitcode == 0
    assert (stored(log), broken(log)) == undisturbed[:2]
    totals = [[sum(row[i] for row in rows) for i in (3, 4, 5, 6)] for rows in (ledger(log), undisturbed[2])]
    assert totals[0] == totals[1]


@pytest.mark.parametrize("writers", [4, pytest.param(32, marks=pytest.mark.long)])
def test_many_writers_against_compaction_and_erasure_store_each_row_once(
    forks: ForkServerContext, tmp_path: Path, writers: int
) -> None:
    """Every fourth writer is killed after one of its commits; an erasure runs among them, and each merges files."""
    points = ("quarantine-committed", "events-committed", "compact-committed")
    log, files = tmp_path / "log", []
    for number in range(writers):
        rows = [impression(4 * number + row, user_id="gone" if row == 3 else f"u{row}") for row in range(4)]
        files.append(str(write_lines(tmp_path / f"{number}.jsonl", [*rows, BROKEN])))
    ingest([files[0]], log, max_bad_ratio=1)
    processes = [
        start(forks, [file], str(log), many=1, fault=points[number % 3] if number % 4 == 3 else "")
        for number, file in enumerate(files[1:])
    ]
    eraser = forks.Process(target=forget_user, args=(str(log), "gone", ""))
    eraser.start()
    for process in [*processes, eraser]:
        process.join(LIMIT)
        assert process.exitcode in (0, -signal.SIGKILL)
    ingest(files, log, max_bad_ratio=1, many=1)
    with connect() as engine:
        forget(LogStore.open(log), engine, ["gone"])
    ids = [row["event_id"] for row in LogStore.open(log).table("events").read(["event_id"]).to_pylist()]
    assert sorted(ids) == sorted(f"e{number}" for number in range(4 * writers) if number % 4 != 3)
    assert len(broken(log)) == writers
    assert files_with(log, "gone") == []
