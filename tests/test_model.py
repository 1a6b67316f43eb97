"""Models on disk: whole or refused."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
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
TREES = LambdaMART(trees=3, leaves=3, min_data_in_leaf=5)


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


def test_saving_replaces_the_old_model_and_nothing_else(saved: Path, clicks: Clicks) -> None:
    (saved / "notes.txt").write_text("precious")
    model = fit(clicks, method=Click(), ranker=TREES, settings=FAST).model
    model.save(str(saved))
    names = sorted(file.name.partition("-")[0] for file in saved.iterdir())
    assert names == ["model.json", "notes.txt", "trees"]
    np.testing.assert_array_equal(Model.load(str(saved)).score(clicks.lists), model.score(clicks.lists))


def test_readers_and_writers_at_once_see_whole_models(saved: Path, clicks: Clicks) -> None:
    models = [
        fit(clicks, method=Click(), ranker=Linear(), settings=FitSettings(epochs=epochs, threads=1)).model
        for epochs in (1, 2)
    ]
    known = [Model.load(saved).score(clicks.lists), *(model.score(clicks.lists) for model in models)]

    def write(model: Model) -> None:
        for _ in range(40):
            model.save(saved)

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, model) for model in models]
        while not all(writer.done() for writer in writers):
            scores = Model.load(saved).score(clicks.lists)
            assert any(np.array_equal(scores, one) for one in known)
        for writer in writers:
            writer.result()


def test_a_file_that_cannot_be_written_is_an_error(saved: Path, clicks: Clicks) -> None:
    model = fit(clicks, method=Click(), ranker=Linear(), settings=FAST).model
    with pytest.raises(DataError, match="cannot be written"):
        model.save(saved / "model.json" / "below")


def test_a_wrong_number_of_features_is_refused(saved: Path) -> None:
    lists = Lists(np.zeros((2, 3), dtype=np.float32), np.array([0, 2]), np.array(["q"]))
    with pytest.raises(DataError, match="takes 5 features, the data has 3"):
        Model.load(saved).score(lists)


def test_no_documents_no_scores(saved: Path) -> None:
    nothing = Lists(np.zeros((0, 5), dtype=np.float32), np.array([0]), np.array([], dtype=np.str_))
    assert Model.load(saved).score(nothing).shape == (0,)


def change(manifest: Path, **values: object) -> None:
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(content | values))


def weights_of(saved: Path) -> Path:
    (weights,) = saved.glob("network-*.safetensors")
    return weights


def test_tampering_is_refused(saved: Path) -> None:
    weights = weights_of(saved)
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"\.safetensors: was changed after the model was saved"):
        Model.load(saved)


def test_missing_files_are_named_and_strange_ones_never_read(saved: Path) -> None:
    (saved / "extra.pkl").write_bytes(b"")
    assert Model.load(saved).features == 5
    weights_of(saved).unlink()
    with pytest.raises(DataError, match=r"network-[0-9a-f]{16}\.safetensors: cannot be read"):
        Model.load(saved)


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "extra.pkl", "network.safetensors"])
def test_files_that_no_model_has_are_refused(name: str, saved: Path) -> None:
    change(saved / "model.json", files={name: "0"})
    with pytest.raises(DataError, match="names a file that no model has"):
        Model.load(saved)


def test_broken_manifests_are_refused(saved: Path, tmp_path: Path) -> None:
    manifest = saved / "model.json"
    good = manifest.read_text()
    for values, words in (
        ({"format": 99}, "format 99, this version reads 1"),
        ({"ranker": {"name": "mlpp"}}, "did you mean 'mlp'"),
        ({"ranker": {"name": "mlp", "hidden": [4], "evil": 1}}, r"ranker\.evil must be a known setting"),
        ({"ranker": {"name": "mlp", "hidden": [5]}}, "does not fit the ranker"),
        ({"ranker": {"name": "mlp", "hidden": [10**9, 10**9]}}, "does not fit the ranker"),
        ({"ranker": {"name": "lambdamart"}}, "is not a model manifest"),
        ({"ranker": [1]}, "ranker must be a table"),
        ({"features": "many"}, "there are 'many' features"),
        ({"features": 10**12}, "there are 1000000000000 features"),
        ({"features": -1}, "there are -1 features"),
        ({"files": ["network"]}, "is not a model manifest"),
        ({"normaliser": {"kind": "none"}}, "is not a model manifest"),
    ):
        change(manifest, **values)
        with pytest.raises(Exception, match=words) as caught:
            Model.load(saved)
        assert type(caught.value).__module__ == "clickprism.errors"
        manifest.write_text(good)
    manifest.write_text("{")
    with pytest.raises(DataError, match=r"model\.json: is not a model manifest"):
        Model.load(saved)
    manifest.write_text("[" * 100_000)
    with pytest.raises(DataError, match="is not a model manifest"):
        Model.load(saved)
    with pytest.raises(DataError, match="cannot be read"):
        Model.load(tmp_path / "nowhere")


def test_trees_of_another_width_are_refused(clicks: Clicks, tmp_path: Path) -> None:
    fit(clicks, method=Click(), ranker=TREES, settings=FAST).model.save(tmp_path)
    change(tmp_path / "model.json", features=7)
    with pytest.raises(DataError, match="takes 5 features, the manifest says 7"):
        Model.load(tmp_path)
