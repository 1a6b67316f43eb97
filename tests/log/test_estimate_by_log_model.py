"""Estimates by the model of a log: equal on both engines, every shown pair, privacy, imputations, a good engine."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.data.logged import Logged
from clickprism.errors import UnsupportedError
from clickprism.evaluation.measures import evaluate
from clickprism.log.engines.base import Engine
from clickprism.log.load import read_sums
from clickprism.log.store import LogStore
from clickprism.log_model.model import LogModel
from clickprism.relevance.estimate import FittedLog, PriorOfImputation, fit_log, write_posterior
from clickprism.relevance.estimates import ESTIMATES, count_suppressed, read_estimates
from clickprism.relevance.estimators import EstimateSettings
from clickprism.types import Clicks, Float64, Int64, JudgedLists, Lists
from tests.log.window_logs import make_log, session
from tests.relevance.pair_worlds import estimates_around

START = datetime(2026, 3, 1, 12)
DEPTH = 5


@cache
def world(queries: int, searches: int, seed: int) -> tuple[Int64, tuple[dict[str, Any], ...]]:
    """Grades of ten documents a query, and sessions of a good engine whose order varies a little by day.

    Users observe position k with 1 / k and click on what they observe with .04 to .6, by its grade.
    """
    rng = np.random.default_rng(seed)
    grades = rng.choice(5, (queries, 10), p=[0.5, 0.2, 0.15, 0.1, 0.05])
    relevance = 0.04 + 0.56 * grades / 4
    scores = grades + rng.normal(0, 1, grades.shape)
    rows = []
    for query in range(queries):
        for search in range(searches):
            day = search * 3 // searches
            order = np.argsort(-scores[query] - np.random.default_rng([seed, query, day]).normal(0, 0.4, 10))
            for position, document in enumerate(order[:DEPTH], start=1):
                clicked = rng.random() < relevance[query, document] / position
                rows.append(
                    session(
                        START + timedelta(days=day),
                        search_id=f"s{query}-{search}",
                        query_id=f"q{query:03}",
                        document_id=f"d{document}",
                        position=position,
                        clicks=int(clicked),
                        user_id=f"u{search % 7}",
                        randomised=bool(position == 1 and search % 10 == 0),
                        filter="agent" if search % 20 == 19 else None,
                    )
                )
    return grades, tuple(rows)


def one_user_a_day(rows: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Return the rows with one user for each day: a pair has as many users as days on which it was shown."""
    return tuple(row | {"user_id": f"u{row['day']}"} for row in rows)


def pair(row: dict[str, Any]) -> tuple[str, str]:
    return row["query_id"], row["document_id"]


def by_loops(rows: tuple[dict[str, Any], ...]) -> tuple[list[tuple[str, str]], Logged]:
    """The sums by plain loops: pairs in order, and one ranked list of each pair, day, position and chance."""
    kept = [row for row in rows if row["filter"] is None]
    cells = [(*pair(row), row["day"].toordinal(), row["position"], row["randomised"]) for row in kept]
    shown = Counter(cells)
    clicked = Counter(cell for cell, row in zip(cells, kept, strict=True) if row["clicked"])
    pairs = sorted({cell[:2] for cell in shown})
    queries = sorted({query for query, _ in pairs})
    number = {each: row for row, each in enumerate(pairs)}
    order = sorted(shown)
    lengths = [sum(query == each for each, _ in pairs) for query in queries]
    lists = Lists(np.zeros((len(pairs), 0), np.float32), np.append(0, np.cumsum(lengths)), np.array(queries))
    days = np.array([cell[2] for cell in order])
    clicks = Clicks(
        lists,
        np.arange(len(order) + 1),
        np.array([number[cell[:2]] for cell in order]),
        np.array([cell[3] for cell in order], np.int32),
        np.array([clicked[cell] for cell in order]),
        np.array([shown[cell] for cell in order]),
    )
    return pairs, Logged(clicks, days - days.min(), randomised=np.array([cell[4] for cell in order]))


def estimated(
    store: LogStore, engine: Engine, out: Path, *, k: int = 0, imputation: Path | None = None, **options: Any
) -> tuple[FittedLog, list[dict[str, Any]]]:
    fitted = fit_log(store, engine, EstimateSettings(min_users=k), imputation=imputation, **options)
    suppressed = write_posterior(fitted, out, min_users=k, store=store).suppressed
    assert pq.read_schema(out).equals(ESTIMATES)
    assert count_suppressed(out) == suppressed
    read_estimates(out)
    return fitted, pq.read_table(out).to_pylist()


def test_equal_to_loops_on_every_engine(engine: Engine, tmp_path: Path) -> None:
    rows = world(30, 60, 1)[1]
    pairs, logged = by_loops(rows)
    fitted, found = estimated(make_log(tmp_path / "log", rows), engine, tmp_path / "out.parquet")
    for name in ("rows", "positions", "clicks", "impressions"):
        np.testing.assert_array_equal(getattr(fitted.sums.logged.clicks, name), getattr(logged.clicks, name))
    for name in ("days", "randomised"):
        np.testing.assert_array_equal(getattr(fitted.sums.logged, name), getattr(logged, name))
    expected = LogModel.fit(logged)
    assert [pair(row) for row in found] == pairs
    for column, values in (("estimate", expected.relevance.value), ("upper", expected.relevance.upper)):
        np.testing.assert_array_equal([row[column] for row in found], values)
    np.testing.assert_array_equal(fitted.model.curve.values, expected.curve.values)


def test_every_shown_pair_is_in_the_file_and_rows_add_up(duck: Engine, tmp_path: Path) -> None:
    rows = world(30, 60, 1)[1]
    kept = [row for row in rows if row["filter"] is None]
    _, found = estimated(make_log(tmp_path / "log", rows), duck, tmp_path / "out.parquet")
    assert {pair(row) for row in found} == {pair(row) for row in kept}
    assert sum(row["impressions"] for row in found) == len(kept)
    assert sum(row["clicked"] for row in found) == sum(row["clicked"] for row in kept)
    assert {row["source"] for row in found} <= {"clicks", "position"}
    for row in found:
        assert 0 <= row["lower"] <= row["estimate"] <= row["upper"] <= 1
        assert row["variance"] == pytest.approx(((row["upper"] - row["lower"]) / (2 * 1.959964)) ** 2, rel=1e-5)
        assert not row["imputed_only"]
    top = fit_log(LogStore.open(tmp_path / "log"), duck, EstimateSettings(depth=2, min_users=0))
    assert top.sums.below == sum(row["position"] > 2 for row in kept)
    assert len(top.model.curve) == 2


def test_pairs_of_few_users_are_excluded_but_the_curve_stays(duck: Engine, tmp_path: Path) -> None:
    rows = one_user_a_day(world(30, 60, 1)[1])
    users: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if row["filter"] is None:
            users.setdefault(pair(row), set()).add(row["user_id"])
    store = make_log(tmp_path / "log", rows)
    whole, every = estimated(store, duck, tmp_path / "every.parquet")
    fitted, found = estimated(store, duck, tmp_path / "out.parquet", k=3)
    assert {pair(row) for row in found} == {each for each, seen in users.items() if len(seen) >= 3}
    assert count_suppressed(tmp_path / "out.parquet") == len(every) - len(found) > 0
    np.testing.assert_array_equal(fitted.model.curve.values, whole.model.curve.values)
    with pytest.raises(UnsupportedError, match="fewer than 4 users saw each of"):
        estimated(store, duck, tmp_path / "none.parquet", k=4)
    assert not (tmp_path / "none.parquet").exists()


def test_an_imputation_informs_shown_pairs_and_estimates_others(duck: Engine, tmp_path: Path) -> None:
    """The imputation is right up to its scale, which is calibrated: log-odds 2 logit(c_1) + 1."""
    grades, rows = world(60, 20, 2)
    relevance = 0.04 + 0.56 * grades / 4
    odds = 2 * np.log(relevance / (1 - relevance)) + 1
    ids = [(f"q{query:03}", f"d{document}") for query in range(60) for document in range(10)]
    file = tmp_path / "imputed.parquet"
    columns = {"query_id": [query for query, _ in ids], "document_id": [document for _, document in ids]}
    pq.write_table(pa.table(columns | {"imputation": 1 / (1 + np.exp(-odds.ravel()))}), file)
    store = make_log(tmp_path / "log", one_user_a_day(rows))
    fitted, found = estimated(store, duck, tmp_path / "out.parquet", k=2, imputation=file)
    assert [pair(row) for row in found] == sorted(ids)
    shown = {pair(row) for row in rows if row["filter"] is None}
    truth = dict(zip(ids, relevance.ravel(), strict=True))
    never = [row for row in found if row["impressions"] == 0]
    hidden = [row for row in never if pair(row) in shown]
    assert {pair(row) for row in never} >= set(ids) - shown
    assert len(hidden) == count_suppressed(tmp_path / "out.parquet") > 0
    assert all(row["imputed_only"] and row["source"] == "imputation" and row["weight"] == 0 for row in never)
    assert any(row["source"] == "imputation" for row in found if row["impressions"] > 0)
    values = np.array([row["estimate"] for row in never])
    true = np.array([truth[pair(row)] for row in never])
    assert np.corrcoef(values, true)[0, 1] > 0.95
    held = np.mean([row["lower"] <= truth[pair(row)] <= row["upper"] for row in never])
    assert held > 0.9
    assert fitted.model.form.imputation


def test_the_prior_of_pairs_that_were_never_shown_by_hand() -> None:
    shown = estimates_around([0.2, 0.4, 0.6, 0.8] * 50)
    imputed = np.tile([0.2, 0.4, 0.6, 0.8], 50)
    prior = PriorOfImputation.of(imputed, shown)
    found = prior.estimates(np.array([0.3, 0.7]), 0.95)
    np.testing.assert_allclose(found.values, [0.3, 0.7], atol=0.01)
    assert prior.k == pytest.approx(0.2 / (0.1 / 1.96) ** 2 - 1, rel=0.02)  # mean m (1 - m) is .2, no spread around m
    alone = PriorOfImputation.of(imputed[:1], shown.select(slice(1))).estimates(np.array([0.3]), 0.95)
    assert alone.values[0] == pytest.approx(0.3)
    assert alone.lower[0] < 0.01
    assert alone.upper[0] > 0.99


@pytest.mark.parametrize("searches", [4, 40])
def test_estimates_of_a_good_engine_rank_as_well_as_its_order_and_ctr(
    duck: Engine, tmp_path: Path, searches: int
) -> None:
    """nDCG@5 of the shown documents, at most .005 below the logged order and click rate; 200 queries, a fixed seed."""
    grades, rows = world(200, searches, 3)
    _, found = estimated(make_log(tmp_path / "log", rows), duck, tmp_path / "out.parquet")
    places: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row["filter"] is None:
            places.setdefault(pair(row), []).append(row["position"])
    judged = _judged(found, grades)
    scores = {
        "estimate": [row["estimate"] for row in found],
        "order": [-float(np.mean(places[pair(row)])) for row in found],
        "rate": [row["clicked"] / row["impressions"] for row in found],
    }
    measured = {name: _ndcg(judged, np.array(values)) for name, values in scores.items()}
    assert measured["estimate"] >= max(measured["order"], measured["rate"]) - 0.005, measured


def _judged(found: list[dict[str, Any]], grades: Int64) -> JudgedLists:
    queries = np.array([int(row["query_id"][1:]) for row in found])
    documents = np.array([int(row["document_id"][1:]) for row in found])
    offsets = np.searchsorted(queries, np.arange(len(grades) + 1))
    lists = Lists(np.zeros((len(found), 0), np.float32), offsets, np.arange(len(grades)).astype(np.str_))
    return JudgedLists(lists, grades[queries, documents].astype(np.int32))


def _ndcg(judged: JudgedLists, scores: Float64) -> float:
    return float(evaluate(judged, scores, "nDCG(exp)@5")["nDCG(exp)@5"].mean())


def test_known_propensities_replace_the_curve_and_the_model_is_saved(duck: Engine, tmp_path: Path) -> None:
    rows = world(30, 60, 1)[1]
    store = make_log(tmp_path / "log", rows)
    given = 0.8 / np.arange(1, DEPTH + 1)
    fitted, found = estimated(store, duck, tmp_path / "out.parquet", propensities=given, folder=tmp_path / "model")
    np.testing.assert_allclose(fitted.model.curve.values, given / given[0])
    loaded = LogModel.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.relevance.value, [row["estimate"] for row in found])
    assert list(zip(loaded.query_ids.tolist(), loaded.document_ids.tolist(), strict=True)) == [pair(r) for r in found]
    assert loaded.size.sessions == len({row["search_id"] for row in rows if row["filter"] is None})


def test_sums_of_some_days(duck: Engine, tmp_path: Path) -> None:
    rows = world(30, 60, 1)[1]
    store = make_log(tmp_path / "log", rows)
    second = (START + timedelta(days=1)).date()
    sums = read_sums(store, duck, days=[second], users=True)
    kept = [row for row in rows if row["filter"] is None and row["day"] == second]
    assert sums.logged.clicks.impressions.sum() == len(kept)
    assert sums.logged.days is not None
    assert set(sums.logged.days.tolist()) == {0}
    users = {each: len({row["user_id"] for row in kept if pair(row) == each}) for each in map(pair, kept)}
    assert dict(zip(map(tuple, (row.values() for row in sums.pairs.to_pylist())), sums.users, strict=True)) == users
