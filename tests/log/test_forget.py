"""Erasure: afterwards all is as if the user had never been there, on disk too; a crash in the middle is mended."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickprism as cp
from clickprism.errors import SettingError
from clickprism.log import forget as module
from clickprism.log.compact import compact
from clickprism.log.engines.base import Engine
from clickprism.log.features.snapshots import find_snapshots, read_snapshot
from clickprism.log.features.windows import windows
from clickprism.log.forget import Forgotten, Mentions, forget
from clickprism.log.ingest import ingest
from clickprism.log.settings import CompactSettings, WindowSettings
from clickprism.log.store import PENDING, LogStore
from clickprism.log.table import LogTable
from tests.conftest import run_command
from tests.faults.children import forget_user, run
from tests.log.scanning import files_with
from tests.log.window_logs import Thirds, as_dict

NOW = datetime(2026, 3, 4, 15)
GONE = "u-4711"
OTHER = "u-47110"
SMALL = WindowSettings(k=2)


def rows_of(seed: int) -> list[dict[str, Any]]:
    """Searches of five users over a few days; one of GONE has rows without a user."""
    draw, rows = random.Random(seed), []
    for search in range(16):
        time = NOW - timedelta(hours=draw.choice([1, 3, 20, 30]), seconds=search)
        user = GONE if search % 4 == 0 else f"u-{draw.randint(1, 4)}"
        for position in (1, 2):
            row: dict[str, Any] = {
                "search_id": f"s{search}",
                "query_id": f"q{search % 2}",
                "document_id": f"d{(position + search) % 3}",
                "position": position,
                "time": time.isoformat() + "Z",
                "click": draw.random() < 0.4,
                "display_ms": draw.randint(0, 9000),
            }
            rows.append(row if search == 4 and position == 2 else row | {"user_id": user})
    return rows


def broken_rows() -> list[str]:
    return [
        json.dumps({"search_id": "x", "user_id": GONE, "position": "first"}),
        '{"user_id": "' + GONE,
        json.dumps({"search_id": "x", "user_id": OTHER, "position": "first"}),
        '{"user_id": "other"',
    ]


def is_theirs(row: dict[str, Any]) -> bool:
    return bool(row.get("user_id", GONE) == GONE)


def make(folder: Path, rows: Iterable[dict[str, Any]], broken: Iterable[str], *, parts: int = 2) -> LogStore:
    """Ingest rows as several files."""
    folder.mkdir()
    lines = [*(json.dumps(row) for row in rows), *broken]
    for part in range(parts):
        (folder / f"{part}.jsonl").write_text("".join(f"{line}\n" for line in lines[part::parts]))
    ingest([folder], folder / "log", max_bad_ratio=1)
    return LogStore.open(folder / "log")


def mentions(folder: Path, word: str) -> list[str]:
    """The files of a log that hold a word, as bytes or as a value."""
    return files_with(folder, word, but=OTHER)


def test_the_log_is_as_if_never_seen(engine: Engine, duck: Engine, tmp_path: Path) -> None:
    rows = rows_of(1)
    store = make(tmp_path / "with", rows, broken_rows())
    never = make(tmp_path / "without", [row for row in rows if not is_theirs(row)], broken_rows()[2:])
    before = windows(store, duck, NOW, examiner=Thirds(), settings=SMALL).snapshot
    models = store.folder / "models"
    models.mkdir()
    for number, day in enumerate(("2026-03-04", "2020-01-01")):
        (models / f"examination-{number}.json").write_text(json.dumps({"sessions": {day: "x"}}))
        (models / f"examination-{number}.txt").write_text("trees")
    assert mentions(store.folder, GONE)
    planned = forget(store, duck, [GONE], dry_run=True)
    assert mentions(store.folder, GONE)
    done = forget(store, engine, [GONE])
    assert replace(planned, dry_run=False) == done
    assert (done.rows, done.quarantined) == (sum(map(is_theirs, rows)), 2)
    assert done.models == ("examination-0",)
    assert sorted(path.name for path in models.iterdir()) == ["examination-1.json", "examination-1.txt"]
    assert mentions(store.folder, GONE) == []
    assert not before.kept
    after, expected = (windows(each, duck, NOW, examiner=Thirds(), settings=SMALL).snapshot for each in (store, never))
    assert as_dict(after.read()) == as_dict(expected.read())
    assert (after.pairs, after.suppressed) == (expected.pairs, expected.suppressed)
    assert as_dict(after.read())
    assert store.table("events").rows() == never.table("events").rows()
    assert store.table("quarantine").rows() == 2
    assert forget(store, duck, [GONE]) == Forgotten()


@pytest.fixture(scope="module")
def prepared(duck: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a few rows of GONE, broken ones too, and a snapshot."""
    store = make(tmp_path_factory.mktemp("prepared") / "with", rows_of(2)[:16], broken_rows(), parts=1)
    windows(store, duck, NOW, settings=SMALL)
    return store.folder


@pytest.fixture
def store(prepared: Path, tmp_path: Path) -> LogStore:
    return LogStore.open(shutil.copytree(prepared, tmp_path / "log"))


@pytest.mark.parametrize(
    ("point", "users"),
    [("_erase", []), ("_rewrite", ["u-1"]), ("_drop", [GONE]), ("update_sessions", []), ("sweep", ["x"])],
)
def test_a_run_cut_short_is_finished_by_the_next(
    duck: Engine, store: LogStore, monkeypatch: pytest.MonkeyPatch, point: str, users: list[str]
) -> None:
    """Whoever the next run is for."""

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(LogTable if point == "sweep" else module, point, crash)
        with pytest.raises(KeyboardInterrupt):
            forget(store, duck, [GONE])
    assert (store.folder / PENDING).exists()
    again = LogStore.open(store.folder)
    assert forget(again, duck, users, dry_run=True).days
    forget(again, duck, users)
    assert mentions(again.folder, GONE) == []
    assert not any(snapshot.kept and snapshot.files for snapshot in find_snapshots(again))
    assert not (store.folder / PENDING).exists()


KILLED = [
    ("sessions-committed", ["log", "sessions", "LOG"]),
    ("snapshots-moved", ["log", "features", "LOG", "--as-of", NOW.isoformat()]),
    pytest.param("snapshots-committed", ["log", "quarantine", "LOG"], marks=pytest.mark.long),
    pytest.param("events-moved", ["log", "sessions", "LOG"], marks=pytest.mark.long),
    ("events-committed", ["log", "ingest", "MORE", "--into", "LOG"]),
    pytest.param("quarantine-moved", ["log", "features", "LOG", "--as-of", NOW.isoformat()], marks=pytest.mark.long),
    ("quarantine-committed", ["log", "forget", "LOG"]),
]


@pytest.mark.parametrize(("point", "words"), KILLED)
def test_killed_and_finished_by_any_command_that_writes(
    killed: Callable[..., None], store: LogStore, tmp_path: Path, point: str, words: list[str]
) -> None:
    before = read_snapshot(store)
    (store.folder / "models").mkdir()
    (store.folder / "models" / "examination-0.txt").write_text("trees of a model whose JSON is gone")
    killed(forget_user, str(store.folder), GONE, point)
    if point not in ("sessions-committed", "snapshots-moved", "snapshots-committed"):
        assert not before.kept
    more = [row | {"search_id": "new", "user_id": "u-1"} for row in rows_of(2)[:2]]
    (tmp_path / "more.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in more))
    places = {"LOG": str(store.folder), "MORE": str(tmp_path / "more.jsonl")}
    assert "erasure" in run_command(*[places.get(word, word) for word in words]).stderr
    assert mentions(store.folder, GONE) == []
    assert not before.kept
    assert not (store.folder / PENDING).exists()
    assert [*(store.folder / "models").iterdir()] == []


@pytest.mark.parametrize("point", ["quarantine-moved", "events-moved"])
def test_rows_of_an_ingest_that_was_killed_are_erased(
    killed: Callable[..., None], duck: Engine, tmp_path: Path, point: str
) -> None:
    """They are in no table yet, but on disk."""
    rows = rows_of(2)[:16]
    store = make(tmp_path / "with", [row for row in rows if not is_theirs(row)], [])
    more = tmp_path / "more.jsonl"
    more.write_text("".join(f"{json.dumps(row)}\n" for row in rows if is_theirs(row)) + broken_rows()[0] + "\n")
    killed(run, [str(more)], str(store.folder), fault=point)
    assert mentions(store.folder, GONE)
    forget(store, duck, [GONE])
    assert mentions(store.folder, GONE) == []


HIDDEN = [
    json.dumps({"message": json.dumps({"user_id": GONE})}),
    json.dumps({"user_id": "u-1", "url": f"/?uid={GONE}&page=2"}),
    json.dumps({"search_id": "only-broken", "user_id": GONE, "position": "first"}),
    json.dumps({"search_id": "only-broken", "position": "second"}),
    json.dumps({"search_id": "s0", "position": "third"}),
    "s0,unquoted,,line",
]
"""Broken rows that name the user in a text, or only one of the user's searches."""


def test_broken_rows_of_the_users_searches_and_ids_in_texts_are_erased(duck: Engine, tmp_path: Path) -> None:
    store = make(tmp_path / "with", rows_of(1), [*HIDDEN, *broken_rows()[2:]])
    done = forget(store, duck, [GONE])
    assert done.quarantined == len(HIDDEN)
    assert mentions(store.folder, GONE) == []
    assert files_with(store.folder / "quarantine", "only-broken") == []
    assert store.table("quarantine").rows() == 2


def test_events_without_a_user_that_name_one_in_a_text_are_erased(duck: Engine, tmp_path: Path) -> None:
    rows = rows_of(1)
    nobody = {name: value for name, value in rows[2].items() if name not in ("user_id", "query_id")}
    named = nobody | {"search_id": "apart", "query": f"orders of {GONE}"}
    store = make(tmp_path / "with", [*rows, named], [])
    assert forget(store, duck, [GONE]).rows == sum(map(is_theirs, rows)) + 1
    assert mentions(store.folder, GONE) == []


def test_the_header_of_a_csv_file_without_one_is_erased(duck: Engine, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"search_id,{GONE},position\ns1,u-1,1\n")
    ingest([tmp_path / "a.csv"], tmp_path / "log", max_bad_ratio=1)
    store = LogStore.open(tmp_path / "log")
    assert mentions(store.folder / "quarantine", GONE)
    forget(store, duck, [GONE])
    assert mentions(store.folder, GONE) == []
    assert store.table("quarantine").read(["header", "raw"]).to_pylist() == [{"header": "", "raw": b"s1,u-1,1"}]


def test_batches_that_wait_in_the_inbox_are_erased(duck: Engine, tmp_path: Path) -> None:
    store = make(tmp_path / "with", rows_of(1), [])
    inbox = store.folder / ".inbox"
    inbox.mkdir()
    theirs, other = (json.dumps(rows_of(1)[0] | {"search_id": "new", "user_id": user}) for user in (GONE, OTHER))
    for name, lines in (("both", [theirs, other]), ("all", [theirs])):
        (inbox / f"{name}.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    assert forget(store, duck, [GONE]).waiting == 2
    assert mentions(store.folder, GONE) == []
    (left,) = inbox.iterdir()
    assert gzip.decompress(left.read_bytes()).split(b"\n") == [b"", other.encode()]


def test_files_written_from_the_log_are_named(duck: Engine, tmp_path: Path) -> None:
    store = make(tmp_path / "with", rows_of(1), [])
    out = tmp_path / "week.parquet"
    run_command("log", "sessions", store.folder, "--out", out)
    found = run_command("log", "forget", store.folder, "--user", GONE, "--json").json
    assert found["outputs"] == [[str(out), f"clickprism log sessions {store.folder} --out {out}"]]
    assert forget(store, duck, ["nobody"]).outputs == ()
    out.unlink()
    assert store.outputs() == {}


def test_all_goes_on_after_an_erasure(duck: Engine, tmp_path: Path) -> None:
    """Merging, more events, sessions: files that an erasure wrote are like others."""
    rows = rows_of(1)
    store = make(tmp_path / "with", rows, [])
    forget(store, duck, [GONE])
    for number in range(3):
        more = [row | {"search_id": f"more {number}", "user_id": "u-1"} for row in rows[:4]]
        (tmp_path / f"{number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in more))
        ingest([tmp_path / f"{number}.jsonl"], store.folder, many=1)
    compact(store, CompactSettings(files=1))
    assert len(store.table("events").files()) == len(store.table("events").days())
    kept = sum(not is_theirs(row) for row in rows)
    assert store.table("events").rows() == kept + 12
    assert windows(store, duck, NOW, settings=SMALL).snapshot.rows() > 0
    forget(store, duck, ["u-1"])
    compact(store, CompactSettings(files=1))
    assert mentions(store.folder, "u-1") == []


def test_no_id_is_refused(duck: Engine, tmp_path: Path) -> None:
    store = LogStore.open(tmp_path / "log", create=True)
    with pytest.raises(SettingError, match="user must be the id of a user"):
        forget(store, duck, [""])
    with pytest.raises(SettingError, match="user must name at least one user"):
        forget(store, duck, [])


def test_rows_of_many_files_are_counted_by_file(duck: Engine, tmp_path: Path) -> None:
    rows = rows_of(3)
    store = make(tmp_path / "with", rows[:20], [], parts=1)
    (tmp_path / "more.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[20:]))
    ingest([tmp_path / "more.jsonl"], store.folder)
    done = forget(store, duck, [GONE], dry_run=True)
    files = [pq.read_table(file, partitioning=None)["user_id"].to_pylist() for file in store.table("events").files()]
    held = [sum(user in (GONE, None) for user in users) for users in files]
    assert done.rows == sum(map(is_theirs, rows)) == sum(held)
    assert done.files == sum(map(bool, held)) > 2


@pytest.mark.parametrize(
    ("user", "raw", "named"),
    [
        ("u1", b'{"user_id": "u1"}', True),
        ("u1", b'{"user_id": "\\u0075\\u0031"}', True),
        ("u1", b'{"user_id": "u2", "document_id": "u1"}', False),
        ("u1", b'{"user_id": "u1", "user_id": "u2"}', True),
        ("u1", b'{"user_id": null, "who": ["u1"]}', True),
        ("u1", b'{"visitor": {"id": "u1"}, "document_id": "u2"}', True),
        ("u2", b'{"visitor": {"id": "u1"}, "document_id": "u2"}', False),
        ("7", b'{"user_id": 7}', True),
        ("7", b'{"user_id": "8", "display_ms": 7}', False),
        ("7", b'{"document_id": "x", "display_ms": 7}', False),
        ("u1", b'{"user_id": "u1', True),
        ("u1", b'{"user_id": "u1.5', False),
        ("u1", b"s,u1@shop,3", False),
        ("u1", b"s,x:u1,3", False),
        ("u1", b"s,u1,3", True),
        ("u1", b"by u1.", True),
        ("u1", "s,éu1,3".encode(), False),
        ("a/b", b'{"user_id": "a\\/b', True),
        ('a"b', b's,"a""b",3', True),
        ("é", b'{"user_id": "\\u00E9', True),
        ("é", b"s,\xe9,3", True),
    ],
)
def test_broken_rows_that_name_a_user(user: str, raw: bytes, named: bool) -> None:
    batch = pa.record_batch({"raw": pa.array([raw, b""]), "reason": pa.array(["missing", None])})
    assert Mentions([user, "nobody"], user_fields=["visitor.id"]).in_batch(batch).tolist() == [named, False]


def test_copies_that_other_commands_made_of_the_raw_events_are_named(tmp_path: Path, duck: Engine) -> None:
    raw, other = tmp_path / "events.jsonl", tmp_path / "other.jsonl"
    for seed, file in enumerate((raw, other)):
        file.write_text("".join(json.dumps(row | {"kind": "impression"}) + "\n" for row in rows_of(seed)))
    cp.read_log(raw, copy=tmp_path / "copy")
    cp.read_log(raw)  # temporary
    cp.read_log(raw, copy=tmp_path / "deleted")
    cp.read_log(other, copy=tmp_path / "unrelated")
    shutil.rmtree(tmp_path / "deleted")
    for name, write in (("lost", Path.unlink), ("damaged", lambda file: file.write_bytes(b"no Parquet"))):
        cp.read_log(raw, copy=tmp_path / name)
        for file in (tmp_path / name / "files").rglob("*.parquet"):
            write(file)
    ingest([raw], tmp_path / "log")
    named = dict(forget(LogStore.open(tmp_path / "log"), duck, [GONE]).outputs)
    assert {Path(path).name for path in named} == {"copy", "lost", "damaged"}
    assert named[str(tmp_path / "copy")] == f"clickprism log forget {tmp_path / 'copy'} --user {GONE}"
    for name in ("lost", "damaged"):
        assert named[str(tmp_path / name)].startswith(f"rm -r {tmp_path / name}  # cannot be read")
    run_command(*named[str(tmp_path / "copy")].split()[1:])
    assert files_with(tmp_path / "copy", GONE, but=OTHER) == []
