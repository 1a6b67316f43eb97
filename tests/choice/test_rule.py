"""The rule of a choice, on trials made by hand."""

from __future__ import annotations

import numpy as np

from clickprism.choice.rule import chosen_method, chosen_ranker, diagnosed_method
from clickprism.choice.trials import Tried
from clickprism.types import Float64

FEW = np.tile([0.1, -0.1], 20)  # nothing, with some noise


def trial(gains: Float64 | None = None, moved: Float64 | None = None) -> Tried:
    return Tried(
        {"refused": ""}, np.zeros(0) if gains is None else gains, np.full(40, -5.0) if moved is None else moved
    )


def told(curve: float, *, bend: float = 0.0, agreed: float = 0.0, position: float = -1.0) -> dict[str, Tried]:
    """Gains of the curve, of the bend beyond it by both criteria, and of the moved curve over it, a query."""
    alike = -4.0 + FEW
    return {
        "click": trial(),
        "position": trial(moved=alike + position + FEW),
        "alike": trial(curve + FEW, alike),
        "alike-bend": trial(curve + bend + 2 * FEW, alike + agreed + FEW),
    }


def test_a_diagnosis_decides_where_positions_are_linked() -> None:
    trials = told(1.0) | {"trust": trial(), "bend": trial()}
    for trust, coupling, method in (
        ("absent", "absent", "position"),
        ("present", "absent", "trust"),
        ("present", "present", "bend"),
    ):
        verdict = diagnosed_method(trials, {"trust": trust, "coupling": coupling})
        assert verdict is not None
        assert verdict.method == method
    assert diagnosed_method(trials, {"trust": "absent", "coupling": "unknown"}) is None
    assert diagnosed_method(told(1.0), {"trust": "present", "coupling": "absent"}) is None


def test_no_curve_no_correction() -> None:
    verdict = chosen_method(told(0.0), linked=True, heeded=True)
    assert verdict.method == "click"
    assert "no position bias to correct" in verdict.why[0]


def test_features_bend_the_curve_only_if_moved_documents_agree() -> None:
    assert chosen_method(told(1.0), linked=True, heeded=False).method == "alike"
    assert chosen_method(told(1.0, bend=1.0), linked=True, heeded=False).method == "alike"
    assert chosen_method(told(1.0, bend=1.0, agreed=1.0), linked=True, heeded=False).method == "alike-bend"
    alone = told(1.0, bend=1.0)
    alone = {name: trial(each.gains, np.zeros(40)) for name, each in alone.items()}
    assert chosen_method(alone, linked=False, heeded=False).method == "alike-bend"


def test_moved_documents_overrule_unless_the_engine_heeds_clicks_or_positions_are_not_linked() -> None:
    other = told(1.0, position=1.0)
    assert chosen_method(other, linked=True, heeded=False).method == "position"
    assert chosen_method(other, linked=True, heeded=True).method == "alike"
    assert chosen_method(other, linked=False, heeded=False).method == "alike"


def test_without_documents_that_look_alike_those_that_moved_decide() -> None:
    few = {name: each for name, each in told(1.0).items() if not name.startswith("alike")}
    few["position"] = trial(moved=np.full(40, -4.0) + FEW)
    assert chosen_method(few, linked=True, heeded=False).method == "position"
    assert chosen_method(few, linked=False, heeded=False).method == "click"


def test_a_steady_ranker_is_taken_within_chance_of_the_best() -> None:
    base = np.linspace(0.4, 0.8, 40)
    assert chosen_ranker({"linear": base, "mlp": base + 0.01 * FEW, "blend": base - 0.01 * FEW})[0] == "blend"
    assert chosen_ranker({"linear": base, "mlp": base + 0.05 + FEW / 9, "blend": base}) == ("mlp", "mlp")
