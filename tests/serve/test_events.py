"""Events over the network: on disk before the answer, in the log once, whatever is killed or sent again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from clickprism.log.ingest import ingest
from clickprism.log.store import LogStore
from clickprism.serve.http import events
from clickprism.serve.http.events import (
    POINTS,
    EventSink,
)
from clickprism.serve.http.problems import Problem
from tests.faults.points import INGEST_POINTS
from tests.log.raw_logs import BROKEN, broken, impression, stored
from tests.serve.event_children import QUICK, post
from tests.waiting import LIMIT, until


def lines(*rows: dict[str, Any] | str) -> bytes:
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows).encode()


def batches(log: Path) -> list[Path]:
    """What is still in the inbox."""
    return list((log / ".inbox").glob("*.gz"))


FIRST = lines(impression(1), "", BROKEN, impression(1), impression(2), impression(2, user_id="another"))


def test_every_batch_counts_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    sink = EventSink(log, **QUICK)
    assert sink.accept(FIRST, key="first") == 5
    until(lambda: not batches(log))
    assert (len(stored(log)), len(broken(log))) == (2, 1), "of rows with one id the first is stored"
    assert batches(log) == [], "nothing of the events stays beside the log"
    versions = [LogStore.open(log).table(name).version for name in ("events", "files", "quarantine")]
    assert sink.accept(FIRST, key="first") == 5
    with pytest.raises(Problem, match="used before, with another batch"):
        sink.accept(lines(impression(3)), key="first")
    with pytest.raises(Problem, match="has no rows"):
        sink.accept(b" \n\n", key="nothing")
    until(lambda: not batches(log))
    assert [LogStore.open(log).table(name).version for name in ("events", "files", "quarantine")] == versions
    array = b"[" + b",\n".join(FIRST.replace(b"\n\n", b"\n").split(b"\n")) + b"]"
    assert sink.accept(array, key="as an array") == 5
    assert sink.accept(FIRST, key="under another key") == 5
    sink.close()
    assert len(stored(log)) == 2
    for path in (log / ".inbox").glob("*.json"):
        path.unlink()
    reopened = EventSink(log, **QUICK)
    assert reopened.accept(FIRST, key="first") == 5
    reopened.close()
    assert len(stored(log)) == 2, "the log knows a file that it has read, even when the key is forgotten"
    with pytest.raises(Problem, match="stops"):
        reopened.accept(lines(impression(9)), key="late")


def test_a_batch_goes_only_after_the_commit_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that is not on disk would be lost in a power cut: until `ingest` returns, which syncs, both are kept."""
    log, seen = tmp_path / "log", []
    real_keep = EventSink._keep

    def watched(paths: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(("before", [path.exists() for path in paths]))
        account = ingest(paths, *arguments, **options)
        seen.append(("committed", [path.exists() for path in paths]))
        return account

    def kept(sink: EventSink, path: Path) -> None:
        seen.append(("removed", [path.exists()]))
        real_keep(sink, path)
        seen.append(("gone", [path.exists()]))

    monkeypatch.setattr(events, "ingest", watched)
    monkeypatch.setattr(EventSink, "_keep", kept)
    sink = EventSink(log, **QUICK)
    sink.accept(FIRST, key="first")
    sink.close()
    assert seen == [("before", [True]), ("committed", [True]), ("removed", [True]), ("gone", [False])]


def test_a_batch_stays_on_disk_while_the_log_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(events, "ingest", full)
        sink = EventSink(log, **QUICK)
        assert sink.accept(FIRST, key="first") == 5
        sink.close()
    assert len(batches(log)) == 1
    EventSink(log, **QUICK).close()
    assert (len(stored(log)), batches(log)) == (2, [])


def test_a_conflict_found_late_leaves_nothing_to_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    sink = EventSink(log, **QUICK)
    sink.accept(lines(impression(1)), key="k")
    until(lambda: not batches(log))
    real, asked = EventSink._known, iter([True])

    def late(sink: EventSink, path: Path, packed: bytes) -> bool:
        return False if next(asked, False) else real(sink, path, packed)

    monkeypatch.setattr(EventSink, "_known", late)
    with pytest.raises(Problem):
        sink.accept(lines(impression(2)), key="k")
    sink.close()
    EventSink(log, **QUICK).close()
    assert len(stored(log)) == 1


def test_what_cannot_be_taken(tmp_path: Path) -> None:
    sink = EventSink(tmp_path / "log", max_rows=2)
    for body, status, words in [
        (b'{"colour": 1}', 409, "the rows have the fields of no known schema"),
        (b'[{"search_id": 1},', 400, "the body is not JSON"),
        (b"[" * 300, 400, "the body is not JSON"),
        (b"[]", 422, "the batch has no rows"),
        (b"{}\n{}\n{}", 413, "3 rows, more than 2"),
    ]:
        with pytest.raises(Problem, match=words) as refused:
            sink.accept(body, key="k")
        assert refused.value.status == status
    sink.close()
    assert list((tmp_path / "log" / ".inbox").iterdir()) == []


def test_small_batches_go_in_together_and_too_many_are_sent_away(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = EventSink(log, **QUICK)
    first.accept(lines(impression(0)), key="0")
    first.close()
    sink = EventSink(log, group_seconds=0, max_waiting=30)
    with LogStore.open(log).lock(), ThreadPoolExecutor(30) as pool:
        posted = [pool.submit(sink.accept, lines(impression(i)), key=str(i)) for i in range(1, 31)]
        assert [each.result(LIMIT) for each in posted] == [1] * 30
        assert len(batches(log)) == 30
        with pytest.raises(Problem, match="30 batches wait already"):
            sink.accept(lines(impression(99)), key="99")
    sink.close()
    assert len(stored(log)) == 31
    assert (LogStore.open(log).table("events").version or 0) <= 4, "31 batches in a few commits"


def test_the_same_batch_at_the_same_time_counts_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    sink, start = EventSink(log, **QUICK), threading.Barrier(8)

    def send() -> int:
        start.wait(LIMIT)
        return sink.accept(FIRST, key="first")

    with ThreadPoolExecutor(8) as pool:
        assert [each.result(LIMIT) for each in [pool.submit(send) for _ in range(8)]] == [5] * 8
    sink.close()
    assert (len(stored(log)), LogStore.open(log).table("files").rows()) == (2, 1)


@pytest.mark.parametrize("point", [*POINTS, "events-committed"])
def test_a_killed_sink_loses_nothing_and_counts_nothing_twice(
    point: str, killed: Callable[..., None], tmp_path: Path
) -> None:
    """Whoever opens the log next ingests what was left; the batch that comes again counts once."""
    assert point in (*POINTS, *INGEST_POINTS)
    log = tmp_path / "log"
    killed(post, str(log), [("first", FIRST)], fault=point)
    sink = EventSink(log, **QUICK)
    assert sink.accept(FIRST, key="first") == 5
    assert sink.accept(lines(impression(1), impression(5)), key="second") == 2
    sink.close()
    assert (len(stored(log)), len(broken(log))) == (3, 1)
    assert LogStore.open(log).table("files").rows() == 2
    assert batches(log) == []


def test_two_processes_at_a_time_count_each_batch_once(forks: ForkServerContext, tmp_path: Path) -> None:
    """Some batches go to both: in the end all is as if they had come one after another."""
    log = tmp_path / "log"
    sent = [(f"key {i}", lines(*(impression(10 * i + j) for j in range(10)))) for i in range(4)]
    pipes = [forks.Pipe() for _ in range(2)]
    shares = [sent[:3], sent[1:]]
    processes = [
        forks.Process(target=post, args=(str(log), share), kwargs={"connection": theirs})
        for share, (_, theirs) in zip(shares, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    answers = [ours.recv() for ours, _ in pipes]
    for process in processes:
        process.join(LIMIT)
    assert answers == [[10] * 3] * 2
    until(lambda: not batches(log))
    assert len(stored(log)) == 40
    account = ingest([_write(tmp_path / "all.jsonl", b"\n".join(body for _, body in sent))], log)
    assert (account.duplicate, account.accepted) == (40, 0)


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
