"""`clickprism export` of a model, a run and a bundle; judgement lists for other tools."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from clickprism.cli_old.app import app
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.linear import Linear
from clickprism.relevance.judgment_files import write_judgments
from clickprism.relevance.table import ESTIMATES
from clickprism.serve.bundle import write_bundle
from clickprism.serve.export import onnx_file
from tests.serve.export_models import NAMES, features, model_of

TREES = LambdaMART(trees=5, leaves=5, min_data_in_leaf=5)


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


def test_a_run_a_model_and_a_bundle_give_the_same_file(tmp_path: Path) -> None:
    model = model_of(TREES, kind="standard", missing=True)
    model.save(tmp_path / "run" / "model")
    write_bundle(tmp_path / "bundle", model)
    made = []
    for place, folder in enumerate(("run", "run/model", "bundle")):
        out = tmp_path / f"{place}.onnx"
        code, said, noted = run("export", tmp_path / folder, "--format", "onnx", "--out", out)
        assert (code, said.strip()) == (0, str(out)), noted
        assert "rows score alike" in noted
        made.append(out.read_bytes())
    assert made[0] == made[1] == made[2]
    expected = model.trees(model.normaliser.features(features(), np.array([0, len(features())])))  # type: ignore[union-attr]
    assert onnx_file.read({"model.onnx": made[0]}, features()) == pytest.approx(expected, abs=1e-5)


def test_names_and_the_body_that_can_be_posted(tmp_path: Path) -> None:
    model_of(Linear(), kind="minmax").save(tmp_path / "ranker")
    names = tmp_path / "names.txt"
    words = ["title", "body", "age", "stars", "price", "clicks", "brand"]
    names.write_text("\n".join(words) + "\n")
    more = ["--featureset", "shop", "--complete", "--feature-names", names, "--json"]
    code, said, _ = run(
        "export", tmp_path / "ranker", "--format", "linear-json", "--out", tmp_path / "body.json", *more
    )
    facts = json.loads(said)
    assert (code, facts["feature_names"], facts["name"]) == (0, words, "ranker")
    assert "_ltr/_featureset/shop/_createmodel" in facts["notes"][0]
    body = json.loads((tmp_path / "body.json").read_text())["model"]
    assert (body["name"], body["model"]["type"]) == ("ranker", "model/linear")
    assert list(json.loads(body["model"]["definition"])) == words
    assert list(body["feature_normalizers"]) == words[:-1]
    assert body["feature_normalizers"]["title"]["min_max"]["minimum"] == features()[:, 0].min()
    names.write_text(json.dumps(words[:3]))
    code, _, noted = run(
        "export", tmp_path / "ranker", "--format", "onnx", "--out", tmp_path / "x", "--feature-names", names
    )
    assert (code, "3 names of features but the model takes 7" in noted) == (3, True)


def test_files_of_vespa_and_solr(tmp_path: Path) -> None:
    model_of(TREES).save(tmp_path / "ranker")
    more = ["--name", "my-trees"]
    assert run("export", tmp_path / "ranker", "--format", "vespa", "--out", tmp_path / "vespa", *more)[0] == 0
    profile = (tmp_path / "vespa" / "my-trees.profile").read_text()
    assert 'expression: lightgbm("my-trees.json")' in profile
    assert "function feature_7() {" in profile
    model = json.loads((tmp_path / "vespa" / "models" / "my-trees.json").read_text())
    assert model["feature_names"] == list(NAMES)
    assert run("export", tmp_path / "ranker", "--format", "solr", "--out", tmp_path / "solr", *more)[0] == 0
    assert json.loads((tmp_path / "solr" / "model.json").read_text())["name"] == "my-trees"
    network = ["--format", "vespa", "--out", tmp_path / "net"]
    model_of(Linear(), kind="standard").save(tmp_path / "linear")
    assert run("export", tmp_path / "linear", *network)[0] == 0
    assert "tensor<float>(d0[1],d1[7]):[[feature_1, " in (tmp_path / "net" / "linear.profile").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nothing", "--format", "onnx"], 3, "neither a model nor a bundle"),
        (["nothing", "--format", "pmml"], 2, "be one of onnx, lightgbm"),
        (["ranker", "--format", "solr", "--store", "a b"], 2, "store must be made of letters"),
        (["ranker", "--format", "ranklib"], 3, "it has lambdamart models only"),
    ],
)
def test_errors_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Sequence[str], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    model_of(Linear()).save(tmp_path / "ranker")
    found, _, noted = run("export", *words, "--out", "out")
    assert (found, said in noted) == (code, True), noted
    assert not (tmp_path / "out").exists()


def test_judgement_lists_by_hand(tmp_path: Path) -> None:
    rows = [("red, dress", "d1", 3), ("red, dress", "d 2", 0), ("jeans", "d1", 1)]
    write_judgments(tmp_path / "j.json", rows, kind="workbench", name="mine")
    body = json.loads((tmp_path / "j.json").read_text())
    assert (body["name"], body["type"]) == ("mine", "IMPORT_JUDGMENT")
    first = {
        "query": "red, dress",
        "ratings": [{"docId": "d1", "rating": "3.000"}, {"docId": "d 2", "rating": "0.000"}],
    }
    assert body["judgmentRatings"] == [first, {"query": "jeans", "ratings": [{"docId": "d1", "rating": "1.000"}]}]
    write_judgments(tmp_path / "j.csv", rows, kind="quepid")
    with (tmp_path / "j.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["query", "docid", "rating"], *[[q, d, str(g)] for q, d, g in rows]]
    write_judgments(tmp_path / "empty.json", [], kind="workbench")
    assert json.loads((tmp_path / "empty.json").read_text())["judgmentRatings"] == []


@pytest.fixture
def estimates(tmp_path: Path) -> Path:
    columns = {
        "query_id": ["q1", "q1", "q2"],
        "document_id": ["a", "b", "a"],
        "estimate": [0.2, 0.9, 0.5],
        "lower": [0.0] * 3,
        "upper": [1.0] * 3,
        "variance": [1.0] * 3,
        "weight": [50.0] * 3,
        "imputed_only": [False] * 3,
        "impressions": [60] * 3,
        "clicked": [5] * 3,
        "imputation": [None] * 3,
    }
    pq.write_table(pa.table(columns, schema=ESTIMATES), tmp_path / "estimates.parquet")
    return tmp_path / "estimates.parquet"


def test_judgments_in_other_formats(tmp_path: Path, estimates: Path) -> None:
    (tmp_path / "queries.tsv").write_text("q1\tred dress\nq2\tblue  jeans\n")
    scale = ["--set", "scale=absolute", "--set", "cuts=[.3, .8]"]
    texts = ["--queries", tmp_path / "queries.tsv"]
    out = tmp_path / "list.txt"
    code, _, noted = run("judgments", estimates, "--format", "letor", "--out", out, *scale, *texts)
    assert (code, out.read_text()) == (
        0,
        "2 qid:1 # b red dress\n0 qid:1 # a red dress\n1 qid:2 # a blue jeans\n",
    ), noted
    assert run("judgments", estimates, "--format", "quepid", "--out", out, *scale)[0] == 0
    assert out.read_text() == "query,docid,rating\nq1,b,2\nq1,a,0\nq2,a,1\n"
    (tmp_path / "queries.tsv").write_text("q1\tjeans\nq2\tjeans\n")
    code, _, noted = run("judgments", estimates, "--format", "workbench", "--out", out, *scale, *texts)
    assert (code, "the same text 'jeans'" in noted) == (3, True)
    code, _, noted = run("judgments", estimates, "--format", "trec", "--out", out)
    assert (code, "be one of table, workbench, quepid, letor" in noted) == (2, True)
