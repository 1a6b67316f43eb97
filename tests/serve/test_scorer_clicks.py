"""Scores from click vectors and an imputation, whatever imputes, and from texts."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from scipy.special import expit

from clickprism.errors import DataError
from clickprism.rankers.linear import Linear
from clickprism.relevance.approximation_settings import Preset
from clickprism.serve.bundle.build import write_bundle
from clickprism.serve.scoring.scorer import Candidates, open_scorer
from clickprism.training.calibration import Calibration
from tests.serve.rankers import (
    CLICK_FIELDS,
    approximation,
    click_vectors,
    cross_encoder,
    network_model,
    raw_lists,
    tree_model,
)

TEXTS = ["red apple", "old pear", "", "sweet ripe plum"]


@pytest.mark.parametrize("preset", get_args(Preset))
def test_every_preset_scores_as_the_approximation(preset: Preset, tmp_path: Path) -> None:
    fitted, x = approximation(preset), click_vectors(1100, seed=1)
    scorer = open_scorer(write_bundle(tmp_path / "bundle", fitted, imputation="stored"))
    assert scorer.needs == {"features", "clicks"}
    assert scorer.feature_names == ("imputed",)
    imputed = np.random.default_rng(0).uniform(0.01, 0.99, len(x))
    imputed[5:8] = np.nan
    given = Candidates(clicks=x, features=imputed[:, None].astype(np.float32))
    scored = scorer.score(given, explain=True)
    mean = expit(-0.9) if preset == "default" else 0.3
    wanted = fitted.parts(x, np.where(np.isnan(imputed), mean, imputed))
    np.testing.assert_allclose(scored.scores, wanted.estimate, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(scored.scores, scorer.score(given).scores)
    for name, of in (("click_features", "affine"), ("trade_off", "trade_off"), ("imputation", "imputed")):
        np.testing.assert_allclose(scored.parts[name], getattr(wanted, of), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scored.parts["spread"], wanted.spread, rtol=1e-4, atol=1e-6)


def test_a_ranker_on_features_imputes(tmp_path: Path) -> None:
    fitted, ranker, calibration = approximation(), tree_model("standard"), Calibration(0.7, -1.5)
    bundle = write_bundle(tmp_path / "bundle", fitted, imputation=ranker, calibration=calibration)
    scorer, lists, x = open_scorer(bundle), raw_lists(6, 10), click_vectors(60)
    assert scorer.needs == {"features", "clicks"}
    assert scorer.click_fields == CLICK_FIELDS
    wanted = fitted.estimate(x, expit(calibration(ranker.score(lists))))
    found = scorer.score(Candidates(features=lists.features, clicks=x, offsets=lists.offsets)).scores
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_without_an_imputation_the_mean_is_taken(tmp_path: Path) -> None:
    fitted, x = approximation("published"), click_vectors(60)
    scorer = open_scorer(write_bundle(tmp_path / "bundle", fitted))
    assert scorer.needs == {"clicks"}
    np.testing.assert_allclose(scorer.score(Candidates(clicks=x)).scores, fitted.estimate(x, np.full(60, 0.3)), 1e-5)
    assert scorer.score(Candidates(clicks=x[:0])).scores.shape == (0,)
    with pytest.raises(DataError, match="needs the click vector of each document, of 6 fields"):
        scorer.score(Candidates(features=x))


def test_what_is_imputed_must_be_a_probability(tmp_path: Path) -> None:
    scorer = open_scorer(write_bundle(tmp_path / "bundle", approximation(), imputation="stored"))
    with pytest.raises(DataError, match=r"imputed values are probabilities, got 1\.5"):
        scorer.score(Candidates(clicks=click_vectors(2), features=np.array([[0.5], [1.5]], np.float32)))


def test_only_an_approximation_has_an_imputation(tmp_path: Path) -> None:
    ranker = network_model(Linear())
    with pytest.raises(DataError, match="only an approximation has an imputation"):
        write_bundle(tmp_path / "bundle", ranker, imputation=ranker)
    with pytest.raises(DataError, match="needs its calibration"):
        write_bundle(tmp_path / "bundle", approximation(), imputation=ranker)
    assert not (tmp_path / "bundle").exists()


def test_a_cross_encoder_reads_and_imputes(tmp_path: Path) -> None:
    network, fitted, x = cross_encoder(tmp_path / "language"), approximation(), click_vectors(4)
    query = "ripe apple"
    wanted = network.score_pairs([query] * 4, TEXTS)
    assert len(np.unique(wanted)) == 4
    scorer = open_scorer(write_bundle(tmp_path / "reader", network, int8=False))
    assert scorer.needs == {"texts"}
    np.testing.assert_allclose(scorer.score(Candidates(query, TEXTS)).scores, wanted, rtol=1e-5)
    scorer = open_scorer(write_bundle(tmp_path / "imputed", fitted, imputation=network, int8=False))
    assert scorer.needs == {"texts", "clicks"}
    found = scorer.score(Candidates(query, TEXTS, clicks=x)).scores
    np.testing.assert_allclose(found, fitted.estimate(x, wanted), rtol=1e-5)
    with pytest.raises(DataError, match="needs the text of the query"):
        scorer.score(Candidates(texts=TEXTS, clicks=x))
