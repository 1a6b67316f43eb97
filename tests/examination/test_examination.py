"""The examination model: cells, trees, measures, files, and its estimates for simulated users."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.metrics import roc_auc_score

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.bias_plots import anchor_curves, calibration_curve, examination_curve
from clickprism.examination.examine import Examination, auc, examine, log_loss, quality
from clickprism.examination.model import (
    BETWEEN,
    CELLS,
    MISSING,
    ExaminationModel,
    cells,
    collected,
    column,
    grow,
    load_model,
    matrix,
    newest_model,
    save_model,
)
from clickprism.examination.settings import ExaminationSettings
from clickprism.log.engines.base import Engine, connect
from clickprism.log.schema import BEHAVIOUR, EXAMINATION_UNIT, SESSIONS
from clickprism.log.store import LogStore
from clickprism.types import Bool, Int64

DAY = date(2026, 1, 5)
POSITIONS = 10


def observed_and_clicked(user: str, *, searches: int, seed: int) -> tuple[Bool, Bool]:
    """Users that read from the top and stop ("cascade"), or look at each position for itself ("position")."""
    rng = np.random.default_rng(seed)
    attraction = rng.choice([0.1, 0.3, 0.55, 0.8], size=(searches, POSITIONS), p=[0.5, 0.2, 0.2, 0.1])
    attracted = rng.random((searches, POSITIONS)) < attraction
    if user == "position":
        observed = rng.random((searches, POSITIONS)) < 1 / np.arange(1, POSITIONS + 1)
        return observed, observed & attracted
    observed, reads = np.zeros((searches, POSITIONS), dtype=np.bool_), np.ones(searches, dtype=np.bool_)
    for place in range(POSITIONS):
        observed[:, place] = reads
        goes_on = np.where(reads & attracted[:, place], 0.35, 0.85)
        reads = reads & (rng.random(searches) < goes_on)
    return observed, observed & attracted


def session_rows(observed: Bool, clicked: Bool, *, seed: int) -> pa.Table:
    """Rows of `SESSIONS`: what is observed is on the screen for long, with much overlap."""
    rng = np.random.default_rng(seed)
    searches, positions = observed.shape
    rows = observed.size
    position = np.tile(np.arange(1, positions + 1), (searches, 1))
    above: Int64 = np.cumsum(clicked, axis=1) - clicked
    last = np.maximum.accumulate(np.where(clicked, position, 0), axis=1)
    previous = np.hstack([np.zeros((searches, 1), dtype=np.int64), last[:, :-1]])
    below = clicked.sum(axis=1, keepdims=True) - above - clicked > 0
    long, short = (rng.lognormal(np.log(ms), spread, observed.shape) for ms, spread in ((6500, 0.8), (500, 1.0)))
    columns: dict[str, Any] = {
        "search_id": np.char.add("search ", np.repeat(np.arange(searches), positions).astype(str)),
        "query_id": np.full(rows, "q"),
        "document_id": np.char.add("d", position.ravel().astype(str)),
        "position": position.ravel(),
        "time": np.full(rows, np.datetime64(datetime(2026, 1, 5, 12), "us")),
        "clicks": clicked.ravel(),
        "display_ms": np.where(observed, long, short).ravel().astype(np.int64),
        "page_skipped": np.zeros(rows, dtype=np.bool_),
        "randomised": np.zeros(rows, dtype=np.bool_),
        "clicked": clicked.ravel(),
        "clicks_before": above.ravel(),
        "click_distance": np.where(previous > 0, position - previous, 0).ravel(),
        "click_below": below.ravel(),
        "page": np.ones(rows, dtype=np.int64),
        "query_bucket": np.repeat(rng.integers(0, 5, searches), positions),
    }
    arrays = [
        pa.array(columns[field.name]).cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in SESSIONS
        if field.name != "day"
    ]
    return pa.table(arrays, schema=pa.schema([field for field in SESSIONS if field.name != "day"]))


def make_log(folder: Path, user: str, *, searches: int, seed: int) -> tuple[LogStore, Path]:
    """A log with sessions of one day and its truth."""
    observed, clicked = observed_and_clicked(user, searches=searches, seed=seed)
    store, table = LogStore.open(folder / "log", create=True), session_rows(observed, clicked, seed=seed)
    put(store, table)
    truth = table.select(["search_id", "document_id", "position"])
    (folder / "truth").mkdir()
    pq.write_table(truth.append_column("observed", pa.array(observed.ravel())), folder / "truth" / "part.parquet")
    return store, folder / "truth"


def put(store: LogStore, table: pa.Table) -> None:
    path = store.folder / "sessions.parquet"
    pq.write_table(table, path)
    store.table("sessions").commit_files({DAY: [path]}, remove_days=[DAY])


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with connect(threads=2, memory="500MB", temp=tmp_path_factory.mktemp("temp")) as engine:
        yield engine


@pytest.fixture(scope="module")
def cascade(tmp_path_factory: pytest.TempPathFactory) -> tuple[LogStore, Path]:
    return make_log(tmp_path_factory.mktemp("cascade"), "cascade", searches=10_000, seed=1)


@pytest.fixture(scope="module")
def trained(cascade: tuple[LogStore, Path], duckdb: Engine) -> tuple[ExaminationModel, Examination]:
    store, truth = cascade
    return examine(store, duckdb, truth=truth)


@pytest.fixture(scope="module")
def model(trained: tuple[ExaminationModel, Examination]) -> ExaminationModel:
    return trained[0]


@pytest.fixture(scope="module")
def found(trained: tuple[ExaminationModel, Examination]) -> Examination:
    return trained[1]


def test_cascade_users_are_recovered(found: Examination) -> None:
    """The bar is AUC 0.90 against true observation; the curves are those of the users."""
    truth = found.truth
    assert truth is not None
    assert truth.quality.rows == pytest.approx(20_000, rel=0.1)
    assert truth.quality.auc > 0.95
    held_out = {point.position: point for point in truth.by_position}
    assert all(abs(point.value - held_out[point.position].value) < 0.05 for point in found.by_position)
    assert found.quality.auc > 0.9
    assert found.quality.calibration_error < 0.02
    assert found.quality.log_loss < 0.6 * found.quality.entropy
    curve = [point.value for point in found.by_position]
    assert curve == sorted(curve, reverse=True)
    assert len(curve) == POSITIONS
    assert list(found.below_anchor) == [1, 2, 3, 4, 5]
    for anchor, points in found.below_anchor.items():
        assert [point.position for point in points] == list(range(anchor, POSITIONS + 1))
        values = [point.value for point in points]
        assert values[0] > 0.95
        assert values[0] - values[1] > 0.3
        for point, true in zip(points[:6], truth.below_anchor[anchor], strict=False):
            assert point.value == pytest.approx(true.value, abs=0.12)


def test_position_users_are_met_as_far_as_behaviour_tells(tmp_path: Path, duckdb: Engine) -> None:
    """Where each position is looked at for itself, no function of behaviour does better than P(observed | k, c)."""
    store, folder = make_log(tmp_path, "position", searches=10_000, seed=2)
    truth = examine(store, duckdb, truth=folder)[1].truth
    assert truth is not None
    observed, clicked = observed_and_clicked("position", searches=10_000, seed=2)
    share = np.array([observed[~clicked[:, place], place].mean() for place in range(POSITIONS)])
    best = roc_auc_score(observed.ravel(), np.where(clicked, 1.0, share).ravel())
    assert truth.quality.auc == pytest.approx(best, abs=0.01)


def test_rows_count_by_hand(duckdb: Engine) -> None:
    table = session_rows(np.ones((1, 6), dtype=np.bool_), np.zeros((1, 6), dtype=np.bool_), seed=0)
    times = pa.array([5001, 5000, 1000, 999, None, 9000], type=pa.int64())
    filters = pa.array([None] * 5 + ["rate"], type=pa.string())
    for name, values in (("display_ms", times), ("filter", filters)):
        table = table.set_column(table.column_names.index(name), name, values)

    def labels(setting: ExaminationSettings) -> list[tuple[int, int, int]]:
        counted = collected(duckdb, cells(duckdb.memory(table), setting), CELLS)
        return [tuple(row.values()) for row in counted.select(["position", "label", "rows"]).to_pylist()]

    assert labels(ExaminationSettings()) == [
        (1, 1, 1),
        (2, BETWEEN, 1),
        (3, BETWEEN, 1),
        (4, 0, 1),
        (5, MISSING, 1),
    ]
    assert labels(ExaminationSettings(missing="negative"))[-1] == (5, 0, 1)
    assert labels(ExaminationSettings(max_position=2))[1:] == [(2, MISSING, 1), (2, BETWEEN, 2), (2, 0, 1)]


def test_searches_are_held_out_whole(cascade: tuple[LogStore, Path], duckdb: Engine) -> None:
    import hashlib

    store, _ = cascade
    sessions = duckdb.read(store.table("sessions").files(), SESSIONS)
    counted = collected(duckdb, cells(sessions, ExaminationSettings(seed=3, held_out=0.25)), CELLS)
    held = counted.filter(counted["held_out"])
    expected = sum(hashlib.sha256(f"3:search {search}".encode()).hexdigest() < "40000000" for search in range(10_000))
    rows, position = column(held, "rows"), column(held, "position")
    assert [int(rows[position == place].sum()) for place in range(1, 11)] == [expected] * 10


def test_growing_on_cells_is_growing_on_rows(cascade: tuple[LogStore, Path], duckdb: Engine) -> None:
    """The same loss and the same bins; only the rounding of 32-bit gradients differs, as long as no splits tie."""
    store, _ = cascade
    setting = ExaminationSettings(trees=30)
    counted = collected(duckdb, cells(duckdb.read(store.table("sessions").files(), SESSIONS), setting), CELLS)
    counted = counted.filter(pa.array(column(counted, "label") >= 0))
    features, positive, rows = matrix(counted), column(counted, "label") == 1, column(counted, "rows")
    merged = ExaminationModel(grow(features, positive, rows, setting), setting)
    apart = grow(
        np.repeat(features, rows, axis=0), np.repeat(positive, rows), np.ones(int(rows.sum()), dtype=np.int64), setting
    )
    difference = merged.booster.predict(features) - ExaminationModel(apart, setting).booster.predict(features)
    assert np.abs(difference).max() < 1e-7
    other = features.copy()
    other[:, 1] = 1 - other[:, 1]
    for clicks in ("all", "others"):
        chosen = replace(setting, clicks=clicks)
        model = ExaminationModel(grow(features, positive, rows, chosen), chosen)
        same = model.booster.predict(features) == model.booster.predict(other)
        assert same.all() == (clicks == "others"), "a model that does not see the click on a document"
        assert (model.fingerprint == merged.fingerprint) == (clicks == "all")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, EXAMINATION_UNIT), st.booleans(), st.integers(1, 5)), min_size=2, max_size=12
    ).filter(lambda rows: len({positive for _, positive, _ in rows}) == 2)
)
def test_measures_of_cells_are_those_of_rows(drawn: list[tuple[int, bool, int]]) -> None:
    units, positive, rows = (np.array(values) for values in zip(*drawn, strict=True))
    all_units, all_positive = np.repeat(units, rows), np.repeat(positive, rows)
    share = np.clip(all_units / EXAMINATION_UNIT, 2**-21, 1 - 2**-21)
    assert auc(units, positive, rows) == pytest.approx(roc_auc_score(all_positive, all_units), abs=1e-12)
    assert log_loss(units, positive, rows) == pytest.approx(sklearn_log_loss(all_positive, share), rel=1e-9)
    one = quality(units, positive, rows)
    split = quality(all_units, all_positive, np.ones(len(all_units), dtype=np.int64))
    assert (one.rows, one.auc) == (split.rows, split.auc)
    assert one.calibration_error == pytest.approx(split.calibration_error)
    assert sum(each.rows for each in one.bins) == one.rows


def test_measures_of_many_rows_are_exact() -> None:
    """Sums beyond 2^63: one negative of a billion stands above the positives."""
    units, positive = np.array([1, 2, 3]), np.array([False, True, False])
    assert auc(units, positive, np.array([4 * 10**9 - 1, 4 * 10**9, 1])) == 1 - 1 / (4 * 10**9)
    assert math.isnan(auc(units, np.zeros(3, dtype=np.bool_), np.ones(3, dtype=np.int64)))


def test_estimates_are_whole_units(model: ExaminationModel) -> None:
    rows = session_rows(*observed_and_clicked("cascade", searches=20, seed=5), seed=5).select(list(BEHAVIOUR))
    batch = rows.to_batches()[0]
    made = model.estimate(batch)
    assert made.schema.names == [*BEHAVIOUR, "examination"]
    assert made.schema.field("examination").type == pa.int64()
    shares = model.booster.predict(matrix(batch))
    assert made.column("examination").to_pylist() == [round(share * 2**20) for share in shares]
    parts = [model.estimate(batch.slice(first, 7)).column("examination") for first in range(0, len(batch), 7)]
    assert pa.concat_arrays(parts) == made.column("examination")
    assert model.estimate(batch.slice(0, 0)).num_rows == 0
    with pytest.raises(DataError, match="needs the column 'position'"):
        model.estimate(batch.select(["page"]))
    deep = batch.slice(0, 1).set_column(0, batch.schema.field(0), pa.array([9999], type=pa.int32()))
    assert 0 <= model.estimate(deep).column("examination")[0].as_py() <= EXAMINATION_UNIT


def test_same_log_same_seed_same_bytes(
    cascade: tuple[LogStore, Path], duckdb: Engine, model: ExaminationModel, found: Examination
) -> None:
    store, _ = cascade
    again, _ = examine(store, duckdb)
    assert (again.text, again.fingerprint, again.quality) == (model.text, model.fingerprint, model.quality)
    assert found.fingerprint == model.fingerprint
    other, _ = examine(store, duckdb, settings=ExaminationSettings(seed=1))
    assert other.fingerprint != again.fingerprint
    sent = copy.deepcopy(model)  # by the protocol that takes it to the workers of Spark
    assert sent is not model
    assert sent.fingerprint == model.fingerprint


def test_files_come_back_and_the_newest_is_current(tmp_path: Path, model: ExaminationModel) -> None:
    assert newest_model(tmp_path / "models") is None
    first = save_model(model, tmp_path / "models")
    assert save_model(model, tmp_path / "models") == first
    read = newest_model(tmp_path / "models")
    assert read == model
    assert read.fingerprint == model.fingerprint
    assert list(read.sessions) == ["2026-01-05"]
    numbers = [
        save_model(ExaminationModel(model.text, ExaminationSettings(seed=seed)), tmp_path / "models").stem
        for seed in range(1, 12)
    ]
    assert numbers[-1] == "examination-000012"
    assert len(list((tmp_path / "models").iterdir())) == 20
    newest = newest_model(tmp_path / "models")
    assert newest is not None
    assert newest.settings.seed == 11


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": "other"}, "has format 'other'"),
        ({"version": 2}, "has version 2, not 1"),
        ({"settings": {"trees": 0}}, "settings.trees must be at least 1"),
        ({"settings": {"forest": 1}}, "settings.forest must be a known setting"),
        ({"settings": {"trees": 99}}, "another fingerprint"),
        ({"fingerprint": "0" * 32}, "another fingerprint"),
        ({"sessions": ["2026-01-05"]}, "does not describe an examination model"),
    ],
)
def test_tampered_json_is_refused(tmp_path: Path, model: ExaminationModel, change: dict[str, Any], text: str) -> None:
    path = save_model(model, tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=text) as error:
        load_model(path)
    assert "clickprism bias examination" in str(error.value)


def test_tampered_trees_are_refused(tmp_path: Path, model: ExaminationModel) -> None:
    path = save_model(model, tmp_path)
    trees = path.with_suffix(".txt")
    trees.write_text(trees.read_text().replace("leaf_value=", "leaf_value=1", 1))
    with pytest.raises(DataError, match=r"another fingerprint than its settings and examination-000001\.txt"):
        load_model(path)
    trees.unlink()
    with pytest.raises(DataError, match=r"examination-000001\.txt: is missing"):
        load_model(path)
    path.write_bytes(b"\xff{")
    with pytest.raises(DataError, match=r"is not valid JSON.*clickprism bias examination"):
        load_model(path)
    other = save_model(ExaminationModel("tree\nversion=v4\n", ExaminationSettings()), tmp_path / "other")
    with pytest.raises(DataError, match="not a LightGBM model"):
        load_model(other)


def test_too_little_to_learn_from(tmp_path: Path, duckdb: Engine) -> None:
    store = LogStore.open(tmp_path / "log", create=True)
    with pytest.raises(DataError, match=r"has no sessions\. Choose other days"):
        examine(store, duckdb)
    table = session_rows(*observed_and_clicked("cascade", searches=8, seed=0), seed=0)
    put(store, table)
    with pytest.raises(DataError, match=r"has no sessions from 2025-01-01 to 2025-02-01"):
        examine(store, duckdb, days=(date(2025, 1, 1), date(2025, 2, 1)))
    with pytest.raises(DataError, match=r"2026-01-05 have \d+ rows displayed .* at least 50 .*--examination none"):
        examine(store, duckdb)
    place = table.column_names.index("display_ms")
    put(store, table.set_column(place, "display_ms", pa.nulls(len(table), pa.int64())))
    with pytest.raises(DataError, match=r"no session row .* display time.*as display_ms, or .*--examination none"):
        examine(store, duckdb)
    place = table.column_names.index("filter")
    put(store, table.set_column(place, "filter", pa.array(["agent"] * len(table))))
    with pytest.raises(DataError, match="the robot rules exclude all session rows of 2026-01-05"):
        examine(store, duckdb)


def test_truth_of_another_log_is_refused(tmp_path: Path, cascade: tuple[LogStore, Path], duckdb: Engine) -> None:
    store, folder = cascade
    with pytest.raises(DataError, match="has no Parquet files"):
        examine(store, duckdb, truth=tmp_path)
    truth = pq.read_table(folder / "part.parquet").slice(0, 3)
    pq.write_table(truth.set_column(0, "search_id", pa.array(["x"] * 3)), tmp_path / "part.parquet")
    with pytest.raises(DataError, match="has none of the held-out rows"):
        examine(store, duckdb, truth=tmp_path)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("negative_ms", 0),
        ("positive_ms", 10),
        ("missing", "positive"),
        ("clicks", "own"),
        ("held_out", 1.0),
        ("trees", 0),
        ("max_position", 300),
        ("min_hessian", -1.0),
    ],
)
def test_settings_are_checked(setting: str, value: object) -> None:
    with pytest.raises(SettingError):
        ExaminationSettings(**{setting: value})  # type: ignore[arg-type]


def test_plots_draw_what_was_found(found: Examination) -> None:
    assert found.truth is not None
    axes = examination_curve(found).axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert np.asarray(lines["mean estimate"].get_ydata()).tolist() == [point.value for point in found.by_position]
    assert "truly observed (held out)" in lines
    anchors = [line.get_label() for line in anchor_curves(found).axes[0].lines]
    assert [name for name in anchors if str(name).startswith("click")] == [f"click at {place}" for place in range(1, 6)]
    offsets = calibration_curve(found).axes[0].collections[0].get_offsets()
    assert np.asarray(offsets).tolist() == [[one.estimate, one.share] for one in found.quality.bins]
