"""Every format with every ranker that it takes: scored alike by a reader of its own, or refused with a reason."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.data.normalise import Kind, fit
from clickprism.errors import ClickprismError, DataError, SettingError, UnsupportedError
from clickprism.rankers.attention import Attention
from clickprism.rankers.lambdamart import LambdaMART, Trees
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.serve.bundle.build import write_bundle
from clickprism.serve.export.check import at_splits, check, sample
from clickprism.serve.export.export import FORMATS, Source, export, holds, package_of, read_source
from clickprism.serve.export.forest import forest_of
from clickprism.serve.settings import ExportSettings
from tests.serve.export_models import FEATURES, NAMES, features, lists, model_of, source_of
from tests.serve.rankers import network_model

TREES = LambdaMART(trees=12, leaves=7, min_data_in_leaf=5)
PLAIN_NET = MLP(hidden=(6, 5), activation="tanh", layer_norm="none")
OF_TREES = ("onnx", "lightgbm", "xgboost", "elasticsearch", "ranklib", "solr", "vespa")
ALONE: tuple[Kind | None, ...] = (None, "minmax", "standard", "log1p", "quantile")
BY_LIST: tuple[Kind, ...] = ("query-minmax", "query-standard")


@pytest.mark.parametrize("format_name", OF_TREES)
@pytest.mark.parametrize("kind", ALONE)
@pytest.mark.parametrize("missing", [False, True])
def test_trees_in_every_format(format_name: str, kind: Kind | None, missing: bool) -> None:
    source = source_of(model_of(TREES, kind=kind, missing=missing), complete=format_name == "ranklib")
    package = package_of(source, format_name)
    assert check(source, package, format_name) > 1024
    rows = sample(source, package, rows=64, seed=1)
    assert np.isnan(rows).any() == package.missing


@pytest.mark.parametrize("format_name", OF_TREES)
def test_trees_of_a_bundle_in_every_format(format_name: str, tmp_path: Path) -> None:
    """A bundle has no more of LightGBM's text than what was checked."""
    write_bundle(tmp_path / "bundle", model_of(TREES, missing=True))
    source = read_source(tmp_path / "bundle", ExportSettings(complete=True))
    assert export(source, tmp_path / "out", format_name=format_name).rows_checked > 1024


@pytest.mark.parametrize(
    ("format_name", "ranker", "kinds"),
    [
        ("onnx", Linear(), (None, "minmax", "standard", "log1p")),
        ("onnx", MLP(hidden=(6, 5)), (None, "minmax", "standard", "log1p")),
        ("onnx", Attention(width=4, units=3), (None, "standard")),
        ("elasticsearch", Linear(), (None, "minmax", "standard")),
        ("solr", Linear(), (None, "minmax", "standard")),
        ("solr", PLAIN_NET, (None, "minmax", "standard")),
        ("solr", replace(PLAIN_NET, activation="relu"), (None, "standard")),
        ("vespa", MLP(hidden=(6, 5)), (None, "standard", "log1p")),
    ],
)
def test_other_rankers_where_they_are_taken(format_name: str, ranker: Any, kinds: tuple[Kind | None, ...]) -> None:
    for kind in kinds:
        source = source_of(model_of(ranker, kind=kind), complete=format_name == "elasticsearch")
        package = package_of(source, format_name)
        assert check(source, package, format_name) == 1024
        assert (package.offset != 0) == (ranker.name == "linear" and format_name != "onnx"), kind


def test_codes_and_columns_that_are_kept() -> None:
    ranker = Attention(width=4, units=3, categorical=(3,), categories=(3,))
    normaliser = fit("standard", lists(features()), keep=(3,))
    source = source_of(model_of(ranker).with_normaliser(normaliser))
    assert check(source, package_of(source, "onnx"), "onnx") == 1024
    for format_name in ("solr", "elasticsearch"):
        source = source_of(model_of(Linear()).with_normaliser(normaliser), complete=True)
        package = package_of(source, format_name)
        check(source, package, format_name)
        assert b"normalizer" in package.files["model.json"].lower()


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_format_takes_what_holds_says_and_refuses_all_else(format_name: str) -> None:
    for ranker in (Linear(), PLAIN_NET, Attention(width=4, units=3), TREES):
        for kind in (*ALONE, *BY_LIST):
            source = source_of(model_of(ranker, kind=kind), complete=True)
            if (kind or "none") in holds(format_name).get(ranker.name, ()):
                check(source, package_of(source, format_name), format_name, rows=64)
            else:
                with pytest.raises(UnsupportedError, match="cannot hold this"):
                    package_of(source, format_name)


@pytest.mark.parametrize(
    ("format_name", "ranker", "kind", "words"),
    [
        ("lightgbm", Linear(), None, "lambdamart models only. Export onnx or elasticsearch or opensearch or solr"),
        ("elasticsearch", MLP(), None, "linear and lambdamart models only. Export onnx or solr or vespa"),
        ("solr", Attention(), None, "Export onnx or vespa"),
        ("solr", MLP(), None, "no layer_norm hidden. Export onnx, or train with ranker.layer_norm=none"),
        ("solr", replace(PLAIN_NET, activation="elu"), None, "no activation elu"),
        ("solr", Linear(), "log1p", "Train with data.normalise=none or minmax or standard"),
        ("solr", PLAIN_NET, "query-minmax", "no normaliser that does what query-minmax does"),
        ("onnx", MLP(), "quantile", "no normaliser that does what quantile does. Train with data.normalise=none or"),
        ("vespa", TREES, "query-standard", "Train with data.normalise=none or minmax or standard or log1p or quantile"),
        ("elasticsearch", Linear(), "standard", "a missing feature as 0, the model as the mean"),
        ("ranklib", TREES, "standard", "missing feature as 0"),
    ],
)
def test_what_a_format_cannot_say_is_refused(
    tmp_path: Path, format_name: str, ranker: Any, kind: Kind | None, words: str
) -> None:
    with pytest.raises(DataError, match="cannot hold this") as caught:
        export(source_of(model_of(ranker, kind=kind)), tmp_path / "out", format_name=format_name)
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def _moved(node: Any, keys: tuple[str, ...], change: Any) -> Any:
    if isinstance(node, dict):
        return {key: change(value) if key in keys else _moved(value, keys, change) for key, value in node.items()}
    return [_moved(each, keys, change) for each in node] if isinstance(node, list) else node


def _down(value: Any) -> Any:
    below = float(np.nextafter(np.float32(value), np.float32(-np.inf)))
    return str(below) if isinstance(value, str) else below


@pytest.mark.parametrize("fault", ["threshold", "missing", "leaf"])
@pytest.mark.parametrize("format_name", ["elasticsearch", "solr"])
def test_the_check_finds_a_threshold_one_step_off_a_missing_value_on_the_wrong_side_and_a_wrong_leaf(
    format_name: str, fault: str
) -> None:
    source = source_of(model_of(TREES, missing=True))
    package = package_of(source, format_name)
    (name,) = [name for name in package.files if name.endswith(".json") and "features" not in name]
    keys: Any = {
        "threshold": ("threshold", "split_condition"),
        "missing": ("missing",),
        "leaf": ("leaf", "value"),
    }[fault]

    def change(value: Any) -> Any:
        if fault == "threshold":
            return _down(value)
        if fault == "leaf":
            return type(value)(float(value) + 1e-3)
        return {"left": "right", "right": "left"}.get(value, value) if isinstance(value, str) else not value

    held = json.loads(package.files[name])
    if format_name == "elasticsearch":
        inner = held["model"]["model"]
        trees = json.loads(inner["definition"])
        if fault == "missing":
            swapped = [{**trees[0], "missing": trees[0]["yes"] + trees[0]["no"] - trees[0]["missing"]}, *trees[1:]]
        else:
            swapped = _moved(trees, keys, change)
        inner["definition"] = json.dumps(swapped)
    else:
        held = _moved(held, keys, change)
    broken = replace(package, files={**package.files, name: json.dumps(held).encode()})
    with pytest.raises(DataError, match=r"row \d+ .* scores .* and .* in the model") as caught:
        check(source, broken, format_name)
    assert "Nothing was written" in str(caught.value)


def test_one_split_that_is_one_step_off_is_found_whichever_it_is() -> None:
    source = source_of(model_of(replace(TREES, trees=4), missing=True))
    package = package_of(source, "xgboost")
    (name,) = package.files
    held = json.loads(package.files[name])
    tried = 0
    for tree in held["learner"]["gradient_booster"]["model"]["trees"]:
        for node in np.flatnonzero(np.array(tree["left_children"]) >= 0).tolist():
            thresholds, defaults = tree["split_conditions"], tree["default_left"]
            for values, wrong in ((thresholds, _down(thresholds[node])), (defaults, 1 - defaults[node])):
                if values is thresholds and (abs(wrong) < 1e-34 or wrong > 1e30):
                    continue
                right, values[node] = values[node], wrong
                with pytest.raises(DataError, match="in the model"):
                    check(source, replace(package, files={name: json.dumps(held).encode()}), "xgboost", rows=64)
                values[node] = right
                tried += 1
    assert tried >= 40


def test_rows_are_led_to_every_split() -> None:
    model = model_of(TREES, missing=True)
    forest = forest_of(model.trees.text, FEATURES, None)
    rows = at_splits(forest, features()[:50], np.random.default_rng(0))
    splits = sum(len(tree.feature) for tree in forest.trees)
    assert len(rows) == 3 * splits
    for tree in forest.trees:
        reached = {(int(node), side) for row in rows for node, side in _path(tree, row)}
        assert reached >= {(node, side) for node in range(len(tree.feature)) for side in (True, False)}


def _path(tree: Any, row: Any) -> list[tuple[int, bool]]:
    node, path = tree.root(), []
    while node >= 0:
        value = row[tree.feature[node]]
        left = bool(tree.missing_left[node] if np.isnan(value) else value <= tree.threshold[node])
        path.append((node, left))
        node = int((tree.left if left else tree.right)[node])
    return path


def test_thresholds_go_through_a_normaliser_to_the_last_float() -> None:
    for kind in ALONE[1:]:
        normaliser = fit(kind or "none", lists(features()))
        before = forest_of(model_of(TREES, kind=kind).trees.text, FEATURES, None)
        after = forest_of(model_of(TREES, kind=kind).trees.text, FEATURES, normaliser)
        for old, new in zip(before.trees, after.trees, strict=True):
            if len(old.feature) != len(new.feature):
                continue
            for feature, threshold, cut in zip(old.feature, old.threshold, new.threshold, strict=True):
                rows = np.zeros((2, FEATURES), np.float32)
                rows[:, feature] = [cut, np.nextafter(np.float32(cut), np.float32(np.inf))]
                at, beyond = normaliser.features(rows, np.array([0, 2]))[:, feature]
                assert at <= threshold < beyond


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    source = source_of(model_of(TREES))
    done = export(source, tmp_path / "deep" / "model.txt", format_name="lightgbm")
    assert done.files == (tmp_path / "deep" / "model.txt",)
    text = done.files[0].read_text()
    assert f"feature_names={' '.join(NAMES)}" in text
    assert np.allclose(Trees.from_text(text)(features()), source.scores(features()))
    again = export(source, tmp_path / "deep" / "model.txt", format_name="lightgbm")
    assert again.files[0].read_text() == text
    folder = export(source, tmp_path / "solr", format_name="solr")
    assert sorted(path.name for path in folder.files) == ["features.json", "model.json"]
    with pytest.raises(DataError, match="exists already"):
        export(source, tmp_path / "solr", format_name="solr")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        export(source, tmp_path / "file" / "model.txt", format_name="lightgbm")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "file", "solr"]
    with pytest.raises(SettingError, match="be one of onnx"):
        export(source, tmp_path / "x", format_name="pmml")


@pytest.mark.parametrize(
    ("names", "more", "words"),
    [
        (("a",), {}, "1 names of features but the model takes 7"),
        (("a",) * 7, {}, "named twice"),
        (("a b", *NAMES[1:]), {}, "not a name that every engine accepts"),
        (NAMES, {"name": "a/b"}, "consist of letters"),
    ],
)
def test_names_that_cannot_be(names: tuple[str, ...], more: dict[str, str], words: str) -> None:
    with pytest.raises(ClickprismError, match=words):
        Source(model_of(Linear()), names, **more)  # type: ignore[arg-type]


class Plugin:
    """A server that answers by the documented API of the learning to rank plugin."""

    def __init__(self) -> None:
        self.stores, self.sets, self.models = set[str](), dict[str, set[str]](), dict[str, dict[str, Any]]()

    def send(self, method: str, path: str, body: Any) -> int:
        if (method, path) == ("PUT", "/_ltr"):
            self.stores.add("_default_")
            return 200
        found = re.fullmatch(r"/_ltr/_featureset/([\w.-]+)(/_createmodel)?", path)
        if found is None or not self.stores:
            return 404
        if found[2] is None and method == "PUT":
            features = body["featureset"]["features"]
            assert all(set(each) == {"name", "params", "template_language", "template"} for each in features)
            self.sets[found[1]] = {each["name"] for each in features}
            return 201
        if method != "POST" or found[1] not in self.sets:
            return 404
        model = body["model"]
        used = re.findall(r'"split":"([^"]+)"', model["model"]["definition"])
        if model["model"]["type"] == "model/linear":
            used = list(json.loads(model["model"]["definition"]))
        if not set(used) <= self.sets[found[1]]:
            return 400
        self.models[model["name"]] = model
        return 201


@pytest.mark.parametrize("ranker", [TREES, Linear()], ids=["trees", "linear"])
def test_the_requests_upload_a_model_to_the_plugin(ranker: Any, tmp_path: Path) -> None:
    source = replace(source_of(model_of(ranker, kind="standard"), complete=True), requests=True, feature_set="shop")
    done = export(source, tmp_path / "upload", format_name="opensearch")
    assert [file.name for file in done.files] == ["model.json", "requests.json"]
    requests = json.loads((tmp_path / "upload" / "requests.json").read_text())
    plugin = Plugin()
    assert [plugin.send(each["method"], each["path"], each["body"]) for each in requests] == [200, 201, 201]
    assert plugin.sets == {"shop": set(source.feature_names)}
    assert {"model": plugin.models[source.name]} == json.loads((tmp_path / "upload" / "model.json").read_text())
    again = export(replace(source, new_set=False), tmp_path / "again", format_name="elasticsearch")
    assert [each["method"] for each in json.loads(again.files[1].read_text())] == ["POST"]
    with pytest.raises(SettingError, match="requests must be given with a format of Elasticsearch or OpenSearch"):
        export(source, tmp_path / "onnx", format_name="onnx")


def test_a_feature_set_of_the_engine_must_have_every_feature(tmp_path: Path) -> None:
    names = tuple(f"feature_{place + 1}" for place in range(7))
    write_bundle(tmp_path / "bundle", network_model(Linear()))
    held = {"featureset": {"name": "shop", "features": [{"name": name, "params": []} for name in names]}}
    file = tmp_path / "set.json"
    for content in (held, {"_index": ".ltrstore", "_source": held}):
        file.write_text(json.dumps(content))
        source = read_source(tmp_path / "bundle", ExportSettings(feature_set=str(file)))
        assert (source.feature_set, source.new_set) == ("shop", False)
    held["featureset"]["features"] = held["featureset"]["features"][1:]
    file.write_text(json.dumps(held))
    with pytest.raises(DataError, match=r"set\.json: has no feature 'feature_1'\. Add it to the feature set 'shop'"):
        read_source(tmp_path / "bundle", ExportSettings(feature_set=str(file)))
    file.write_text("{}")
    with pytest.raises(DataError, match=r"is not a feature set .* GET _ltr/_featureset/NAME"):
        read_source(tmp_path / "bundle", ExportSettings(feature_set=str(file)))


def test_the_names_of_a_bundle_are_kept(tmp_path: Path) -> None:
    for names, wanted in ((["price", *"bcdefg"], ["price", *"bcdefg"]), ([*"1234567"], list(NAMES))):
        write_bundle(tmp_path / "bundle", network_model(Linear()), feature_names=names, replace=True)
        assert read_source(tmp_path / "bundle").feature_names == tuple(wanted)
