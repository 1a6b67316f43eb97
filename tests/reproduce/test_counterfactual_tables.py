"""Tables of the study of counterfactual intervals: coverage, the answer, and the figures in the docs."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from clickprism.evaluation.counterfactual.result import NAMES
from reproduce.counterfactual.__main__ import BEGIN, END, EXPECTED, PAGE
from reproduce.counterfactual.run import Row, keep_rows, read_rows
from reproduce.counterfactual.tables import answers, as_csv, lines, reason

GIVEN = Row(0, "pbm", "swap", "near", "query", "ips", True, "", 0, 9, 1, 1.1, 0.9, 1.2, 0.1, 0.2, 0.15, 0.3, "better")
REFUSED = replace(
    GIVEN, refusal="the effective number of queries is 2.0, fewer than 10", value=math.nan, verdict="unknown"
)


def test_the_answer_is_the_first_estimate_that_is_not_refused() -> None:
    """IPS is refused; the interval of the self-normalised estimate contains the truth, that of its gain does not."""
    rows = [replace(GIVEN, estimator="item-position", upper=0.95), REFUSED, replace(GIVEN, estimator="snips")]
    (answer,) = answers(rows)
    assert (answer.estimator, answer.upper, answer.refusal) == ("answer", 1.2, "")
    found = {line.estimator: line for line in lines(rows) if line.unit == "query" and line.ranker == "all"}
    assert (found["answer"].covered, found["answer"].gain_covered, found["answer"].worlds) == (1.0, 0.0, 1)
    assert found["answer"].half_width == pytest.approx(0.15)
    assert (found["item-position"].covered, found["item-position"].given) == (0.0, 1)
    assert (found["ips"].given, found["ips"].reasons) == (0, {"few queries": 1})
    assert (found["answer"].decided, found["answer"].wrong) == (1, 0)


def test_the_answer_is_a_refusal_if_all_are() -> None:
    (answer,) = answers([REFUSED])
    assert reason(answer.refusal) == "few queries"


def test_the_page_has_the_expected_figures() -> None:
    """And every estimator covers the truth in at least 90% of the cases."""
    with EXPECTED.open(encoding="utf-8", newline="") as opened:
        rows = [row for row in csv.DictReader(opened) if row["ranker"] == "all"]
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert [row["estimator"] for row in rows] == ["answer", *NAMES] * 2
    for row in rows:
        assert float(row["covered"]) >= 0.9
        shown = f"| `{row['estimator']}` | {row['unit']} | {row['given']} of {row['cases']} | {row['worlds']} | "
        assert f"{shown}{float(row['covered']):.1%}" in table


def test_rows_are_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reproduce.counterfactual.run.world_rows", lambda seed: [replace(GIVEN, world=seed)])
    assert keep_rows(7, tmp_path) == "7, pbm, swap"
    assert read_rows(tmp_path / "world-7.csv") == [replace(GIVEN, world=7)]
    assert as_csv(list(lines([GIVEN]))).count("\n") == 1 + 2 * 8 * 5
