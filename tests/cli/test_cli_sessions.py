"""`clickprism sessions`, from events to a file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from clickprism.cli_old.app import app
from clickprism.cli_old.output import Output
from clickprism.log.schema import SESSIONS
from tests.log.event_logs import event
from tests.log.test_sessions import DAY, log


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["sessions", *words])
    assert result.exit_code == code, result.output + str(result.exception)
    return result.stdout if code == 0 else result.output


def test_sessions_are_made_once_and_written(tmp_path: Path) -> None:
    rows = [
        event("ranking", "s", documents=["a", "b"], clicked=["b", "z"]),
        event("ranking", "bot", documents=["a"], agent="curl/8"),
    ]
    folder = str(log(tmp_path / "log", rows).folder)
    assert run(folder, "--days", "2020-01-01..2020-01-31").strip() == "All days were up to date"
    first = run(folder)
    assert "left out by rules" in first
    assert first.splitlines()[1].split() == [DAY.isoformat(), "1", "2", "1", "1", "1"]
    out = tmp_path / "out.parquet"
    told = json.loads(run(folder, "--days", DAY.isoformat(), "--out", str(out), "--json"))
    assert told == {"rebuilt": [], "rows_written": 2, "days": 1}
    written = pq.read_table(out)
    assert written.schema.equals(SESSIONS)
    assert sorted(written["document_id"].to_pylist()) == ["a", "b"]
    assert list((tmp_path / "log" / "staging").iterdir()) == []


def test_sessions_errors(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert "is not a click log" in run(folder, code=3)
    for words in (["--days", "x"], ["--days", "2026-02-01..2026-01-01"], ["--out", "a.csv"]):
        assert f"{words[0]} must" in run(folder, *words, code=2)
    log(tmp_path / "log", [event("ranking", "s", documents=["a"])])
    assert "engine must be" in run(str(tmp_path / "log"), "--engine", "fast", code=2)


@pytest.mark.parametrize("words", [["sessions"], ["examine"], ["windows"], ["forget", "--user", "u"]])
def test_every_command_on_spark_says_that_it_starts(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(tmp_path / "log", [event("impression", "s", document_id="a", display_ms=6000)])
    said: list[str] = []
    monkeypatch.setattr(Output, "starting", lambda _, engine: said.append(engine))
    done = CliRunner().invoke(app, [*words, str(tmp_path / "log"), "--engine", "fast"])
    assert (done.exit_code, said) == (2, ["fast"])
