"""Held-out clicks predicted by a learner: the figures are those of its probabilities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.debias.click_model import NeuralClickModel
from clickprism.errors import DataError
from clickprism.evaluation.clicks import evaluate_clicks, log_likelihood, perplexity
from clickprism.rankers.linear import Linear
from clickprism.types import Clicks


def test_figures_of_an_untrained_cascade(clicks: Clicks) -> None:
    """All documents alike: at place k nothing was clicked above with (1 - a)^(k-1)."""
    log = replace(clicks, clicks=np.where(clicks.positions == 1, clicks.list_impressions, 0))
    learner = NeuralClickModel(model="cascade").learner(Linear().build(5), log)
    found, chance = evaluate_clicks(learner, log), 1 / (1 + np.exp(-learner.odds))
    marginal = chance * (1 - chance) ** (log.positions - 1)
    assert learner.click_probability(log) == pytest.approx(marginal)
    assert found.mean_perplexity == pytest.approx(perplexity(marginal, log).mean())
    assert found.log_likelihood == pytest.approx(np.log(chance), abs=2e-5)
    assert found.conditional_perplexity[1:] == pytest.approx(1, abs=2e-6)
    assert found.mean_conditional_perplexity == pytest.approx((1 / chance + 11) / 12)
    assert found.rate_error > 0


def test_conditional_figures_need_patterns(clicks: Clicks) -> None:
    learner = NeuralClickModel(model="dbn").learner(Linear().build(5), clicks)
    with pytest.raises(DataError, match="does not record which clicks were above"):
        evaluate_clicks(learner, clicks)
    assert log_likelihood(learner.click_probability(clicks), clicks) < 0
