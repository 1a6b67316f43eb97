"""Ingest: every row is accounted for, every event counts once, whatever the order and the number of arrivals."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickprism.errors import ClickprismError, DataError, EngineError, SettingError
from clickprism.log.engines.base import connect
from clickprism.log.forget import forget
from clickprism.log.ingest import Account, ingest, run, stage
from clickprism.log.ingest.run import Group, filtered_rows
from clickprism.log.quarantine import reasons, write_raw
from clickprism.log.read import Part, SourceSettings, read_parts
from clickprism.log.settings import LogSettings
from clickprism.log.store import LogStore
from tests.log.raw_logs import BROKEN, everything, impression, random_files, stored, write_lines


def counts(account: Account) -> tuple[int, int, int, int, int]:
    return (
        account.rows_in,
        account.accepted,
        account.duplicate,
        sum(account.filtered.values()),
        sum(account.quarantined.values()),
    )


def test_the_account_by_hand(tmp_path: Path) -> None:
    rows: list[dict[str, Any] | str] = [
        impression(1),
        impression(2),
        impression(2),
        impression(2, query="another"),
        impression(3, event_id=None),
        impression(3, event_id=None),
        impression(3, event_id=None, day=2),
        impression(4, agent="Googlebot/2.1"),
        BROKEN,
        "{",
    ]
    path, log = write_lines(tmp_path / "log.jsonl", rows), tmp_path / "log"
    plan = ingest([path], log, max_bad_ratio=1, dry_run=True)
    assert not log.exists()
    account = ingest([path], log, max_bad_ratio=1)
    assert counts(account) == (10, 4, 3, 1, 2)
    assert replace(plan, seconds=0.0) == replace(account, seconds=0.0, dry_run=True)
    assert account.filtered == {"agent": 1}
    assert account.quarantined == {"not-json": 1, "time-unreadable": 1}
    assert [day.day for day in account.days] == [1, 2]
    assert (account.files, account.known) == (1, 0)
    assert len(stored(log)) == 5
    assert not list((log / "staging").iterdir())
    (row,) = LogStore.open(log).table("files").read().to_pylist()
    assert (row["rows_in"], row["stored"], row["duplicate"], row["quarantined"], row["ignored"]) == (10, 5, 3, 2, 0)


def test_rows_of_no_click_event_are_filtered(tmp_path: Path) -> None:
    rows: list[dict[str, Any] | str] = [
        {"event": "item", "id": "1", "timestamp": "1772000000000", "item": "d", "fields": []},
        {
            "event": "ranking",
            "id": "r",
            "timestamp": "1772000000000",
            "user": "u",
            "items": [{"id": "d"}, {"id": "e"}],
            "fields": [],
        },
    ]
    account = ingest([write_lines(tmp_path / "log.jsonl", rows)], tmp_path / "log")
    assert counts(account) == (2, 1, 0, 1, 0)
    assert account.filtered == {"not a click event": 1}


def test_again_is_a_no_op(tmp_path: Path) -> None:
    files, log = random_files(tmp_path / "raw", files=3, rows=90, seed=1), tmp_path / "log"
    first = ingest(files, log, max_bad_ratio=1)
    state, versions = everything(log), _versions(log)
    for _ in range(9):
        again = ingest(files, log)
        assert (counts(again), again.files, again.known) == ((0, 0, 0, 0, 0), 0, 3)
    assert ingest([tmp_path / "raw"], log, dry_run=True).known == 3
    assert (everything(log), _versions(log)) == (state, versions)
    copied = write_lines(tmp_path / "copy.jsonl", [files[0].read_text(encoding="utf-8").rstrip("\n")])
    assert ingest([copied], log).known == 1
    assert first.files == 3


def _versions(log: Path) -> list[int | None]:
    return [LogStore.open(log).table(name).version for name in ("events", "quarantine", "files")]


def test_any_files_in_any_order_give_the_same_log(tmp_path: Path) -> None:
    (whole,) = random_files(tmp_path / "whole", files=1, rows=150, seed=2)
    lines = whole.read_text(encoding="utf-8").splitlines()
    account = ingest([whole], tmp_path / "log", max_bad_ratio=1)
    expected = stored(tmp_path / "log")
    for seed in range(3):
        rng = random.Random(seed)
        rng.shuffle(lines)
        cuts = sorted(rng.sample(range(1, len(lines)), 3))
        parts = [lines[i:j] for i, j in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
        folder, log = tmp_path / f"raw {seed}", tmp_path / f"log {seed}"
        files = [write_lines(folder / f"{i}.jsonl", part) for i, part in enumerate(parts)]
        together = [files] if seed else [[file] for file in files]
        accounts = [ingest(each, log, max_bad_ratio=1) for each in together]
        assert stored(log) == expected
        assert sum(each.rows_in for each in accounts) == account.rows_in
        assert sum(each.duplicate for each in accounts) == account.duplicate


@settings(max_examples=6)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(1, 2), st.booleans(), st.booleans()), max_size=8),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_rows_that_repeat_an_event_count_once(files: list[list[tuple[int, int, bool, bool]]], together: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths, said, keys = [], set(), set()
        for number, file in enumerate(files):
            rows = [
                impression(event, day=day, event_id=f"e{event}" if has_id else None, query="other" if other else "q")
                for event, day, has_id, other in file
            ]
            paths.append(write_lines(folder / f"{number}.jsonl", rows))
            said.add(tuple(file))
            keys |= {(event, day, has_id, None if has_id else other) for event, day, has_id, other in file}
        log, rows_in = folder / "log", sum(map(len, said))
        runs = [paths] if together else [[path] for path in paths]
        accounts = [ingest(each, log) for each in [*runs, paths]]
        assert sum(each.rows_in for each in accounts) == rows_in
        assert sum(each.accepted for each in accounts) == len(keys)
        assert sum(each.duplicate for each in accounts) == rows_in - len(keys)
        assert len(stored(log)) == len(keys)


def test_many_small_files_make_few_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "GROUP_FILES", 4)
    files = random_files(tmp_path / "raw", files=8, rows=80, seed=3)
    ingest([tmp_path / "raw"], tmp_path / "log", max_bad_ratio=1)
    assert _versions(tmp_path / "log") == [2, 2, 2]
    monkeypatch.undo()
    ingest(files, tmp_path / "other", max_bad_ratio=1)
    assert _versions(tmp_path / "other") == [1, 1, 1]
    assert everything(tmp_path / "log") == everything(tmp_path / "other")


def test_too_many_broken_rows(tmp_path: Path) -> None:
    good = write_lines(tmp_path / "a.jsonl", [impression(i) for i in range(10)])
    bad = write_lines(tmp_path / "b.jsonl", [impression(11), BROKEN])
    log = tmp_path / "log"
    with pytest.raises(DataError) as caught:
        ingest([good, bad], log, max_bad_ratio=0.05)
    text = str(caught.value)
    assert text.startswith(f"{bad}: 1 of 12 rows are broken, more than --max-bad-ratio 0.05; nothing of this file")
    assert "line 2: time-unreadable: the time cannot be read (time is 'never')" in text
    assert "--max-bad-ratio 1" in text
    assert len(stored(log)) == 10
    assert counts(caught.value.done) == (10, 10, 0, 0, 0)
    assert ingest([good, bad], log, max_bad_ratio=0.5).known == 1
    assert len(stored(log)) == 11
    (reason,) = reasons(LogStore.open(log))
    assert (reason.rows, reason.line, reason.field) == (1, 2, "time")
    assert write_raw(LogStore.open(log), tmp_path / "raw.jsonl") == 1
    assert (tmp_path / "raw.jsonl").read_text(encoding="utf-8") == f"{BROKEN}\n"


def test_settings_of_a_log_are_kept(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [impression(1)])
    ingest([path], tmp_path / "log", settings=LogSettings({"robots": {"searches_per_day": 7}}))
    assert LogStore.open(tmp_path / "log").settings.robots.searches_per_day == 7
    assert ingest([path], tmp_path / "log", source=SourceSettings()).known == 1
    with pytest.raises(SettingError, match=r"source\.schema must be 'auto', as in .*log\.toml"):
        ingest([path], tmp_path / "log", source=SourceSettings(schema="clickprism"))


def test_the_share_of_broken_rows_is_exact(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [*map(impression, range(71)), *["x"] * 29])
    with pytest.raises(DataError, match="29 of 100 rows are broken"):
        ingest([path], tmp_path / "log", max_bad_ratio=0.28999)
    assert ingest([path], tmp_path / "log", max_bad_ratio=0.29).rows_in == 100


def test_settings_can_change_while_a_log_has_no_rows(tmp_path: Path) -> None:
    row = '{"query_id": "a", "timestamp": 1714564800000, "action_name": "click", "event_attributes": {'
    row += '"object": {"object_id": 1}, "position": {"ordinal": 0}}}'
    path, log = write_lines(tmp_path / "a.jsonl", [row]), tmp_path / "log"
    with pytest.raises(ClickprismError, match="position-range"):
        ingest([path], log, source=SourceSettings(ordinal_base=1))
    assert not (log / "log.toml").exists()
    assert ingest([path], log, source=SourceSettings(ordinal_base=0)).accepted == 1
    with pytest.raises(SettingError, match=r"source\.ordinal_base must be 0"):
        ingest([path], log, source=SourceSettings(ordinal_base=1))

    other = LogStore.open(tmp_path / "other", create=True)
    other.write_settings(LogSettings({"source": {"schema": "metarank"}, "robots": {"searches_per_day": 7}}))
    assert ingest([path], other.folder, source=SourceSettings(schema="ubi", ordinal_base=0)).accepted == 1
    assert (other.settings.source.schema, other.settings.robots.searches_per_day) == ("ubi", 7)


@pytest.mark.parametrize("base", [0, 1])
def test_the_first_position_of_ubi_events_is_detected(base: int, tmp_path: Path) -> None:
    query = {"query_id": "a", "timestamp": 1714564800000, "query_response_hit_ids": ["1", "2"]}
    rows = []
    for number in (0, 1):
        attributes = {"object": {"object_id": number + 1}, "position": {"ordinal": number + base}}
        action = {"query_id": "a", "timestamp": 1714564801000 + number, "action_name": "impression"}
        rows.append(json.dumps({**action, "event_attributes": attributes}))
    queries = write_lines(tmp_path / "queries.jsonl", [json.dumps(query)])
    events = write_lines(tmp_path / "events.jsonl", rows)
    notes: list[str] = []
    assert ingest([queries], tmp_path / "log", note=notes.append).accepted == 1  # nothing says yet what it is
    assert LogStore.open(tmp_path / "log").settings.source.ordinal_base is None
    assert not notes
    assert ingest([events], tmp_path / "log", note=notes.append).accepted == 2
    assert LogStore.open(tmp_path / "log").settings.source.ordinal_base == base
    said, _ = notes  # the second says that the columns differ
    assert said.startswith(f"Positions start from {base}")
    assert f"--ordinal-base {1 - base}" in said
    stored = LogStore.open(tmp_path / "log").table("events").read(["kind", "position"]).to_pylist()
    assert sorted(row["position"] for row in stored if row["kind"] == "interaction") == [1, 2]


def test_two_first_runs_that_read_otherwise(tmp_path: Path) -> None:
    path, log = write_lines(tmp_path / "a.jsonl", [impression(1)]), tmp_path / "log"
    other = write_lines(tmp_path / "b.jsonl", [impression(2)])

    def meanwhile(done: int, total: int | None = None, text: str = "") -> None:
        assert total is None or 0 <= done <= total
        if text.startswith("reading") and not (log / "log.toml").exists():
            ingest([other], log, source=SourceSettings(max_position=5))

    with pytest.raises(DataError, match=r"log\.toml: Another ingest changed the source settings"):
        ingest([path], log, progress=meanwhile)
    assert len(stored(log)) == 1
    assert ingest([path], log).accepted == 1
    assert LogStore.open(log).settings.source.max_position == 5


def test_a_dry_run_refuses_what_a_run_refuses(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [impression(1)])
    for into in (path, tmp_path, tmp_path / "a%41"):
        for dry_run in (True, False):
            with pytest.raises(DataError, match=r"cannot be written|not a click log|has a name"):
                ingest([path], into, dry_run=dry_run)


def test_what_the_engine_says_is_not_blamed_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "a.jsonl", [impression(1)])
    with pytest.raises(SettingError, match="memory must be such as 500MB or 2GB, got 'lots'"):
        ingest([path], tmp_path / "log", memory="lots")
    failures = {"duckdb.BinderException": EngineError, "duckdb.IOException": DataError, "pa.ArrowInvalid": EngineError}
    for name, kind in failures.items():
        module, _, error = name.partition(".")
        raised = getattr({"duckdb": duckdb, "pa": pa}[module], error)("no such thing\nand more")

        def fails(*_args: Any, error: Exception = raised, **_options: Any) -> None:
            raise error

        monkeypatch.setattr(Group, "commit", fails)
        with pytest.raises(kind, match=r"no such thing\W"):
            ingest([path], tmp_path / "log")


def test_a_file_that_changes_or_vanishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_lines(tmp_path / "a.jsonl", [impression(1)])
    other = write_lines(tmp_path / "b.jsonl", [impression(2)])
    read = read_parts

    def growing(path: Path, *rest: Any, **options: Any) -> Iterator[Part]:
        yield from read(path, *rest, **options)
        if path == other:
            with path.open("a", encoding="utf-8") as handle:
                handle.write("\n")

    def vanishing(path: Path, *rest: Any, **options: Any) -> Iterator[Part]:
        yield from read(path, *rest, **options)
        if path == other:
            path.unlink()

    monkeypatch.setattr(run, "read_parts", growing)
    with pytest.raises(DataError, match="changed while it was read; nothing of it was ingested"):
        ingest([whole, other], tmp_path / "log")
    assert len(stored(tmp_path / "log")) == 1
    monkeypatch.setattr(run, "read_parts", vanishing)
    with pytest.raises(DataError, match="cannot be read"):
        ingest([other], tmp_path / "log")
    with pytest.raises(DataError, match="no such file"):
        ingest([other], tmp_path / "log")
    assert len(stored(tmp_path / "log")) == 1


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(DataError, match="is not a regular file"):
        ingest([tmp_path / "pipe.jsonl"], tmp_path / "log")


def test_a_full_disk_leaves_nothing_half_done(tmp_path: Path) -> None:
    files = [write_lines(tmp_path / "a.jsonl", [impression(i) for i in range(2000)])]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(DataError, match=r"cannot be written .*run the same command again"):
            ingest(files, tmp_path / "log")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert LogStore.open(tmp_path / "log", create=True).table("events").files() == []
    assert ingest(files, tmp_path / "log").rows_in == 2000
    assert len(stored(tmp_path / "log")) == 2000


def test_packed_and_plain_rows_are_the_same_events(tmp_path: Path) -> None:
    rows = [impression(i) for i in range(5)]
    plain = write_lines(tmp_path / "a.jsonl", rows)
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    account = ingest([plain, packed], tmp_path / "log")
    assert (account.files, counts(account)) == (2, (10, 5, 5, 0, 0))


@pytest.mark.parametrize(("held", "rows"), [(1, 5), (10_000, 1_000_000)], ids=["nothing held", "a part held"])
def test_what_is_put_on_disk_is_what_was_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, rows: int
) -> None:
    files = random_files(tmp_path / "raw", files=4, rows=120, seed=6)
    account = ingest(files, tmp_path / "held", max_bad_ratio=1)
    monkeypatch.setattr(stage, "HELD_BYTES", held)
    monkeypatch.setattr(stage, "GROUP_ROWS", rows)
    monkeypatch.setattr(run, "PART_BYTES", 1)
    spilled = ingest(files, tmp_path / "spilled", max_bad_ratio=1)
    assert replace(account, seconds=0.0) == replace(spilled, seconds=0.0)
    assert everything(tmp_path / "held") == everything(tmp_path / "spilled")


def test_remaining_lines_of_several_files_are_kept_apart(tmp_path: Path) -> None:
    mixed: list[dict[str, Any] | str] = [
        impression(1, query='a "b"'),
        "{",
        impression(2),
        BROKEN,
        impression(3, query='"'),
    ]
    files = [write_lines(tmp_path / f"{i}.jsonl", [*mixed, impression(i + 9)]) for i in range(3)]
    files += [write_lines(tmp_path / "4.jsonl", [impression(7), impression(8)])]
    account = ingest(files, tmp_path / "log", max_bad_ratio=1)
    assert counts(account) == (20, 8, 6, 0, 6)
    store = LogStore.open(tmp_path / "log")
    bad = {(Path(row["file"]).name, row["line"]): row["reason"] for row in store.table("quarantine").read().to_pylist()}
    assert sorted(bad) == [(f"{i}.jsonl", line) for i in range(3) for line in (2, 4)]
    assert bad["2.jsonl", 2].startswith("not-json")
    ids = {row["file_id"]: Path(row["file"]).name[0] for row in store.table("files").read().to_pylist()}
    events = store.table("events").read().to_pylist()
    found = {f"{ids[row['file_id']]}:{row['line']} {row['event_id']}" for row in events}
    assert found == {"0:1 e1", "0:3 e2", "0:5 e3", "0:6 e9", "1:6 e10", "2:6 e11", "4:1 e7", "4:2 e8"}


@pytest.mark.parametrize("dry_run", [False, True])
def test_files_that_go_while_rows_are_counted(dry_run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[int] = []
    log = tmp_path / "log"
    ingest([write_lines(tmp_path / "a.jsonl", [impression(1, user_id="gone"), impression(2)])], log)
    count = filtered_rows

    def beside(connection: duckdb.DuckDBPyConnection, files: list[str], *rest: Any) -> Any:
        if not gone:
            with connect() as engine:
                gone.append(forget(LogStore.open(log), engine, ["gone"]).rows)
        return count(connection, files, *rest)

    monkeypatch.setattr(run, "filtered_rows", beside)
    path = write_lines(tmp_path / "b.jsonl", [impression(3), impression(4, agent="Googlebot/2.1"), impression(2)])
    account = ingest([path], log, dry_run=dry_run)
    assert (counts(account), gone) == ((3, 1, 1, 1, 0), [1])


def test_of_rows_with_one_id_the_first_is_stored(tmp_path: Path) -> None:
    rows = [impression(1, query=f"query {number}") for number in range(3)]
    account = ingest([write_lines(tmp_path / "a.jsonl", rows)], tmp_path / "log")
    account_of_later = ingest([write_lines(tmp_path / "b.jsonl", [impression(1, query="later")])], tmp_path / "log")
    assert (counts(account), counts(account_of_later)) == ((3, 1, 2, 0, 0), (1, 0, 1, 0, 0))
    assert LogStore.open(tmp_path / "log").table("events").read(["query"])["query"].to_pylist() == ["query 0"]


def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    files = random_files(tmp_path / "raw", files=5, rows=200, seed=9)
    for threads in (1, 3):
        ingest(files, tmp_path / f"log {threads}", max_bad_ratio=1, threads=threads)
    assert everything(tmp_path / "log 1") == everything(tmp_path / "log 3")


def test_keys_that_were_chosen_to_collide_stay_separate(tmp_path: Path) -> None:
    """Ids whose MD5 ends alike, as of someone who knows how keys are made."""
    said = {name: f"impression\x1f{name}".encode() for name in map(str, range(60_000))}
    ids = [name for name, text in said.items() if hashlib.md5(text, usedforsecurity=False).digest()[-1] == 7]
    rows = [impression(number, event_id=name) for number, name in enumerate(ids)]
    account = ingest([write_lines(tmp_path / "a.jsonl", [*rows, *rows])], tmp_path / "log", robots=False)
    assert (account.accepted, account.duplicate) == (len(ids), len(ids))


def test_columns_that_change_in_the_middle_of_a_stream_are_reported(tmp_path: Path) -> None:
    notes: list[str] = []
    usual = [impression(number, price=number) for number in range(20)]
    renamed = [{name if name != "document_id" else "sku": value for name, value in row.items()} for row in usual]
    retyped = [row | {"price": "cheap", "event_id": f"r{number}"} for number, row in enumerate(usual)]
    log = tmp_path / "log"
    first = ingest([write_lines(tmp_path / "a.jsonl", usual)], log, note=notes.append)
    assert (first.changes, notes) == ((), [])
    second = ingest([write_lines(tmp_path / "b.jsonl", retyped)], log, note=notes.append)
    said = "b.jsonl differs from the files before it: price is now text, it was a number"
    assert second.changes == (said,)
    assert notes == [said]
    with pytest.raises(DataError, match="20 of 20 rows are broken") as caught:
        ingest([write_lines(tmp_path / "c.jsonl", renamed)], log)
    assert "c.jsonl differs from the files before it: new columns: sku; missing columns: document_id" in str(
        caught.value
    )
    again = ingest([write_lines(tmp_path / "d.jsonl", [impression(50, price="x")])], log)
    assert again.changes == ()
