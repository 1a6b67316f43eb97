"""Scores from click vectors and imputed relevance, and from texts."""

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
from tests.serve.rankers import approximation, click_vectors, cross_encoder, network_model

TEXTS = ["red apple", "old pear", "", "sweet ripe plum"]


@pytest.mark.parametrize("preset", get_args(Preset))
def test_every_preset_scores_as_the_approximation(preset: Preset, tmp_path: Path) -> None:
    fitted, x = approximation(preset), click_vectors(1100, seed=1)
    scorer = open_scorer(write_bundle(tmp_path / "bundle", fitted, imputed=True))
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


def test_without_an_imputation_the_mean_is_taken(tmp_path: Path) -> None:
    fitted, x = approximation("published"), click_vectors(60)
    scorer = open_scorer(write_bundle(tmp_path / "bundle", fitted))
    assert scorer.needs == {"clicks"}
    np.testing.assert_allclose(scorer.score(Candidates(clicks=x)).scores, fitted.estimate(x, np.full(60, 0.3)), 1e-5)
    assert scorer.score(Candidates(clicks=x[:0])).scores.shape == (0,)
    with pytest.raises(DataError, match="needs the click vector of each document, of 6 fields"):
        scorer.score(Candidates(features=x))


def test_what_is_imputed_must_be_a_probability(tmp_path: Path) -> None:
    scorer = open_scorer(write_bundle(tmp_path / "bundle", approximation(), imputed=True))
    with pytest.raises(DataError, match=r"imputed values are probabilities, got 1\.5"):
        scorer.score(Candidates(clicks=click_vectors(2), features=np.array([[0.5], [1.5]], np.float32)))


def test_only_an_approximation_takes_imputed_values(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="only an approximation takes imputed values"):
        write_bundle(tmp_path / "bundle", network_model(Linear()), imputed=True)
    assert not (tmp_path / "bundle").exists()


def test_a_cross_encoder_reads(tmp_path: Path) -> None:
    network, query = cross_encoder(tmp_path / "language"), "ripe apple"
    wanted = network.score_pairs([query] * 4, TEXTS)
    assert len(np.unique(wanted)) == 4
    scorer = open_scorer(write_bundle(tmp_path / "reader", network))
    assert scorer.needs == {"texts"}
    np.testing.assert_allclose(scorer.score(Candidates(query, TEXTS)).scores, wanted, rtol=1e-5)
    with pytest.raises(DataError, match="needs the text of the query"):
        scorer.score(Candidates(texts=TEXTS))
