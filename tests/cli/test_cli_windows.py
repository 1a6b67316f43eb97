"""`clickprism windows` and `clickprism forget`: what they print, and their errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clickprism.cli_old.app import app
from clickprism.log.engine import connect
from clickprism.log.follow import follow
from clickprism.log.ingest import ingest
from clickprism.log.store import PENDING, LogStore
from clickprism.log.windows import windows
from tests.log.window_logs import Thirds


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two users who see one document on two days, and one who sees another."""
    folder = tmp_path_factory.mktemp("log")
    shown = [("a", "d1", 0), ("b", "d1", 26), ("c", "d2", 1)]
    rows = [
        {
            "search_id": f"s-{user}",
            "query_id": "q",
            "document_id": document,
            "position": 1,
            "time": (datetime(2026, 3, 4, 10) - timedelta(hours=back)).isoformat() + "Z",
            "click": True,
            "user_id": f"user-{user}",
        }
        for user, document, back in shown
    ]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ingest([folder / "rows.jsonl"], folder / "log")
    return folder / "log"


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


def test_windows_then_forget(log: Path, tmp_path: Path) -> None:
    code, said, noted = run("windows", log, "--k", 2, "--out", tmp_path / "x.parquet")
    assert code == 0, noted
    assert said.startswith("As of 2026-03-05 00:00 UTC: 1 pairs, 144 fields")
    assert "under 2 users" in said
    assert (tmp_path / "x.parquet").is_file()
    code, said, _ = run("windows", log, "--k", 2, "--as-of", "2026-03-05", "--json", "--examination", "none")
    found = json.loads(said)
    assert (found["changed"], found["rows"], found["suppressed"]["week"]) == (False, 1, 1)
    code, said, noted = run("windows", log, "--k", 9)
    assert "all are left out" in noted
    code, said, _ = run("forget", log, "--user", "user-a", "--dry-run", "--json")
    assert (json.loads(said)["rows"], json.loads(said)["dry_run"]) == (1, True)
    code, said, noted = run("forget", log, "--user", "user-a")
    assert code == 0
    assert "snapshots dropped" in said
    assert "Next: " in noted
    code, said, _ = run("windows", log, "--k", 2, "--json")
    assert json.loads(said)["rows"] == 0
    assert run("forget", log, "--user", "user-a")[1].startswith("The log has no row of them: nothing to erase")
    (log / PENDING).write_text(json.dumps({"users": ["user-c"], "days": []}))
    code, said, noted = run("forget", log, "--json")
    assert (code, json.loads(said)["rows"]) == (0, 1), noted
    (log / PENDING).write_text(json.dumps({"users": ["user-c"], "days": []}))
    code, said, noted = run("windows", log, "--k", 0)
    assert "left out" in said
    assert "Finished an erasure of users that had been interrupted" in noted
    assert not (log / PENDING).exists()
    code, said, noted = run("windows", log, "--k", 0, "--as-of", "2026-07-01")
    assert "the log ends 2026-03-04 00:00. As of then: clickprism windows" in noted
    assert [*(log / "staging").iterdir()] == []


def test_a_change_of_width_is_said_even_if_quiet(log: Path) -> None:
    store, time = LogStore.open(log), datetime(2026, 3, 1)
    with connect(memory="500MB", threads=1) as running:
        windows(store, running, time, examiner=Thirds())
    code, _, noted = run("windows", log, "--as-of", "2026-03-01", "--quiet")
    assert code == 0
    assert noted.startswith("warning: x has 144 fields, and had 180 in the snapshot before")
    assert run("windows", log, "--as-of", "2026-03-01", "--quiet")[2] == ""


def test_following_sees_settings_and_leaves_nothing(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round reads `log.toml` anew, and closes its engine."""
    times = iter([datetime(2026, 3, 5, 1)] * 3)
    kept = (log / "log.toml").read_text()

    def sleep(_: float) -> None:
        (log / "log.toml").write_text(kept.replace("k = 5", "k = 3"))

    def limited(make: Callable[[datetime], object], *, state: Callable[[], object], **_: object) -> None:
        follow(make, state=state, clock=lambda: next(times), sleep=sleep, rounds=3)

    monkeypatch.setattr("clickprism.log.follow.follow", limited)
    code, said, noted = run("windows", log, "--follow", "--json")
    (log / "log.toml").write_text(kept)
    assert code == 0, noted
    assert [json.loads(line)["k"] for line in said.splitlines()] == [5, 3]
    assert [*(log / "staging").iterdir()] == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--as-of", "soon"], 2, "--as-of must be a time such as"),
        (["--as-of", "now", "--follow"], 2, "--as-of must not be given with --follow"),
        (["--k", "-1"], 2, "windows.k must be 0 or more, got -1"),
        (["--engine", "mysql"], 2, "engine must be duckdb"),
        (["--as-of", "9999-12-31"], 2, "--as-of must not be after now"),
        (["--out", "x.csv"], 2, "--out must end in .parquet, got 'x.csv'"),
        (["--out", "/dev/null/x.parquet"], 3, "/dev/null/x.parquet: cannot be written (File exists)"),
        (["--examination", "missing.json"], 3, "is not there"),
    ],
)
def test_errors(log: Path, words: list[str], code: int, message: str) -> None:
    found = run("windows", log, *words)
    assert found[0] == code
    assert message in found[2]


def test_no_log(tmp_path: Path) -> None:
    assert "is not a click log" in run("windows", tmp_path)[2]
