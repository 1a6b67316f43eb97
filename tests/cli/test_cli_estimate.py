"""`clickprism estimate`, `judgments` and `rank`: from a log to grades and rankings, and their errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from clickprism.cli_old.app import app
from clickprism.log.ingest import ingest
from clickprism.observation.parameters import ClickParameters


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query with three documents, of which the first is clicked always, the second often, the third never."""
    folder = tmp_path_factory.mktemp("estimates")
    rows = [
        {
            "search_id": f"s{number}",
            "query_id": "q",
            "document_id": document,
            "position": place + 1,
            "time": f"2026-03-0{1 + number % 3}T10:00:00Z",
            "click": number % 4 < chance,
            "user_id": f"u{number}",
        }
        for number in range(60)
        for place, (document, chance) in enumerate((("always", 4), ("often", 2), ("never", 0)))
    ]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ingest([folder / "rows.jsonl"], folder / "log")
    ClickParameters(np.array([1.0, 0.8, 0.6]), np.zeros(3)).write(folder / "parameters.json")
    return folder


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


def test_impute_takes_a_log_that_was_only_ingested(tmp_path: Path) -> None:
    rows = [
        {
            "search_id": f"s{number}",
            "query_id": f"q{number % 40}",
            "document_id": f"d{number % 3}",
            "position": 1,
            "time": "2026-03-01T10:00:00Z",
            "click": number % 3 > 0,
            "user_id": f"u{number}",
            "randomised": True,
            "features": {"good": float(number % 3), "same": 1.0},
        }
        for number in range(240)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ingest([tmp_path / "rows.jsonl"], tmp_path / "log")
    words = ["--features", tmp_path / "log", "--ranker", "linear", "--epochs", 2, "--out", tmp_path / "imputation"]
    code, said, noted = run("impute", "--clicks", tmp_path / "log", *words, "--json")
    assert code == 0, noted
    assert json.loads(said)["impressions"] == 240
