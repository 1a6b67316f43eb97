"""`clickprism model`: from a run to a bundle, scores, exports and a deployment."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism._util.tables import to_json
from clickprism.cli.reference import examples
from clickprism.data.encoding import Encoding
from clickprism.data.letor import write_letor
from clickprism.data.synthetic import SyntheticSettings
from clickprism.experiments.data import read_data
from clickprism.experiments.settings import DataSettings, ExperimentSettings
from clickprism.experiments.train import ENCODING, RUN, RunRecord, train_ranker
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.serve.bundle.build import write_bundle
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.export import onnx as onnx_file
from clickprism.training.settings import FitSettings
from clickprism.types import JudgedLists, Lists
from tests.serve.export_models import features, model_of
from tests.serve.rankers import approximation, network_model, raw_lists
from tests.serve.service_kit import linear_bundle

Run = Callable[..., Any]
TREES = LambdaMART(trees=5, leaves=5, min_data_in_leaf=5)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs `dla` and `click`, as `train` leaves them."""
    folder = tmp_path_factory.mktemp("runs")
    network_model(MLP(hidden=(4,)), "query-minmax").save(folder / "dla" / "model")
    names = tuple(f"f{number}" for number in range(7))
    record = RunRecord("dla", 3, {"name": "generated"}, {"validation nDCG@10": 0.5}, (1.0, 0.5), (1.0, 0.6), names)
    (folder / "dla" / RUN).write_text(to_json(record))
    network_model(Linear(), "standard").save(folder / "click" / "model")
    return folder


@pytest.fixture(scope="module")
def bundle(runs: Path, cli: Run) -> Path:
    """A bundle of the run `dla`."""
    out = runs / "bundle"
    more = ["--metrics.nDCG@5", "0.4", "--notes", "a try", "--notes", "another"]
    shown = cli("model", "bundle", runs / "dla", *more, "--out", out, "--json")
    assert (shown.json["version"], shown.json["manifest"]["kind"]) == (Bundle.load(out).version, "mlp")
    assert f"serve {out}" in shown.stderr
    return out


def test_a_bundle_describes_its_run(bundle: Path) -> None:
    made = Bundle.load(bundle)
    assert made.manifest.name == "dla"
    assert made.manifest.feature_names[0] == "f0"
    assert made.manifest.observation == (1.0, 0.5)
    assert made.manifest.metrics == {"validation nDCG@10": 0.5, "nDCG@5": 0.4}
    assert made.manifest.notes == ("a try", "another")
    assert "| 2 | 0.5000 |" in made.read("MODEL_CARD.md").decode()


def test_a_ranker_of_auto_keeps_the_names_of_its_features(tmp_path: Path, cli: Run) -> None:
    """Its folder has the encoding of the features, and no record of a run."""
    columns = {"price": [1.0, None] * 2, "brand": ["acme", "bolt"] * 2}
    table = pa.table({**columns, **{f"f{place}": [0.0, 1.0] * 2 for place in range(3)}})
    encoding = Encoding.learn(table, table.column_names)
    network_model(Linear(), "standard").save(tmp_path / "auto" / "naive")
    encoding.save(tmp_path / "auto" / ENCODING)
    cli("model", "bundle", tmp_path / "auto" / "naive", "--out", tmp_path / "bundle")
    assert Bundle.load(tmp_path / "bundle").manifest.feature_names == encoding.names


def test_an_approximation_becomes_a_bundle(tmp_path: Path, cli: Run) -> None:
    approximation().save(tmp_path / "approximation")
    cli("model", "bundle", tmp_path / "approximation", "--imputed", "--out", tmp_path / "bundle")
    manifest = Bundle.load(tmp_path / "bundle").manifest
    assert (manifest.kind, manifest.feature_names) == ("approximation", ("imputed",))


def test_a_bundle_that_cannot_be_created_says_why(runs: Path, bundle: Path, tmp_path: Path, cli: Run) -> None:
    def told(*words: object, code: int) -> str:
        return str(cli("model", "bundle", *words, code=code).stderr)

    assert "--out" in told(runs / "dla", code=2)
    assert "exists already" in told(runs / "dla", "--out", bundle, code=1)
    assert "nowhere: does not exist" in told(tmp_path / "nowhere", "--out", tmp_path / "b", code=1)
    assert "--metrics.nDCG@5" in told(runs / "dla", "--out", tmp_path / "b", "--metrics.nDCG@5", "good", code=2)


def test_verify_checks_every_file(runs: Path, bundle: Path, tmp_path: Path, cli: Run) -> None:
    shown = cli("model", "verify", bundle)
    assert Bundle.load(bundle).version in shown.stdout
    assert "intact" in shown.stderr
    assert "has no manifest.json" in cli("model", "verify", runs / "dla", code=1).stderr
    broken = linear_bundle(tmp_path / "broken", [5.0, 0.0, 0.0])
    (broken / "network.onnx").write_bytes(b"x")
    assert "was changed" in cli("model", "verify", broken, code=1).stderr


def test_every_kind_of_file_gets_the_same_scores(bundle: Path, tmp_path: Path, cli: Run) -> None:
    lists = raw_lists(4, 5, seed=7, missing=False)
    wanted = network_model(MLP(hidden=(4,)), "query-minmax").score(lists)
    named = Lists(lists.features, lists.offsets, lists.query_ids, np.array([f"d{row}" for row in range(20)]))
    write_letor(JudgedLists(named, np.zeros(20, np.int32)), tmp_path / "documents.txt")
    columns = {f"f{number}": named.features[:, number] for number in range(7)}
    table = pa.table({"query_id": named.query_ids[named.list_of].tolist(), "other": ["x"] * 20, **columns})
    pq.write_table(table, tmp_path / "documents.parquet")
    with (tmp_path / "documents.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        writer.writerows(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    out = tmp_path / "scores.parquet"
    for name in ("documents.txt", "documents.parquet", "documents.csv"):
        assert cli("model", "score", bundle, tmp_path / name, "--out", out, "--json").json["documents"] == 20
        scored = pq.read_table(out)
        np.testing.assert_allclose(scored["score"].to_numpy(), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
        assert scored["query_id"].to_pylist() == named.query_ids[named.list_of].tolist()
    pq.write_table(table.take(np.random.default_rng(0).permutation(20)), tmp_path / "shuffled.parquet")
    told = cli("model", "score", bundle, tmp_path / "shuffled.parquet", "--out", out, code=1).stderr
    assert "Sort it by query_id" in told
    pq.write_table(table.drop_columns(["f2"]), tmp_path / "fewer.parquet")
    assert (
        "has no column 'f2'" in cli("model", "score", bundle, tmp_path / "fewer.parquet", "--out", out, code=1).stderr
    )
    assert (
        "--threads must be at least 1"
        in cli("model", "score", bundle, out, "--out", out, "--threads", 0, code=2).stderr
    )


def test_a_bundle_is_exported(tmp_path: Path, cli: Run) -> None:
    model, out = model_of(TREES, kind="standard", missing=True), tmp_path / "ranker.onnx"
    write_bundle(tmp_path / "bundle", model)
    shown = cli("model", "export", tmp_path / "bundle", "--format", "onnx", "--out", out).stdout
    assert str(out) in shown
    assert "rows have the same scores" in shown
    expected = model.trees(model.normaliser.features(features(), np.array([0, len(features())])))  # type: ignore[union-attr]
    assert onnx_file.read({"model.onnx": out.read_bytes()}, features()) == pytest.approx(expected, abs=1e-5)


def test_an_export_has_the_names_of_the_features(tmp_path: Path, cli: Run) -> None:
    out, words = tmp_path / "body.json", ["title", "body", "age", "stars", "price", "clicks", "brand"]
    write_bundle(tmp_path / "ranker", model_of(Linear(), kind="minmax"), feature_names=words)
    more = ["--feature-set", "shop", "--complete", "--json"]
    shown = cli("model", "export", tmp_path / "ranker", "--format", "elasticsearch", "--out", out, *more).json
    assert (shown["feature_names"], shown["name"], shown["files"]) == (words, "ranker", [str(out)])
    assert "_ltr/_featureset/shop/_createmodel" in shown["notes"][0]
    body = json.loads(out.read_text())["model"]
    assert (body["name"], body["model"]["type"]) == ("ranker", "model/linear")
    assert list(json.loads(body["model"]["definition"])) == words
    assert list(body["feature_normalizers"]) == words[:-1]
    assert body["feature_normalizers"]["title"]["min_max"]["minimum"] == features()[:, 0].min()


def test_files_of_vespa_and_solr(tmp_path: Path, cli: Run) -> None:
    write_bundle(tmp_path / "ranker", model_of(TREES))
    name = ["--name", "my-trees"]
    cli("model", "export", tmp_path / "ranker", "--format", "vespa", "--out", tmp_path / "vespa", *name)
    profile = (tmp_path / "vespa" / "my-trees.profile").read_text()
    assert "expression: sum(onnx(my_trees).scores)" in profile
    assert "function feature_7() {" in profile
    graph = (tmp_path / "vespa" / "models" / "my_trees.onnx").read_bytes()
    assert np.isfinite(onnx_file.read({"model.onnx": graph}, features())).all()
    cli("model", "export", tmp_path / "ranker", "--format", "solr", "--out", tmp_path / "solr", *name)
    assert json.loads((tmp_path / "solr" / "model.json").read_text())["name"] == "my-trees"
    write_bundle(tmp_path / "linear", model_of(Linear(), kind="standard"))
    cli("model", "export", tmp_path / "linear", "--format", "vespa", "--out", tmp_path / "net")
    assert "tensor<float>(d0[1],d1[7]):[[feature_1, " in (tmp_path / "net" / "linear.profile").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nothing", "--format", "onnx"], 1, "does not exist. Create it with: clickprism model bundle"),
        (["nothing", "--format", "pmml"], 2, "--for must be one of onnx, lightgbm"),
        (["ranker", "--format", "solr", "--feature-set", "a b"], 2, "--feature-set must consist of letters"),
        (["ranker", "--format", "ranklib"], 3, "it has lambdamart models only"),
    ],
)
def test_an_export_that_fails_writes_nothing(
    tmp_path: Path, cli: Run, words: Sequence[str], code: int, said: str
) -> None:
    write_bundle(tmp_path / "ranker", model_of(Linear()))
    source, *more = words
    assert said in cli("model", "export", tmp_path / source, *more, "--out", tmp_path / "out", code=code).stderr
    assert not (tmp_path / "out").exists()


def test_a_deployment_goes_forward_and_back(tmp_path: Path, cli: Run) -> None:
    bundles = [linear_bundle(tmp_path / f"b{number}", [10.0**number, 0.0, 0.0]) for number in range(2)]
    first, second = (Bundle.load(each).version for each in bundles)
    shop = tmp_path / "shop"
    told = cli("model", "status", shop, code=1).stderr
    assert f"clickprism model promote BUNDLE --to {shop}" in told
    shown = cli("model", "promote", bundles[0], "--to", shop, "--json")
    assert shown.json == {"deployment": str(shop), "version": first, "before": None, "changed": True}
    assert f"serve {shop}" in shown.stderr
    assert "no previous bundle" in cli("model", "rollback", shop, code=3).stderr
    shown = cli("model", "promote", bundles[1], "--to", shop)
    assert f"model rollback {shop}" in shown.stderr
    assert not cli("model", "promote", bundles[1], "--to", shop, "--json").json["changed"]
    status = cli("model", "status", shop, "--json").json
    assert (status["version"], status["previous"], status["bundle"]["manifest"]["kind"]) == (second, [first], "linear")
    back = cli("model", "rollback", shop, "--json").json
    assert (back["version"], back["before"]) == (first, second)
    assert first in cli("model", "status", shop).stdout
    assert "bundle" in cli("model", "promote", tmp_path / "none", "--to", shop, code=1).stderr


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with everything that the examples of the help name."""
    monkeypatch.chdir(tmp_path)
    data = DataSettings(synthetic=SyntheticSettings(train_queries=12, validation_queries=6, test_queries=6))
    settings = ExperimentSettings(
        data=data, user={"name": "pbm"}, ranker={"name": "linear"}, methods={"dla": {}, "click": {}},
        fit=FitSettings(epochs=1, threads=1), sessions=300,
    )  # fmt: skip
    for name in ("dla", "click"):
        train_ranker(settings, method=name, out=tmp_path / "runs" / name, show=False)
    judged = read_data(data).dataset.test
    write_letor(judged, tmp_path / "test.txt")
    lists = judged.lists
    columns = {f"feature_{number + 1}": lists.features[:, number] for number in range(lists.features.shape[1])}
    table = pa.table({"query_id": lists.query_ids[lists.list_of].tolist(), **columns})
    pq.write_table(table, tmp_path / "documents.parquet")
    return tmp_path


def test_the_examples_of_the_help_run(shop: Path, cli: Run) -> None:
    def run(name: str, *which: int) -> None:
        lines = examples(["model", name])
        for number in which or range(len(lines)):
            cli(*shlex.split(lines[number])[1:])

    run("bundle", 0)
    run("promote")
    run("bundle", 1)
    for name in ("verify", "score", "export", "promote", "status", "rollback"):
        run(name)
    assert (shop / "solr" / "model.json").is_file()
