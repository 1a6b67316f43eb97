"""What replaces what was never shown, the effective number of sessions, and every refusal: by arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.evaluation.counterfactual.estimators import Parts, position_based, weighted
from clickprism.evaluation.counterfactual.result import CounterfactualSettings, Estimate, Name
from clickprism.evaluation.counterfactual.run import counterfactual
from clickprism.evaluation.counterfactual.support import Checks, Match, Predictions, Slope, place
from clickprism.log_model.model import LogModel
from clickprism.log_model.results import Identified
from clickprism.types import Clicks, Lists
from tests.evaluation.known_model import known_model

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
    name: Name,
    *,
    log: Clicks | None = None,
    scores: tuple[float, ...] = TURNED,
    limits: dict[str, float] | None = None,
    model: LogModel | None = None,
) -> Estimate:
    settings = replace(OPEN, estimator=(name,), **(limits or {}))  # type: ignore[arg-type]
    log = log or by_position()
    model = model or known_model(log, [1.0, 0.5], strength=5.0)
    return counterfactual(Logged(log), np.array(scores), settings=settings, model=model).estimates[name]


def parts(name: str) -> Parts:
    placed = place(Logged(by_position()), np.array(TURNED), depth=2)
    predictions = Predictions(placed, known_model(placed.clicks, [1.0, 0.5], strength=5.0), seed=0)
    checks = Checks(np.ones((2, 2)), np.zeros((2, 2)), Slope(1.0, 0.0), None)
    if name == "position-based":
        return position_based(placed, predictions, checks, discount=np.ones(2))
    match: Match = "top" if name == "cascade-dr" else "item"
    return weighted(placed, predictions, checks, match=match, fill="model", discount=np.ones(2), clip=1000)


def relevance() -> tuple[float, ...]:
    """Return (clicks + 5 mean) / (exposure + 5) of documents 0 to 3."""
    clicked, exposure = np.array([120.0, 60, 120, 20]), np.array([150.0, 150, 200, 100])
    return tuple(((clicked + 5 * clicked.sum() / exposure.sum()) / (exposure + 5)).tolist())


def test_position_based_moves_documents_along_the_curve() -> None:
    """Query a as (0, 1), query b as (3, 2); observation is 1 and 0.5."""
    zero, one, two, three = relevance()
    assert parts("position-based").per_query.tolist() == pytest.approx([zero + 0.5 * one, three + 0.5 * two])


@pytest.mark.parametrize("name", ["item-position-dr", "cascade-dr"])
def test_doubly_robust_fills_in_by_the_model(name: str) -> None:
    """Query a by its clicks, 0.8 + 0.5 * 0.4; query b by the model, because (3, 2) was never shown."""
    _, _, two, three = relevance()
    made = parts(name)
    assert made.per_query.tolist() == pytest.approx([1.0, three + 0.5 * two])
    assert made.missing == pytest.approx(0.5)


def test_reward_interaction_replaces_what_was_not_shown_by_the_mean() -> None:
    assert estimate("reward-interaction").value.value == pytest.approx(1.0)


def test_the_effective_number_of_sessions_follows_their_weights() -> None:
    """Query a: 100 of 200 sessions match and count twice; query b: all 200 count once. 400^2 / (100 * 4 + 200)."""
    assert estimate("ips", scores=(1.0, 0, 1, 0)).effective == pytest.approx(400**2 / 600)


def test_only_matching_sessions_count_in_the_effective_number() -> None:
    """Query b never matches: 100 sessions of weight 2."""
    assert estimate("ips").effective == pytest.approx(100)


@pytest.mark.parametrize(
    ("name", "limits", "words"),
    [
        ("ips", {"most_missing": 0.05}, "50.0% of the affected clicks are on lists that were never shown"),
        ("snips", {"most_missing": 0.49}, "more than 49.0%. Show the new ranking in a share of the searches"),
        ("reward-interaction", {"most_missing": 0.05}, "on tops of lists that were never shown"),
        ("item-position", {"most_missing": 0.05}, "on documents that were never shown at the position"),
        ("cascade-dr", {"most_modelled": 0.4}, "50.0% of the affected clicks are on tops of lists that were never"),
        ("item-position-dr", {"most_slack": 0.1}, "the model predicts 50.0% of the affected clicks, and may be"),
        ("position-based", {"most_modelled": 0.4}, "too many for the log to check the model"),
        ("ips", {"least_queries": 3}, "the effective number of queries is 2.0, fewer than 3"),
        ("ips", {"least_effective": 101}, "the effective number of sessions is 100, fewer than 101"),
    ],
)
def test_a_refusal_says_why(name: Name, limits: dict[str, float], words: str) -> None:
    made = estimate(name, limits=limits)
    assert words in made.refusal
    assert made.verdict == "unknown"
    assert str(made.value) == str(made.difference) == "-"


def test_documents_shown_at_several_positions_may_refute_the_model() -> None:
    """Document 0 gets few clicks at position 2 and many at position 1: the model predicts too few."""
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
    assert "documents that the log moved as the ranker does got other clicks than the model predicts" in made.refusal


def test_a_document_never_shown_has_no_clicks_to_move() -> None:
    """A third document of query a is put first: its clicks are unknown, a quarter of the value or more."""
    log = by_position()
    lists = Lists(np.zeros((5, 0), np.float32), np.array([0, 3, 5]), np.array(["a", "b"]))
    more = replace(log, lists=lists, rows=np.array([0, 1, 1, 0, 3, 4]))
    made = estimate("position-based", log=more, scores=(1.0, 0, 2, 1, 0), limits={"most_missing": 0.05})
    assert "of the affected clicks are on documents that were never shown" in made.refusal
    assert made.refusal.endswith("Show such documents in some searches, at any position")


@pytest.mark.parametrize(
    ("identified", "words"),
    [
        ("features", "observation at position 2 is linked to position 1 only by the features of different documents"),
        ("not identified", "observation at position 2 is linked to position 1 by nothing in the log"),
    ],
)
@pytest.mark.parametrize("name", ["cascade-dr", "item-position-dr", "position-based"])
def test_a_ranker_that_moves_documents_between_unlinked_positions_is_refused(
    name: Name, identified: Identified, words: str
) -> None:
    """Both documents of query b change places; only the other order of query b was shown."""
    log = by_position().take([0, 2])
    unlinked = known_model(log, [1.0, 0.5], groups=(0, 1), identified=identified)
    refused = estimate(name, log=log, model=unlinked)
    assert refused.refusal.startswith("66.7% of the affected clicks are on documents that the ranker moves between")
    assert words in refused.refusal
    assert refused.refusal.endswith("Swap documents between positions in some searches, or log several rankers")
    assert not estimate(name, log=log, scores=(1.0, 0, 1, 0), model=unlinked).refusal


def test_position_based_is_refused_if_the_model_does_not_fit() -> None:
    model = known_model(by_position(), [1.0, 0.5], fits=False)
    assert "the model does not fit the log" in estimate("position-based", model=model).refusal
    assert not estimate("item-position-dr", model=model).refusal
