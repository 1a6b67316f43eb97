"""How well click models predict the clicks of held-out sessions: log-likelihood, perplexity and click rates.

A model predicts each entry of a log twice: before any click of the session is known (the marginal probability), and
given the clicks above it (the conditional probability; it needs sessions one by one or merged by pattern). The
perplexity uses marginal probabilities. The conditional perplexity and the log-likelihood use conditional ones: the
probability of a session is their product. All values are exact on merged logs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol, final

import numpy as np

from clickprism._util.progress import Progress, no_progress
from clickprism._util.tables import Table, by_position
from clickprism.click_models import CLICK_MODELS, click_model
from clickprism.click_models.fitted import check_patterns, check_sessions, log_terms
from clickprism.errors import SettingError, UnsupportedError
from clickprism.settings import check_fields, suggest
from clickprism.types import Clicks, Float64

BASELINES: Final = ("global", "rank", "document")
"""Click rates, which do not separate observation from attraction, so that they have no observation curve."""


class ClickPredictor(Protocol):
    """What predicts clicks: a fitted click model, or the learner of a neural one."""

    def click_probability(self, clicks: Clicks) -> Float64:
        """Return the probability of a click on each entry before any click of the session is known, [entries]."""
        ...

    def conditional_probability(self, clicks: Clicks) -> Float64:
        """Return the probability of a click on each entry given the clicks above it, [entries]."""
        ...


@final
@dataclass(frozen=True, eq=False, repr=False)
class ClickEvaluation:
    """How well clicks were predicted.

    >>> ClickEvaluation(-1.5, np.array([1.5, 1.25]), np.array([1.25, 1.25]), 0.1)
    ClickEvaluation(log-likelihood -1.5000, perplexity 1.3750, conditional perplexity 1.2500, rate error 0.1000)
    """

    log_likelihood: float  # Mean log-likelihood of a session
    perplexity: Float64  # Perplexity at each position before any click is known; NaN at a position that is not shown
    conditional_perplexity: Float64  # Perplexity at each position given the clicks above
    rate_error: float  # Root mean square error of click rates

    def __repr__(self) -> str:
        return (
            f"ClickEvaluation(log-likelihood {self.log_likelihood:.4f}, perplexity {self.mean_perplexity:.4f}, "
            f"conditional perplexity {self.mean_conditional_perplexity:.4f}, rate error {self.rate_error:.4f})"
        )

    @property
    def mean_perplexity(self) -> float:
        """Mean perplexity of the positions that are shown."""
        return float(np.nanmean(self.perplexity))

    @property
    def mean_conditional_perplexity(self) -> float:
        """Mean conditional perplexity of the positions that are shown."""
        return float(np.nanmean(self.conditional_perplexity))


def evaluate_clicks(predictor: ClickPredictor, clicks: Clicks) -> ClickEvaluation:
    """Return how well clicks are predicted on a log whose sessions are single or merged by pattern."""
    marginal = predictor.click_probability(clicks)
    conditional = predictor.conditional_probability(clicks)
    return ClickEvaluation(
        log_likelihood(conditional, clicks),
        perplexity(marginal, clicks),
        perplexity(conditional, clicks),
        rate_error(marginal, clicks),
    )


def log_likelihood(probability: Float64, clicks: Clicks) -> float:
    """Return the mean log-likelihood of a session, from probabilities given the clicks above."""
    return float(log_terms(probability, clicks).sum() / max(clicks.sessions, 1))


def perplexity(probability: Float64, clicks: Clicks) -> Float64:
    """Return the perplexity at each position, 2^(- mean of log2 P(click or no click)), [positions].

    The measure of Dupret and Piwowarski (2008): 1 is a perfect prediction, 2 a coin. It is NaN at a position that the
    log does not show.
    """
    places = clicks.positions - 1
    size = clicks.max_position
    terms = np.bincount(places, weights=log_terms(probability, clicks), minlength=size)
    shown = np.bincount(places, weights=clicks.list_impressions, minlength=size)
    with np.errstate(invalid="ignore"):
        result: Float64 = np.exp(-terms / shown)
    return result


def rate_error(probability: Float64, clicks: Clicks) -> float:
    """Return the root mean square error of predicted click rates, over impressions.

    A rate is that of a document at a position, over all lists that show it there; probabilities are marginal.
    """
    pair = np.unique(clicks.rows * (clicks.max_position + 1) + clicks.positions, return_inverse=True)[1]
    shown = np.bincount(pair, weights=clicks.list_impressions)
    gap = np.bincount(pair, weights=clicks.clicks - probability * clicks.list_impressions)
    return float(np.sqrt((gap**2 / np.maximum(shown, 1)).sum() / max(shown.sum(), 1)))


@final
@dataclass(frozen=True, kw_only=True)
class ClickModelSettings:
    """Which click models to fit, and on how many sessions to compare them.

    Attributes:
        model: Click model; repeat the option for several.
        held_out: Share of the sessions to compare on, which the models are not fitted to.
        seed: Random seed of the held-out sessions.
    """

    model: tuple[str, ...] = tuple(CLICK_MODELS)
    held_out: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.model:
            if name not in CLICK_MODELS:
                raise SettingError("model", name, f"be a known click model ({suggest(name, CLICK_MODELS)})")
        if not self.model:
            raise SettingError("model", self.model, "name at least one click model")
        check_fields(self, held_out=(0.001, 0.999), seed=(0, None))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedModel:
    """A click model on held-out sessions."""

    name: str  # Name of the click model
    log_likelihood: float  # Mean log-likelihood of a held-out session
    # Mean log-likelihood by which it is behind the best model, and the standard error of that difference
    behind: tuple[float, float]
    perplexity: float  # Mean perplexity over the positions, before any click of the session is known
    conditional_perplexity: float  # Mean perplexity over the positions, given the clicks above
    perplexity_by_position: Float64  # Perplexity at each position, before any click of the session is known
    conditional_perplexity_by_position: Float64  # Perplexity at each position, given the clicks above
    # Observation at each position relative to position 1; None for click rates, which have none
    observation: Float64 | None
    converged: bool  # Whether the fit converged


@final
@dataclass(frozen=True, kw_only=True)
class ClickModelComparison:
    """Click models compared on held-out sessions."""

    sessions: int  # Number of sessions that the models were fitted to
    held_out: int  # Number of sessions that they were compared on
    models: tuple[ComparedModel, ...]  # The models, best log-likelihood first
    settings: ClickModelSettings  # Settings of the comparison

    def tables(self) -> list[Table]:
        """Return the overall figures, the perplexity by position, and the observation curves."""
        caption = f"Fitted to {self.sessions:,} sessions, compared on {self.held_out:,} held-out sessions, best first"
        header = ["model", "log-likelihood", "behind the best", "perplexity given clicks above", "perplexity"]
        rows = [
            [
                it.name + ("" if it.converged else " (not converged)"),
                f"{it.log_likelihood:.4f}",
                "-" if index == 0 else f"{it.behind[0]:.4f} +- {it.behind[1]:.4f}",
                f"{it.conditional_perplexity:.4f}",
                f"{it.perplexity:.4f}",
            ]
            for index, it in enumerate(self.models)
        ]
        perplexities = {it.name: it.conditional_perplexity_by_position for it in self.models}
        curves = {it.name: it.observation for it in self.models if it.observation is not None}
        tables = [
            Table(caption, header, rows),
            by_position("Perplexity given clicks above, by position (1 is perfect, 2 is a coin)", perplexities),
        ]
        return [*tables, by_position("Observation relative to position 1", curves)] if curves else tables


def compare_click_models(
    clicks: Clicks, settings: ClickModelSettings | None = None, *, progress: Progress = no_progress
) -> ClickModelComparison:
    """Fit click models to a part of the sessions, and compare them on the other sessions.

    Args:
        clicks: Sessions one by one, or merged by pattern.
        settings: Which models, and how many held-out sessions.
        progress: Called before each model.
    """
    settings = settings or ClickModelSettings()
    check_sessions(clicks)
    check_patterns(clicks)
    sessions = clicks.take(np.repeat(np.arange(len(clicks)), clicks.impressions))
    sessions = replace(
        sessions, clicks=(sessions.clicks > 0).astype(np.int64), impressions=np.ones(len(sessions), dtype=np.int64)
    )
    chosen = np.random.default_rng(settings.seed).random(len(sessions)) < settings.held_out
    if chosen.sum() < 2 or chosen.all():
        raise UnsupportedError(
            f"{len(sessions):,} sessions are too few to hold out a share of {settings.held_out:g}",
            remedy="Use more sessions",
        )
    known, asked = sessions.take(~chosen).merge(by="pattern"), sessions.take(chosen)
    owner, names = np.repeat(np.arange(len(asked)), np.diff(asked.offsets)), list(dict.fromkeys(settings.model))
    found, by_session = [], {}
    for number, name in enumerate(names):
        progress(number, len(names), name)
        fitted = click_model(name).fit(known)
        measured = evaluate_clicks(fitted, asked)
        by_session[name] = np.bincount(owner, weights=log_terms(fitted.conditional_probability(asked), asked))
        found.append(
            ComparedModel(
                name=name,
                log_likelihood=measured.log_likelihood,
                behind=(0.0, 0.0),
                perplexity=measured.mean_perplexity,
                conditional_perplexity=measured.mean_conditional_perplexity,
                perplexity_by_position=measured.perplexity,
                conditional_perplexity_by_position=measured.conditional_perplexity,
                observation=None if name in BASELINES else fitted.observation(known),
                converged=fitted.converged,
            )
        )
    found.sort(key=lambda each: -each.log_likelihood)
    best = by_session[found[0].name]
    behind = {name: best - each for name, each in by_session.items()}
    models = tuple(
        replace(each, behind=(float(gap.mean()), float(gap.std(ddof=1) / len(gap) ** 0.5)))
        for each in found
        for gap in [behind[each.name]]
    )
    return ClickModelComparison(sessions=known.sessions, held_out=asked.sessions, models=models, settings=settings)
