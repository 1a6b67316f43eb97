"""`clickprism bundle` and `clickprism score`, from a run to scores in a file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from clickprism.cli_old.app import app
from clickprism.data.write import write_letor
from clickprism.experiments.run_record import RunRecord
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.serve.bundle import Bundle
from clickprism.types import JudgedLists, Lists
from tests.serve.rankers import approximation, network_model, raw_lists


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run, as `train` leaves it."""
    folder = tmp_path / "dla"
    network_model(MLP(hidden=(4,)), "query-minmax").save(folder / "model")
    names = tuple(f"f{place}" for place in range(7))
    RunRecord("dla", 3, {"name": "made up"}, {"validation nDCG@10": 0.5}, (1.0, 0.5), (1.0, 0.6), names).write(folder)
    network_model(Linear(), "standard").save(tmp_path / "click" / "model")
    return folder


def invoke(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def test_a_run_becomes_a_bundle_and_scores_files(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    words = ["bundle", run, "--naive", tmp_path / "click", "--metric", "nDCG@5=0.4", "--note", "a try", "--out", out]
    facts = json.loads(invoke(*words, "--json", "--quiet"))
    bundle = Bundle.load(out)
    assert (facts["version"], facts["naive"]) == (bundle.version, True)
    assert bundle.manifest.name == "dla"
    assert bundle.manifest.feature_names[0] == "f0"
    assert bundle.manifest.observation == (1.0, 0.5)
    assert bundle.manifest.metrics == {"validation nDCG@10": 0.5, "nDCG@5": 0.4}
    assert "![Observation by position" in bundle.read("MODEL_CARD.md").decode()
    assert "verified" in invoke("bundle", "--verify", out)
    assert "is there already" in invoke(*words, code=3)
    lists = raw_lists(4, 5, seed=7, missing=False)
    wanted = network_model(MLP(hidden=(4,)), "query-minmax").score(lists)
    named = Lists(lists.features, lists.offsets, lists.query_ids, np.array([f"d{row}" for row in range(20)]))
    write_letor(JudgedLists(named, np.zeros(20, np.int32)), tmp_path / "documents.txt")
    columns = {f"f{place}": named.features[:, place] for place in range(7)}
    table = pa.table({"query_id": named.query_ids[named.list_of].tolist(), "other": ["x"] * 20, **columns})
    pq.write_table(table, tmp_path / "documents.parquet")
    with (tmp_path / "documents.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        writer.writerows(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    for name in ("documents.txt", "documents.parquet", "documents.csv"):
        invoke("score", out, tmp_path / name, "--out", tmp_path / "scores.parquet", "--quiet")
        scored = pq.read_table(tmp_path / "scores.parquet")
        np.testing.assert_allclose(scored["score"].to_numpy(), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
        assert scored["query_id"].to_pylist() == named.query_ids[named.list_of].tolist()
    shuffled = table.take(np.random.default_rng(0).permutation(20))
    pq.write_table(shuffled, tmp_path / "shuffled.parquet")
    assert "Sort it by query_id" in invoke("score", out, tmp_path / "shuffled.parquet", "--out", "s.csv", code=3)
    pq.write_table(table.drop_columns(["f2"]), tmp_path / "fewer.parquet")
    assert "has no column 'f2'" in invoke("score", out, tmp_path / "fewer.parquet", "--out", "s.csv", code=3)


def test_an_approximation_becomes_a_bundle(tmp_path: Path) -> None:
    approximation().save(tmp_path / "approximation")
    invoke("bundle", tmp_path / "approximation", "--imputation", "stored", "--out", tmp_path / "bundle", "--quiet")
    manifest = Bundle.load(tmp_path / "bundle").manifest
    assert manifest.imputation is not None
    assert (manifest.kind, manifest.imputation.kind, manifest.feature_names) == (
        "approximation",
        "stored",
        ("imputed",),
    )


def test_what_is_missing_is_said(run: Path, tmp_path: Path) -> None:
    assert "--out must be given to make a bundle, or --verify to check one" in invoke("bundle", run, code=2)
    assert "holds no model" in invoke("bundle", tmp_path / "nowhere", "--out", tmp_path / "b", code=3)
    assert "--metric must be a name and a number" in invoke("bundle", run, "--out", "b", "--metric", "good", code=2)
    assert "has no manifest.json" in invoke("bundle", "--verify", run, code=3)
