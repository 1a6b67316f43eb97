"""Judgment lists for other tools."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from clickprism.cli_old.app import app
from clickprism.relevance.judgment_files import write_judgments
from clickprism.relevance.table import ESTIMATES


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


def test_judgement_lists_by_hand(tmp_path: Path) -> None:
    rows = [("red, dress", "d1", 3), ("red, dress", "d 2", 0), ("jeans", "d1", 1)]
    write_judgments(tmp_path / "j.json", rows, kind="workbench", name="mine")
    body = json.loads((tmp_path / "j.json").read_text())
    assert (body["name"], body["type"]) == ("mine", "IMPORT_JUDGMENT")
    first = {
        "query": "red, dress",
        "ratings": [{"docId": "d1", "rating": "3.000"}, {"docId": "d 2", "rating": "0.000"}],
    }
    assert body["judgmentRatings"] == [first, {"query": "jeans", "ratings": [{"docId": "d1", "rating": "1.000"}]}]
    write_judgments(tmp_path / "j.csv", rows, kind="quepid")
    with (tmp_path / "j.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["query", "docid", "rating"], *[[q, d, str(g)] for q, d, g in rows]]
    write_judgments(tmp_path / "empty.json", [], kind="workbench")
    assert json.loads((tmp_path / "empty.json").read_text())["judgmentRatings"] == []


@pytest.fixture
def estimates(tmp_path: Path) -> Path:
    columns = {
        "query_id": ["q1", "q1", "q2"],
        "document_id": ["a", "b", "a"],
        "estimate": [0.2, 0.9, 0.5],
        "lower": [0.0] * 3,
        "upper": [1.0] * 3,
        "variance": [1.0] * 3,
        "weight": [50.0] * 3,
        "imputed_only": [False] * 3,
        "impressions": [60] * 3,
        "clicked": [5] * 3,
        "imputation": [None] * 3,
    }
    pq.write_table(pa.table(columns, schema=ESTIMATES), tmp_path / "estimates.parquet")
    return tmp_path / "estimates.parquet"


def test_judgments_in_other_formats(tmp_path: Path, estimates: Path) -> None:
    (tmp_path / "queries.tsv").write_text("q1\tred dress\nq2\tblue  jeans\n")
    scale = ["--set", "scale=absolute", "--set", "cuts=[.3, .8]"]
    texts = ["--queries", tmp_path / "queries.tsv"]
    out = tmp_path / "list.txt"
    code, _, noted = run("judgments", estimates, "--format", "letor", "--out", out, *scale, *texts)
    assert (code, out.read_text()) == (
        0,
        "2 qid:1 # b red dress\n0 qid:1 # a red dress\n1 qid:2 # a blue jeans\n",
    ), noted
    assert run("judgments", estimates, "--format", "quepid", "--out", out, *scale)[0] == 0
    assert out.read_text() == "query,docid,rating\nq1,b,2\nq1,a,0\nq2,a,1\n"
    (tmp_path / "queries.tsv").write_text("q1\tjeans\nq2\tjeans\n")
    code, _, noted = run("judgments", estimates, "--format", "workbench", "--out", out, *scale, *texts)
    assert (code, "the same text 'jeans'" in noted) == (3, True)
    code, _, noted = run("judgments", estimates, "--format", "trec", "--out", out)
    assert (code, "be one of table, workbench, quepid, letor" in noted) == (2, True)
