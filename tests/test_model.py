"""Models on disk: whole or refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from clickprism.data.normalise import fit as fit_normaliser
from clickprism.debias.click import Click
from clickprism.errors import DataError
from clickprism.model import Model
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Lists

FAST = FitSettings(epochs=1, threads=1)


@pytest.fixture
def saved(clicks: Clicks, tmp_path: Path) -> Path:
    fit(clicks, method=Click(), ranker=MLP(hidden=(4,)), settings=FAST).model.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_model_with_a_normaliser_takes_raw_features(clicks: Clicks, tmp_path: Path) -> None:
    normaliser = fit_normaliser("quantile", clicks.lists)
    prepared = normaliser(clicks.lists)
    log = Clicks(prepared, clicks.offsets, clicks.rows, clicks.positions, clicks.clicks, clicks.impressions)
    model = fit(log, method=Click(), ranker=Linear(), settings=FAST).model
    raw = model.with_normaliser(normaliser)
    raw.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.score(clicks.lists), model.score(prepared))


def test_saving_replaces_the_old_model_whole(saved: Path, clicks: Clicks) -> None:
    ranker = LambdaMART(trees=3, leaves=3, min_data_in_leaf=5)
    model = fit(clicks, method=Click(), ranker=ranker, settings=FAST).model
    model.save(saved)
    assert sorted(file.name for file in saved.iterdir()) == ["model.json", "trees.txt"]
    assert sorted(file.name for file in saved.parent.iterdir()) == ["model"]
    np.testing.assert_array_equal(Model.load(saved).score(clicks.lists), model.score(clicks.lists))


def test_wrong_number_of_features(saved: Path) -> None:
    lists = Lists(np.zeros((2, 3), dtype=np.float32), np.array([0, 2]), np.array(["q"]))
    with pytest.raises(DataError, match="takes 5 features, the data has 3"):
        Model.load(saved).score(lists)


def test_no_documents_no_scores(saved: Path) -> None:
    nothing = Lists(np.zeros((0, 5), dtype=np.float32), np.array([0]), np.array([], dtype=np.str_))
    assert Model.load(saved).score(nothing).shape == (0,)


def change(manifest: Path, **values: object) -> None:
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(content | values))


def test_tampering_is_refused(saved: Path) -> None:
    weights = saved / "network.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"network\.safetensors: was changed after the model was saved"):
        Model.load(saved)


def test_unknown_and_missing_files_are_refused(saved: Path) -> None:
    (saved / "extra.pkl").write_bytes(b"")
    with pytest.raises(DataError, match=r"do not match the manifest: extra\.pkl"):
        Model.load(saved)
    (saved / "extra.pkl").unlink()
    (saved / "network.safetensors").unlink()
    with pytest.raises(DataError, match=r"do not match the manifest: network\.safetensors"):
        Model.load(saved)


def test_a_path_outside_the_folder_is_refused(saved: Path) -> None:
    change(saved / "model.json", files={"../../secret": "0"})
    with pytest.raises(DataError, match="do not match the manifest"):
        Model.load(saved)


def test_broken_manifests_are_refused(saved: Path, tmp_path: Path) -> None:
    manifest = saved / "model.json"
    good = manifest.read_text()
    for values, words in (
        ({"format": 99}, "format 99, this version reads 1"),
        ({"ranker": {"name": "mlpp"}}, "did you mean 'mlp'"),
        ({"ranker": {"name": "mlp", "hidden": [4], "evil": 1}}, r"ranker\.evil must be a known setting"),
        ({"ranker": {"name": "mlp", "hidden": [5]}}, "does not fit the ranker"),
        ({"features": "many"}, "is not a model manifest"),
    ):
        change(manifest, **values)
        with pytest.raises(Exception, match=words) as caught:
            Model.load(saved)
        assert type(caught.value).__module__ == "clickprism.errors"
        manifest.write_text(good)
    manifest.write_text("{")
    with pytest.raises(DataError, match=r"model\.json: is not a model manifest"):
        Model.load(saved)
    with pytest.raises(DataError, match="cannot be read"):
        Model.load(tmp_path / "nowhere")
