"""Estimates of a log: the same as by loops over its rows, on both engines, bit for bit; imputations; few users."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.errors import DataError
from clickprism.log.engines.base import Engine
from clickprism.log_model.results import ClickParameters
from clickprism.relevance.estimate import LogEstimates, estimate_log
from clickprism.relevance.estimates import ESTIMATES, Estimates, count_suppressed, read_estimates
from clickprism.relevance.estimators import Affine, DoublyRobust, Estimator
from clickprism.relevance.pairs import PairCounts
from tests.log.window_logs import UNIT, Thirds, make_log, random_rows

END = datetime(2026, 3, 4, 15, 30)
DEPTH = 3
PARAMETERS = ClickParameters(np.array([1.0, 0.7, 0.4]), np.array([0.0, -0.02, -0.05]))
ROWS = random_rows(3, count=600, end=END)
IMPUTED = {("q1", "d1"): 0.3, ("q1", "d2"): 0.6, ("q2", "d1"): 0.2, ("q2", "d3"): 0.45, ("q3", "new"): 0.8}


def by_loops(rows: Iterable[dict[str, Any]]) -> tuple[list[tuple[str, str]], PairCounts]:
    sums: dict[tuple[str, str], Any] = defaultdict(lambda: np.zeros((5, DEPTH)))
    for row in rows:
        if row["filter"] is None:
            pair, unit = (row["query_id"], row["document_id"]), Thirds.units(row)
            clicked = int(row["clicked"])
            seen = np.array([UNIT, clicked * UNIT, unit, clicked * unit, unit * unit // UNIT]) / UNIT
            if row["position"] <= DEPTH:
                sums[pair][:, row["position"] - 1] += seen
            else:
                sums[pair] += 0
    pairs = sorted(sums)
    whole = np.stack([sums[pair] for pair in pairs])
    return pairs, PairCounts(whole[:, 0].astype(int), whole[:, 1].astype(int), whole[:, 2], whole[:, 3], whole[:, 4])


def made(
    engine: Engine, tmp_path: Path, estimator: Estimator, imputed: dict[tuple[str, str], float] | None, k: int = 0
) -> tuple[LogEstimates, dict[tuple[str, str], dict[str, Any]]]:
    store, file = make_log(tmp_path / "log", ROWS), None
    if imputed is not None:
        file = tmp_path / "imputed.parquet"
        table = {"query_id": [q for q, _ in imputed], "document_id": [d for _, d in imputed]}
        pq.write_table(pa.table(table | {"imputation": list(imputed.values())}), file)
    out = tmp_path / "out.parquet"
    told = estimate_log(
        store,
        engine,
        out,
        estimator=estimator,
        parameters=PARAMETERS,
        imputation=file,
        k=k,
        examiner=Thirds(),
    )
    assert pq.read_schema(out).equals(ESTIMATES)
    return told, {(row["query_id"], row["document_id"]): row for row in pq.read_table(out).to_pylist()}


def same(rows: dict[tuple[str, str], dict[str, Any]], pairs: list[tuple[str, str]], expected: Estimates) -> None:
    for number, pair in enumerate(pairs):
        for column, values in (("estimate", expected.values), ("lower", expected.lower), ("weight", expected.weight)):
            found = np.nan if rows[pair][column] is None else rows[pair][column]
            np.testing.assert_array_equal(found, values[number])


def test_equal_to_loops(engine: Engine, tmp_path: Path) -> None:
    pairs, counts = by_loops(ROWS)
    told, rows = made(engine, tmp_path, Affine(), None)
    same(rows, pairs, Affine().estimate(counts, PARAMETERS))
    assert sorted(rows) == pairs
    deep = [row for row in ROWS if row["filter"] is None and row["position"] > DEPTH]
    assert (told.below, told.suppressed, told.imputed_only) == (len(deep), 0, 0)


def test_with_an_imputation(duck: Engine, tmp_path: Path) -> None:
    """Pairs without an imputation take its mean over those shown, pairs without impressions are what it says."""
    pairs, counts = by_loops(ROWS)
    estimator = DoublyRobust()
    given = np.array([IMPUTED.get(pair, np.nan) for pair in [*pairs, ("q3", "new")]])
    filled = np.where(np.isnan(given), np.nanmean(given[:-1]), given)
    nothing = [np.zeros((1, DEPTH), sums.dtype) for sums in counts.sums]
    whole = PairCounts(*(np.concatenate([sums, none]) for sums, none in zip(counts.sums, nothing, strict=True)))
    told, rows = made(duck, tmp_path, estimator, IMPUTED)
    same(rows, [*pairs, ("q3", "new")], estimator.estimate(whole, PARAMETERS, filled))
    new = rows["q3", "new"]
    assert (new["impressions"], new["imputed_only"], new["imputation"]) == (0, True, 0.8)
    assert told.imputed_only == sum(row["imputed_only"] for row in rows.values())
    assert told.without_imputation == len(pairs) + 1 - len(IMPUTED)


@pytest.mark.parametrize("k", [0, 999])
def test_pairs_that_were_never_shown_are_their_imputation(duck: Engine, tmp_path: Path, k: int) -> None:
    """With none that enough users saw, there is the imputation."""
    many = {("new", f"d{number}"): 0.25 for number in range(500)}
    told, rows = made(duck, tmp_path, DoublyRobust(), many, k=k)
    assert told.pairs == len(many) + (0 if k else len(by_loops(ROWS)[0]))
    assert all(rows[pair]["estimate"] == 0.25 and rows[pair]["imputed_only"] for pair in many)


def test_clicks_of_few_users_do_not_speak(duck: Engine, tmp_path: Path) -> None:
    users = defaultdict(set)
    for row in ROWS:
        if row["filter"] is None:
            users[row["query_id"], row["document_id"]].add(row["user_id"])
    number = {pair: len(seen - {None}) for pair, seen in users.items()}
    k = max(number.values())
    told, rows = made(duck, tmp_path, Affine(), None, k=k)
    assert sorted(rows) == sorted(pair for pair, count in number.items() if count >= k)
    assert told.suppressed == count_suppressed(told.file) == len(number) - len(rows)
    with pytest.raises(DataError, match="fewer than 10 users saw each of the 6 pairs"):
        made(duck, tmp_path / "again", Affine(), None, k=k + 1)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("q", "d", 1.5)], "not within 0 and 1: 1.5"),
        ([("q", "d", 0.5), ("q", "d", 0.4)], "has a pair twice"),
        ([("q", None, 0.5)], "without document_id"),
    ],
)
def test_bad_imputations(duck: Engine, tmp_path: Path, rows: list[Any], said: str) -> None:
    file = tmp_path / "imputed.parquet"
    columns = zip(*rows, strict=True)
    types = (pa.string(), pa.string(), pa.float64())
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    pq.write_table(pa.table(arrays, names=["query_id", "document_id", "imputation"]), file)
    store = make_log(tmp_path / "log", ROWS[:5])
    with pytest.raises(DataError, match=said):
        estimate_log(
            store,
            duck,
            tmp_path / "o.parquet",
            estimator=Affine(),
            parameters=PARAMETERS,
            imputation=file,
        )
    with pytest.raises(DataError, match="clickprism relevance estimate"):
        read_estimates(file)
    assert not (tmp_path / "o.parquet").exists()
