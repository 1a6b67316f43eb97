"""The rule: clicks are corrected, and bent by features, only as far as held-out queries believe it."""

from __future__ import annotations

import numpy as np

from clickprism.choice.rule import chosen_method, chosen_ranker
from clickprism.choice.trials import Tried
from clickprism.types import Float64

FEW = np.array([-1.0, 1.0] * 20)  # by query, of no mean
NONE = np.zeros(0)


def trial(*, moved: Float64 = NONE, gains: Float64 = NONE, more: Float64 = NONE) -> Tried:
    return Tried({"refused": ""}, moved, gains, more)


def told(curve: float, *, bend: float = 0.0) -> dict[str, Tried]:
    """Gains by query of a curve over no bias, and of a bend over it."""
    return {
        "click": trial(moved=np.full(40, -1.0)),
        "pooled": trial(gains=curve + FEW),
        "pooled-bend": trial(gains=curve + bend + FEW, more=bend + FEW),
    }


def test_no_curve_no_correction() -> None:
    verdict = chosen_method(told(0.0), linked=True)
    assert verdict.method == "click"
    assert "no position bias to correct" in verdict.why[0]


def test_a_curve_that_predicts_held_out_clicks_is_taken() -> None:
    verdict = chosen_method(told(1.0), linked=True)
    assert verdict.method == "pooled"
    assert "stood at several positions and by what looks alike" in verdict.why[0]
    assert "do not surely bend it" in verdict.why[1]
    assert "sound if the ranking knew" in chosen_method(told(1.0), linked=False).why[0]


def test_features_bend_it_if_they_predict_more_by_three_standard_errors() -> None:
    assert chosen_method(told(1.0, bend=2.9 / np.sqrt(40)), linked=True).method == "pooled"
    verdict = chosen_method(told(1.0, bend=3.1 / np.sqrt(40)), linked=True)
    assert verdict.method == "pooled-bend"
    assert verdict.why[1].startswith("Features bend it")
    assert set(verdict.pooled) == {"pooled", "pooled-bend"}


def test_where_users_heed_the_clicks_above_it_takes_six() -> None:
    for errors, method in ((5.9, "pooled"), (6.1, "pooled-bend")):
        trials = told(1.0, bend=errors / np.sqrt(40))
        for each in trials.values():
            each.about["browsing"] = True
        verdict = chosen_method(trials, linked=True)
        assert verdict.method == method
        assert "last click" in verdict.why[-1]


def test_without_a_pooled_model_documents_that_moved_decide() -> None:
    trials = {
        "click": trial(moved=np.full(40, -3.0)),
        "position": trial(moved=np.full(40, -2.0) + 0.1 * FEW),
        "trust": trial(moved=np.full(40, -1.5) + 0.1 * FEW),
        "pooled": Tried({"refused": "too few queries"}, NONE, NONE, NONE),
    }
    assert chosen_method(trials, linked=True).method == "trust"
    assert chosen_method({"click": trials["click"]}, linked=True).method == "click"
    unsure = trials | {"trust": trial(moved=np.full(40, -2.9) + FEW), "position": trials["click"]}
    assert chosen_method(unsure, linked=True).method == "click"


def test_a_steady_ranker_is_taken_within_chance_of_the_best() -> None:
    base = np.linspace(0.4, 0.8, 40)
    assert chosen_ranker({"linear": base, "mlp": base + 0.01 * FEW, "blend": base - 0.01 * FEW})[0] == "blend"
    assert chosen_ranker({"linear": base + 0.05 + FEW / 20, "mlp": base, "blend": base}) == ("linear", "linear")
