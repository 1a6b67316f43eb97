"""The approximation of a log: fitted to its first slots by what was known before, applied to all its pairs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("ibis")

from clickprism.errors import DataError, SettingError
from clickprism.log.engines.base import Engine, connect
from clickprism.log.settings import WindowSettings
from clickprism.log.store import LogStore
from clickprism.relevance.approximate_log import apply_log, compare_losses, fit_log
from clickprism.relevance.approximation import Approximation, Certainty
from clickprism.relevance.approximation_settings import ApproximateSettings
from clickprism.relevance.estimates import read_estimates
from clickprism.relevance.pairs import FirstSlot
from tests.log.window_logs import Thirds, make_log, session

START = datetime(2026, 3, 2)
DAYS, QUERIES, DOCUMENTS = 6, 40, 4
HALF = START + timedelta(days=3)
BRIEF = ApproximateSettings(members=2, epochs=4)
AS_THEY_ARE: Any = {"window_settings": WindowSettings(k=0)}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[LogStore, Path]:
    """Documents of four click rates, two of them known to the imputation; half of all searches start at random."""
    draw, folder, rows = np.random.default_rng(1), tmp_path_factory.mktemp("approximate"), []
    rates = np.array([0.1, 0.3, 0.6, 0.9])
    for day in range(DAYS):
        for query in range(QUERIES):
            for turn in range(4):
                order = draw.permutation(DOCUMENTS)
                for place, document in enumerate(order.tolist()):
                    clicked = draw.random() < rates[document] * 0.7**place
                    time = START + timedelta(days=day, hours=3 * turn)
                    search, which = f"{day}-{query}-{turn}", {"randomised": place == 0 and turn < 2}
                    rows.append(
                        session(
                            time,
                            search_id=search,
                            query_id=f"q{query}",
                            document_id=f"d{document}",
                            position=place + 1,
                            clicks=int(clicked),
                            user_id=search,
                            **which,
                        )
                    )
    pairs = [(f"q{query}", f"d{document}") for query in range(QUERIES) for document in range(1, DOCUMENTS)]
    pairs.append(("q0", "never shown"))
    values = [0.5 if document == "never shown" else rates[int(document[1])] for _, document in pairs]
    ids = {"query_id": [query for query, _ in pairs], "document_id": [document for _, document in pairs]}
    pq.write_table(pa.table(ids | {"imputation": values}), folder / "imputed.parquet")
    return make_log(folder / "log", rows), folder / "imputed.parquet"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return connect("duckdb", threads=1)


@pytest.fixture(scope="module")
def fitted(log: tuple[LogStore, Path], engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Approximation:
    out = tmp_path_factory.mktemp("fitted") / "networks"
    made = fit_log(log[0], engine, log[1], out, settings=BRIEF, examiner=Thirds(), **AS_THEY_ARE)
    assert (made.as_of, made.until) == (HALF, START + timedelta(days=DAYS))
    assert made.impressions == 2 * QUERIES * DAYS // 2
    assert QUERIES // 2 < made.without_imputation <= QUERIES
    assert list(made.losses.values) == ["click rate", "imputation", "affine", "approximation"]
    assert made.losses.values["approximation"] < made.losses.values["click rate"]
    assert made.losses.queries == QUERIES // 5
    loaded = Approximation.load(out)
    assert (made.folder, made.k) == (out, loaded.k)
    return loaded


def test_every_pair_of_the_log_and_of_the_imputation_is_estimated(
    log: tuple[LogStore, Path], engine: Engine, fitted: Approximation, tmp_path: Path
) -> None:
    store, imputation = log
    out = tmp_path / "e.parquet"
    done = apply_log(store, engine, fitted, out, imputation=imputation, examiner=Thirds(), **AS_THEY_ARE)
    assert (done.pairs, done.imputed_only, done.without_imputation) == (QUERIES * DOCUMENTS + 1, 1, QUERIES)
    table, _, found = read_estimates(out)
    named = np.array(table["document_id"].to_pylist())
    means = [found.values[named == f"d{document}"].mean() for document in range(1, DOCUMENTS)]
    assert (np.diff(means) > 0).all()
    assert ((found.lower < found.values) & (found.values < found.upper)).all()
    assert (found.weight[named == "never shown"] == 0).all()
    whole = pq.read_table(out)
    assert sum(whole["impressions"].to_pylist()) == DAYS * QUERIES * 4 * DOCUMENTS  # of the week: the month ends before


def test_click_vectors_without_its_fields_are_refused(
    log: tuple[LogStore, Path], engine: Engine, fitted: Approximation, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"needs the click feature 'day.examination'"):
        apply_log(log[0], engine, fitted, tmp_path / "e.parquet", imputation=log[1], **AS_THEY_ARE)


def test_mistakes_are_named(log: tuple[LogStore, Path], engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="be within the log"):
        fit_log(log[0], engine, log[1], tmp_path / "a", since=START, settings=BRIEF, **AS_THEY_ARE)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"query_id": ["x"], "document_id": ["y"], "imputation": [0.5]}), other)
    with pytest.raises(DataError, match="has none of the pairs"):
        fit_log(log[0], engine, other, tmp_path / "a", settings=replace(BRIEF, members=1), **AS_THEY_ARE)


def test_certainty_is_recovered() -> None:
    """Truth drawn around the estimates as a Beta distribution of known strength."""
    draw = np.random.default_rng(2)
    shown = draw.choice([0.0, 20.0, 200.0], 20_000)
    values, true = draw.uniform(0.1, 0.9, len(shown)), Certainty(8.0, 0.5, 0.004)
    s = 1 / true.share(shown) - 1
    first = draw.beta(s * values, s * (1 - values))
    impressions = draw.integers(1, 40, len(shown))
    found = Certainty.fit(values, draw.binomial(impressions, first), impressions, shown)
    for n in (0.0, 20.0, 200.0):
        assert found.share(np.array([n]))[0] == pytest.approx(true.share(np.array([n]))[0], rel=0.2)
    made = found.estimates(values, shown, np.zeros(len(shown)))
    held = (made.lower <= first) & (first <= made.upper)
    for n in (0.0, 20.0, 200.0):
        assert held[shown == n].mean() == pytest.approx(0.95, abs=0.02)


def test_intervals_of_losses_hold_no_difference_where_there_is_none() -> None:
    """Two estimates that are off alike, either way: 0 is within 95% intervals nineteen times of twenty."""
    draw, inside = np.random.default_rng(3), 0
    ids = np.array([f"q{i // 4}" for i in range(400)]), np.array([f"d{i}" for i in range(400)])
    for _ in range(300):
        up = draw.random(400) < 0.5
        slot = FirstSlot.of(*ids, draw.binomial(5, 0.5, 400), impressions=np.full(400, 5))
        first, second = np.where(up, 0.6, 0.4), np.where(up, 0.4, 0.6)
        gain = compare_losses(slot, {"a": first, "b": second}).gains["a"]
        inside += gain[1] <= 0 <= gain[2]
    assert inside / 300 == pytest.approx(0.95, abs=0.04)
