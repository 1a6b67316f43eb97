"""A scorer gives what the model gives, over every ranker and normalisation, missing values included."""

from __future__ import annotations

import csv
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from clickprism.data.normalise import Kind, fit
from clickprism.errors import DataError
from clickprism.model import Model
from clickprism.rankers.attention import Attention
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.serve.bundle.build import read_model, write_bundle
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.scoring.batch import score_file
from clickprism.serve.scoring.scorer import Candidates, Scorer, open_scorer
from clickprism.types import Float64, Lists
from tests.serve.rankers import network_model, raw_lists, tree_model
from tests.serve.service_kit import linear_bundle

SMALL = MLP(hidden=(16, 8))
NETWORKS: list[tuple[Any, tuple[int, ...]]] = [
    (Linear(), ()),
    (SMALL, ()),
    (MLP(hidden=(8,), activation="gelu", layer_norm="all"), ()),
    (MLP(hidden=(8, 8), activation="tanh", layer_norm="none", dropout=0.3), ()),
    (Attention(width=4, units=3), ()),
    (Attention(form="paper", heads=2, width=4, pooled=3), ()),
    (Attention(form="paper", heads=2, width=4, context=2, norm="batch"), ()),
    (Attention(heads=2, width=4, tokens=4, categorical=(5,), categories=(3,), temperature=0.7), (5,)),
]


def same(found: Float64, wanted: Float64) -> None:
    """Equal to 1e-5 of the largest score."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def scores(scorer: Scorer, lists: Lists) -> Float64:
    return scorer.score(Candidates(features=lists.features, offsets=lists.offsets)).scores


def one_by_one(scorer: Scorer, lists: Lists) -> Float64:
    parts = [lists.features[start:stop] for start, stop in zip(lists.offsets, lists.offsets[1:], strict=False)]
    return np.concatenate([scorer.score(Candidates(features=part)).scores for part in parts])


@pytest.mark.parametrize(("ranker", "keep"), NETWORKS, ids=lambda value: getattr(value, "name", ""))
def test_networks_score_as_their_models(ranker: Any, keep: tuple[int, ...], tmp_path: Path) -> None:
    model = network_model(ranker, keep=keep)
    scorer = open_scorer(write_bundle(tmp_path / "bundle", model))
    lists = raw_lists(seed=1)
    same(scores(scorer, lists), model.score(lists))


@pytest.mark.parametrize("ranker", [Linear(), SMALL], ids=["linear", "mlp"])
def test_columns_that_are_kept_as_they_are(ranker: Any, tmp_path: Path) -> None:
    model = network_model(ranker, keep=(5,))
    scorer = open_scorer(write_bundle(tmp_path / "bundle", model))
    lists = raw_lists(seed=1)
    lists.features[:, 5] = np.nan_to_num(lists.features[:, 5])
    same(scores(scorer, lists), model.score(lists))


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("make", [lambda kind: network_model(SMALL, kind), tree_model], ids=["mlp", "trees"])
def test_every_normalisation_is_that_of_training(kind: Kind, make: Any, tmp_path: Path) -> None:
    model = make(kind)
    bundle = write_bundle(tmp_path / "bundle", model)
    trees = model.ranker.name == "lambdamart"
    assert bundle.manifest.missing == ("mean" if kind != "none" else "own" if trees else "refuse")
    scorer, lists = open_scorer(bundle), raw_lists(seed=2, missing=kind != "none" or trees)
    wanted = model.score(lists)
    same(scores(scorer, lists), wanted)
    same(one_by_one(scorer, lists), wanted)
    same(read_model(bundle).score(lists), wanted)


def test_a_feature_far_from_zero_loses_nothing(tmp_path: Path) -> None:
    lists = raw_lists(missing=False)
    lists.features[:, 1] = 1.6e9 + np.arange(len(lists.features), dtype=np.float32) * 128
    from clickprism.data.normalise import fit

    model = network_model(SMALL).with_normaliser(fit("standard", lists))
    same(scores(open_scorer(write_bundle(tmp_path / "bundle", model)), lists), model.score(lists))


def test_many_documents_are_scored_as_few(tmp_path: Path) -> None:
    model, lists = network_model(SMALL), raw_lists(300, 10, seed=3)
    scorer = open_scorer(write_bundle(tmp_path / "bundle", model))
    same(scores(scorer, lists), model.score(lists))
    assert scorer.score(Candidates(features=lists.features[:0])).scores.shape == (0,)


@pytest.mark.parametrize("make", [lambda: network_model(SMALL), tree_model], ids=["mlp", "trees"])
def test_threads_share_a_scorer(make: Any, tmp_path: Path) -> None:
    model, lists = make(), raw_lists(seed=4)
    scorer = open_scorer(write_bundle(tmp_path / "bundle", model))
    wanted = scores(scorer, lists)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: scores(scorer, lists), range(100)):
            np.testing.assert_array_equal(found, wanted)


def test_explain_gives_relevance_and_observation(tmp_path: Path) -> None:
    curve = np.array([1.0, 0.5, 0.25])
    bundle = write_bundle(tmp_path / "bundle", network_model(SMALL), observation=curve)
    scored = open_scorer(bundle).score(Candidates(features=raw_lists().features[:5]), explain=True)
    np.testing.assert_array_equal(scored.parts["relevance"], scored.scores)
    np.testing.assert_array_equal(scored.parts["observation"], curve)


def test_what_cannot_be_scored_is_named(tmp_path: Path) -> None:
    names = [f"f{place}" for place in range(7)]
    bundle = write_bundle(tmp_path / "bundle", network_model(SMALL, "none"), feature_names=names)
    scorer, features = open_scorer(bundle), np.zeros((3, 7), np.float32)
    features[1, 2] = np.nan
    with pytest.raises(DataError, match=r"document 2 of the list has no score: it has no finite value of 'f2'"):
        scorer.score(Candidates(features=features))
    with pytest.raises(DataError, match="takes 7 features, got an array of shape"):
        scorer.score(Candidates(features=features[:, :6]))
    with pytest.raises(DataError, match="needs the 7 features"):
        scorer.score(Candidates(texts=["a"]))


def test_scoring_needs_no_torch(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", network_model(SMALL))
    code = (
        "import sys; from clickprism.serve.bundle.bundle import Bundle;"
        "from clickprism.serve.scoring.scorer import open_scorer;"
        "open_scorer(Bundle.load(sys.argv[1])).warm(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(bundle.folder)], check=True)


def test_a_bundle_loads_again_with_the_same_version(tmp_path: Path) -> None:
    model: Model = tree_model()
    bundle = write_bundle(tmp_path / "bundle", model, metrics={"nDCG@10": 0.5}, data={"name": "made up"})
    again = Bundle.load(tmp_path / "bundle")
    assert (again.version, again.manifest) == (bundle.version, bundle.manifest)
    card = again.read("MODEL_CARD.md").decode()
    assert "| nDCG@10 | 0.5000 |" in card
    assert "gradient boosted trees" in card.lower()


@pytest.mark.parametrize("kind", ["none", "standard", "log1p", "query-standard"])
def test_a_missing_value_without_a_rule_is_no_score(kind: Kind, tmp_path: Path) -> None:
    lists = raw_lists(6, missing=False)
    model = network_model(MLP(hidden=(5,), activation="relu", layer_norm="none")).with_normaliser(fit(kind, lists))
    scorer = open_scorer(write_bundle(tmp_path / "bundle", model))
    lists.features[4, 1] = np.nan
    if kind == "none":
        with pytest.raises(DataError, match="document 5 of the list has no score: it has no finite value of"):
            scorer.score(Candidates(features=lists.features))
    else:
        same(scorer.score(Candidates(features=lists.features, offsets=lists.offsets)).scores, model.score(lists))


@pytest.mark.parametrize("safe", [False, True])
def test_ids_that_a_spreadsheet_would_run_are_escaped_if_that_is_asked_for(safe: bool, tmp_path: Path) -> None:
    ids, out = ["=1+1", "+1", "-1", "@a", "a=1"], tmp_path / "scores.csv"
    rows = [f'"{name}","{name}",{place}' for place, name in enumerate(ids)]
    (tmp_path / "documents.csv").write_text("\n".join(["query_id,document_id,price", *rows, ""]))
    bundle = Bundle.load(linear_bundle(tmp_path / "bundle", [1.0]))
    score_file(bundle, tmp_path / "documents.csv", out, spreadsheet_safe=safe)
    with out.open(newline="") as file:
        found = [row[:2] for row in csv.reader(file)][1:]
    assert found == [[f"'{name}" if safe and name != "a=1" else name] * 2 for name in ids]


@pytest.mark.parametrize(
    ("name", "text"), [("rows.csv", "price,age\n1,2\n1,old\n"), ("rows.jsonl", '{"price": 1, "age": "old"}\n')]
)
def test_a_column_that_is_no_number_is_named(tmp_path: Path, name: str, text: str) -> None:
    bundle = Bundle.load(linear_bundle(tmp_path / "bundle", [1.0, 2.0]))
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=rf"{name}: .*[Cc]olumn.*age") as found:
        score_file(bundle, tmp_path / name, tmp_path / "scores.csv")
    assert "\n" not in str(found.value)


def test_a_row_with_a_wrong_number_of_fields_is_refused_since_each_row_needs_a_score(tmp_path: Path) -> None:
    bundle = Bundle.load(linear_bundle(tmp_path / "bundle", [1.0, 2.0]))
    (tmp_path / "rows.csv").write_text("price,age\n1,2\n1,2,3\n")
    with pytest.raises(DataError, match=r"rows.csv: has 1 broken row, such as row 3.*with 3 fields instead of 2"):
        score_file(bundle, tmp_path / "rows.csv", tmp_path / "scores.csv")
