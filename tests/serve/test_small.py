"""Small rankers by compiled code: the scores of the model and of ONNX Runtime, in the same order."""

from __future__ import annotations

import gc
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clickprism.data.normalise import Kind, fit
from clickprism.errors import DataError
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.serve import small as module
from clickprism.serve.block import pack, unpack
from clickprism.serve.bundle import write_bundle
from clickprism.serve.feature_scorer import FeatureScorer
from clickprism.serve.publish import builder
from clickprism.serve.scorer import Candidates
from clickprism.serve.sessions import open_session
from clickprism.serve.small import Small
from clickprism.serve.store import StoreInfo, open_store
from clickprism.types import Float32, Lists
from tests.serve.rankers import FEATURES, network_model

SMALL = [
    Linear(),
    MLP(hidden=(16, 8)),
    MLP(hidden=(5,), activation="relu"),
    MLP(hidden=(33, 7, 3), activation="elu", layer_norm="none"),
]


def near_lists(*, missing: bool) -> Lists:
    """Features whose centres are near 0, as seen from their spread: their normalisation can be folded."""
    draw = np.random.default_rng(3)
    features = (draw.normal(size=(54, FEATURES)) * 10.0 ** draw.integers(-2, 3, FEATURES)).astype(np.float32)
    features += features.std(0) * draw.normal(size=FEATURES).astype(np.float32)
    if missing:
        features[draw.random(features.shape) < 0.1] = np.nan
    return Lists(features, np.arange(0, 55, 9), np.array([f"q{place}" for place in range(6)]))


def read_only(rows: Float32) -> Float32:
    view = rows.view()
    view.flags.writeable = False
    return view


@pytest.mark.parametrize("kind", ["none", "minmax", "standard"])
@pytest.mark.parametrize("ranker", SMALL, ids=str)
def test_small_networks_score_as_in_onnx_runtime(ranker: Any, kind: Kind, tmp_path: Path) -> None:
    lists = near_lists(missing=kind != "none")
    model = network_model(ranker).with_normaliser(fit(kind, lists))
    bundle = write_bundle(tmp_path / "bundle", model)
    ours = FeatureScorer(bundle)
    assert ours.small is not None
    ours.warm()
    short = ours.score(Candidates(features=lists.features)).scores
    long = ours.score(Candidates(features=np.tile(lists.features, (40, 1)))).scores
    np.testing.assert_allclose(long, np.tile(short, 40), rtol=0, atol=1e-6 * np.abs(short).max())
    session = open_session(bundle.read("network.onnx"), threads=1, file="here")
    for other in (session.run(None, {"features": lists.features})[0], model.score(lists)):
        np.testing.assert_allclose(short, other, rtol=0, atol=3e-6 * np.abs(other).max())


@pytest.mark.parametrize("hidden", [(5,), (300, 200)], ids=["small", "large"])
@pytest.mark.parametrize("kind", ["none", "standard", "log1p", "query-standard"])
def test_a_missing_value_without_a_rule_is_no_score(hidden: tuple[int, ...], kind: Kind, tmp_path: Path) -> None:
    lists = near_lists(missing=False)
    ranker = MLP(hidden=hidden, activation="relu", layer_norm="none")
    model = network_model(ranker).with_normaliser(fit(kind, lists))
    ours = FeatureScorer(write_bundle(tmp_path / "bundle", model))
    assert (ours.small is None) is (hidden == (300, 200) or kind in {"log1p", "query-standard"})
    lists.features[4, 1] = np.nan
    if kind == "none":
        with pytest.raises(DataError, match="document 5 of the list has no score: it has no finite value of"):
            ours.score(Candidates(features=lists.features))
    else:
        scores = ours.score(Candidates(features=lists.features, offsets=lists.offsets)).scores
        np.testing.assert_allclose(scores, model.score(lists), rtol=0, atol=1e-5 * np.abs(scores).max())


@pytest.mark.parametrize("count", [0, 1, 50, 128, 129, 1024])
def test_the_ranking_is_a_stable_sort(count: int) -> None:
    draw = np.random.default_rng(count)
    rows = draw.integers(0, 9, (200, 3)).astype(np.float32)
    places = draw.integers(0, 200, count)
    one = Small([(np.array([[1.0, 2.0]]), np.array([0.5]))], activation="relu", norms=False, fill=np.zeros(2, "f4"))
    found = one.rank(read_only(rows), places, 1)
    assert found is not None
    wanted = rows[places, 1] + 2.0 * rows[places, 2] + 0.5
    np.testing.assert_array_equal(found[1][0], wanted)
    np.testing.assert_array_equal(found[0], (-wanted).argsort(kind="stable"))
    np.testing.assert_array_equal(found[1][1], wanted[found[0]])


def test_missing_values_are_filled_or_have_no_score() -> None:
    weight, rows = [(np.array([[1.0, 1.0]]), np.array([0.0]))], np.array([[1, np.nan], [2, 3]], "f4")
    filled = Small(weight, activation="relu", norms=False, fill=np.array([0, 7], "f4"))
    found = filled.rank(read_only(rows), np.arange(2), 0)
    assert found is not None
    assert found[1].tolist() == [[8, 5], [8, 5]]
    lost = Small(weight, activation="relu", norms=False, fill=np.array([0, np.nan], "f4"))
    assert lost.rank(read_only(rows), np.arange(2), 0) is None
    assert lost.rank(read_only(rows), np.ones(1, np.int64), 0) is not None


def test_large_activations_saturate() -> None:
    layers = [(np.eye(2), np.zeros(2)), (np.array([[1.0, 1.0]]), np.array([0.0]))]
    one = Small(layers, activation="elu", norms=False, fill=np.zeros(2, "f4"))
    rows = np.array([[-1e30, 0], [-88, -87], [-1e-7, 1e30], [-1, 2]], "f4")
    scores = one.scores(rows)
    wanted = np.where(rows > 0, rows, np.expm1(np.minimum(rows, 0).astype(np.float64))).sum(1)
    np.testing.assert_allclose(scores, wanted, rtol=1e-6, atol=1e-7)


def test_other_networks_stay_with_onnx_runtime(tmp_path: Path) -> None:
    rankers = [MLP(hidden=(8,), activation="gelu"), MLP(hidden=(8,), layer_norm="all"), MLP(hidden=(300, 200))]
    for place, ranker in enumerate(rankers):
        assert FeatureScorer(write_bundle(tmp_path / str(place), network_model(ranker))).small is None
    assert FeatureScorer(write_bundle(tmp_path / "list", network_model(SMALL[1], "query-standard"))).small is None


@pytest.mark.parametrize(
    "shapes", [{"layers.0": (4, 8), "layers.2": (1, 4)}, {"layers.0": (4, 7), "layers.2": (1, 5)}, {"layers.0": (4, 7)}]
)
def test_layers_that_do_not_fit_are_refused(shapes: dict[str, tuple[int, int]]) -> None:
    tensors: dict[str, NDArray[np.float64]] = {}
    for name, shape in shapes.items():
        tensors |= {f"{name}.weight": np.ones(shape), f"{name}.bias": np.ones(shape[0])}
    with pytest.raises(DataError, match=r"does not (fit the one before|end in one score)"):
        module._chain(tensors, features=FEATURES, file="here")


def test_rows_that_are_not_aligned_are_copied() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = pack(["a", "b"], rows)
    for shift in range(4):
        moved = memoryview(bytes(shift) + value)[shift:]
        block = unpack(moved, fields=3, what="q")
        assert block.rows.flags.aligned
        assert not block.rows.flags.writeable
        np.testing.assert_array_equal(block.rows, rows)


def test_rows_outlive_their_snapshot(tmp_path: Path) -> None:
    def fill(version: int) -> None:
        with builder(str(tmp_path / "store"), grace=1) as target:
            target.put("q", ["a", "b"], np.full((2, 700), version, np.float32))
            fields = tuple(f"f{place}" for place in range(700))
            target.seal(StoreInfo(str(version), datetime(2026, 3, 1), fields, np.zeros(700, np.float32), 2))
            target.switch()

    fill(1)
    store = open_store(tmp_path / "store")
    found = store.get("q", ["b", "a"])
    for version in (2, 3):
        fill(version)
    store.close()
    del store
    gc.collect()
    assert (found.x == 1).all()
