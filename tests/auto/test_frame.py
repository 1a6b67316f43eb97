"""`auto` on the frame of a shop: categories or requests as queries, and one-hot encoded features."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.auto.checks import choose_ranker
from clickprism.log_model import fit as fit_module
from clickprism.log_model.counts import count
from clickprism.log_model.fit import Fit, fit_form, one_thread
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.log_model.terms import Covariates, Form, Scaler, with_query_means
from clickprism.types import Lists
from reproduce.choice.frame import ITEMS, lightgbm_scores, shop_frame


def test_auto_ranks_items_better_than_lightgbm_with_positions_and_than_raw_clicks() -> None:
    """The engine orders by a number that says little about relevance: raw clicks teach this number."""
    frame = shop_frame(0, engine="price", requests=1500)
    logged = frame.logged("category")
    checked = choose_ranker(logged, LogModel.fit(logged, settings=LogModelSettings(resamples=0)))
    assert checked.use == "corrected"
    items = Lists(frame.features, np.array([0, ITEMS]), np.array(["all"]))
    normalised = items.with_features(checked.normaliser(items).features)
    found = checked.candidates
    ours = frame.spearman(found.found[found.chosen].make().score(normalised))
    assert ours > frame.spearman(lightgbm_scores(frame, position=True)) + 0.05
    assert ours > frame.spearman(found.raw.make().score(normalised)) + 0.03


def test_a_rising_curve_is_not_taken_if_a_falling_one_is_more_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair is shown once: the likelihood has a second optimum, with a curve that rises."""
    counts = count(shop_frame(2, engine="price").logged("request"))
    own = Scaler.of(counts.features)(counts.features)
    given = Covariates(own=own, features=with_query_means(own, counts.query))

    def linear() -> Fit:
        with one_thread():
            plain = fit_form(counts, Form(), Covariates())
            return fit_form(counts, Form(features="linear"), given, start=plain)

    found = linear()
    monkeypatch.setattr(fit_module, "_solve_again", lambda _problem, _names, *solved: solved)
    once = linear()
    assert once.theta[:9].max() > 0.5  # otherwise this log is no test
    assert found.value.loss < once.value.loss - 5
    truth = -np.log(np.arange(2, 11))
    assert np.abs(found.theta[:9] - truth).max() < 0.7
