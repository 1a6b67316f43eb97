"""What stands for what was never shown, sessions in effect, and every reason not to answer: by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.evaluation.counterfactual import counterfactual
from clickprism.evaluation.counterfactual_checks import Slope
from clickprism.evaluation.counterfactual_estimators import Parts, checks_of, position_based, weighted
from clickprism.evaluation.counterfactual_model import reward_model
from clickprism.evaluation.counterfactual_result import Estimate
from clickprism.evaluation.counterfactual_settings import CounterfactualSettings, Name
from clickprism.evaluation.counterfactual_support import Match, place
from clickprism.types import Clicks, Lists

OPEN = CounterfactualSettings(
    least_effective=1, least_queries=1, most_missing=1, most_modelled=1, most_slack=1, most_misfit=1
)
TURNED = (1.0, 0.0, 0.0, 1.0)  # query a as (0, 1), query b as (3, 2), which was never shown


def by_position(*, second: int = 40) -> Clicks:
    """Observation 1 and 0.5. Query a, 0.8 and 0.4: 100 sessions each way. Query b, 0.6 and 0.2: 200 of (2, 3).

    Args:
        second: clicks on document 0 at position 2; 40 is 0.5 times 0.8.
    """
    lists = Lists(np.zeros((4, 0), np.float32), np.array([0, 2, 4]), np.array(["a", "b"]))
    return Clicks(
        lists,
        np.array([0, 2, 4, 6]),
        np.array([0, 1, 1, 0, 2, 3]),
        np.array([1, 2, 1, 2, 1, 2], np.int32),
        np.array([80, 20, 40, second, 120, 20]),
        np.array([100, 100, 200]),
    )


def estimate(
    name: Name, *, log: Clicks | None = None, scores: tuple[float, ...] = TURNED, limits: dict[str, float] | None = None
) -> Estimate:
    settings = replace(OPEN, **(limits or {}))  # type: ignore[arg-type]
    given = Logged(log or by_position())
    return counterfactual(given, np.array(scores), settings=replace(settings, estimator=(name,))).estimates[name]


def parts(name: str) -> Parts:
    """As if the log had nothing to say against its model."""
    placed = place(by_position(), np.array(TURNED), depth=2)
    model = reward_model(placed.clicks, resamples=2, seed=0)
    checks = checks_of(placed, model, Slope(1.0, 0.0), None)
    if name == "position-based":
        return position_based(placed, model, checks, worth=np.ones(2))
    match: Match = "top" if name == "cascade-dr" else "item"
    return weighted(placed, model, checks, match=match, fill="model", worth=np.ones(2), clip=1000)


def test_position_based_moves_documents_along_the_curve() -> None:
    """Query a: 0.8 + 0.5 * 0.4. Query b turned around: 0.2 + 0.5 * 0.6."""
    assert parts("position-based").per_query.tolist() == pytest.approx([1.0, 0.5], abs=1e-4)


@pytest.mark.parametrize("name", ["item-position-dr", "cascade-dr"])
def test_doubly_robust_fills_in_by_the_model(name: str) -> None:
    """Query a by its clicks; query b by relevance drawn towards the mean, as it was never shown so."""
    clicked, exposure = np.array([120.0, 60, 120, 20]), np.array([150.0, 150, 200, 100])
    prior = clicked.sum() / exposure.sum()
    variance = ((exposure * (clicked / exposure - prior) ** 2).sum() - 4 * prior) / exposure.sum()
    worth = prior / variance
    relevance = (clicked + worth * prior) / (exposure + worth)
    made = parts(name)
    assert made.per_query.tolist() == pytest.approx([1.0, relevance[3] + 0.5 * relevance[2]], abs=1e-4)
    assert made.missing == pytest.approx(0.5)


def test_reward_interaction_takes_the_others_for_what_was_not_shown() -> None:
    assert estimate("reward-interaction").value.value == pytest.approx(1.0)


def test_the_effective_number_of_sessions_follows_their_weights() -> None:
    """Query a: 100 of 200 sessions match and count twice; query b: all 200 count once. 400^2 / (100 * 4 + 200)."""
    assert estimate("ips", scores=(1.0, 0, 1, 0)).effective == pytest.approx(400**2 / 600)


def test_sessions_in_effect_are_those_that_match() -> None:
    """Query b never matches: 100 sessions of weight 2."""
    assert estimate("ips").effective == pytest.approx(100)


@pytest.mark.parametrize(
    ("name", "limits", "words"),
    [
        ("ips", {"most_missing": 0.05}, "50.0% of the clicks at stake are on lists that were never shown"),
        ("snips", {"most_missing": 0.49}, "more than 49.0%. Show the new ranking itself in a share of searches"),
        ("reward-interaction", {"most_missing": 0.05}, "on tops of lists that were never shown"),
        ("item-position", {"most_missing": 0.05}, "on documents that never stood where it puts them"),
        ("cascade-dr", {"most_modelled": 0.4}, "50.0% of the clicks at stake are on tops of lists that were never"),
        ("item-position-dr", {"most_slack": 0.1}, "the click model fills in 50.0% of the clicks at stake, and may be"),
        ("position-based", {"most_modelled": 0.4}, "too many for the log to check the model"),
        ("ips", {"least_queries": 3}, "the log has 2.0 queries in effect, fewer than 3"),
        ("ips", {"least_effective": 101}, "the value rests on 100 sessions in effect, fewer than 101"),
    ],
)
def test_what_is_refused_says_why(name: Name, limits: dict[str, float], words: str) -> None:
    made = estimate(name, limits=limits)
    assert words in made.refusal
    assert made.verdict == "unknown"
    assert str(made.value) == str(made.difference) == "-"


def test_documents_that_moved_may_prove_the_model_wrong() -> None:
    """Document 0 is moved up from where it earned nothing: position and relevance foretell too little."""
    lists = Lists(np.zeros((4, 0), np.float32), np.array([0, 2, 4]), np.array(["a", "b"]))
    log = Clicks(
        lists,
        np.array([0, 2, 4, 6, 8]),
        np.array([0, 1, 1, 0, 2, 3, 3, 2]),
        np.tile(np.array([1, 2], np.int32), 4),
        np.array([800, 100, 900, 100, 300, 290, 300, 290]),
        np.array([1000, 9000, 1000, 1000]),
    )
    made = estimate("position-based", log=log, scores=(1.0, 0, 1, 0), limits={"most_misfit": 0.02})
    assert "documents that the log moved as the ranker does earned other than position and relevance" in made.refusal


def test_a_document_never_shown_has_no_clicks_to_move() -> None:
    """A third document of query a, put first: all of its clicks are unknown, and so a quarter of the value or more."""
    log = by_position()
    lists = Lists(np.zeros((5, 0), np.float32), np.array([0, 3, 5]), np.array(["a", "b"]))
    more = replace(log, lists=lists, rows=np.array([0, 1, 1, 0, 3, 4]))
    made = estimate("position-based", log=more, scores=(1.0, 0, 2, 1, 0), limits={"most_missing": 0.05})
    assert "of the clicks at stake are on documents that were never shown" in made.refusal
    assert made.refusal.endswith("Show such documents in some searches, at any position")
