"""`auto` on the frame of a shop: categories or requests as queries, and one-hot encoded features."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.auto.checks import choose_ranker
from clickprism.log_model.counts import count
from clickprism.log_model.fit import fit_form, one_thread
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


@pytest.mark.parametrize("seed", [0, 2])
def test_the_curve_falls_if_each_pair_is_shown_once(seed: int) -> None:
    """No document links the positions: the features and the priors of the model keep the curve near 1 / k."""
    counts = count(shop_frame(seed, engine="price").logged("request"))
    own = Scaler.of(counts.features)(counts.features)
    given = Covariates(own=own, features=with_query_means(own, counts.query))
    with one_thread():
        plain = fit_form(counts, Form(), Covariates())
        found = fit_form(counts, Form(features="linear"), given, start=plain)
    assert np.abs(found.theta[:9] + np.log(np.arange(2, 11))).max() < 0.7
