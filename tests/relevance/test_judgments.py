"""Grades: by hand, what they mean in a log, what is uncertain, and files for other tools."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.errors import SettingError
from clickprism.relevance.estimates import ESTIMATES, SUPPRESSED
from clickprism.relevance.judgments import JudgmentSettings, default_cuts, judge, judge_file, write_judgments
from tests.conftest import Done
from tests.relevance.pair_worlds import estimates_around


def test_every_pair_gets_a_grade_by_the_given_cuts() -> None:
    found = estimates_around([0.8, 0.4, 0.1, 0.2, np.nan, 0.3])
    judged = judge(found, np.full(6, 50), settings=JudgmentSettings(cuts=(0.2, 0.4)))
    assert judged.grades.tolist() == [2, 2, 0, 1, -1, 1]
    assert judged.cuts.tolist() == [0.2, 0.4]


def test_default_cuts_are_multiples_of_the_odds_of_the_average_impression() -> None:
    values, impressions = np.array([0.4, 0.05, np.nan]), np.array([10, 60, 900])
    cuts = default_cuts(values, impressions)  # the mean is (4 + 3) / 70 = .1, odds 1 / 9
    assert (cuts / (1 - cuts)).tolist() == pytest.approx([1 / 18, 1 / 9, 2 / 9, 4 / 9])
    assert default_cuts(values, np.zeros(3, np.int64))[1] == pytest.approx(0.225)
    for extreme in (0.0, 1.0):
        cuts = default_cuts(np.array([extreme]), np.array([5]))
        assert ((cuts > 0) & (cuts < 1)).all()
        assert (np.diff(cuts) > 0).all()
    judged = judge(estimates_around([]), np.zeros(0, np.int64))
    assert (len(judged.grades), len(judged.cuts)) == (0, 4)


def test_grades_do_not_depend_on_the_other_pairs_of_the_file() -> None:
    """With given cuts a part of a file has the grades that it has in the whole."""
    found = estimates_around([0.8, 0.4, 0.1, 0.2])
    whole = judge(found, np.full(4, 50))
    part = judge(found.select(slice(2, 4)), np.full(2, 50), settings=JudgmentSettings(cuts=tuple(whole.cuts.tolist())))
    assert part.grades.tolist() == whole.grades[2:].tolist()


def test_uncertain_are_wide_intervals_and_little_evidence() -> None:
    found = estimates_around([0.35, 0.5, 0.9, 0.9])
    found.lower[:], found.upper[:] = [0.25, 0.2, 0.85, 0.85], [0.55, 0.7, 0.95, 0.95]
    found.weight[3] = 0.5
    settings = JudgmentSettings(cuts=(0.3, 0.6))
    assert judge(found, np.full(4, 9), settings=settings).uncertain.tolist() == [False, True, False, True]
    one = judge(found, np.full(4, 9), settings=JudgmentSettings(cuts=(0.3,), min_weight=0.0))
    assert one.uncertain.tolist() == [True, True, False, False]
    assert one.grades.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"cuts": (0.5, 0.5)}, "cuts must be 1 to 4 numbers between 0 and 1, each above the one before"),
        ({"cuts": (0.1, 0.2, 0.3, 0.4, 0.5)}, "cuts must be 1 to 4 numbers"),
        ({"cuts": (1.0,)}, "cuts must be 1 to 4 numbers"),
        ({"min_weight": -1.0}, "min_weight must be at least 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        JudgmentSettings(**settings)


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


COLUMNS: dict[str, list[Any]] = {
    "query_id": ["q1", "q1", "q2", "q2"],
    "document_id": ["a", "b", "a", "b"],
    "estimate": [0.2, 0.9, 0.5, None],
    "lower": [0.1, 0.85, 0.0, 0.0],
    "upper": [0.25, 0.95, 1.0, 1.0],
    "variance": [1.0] * 4,
    "weight": [50.0, 50.0, 0.0, 0.0],
    "imputed_only": [False, False, True, True],
    "impressions": [60, 60, 2, 0],
    "clicked": [5, 50, 0, 0],
    "imputation": [None] * 4,
    "source": ["clicks", "clicks", "position", None],
    "query": [None, None, "jeans", "jeans"],
}


@pytest.fixture
def estimates(tmp_path: Path) -> Path:
    schema = ESTIMATES.with_metadata({SUPPRESSED: b"7"})
    pq.write_table(pa.table(COLUMNS, schema=schema), tmp_path / "estimates.parquet")
    return tmp_path / "estimates.parquet"


def test_a_table_has_every_pair_with_its_source_and_uncertainty(tmp_path: Path, estimates: Path) -> None:
    texts, out = tmp_path / "queries.tsv", tmp_path / "list.jsonl"
    texts.write_text("q1\tred dress\n")
    found = judge_file(estimates, out, JudgmentSettings(cuts=(0.3, 0.8)), queries=texts)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    names = [
        "query_id",
        "document_id",
        "query",
        "grade",
        "estimate",
        "lower",
        "upper",
        "source",
        "impressions",
        "uncertain",
    ]
    assert [list(row) for row in rows] == [names] * 3
    assert [tuple(row.values()) for row in rows] == [
        ("q1", "b", "red dress", 2, 0.9, 0.85, 0.95, "clicks", 60, False),
        ("q1", "a", "red dress", 0, 0.2, 0.1, 0.25, "clicks", 60, False),
        ("q2", "a", None, 1, 0.5, 0.0, 1.0, "position", 2, True),
    ]
    assert (found.judged, found.uncertain, found.suppressed, found.without_estimate) == (3, 1, 7, 1)
    assert found.grades == {"0": 1, "1": 1, "2": 1}
    assert found.uncertain_grades == {"0": 0, "1": 1, "2": 0}
    assert found.sources == {"clicks": 2, "position": 1}
    assert found.warning is not None
    assert "7 of 10 pairs are not in the list" in found.warning
    assert [row[:2] for row in found.tables()[2].rows] == [
        ["seen by too few users (privacy)", "7"],
        ["without an estimate", "1"],
    ]
    judge_file(estimates, tmp_path / "list.parquet", queries=texts)
    assert pq.read_table(tmp_path / "list.parquet")["query"].to_pylist() == ["red dress", "red dress", None]


def test_judgments_in_other_formats(tmp_path: Path, estimates: Path, cli: Callable[..., Done]) -> None:
    out, texts = tmp_path / "list.txt", tmp_path / "queries.tsv"

    def written(kind: str, *words: object, code: int = 0) -> Done:
        cuts = ["--cuts", ".3", "--cuts", ".8"]
        return cli("relevance", "judgments", estimates, "--format", kind, "--out", out, *cuts, *words, code=code)

    written("quepid")
    assert out.read_text() == "query,docid,rating\nq1,b,2\nq1,a,0\njeans,a,1\n"
    texts.write_text("q1\tjeans\nq2\tjeans\n")
    written("quepid", "--queries", texts)
    assert (
        out.read_text() == "query,docid,rating\njeans,b,2\njeans,a,0\n"
    )  # of a the grade for q1, which has more impressions
    refused = written("trec", code=2).stderr
    assert "--format" in refused
    assert "workbench" in refused
