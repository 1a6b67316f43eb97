"""Judgment lists for other tools."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.relevance.judgment_files import write_judgments
from clickprism.relevance.table import ESTIMATES
from tests.conftest import Done


def test_judgment_lists_by_hand(tmp_path: Path) -> None:
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


def test_judgments_in_other_formats(tmp_path: Path, estimates: Path, cli: Callable[..., Done]) -> None:
    out, texts = tmp_path / "list.txt", tmp_path / "queries.tsv"

    def written(kind: str, *words: object, code: int = 0) -> Done:
        scale = ["--scale", "absolute", "--cuts", ".3", "--cuts", ".8"]
        return cli("relevance", "judgments", estimates, "--format", kind, "--out", out, *scale, *words, code=code)

    texts.write_text("q1\tred dress\nq2\tblue  jeans\n")
    written("letor", "--queries", texts)
    assert out.read_text() == "2 qid:1 # b red dress\n0 qid:1 # a red dress\n1 qid:2 # a blue jeans\n"
    written("quepid")
    assert out.read_text() == "query,docid,rating\nq1,b,2\nq1,a,0\nq2,a,1\n"
    texts.write_text("q1\tjeans\nq2\tjeans\n")
    assert "the same text 'jeans'" in written("workbench", "--queries", texts, code=1).stderr
    told = written("trec", code=2).stderr
    assert "--format" in told
    assert "workbench" in told
