"""Events over the network: what every row is told, each batch once, and sinks that are killed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from clickprism._util.crash_points import POINTS as INGEST_POINTS
from clickprism.errors import SettingError
from clickprism.log.ingest import ingest
from clickprism.log.store import LogStore
from clickprism.serve.events import (
    POINTS,
    EventsBusyError,
    EventsConflictError,
    EventSettings,
    EventSink,
    EventsRefusedError,
    EventsTooLargeError,
    RowAnswer,
)
from clickprism.serve.inbox import Inbox
from tests.log.raw_logs import BROKEN, broken, impression, stored
from tests.serve.event_children import QUICK, post
from tests.waiting import LIMIT, until

BROKEN_REASON = "time-unreadable: the time cannot be read"


def lines(*rows: dict[str, Any] | str) -> bytes:
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows).encode()


def told(answers: list[RowAnswer]) -> list[tuple[int, str]]:
    return [(each.row, each.status) for each in answers]


FIRST = lines(impression(1), "", BROKEN, impression(1), impression(2), impression(2, user_id="another"))
SAID = [(1, "accepted"), (3, "quarantined"), (4, "duplicate"), (5, "accepted"), (6, "duplicate")]


def test_every_row_is_answered_and_every_batch_counts_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    sink = EventSink(log, QUICK)
    answers = sink.accept(FIRST, key="first")
    assert told(answers) == SAID
    assert answers[1].reason == BROKEN_REASON
    assert (len(stored(log)), len(broken(log))) == (2, 1), "of rows with one id the first is stored"
    versions = [LogStore.open(log).table(name).version for name in ("events", "files", "quarantine")]
    assert sink.accept(FIRST, key="first") == answers
    with pytest.raises(EventsConflictError, match="used before, with another batch"):
        sink.accept(lines(impression(3)), key="first")
    assert sink.accept(b" \n\n", key="nothing") == []
    assert [LogStore.open(log).table(name).version for name in ("events", "files", "quarantine")] == versions
    again = sink.accept(b"[" + b",\n".join(FIRST.replace(b"\n\n", b"\n").split(b"\n")) + b"]", key="as an array")
    assert told(again) == [(1, "duplicate"), (2, "quarantined"), (3, "duplicate"), (4, "duplicate"), (5, "duplicate")]
    assert told(sink.accept(FIRST, key="under another key")) == [
        (row, "quarantined" if status == "quarantined" else "duplicate") for row, status in SAID
    ]
    assert len(stored(log)) == 2
    sink.close()
    assert not list((log / ".inbox").glob("*.gz")), "nothing of the events stays beside the log"
    for path in (log / ".inbox").glob("*.json"):
        path.unlink()
    reopened = EventSink(log, QUICK)
    assert reopened.accept(FIRST, key="first") == answers, "an answer that is gone is worked out from the log"
    assert len(stored(log)) == 2
    reopened.close()
    with pytest.raises(EventsBusyError, match="closed"):
        reopened.accept(lines(impression(9)), key="late")


def test_a_conflict_that_is_seen_late_leaves_nothing_to_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    sink = EventSink(log, QUICK)
    sink.accept(lines(impression(1)), key="k")
    real, asked = Inbox.answer, iter([True])

    def late(inbox: Inbox, name: str, digest: str) -> list[RowAnswer] | None:
        return None if next(asked, False) else real(inbox, name, digest)

    monkeypatch.setattr(Inbox, "answer", late)
    with pytest.raises(EventsConflictError):
        sink.accept(lines(impression(2)), key="k")
    sink.close()
    EventSink(log, QUICK).close()
    assert len(stored(log)) == 1


def test_what_cannot_be_taken(tmp_path: Path) -> None:
    sink = EventSink(tmp_path / "log", EventSettings(max_bytes=400, max_rows=2))
    for body, error, words in [
        (b'{"colour": 1}', EventsRefusedError, "the rows have the fields of no known schema"),
        (b'[{"search_id": 1},', EventsRefusedError, "the batch is not a JSON array"),
        (b"[" * 300, EventsRefusedError, "the batch is not a JSON array"),
        (b"x" * 401, EventsTooLargeError, "401 bytes, more than 400"),
        (b"{}\n{}\n{}", EventsTooLargeError, "3 rows, more than 2"),
    ]:
        with pytest.raises(error, match=words):
            sink.accept(body, key="k")
    with pytest.raises(EventsRefusedError, match="key is empty"):
        sink.accept(b"{}", key="")
    sink.close()
    assert [path.suffix for path in (tmp_path / "log" / ".inbox").iterdir()] == []
    with pytest.raises(SettingError, match="max_rows must be above 0, got 0"):
        EventSettings(max_rows=0)


def test_rows_that_are_no_click_events(tmp_path: Path) -> None:
    sink = EventSink(tmp_path / "log", QUICK)
    ranking = {"event": "ranking", "id": "r", "timestamp": 1772359200000, "user": "u", "items": [{"id": "a"}]}
    item = {"event": "item", "id": "i", "timestamp": 1772359200000, "item": "a", "fields": []}
    assert told(sink.accept(lines(item, ranking, item), key="k")) == [(1, "ignored"), (2, "accepted"), (3, "ignored")]
    sink.close()


def test_small_batches_go_in_together_and_too_many_are_sent_away(tmp_path: Path) -> None:
    log = tmp_path / "log"
    sink = EventSink(log, EventSettings(group_seconds=0, max_waiting=30, timeout=LIMIT))
    sink.accept(lines(impression(0)), key="0")
    with ThreadPoolExecutor(30) as pool:
        with LogStore.open(log).lock():
            posted = [pool.submit(sink.accept, lines(impression(i)), key=str(i)) for i in range(1, 31)]
            until(lambda: sink.waiting == 30)
            with pytest.raises(EventsBusyError, match="30 batches wait already") as caught:
                sink.accept(lines(impression(99)), key="99")
            assert caught.value.retry_after > 0
            with pytest.raises(EventsConflictError, match="in use"):
                sink.accept(lines(impression(99)), key="7")
            twice = threading.Thread(target=sink.accept, args=(lines(impression(7)),), kwargs={"key": "7"})
            twice.start()
        assert [told(each.result()) for each in posted] == [[(1, "accepted")]] * 30
        twice.join()
    assert len(stored(log)) == 31
    assert (LogStore.open(log).table("events").version or 0) <= 4, "31 batches in a few commits"
    sink.close()


def test_a_batch_that_took_too_long_is_answered_later(tmp_path: Path) -> None:
    log = tmp_path / "log"
    sink = EventSink(log, EventSettings(group_seconds=0, timeout=0.2))
    with LogStore.open(log, create=True).lock(), pytest.raises(EventsBusyError, match="the batch is safe"):
        sink.accept(FIRST, key="first")
    sink.close()
    sink = EventSink(log, QUICK)
    assert told(sink.accept(FIRST, key="first")) == SAID
    sink.close()
    assert len(stored(log)) == 2


@pytest.mark.parametrize("point", [*POINTS, "events-committed"])
def test_a_killed_sink_loses_nothing_and_counts_nothing_twice(
    point: str, killed: Callable[..., None], tmp_path: Path
) -> None:
    """Whoever opens the log next ingests what was left; the batch that comes again is answered as if undisturbed."""
    assert point in (*POINTS, *INGEST_POINTS)
    log = tmp_path / "log"
    killed(post, str(log), [("first", FIRST)], fault=point)
    sink = EventSink(log, QUICK)
    assert told(sink.accept(FIRST, key="first")) == SAID
    assert told(sink.accept(lines(impression(1), impression(5)), key="second")) == [(1, "duplicate"), (2, "accepted")]
    sink.close()
    assert (len(stored(log)), len(broken(log))) == (3, 1)
    assert LogStore.open(log).table("files").rows() == 2
    assert not list((log / ".inbox").glob("*.gz"))


def test_two_processes_at_a_time_count_each_batch_once(forks: ForkServerContext, tmp_path: Path) -> None:
    """Some batches go to both: in the end all is as if they had come one after another."""
    log = tmp_path / "log"
    batches = [(f"key {i}", lines(*(impression(10 * i + j) for j in range(10)))) for i in range(4)]
    pipes = [forks.Pipe() for _ in range(2)]
    shares = [batches[:3], batches[1:]]
    processes = [
        forks.Process(target=post, args=(str(log), share), kwargs={"connection": theirs})
        for share, (_, theirs) in zip(shares, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    answers = [ours.recv() for ours, _ in pipes]
    for process in processes:
        process.join(LIMIT)
    assert [told(each) for each in answers[0] + answers[1]] == [[(i, "accepted") for i in range(1, 11)]] * 6
    assert len(stored(log)) == 40
    account = ingest([_write(tmp_path / "all.jsonl", b"\n".join(body for _, body in batches))], log)
    assert (account.duplicate, account.accepted) == (40, 0)


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
