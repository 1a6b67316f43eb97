"""What a click model is: settings that are fitted to a log, and what that gives: attraction, and how users look.

Every model here is P(click at k) = P(seen at k) a, with a the attraction of the document. They differ in when a user
sees an entry, which is the model's behaviour: `Browsing` or `Reading`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, final

import numpy as np

from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.observation.counts import BY_PATTERN, require_clicks
from clickprism.observation.measures import log_terms
from clickprism.types import Bool, Clicks, Float64, Int64


@final
@dataclass(frozen=True)
class Prior:
    """What every probability of a model starts with, as if it had been counted before the log.

    Attributes:
        clicks: how many times yes; 0 with `skips` 0 is maximum likelihood.
        skips: how many times no.
    """

    clicks: float = 1.0
    skips: float = 1.0

    def __post_init__(self) -> None:
        for name in ("clicks", "skips"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SettingError(name, getattr(self, name), "be 0 or more")

    @property
    def pair(self) -> tuple[float, float]:
        """Clicks and skips."""
        return self.clicks, self.skips

    def share(self, yes: Float64, all_: Float64) -> Float64:
        """The most probable share of yes; where nothing was counted and there is no prior, that of all together."""
        total = all_ + self.clicks + self.skips
        common = float(yes.sum()) / max(float(all_.sum()), 1e-300)
        return np.where(total > 0, (yes + self.clicks) / np.maximum(total, 1e-300), common)

    def log_density(self, probabilities: Float64) -> float:
        """Log of the prior density, up to a constant: sum of clicks log x + skips log(1 - x)."""
        value = 0.0
        if self.clicks > 0:
            value += self.clicks * float(np.log(probabilities).sum())
        if self.skips > 0:
            value += self.skips * float(np.log1p(-probabilities).sum())
        return value


class Behaviour(Protocol):
    """When users see an entry. `attraction` is that of the entries, [entries]."""

    @property
    def needs_patterns(self) -> bool:
        """Whether it matters what was clicked together."""
        ...

    def expected(self, clicks: Clicks, attraction: Float64) -> Float64:
        """P(seen) of each entry before anything is clicked, [entries]."""
        ...

    def given(self, clicks: Clicks, attraction: Float64) -> Float64:
        """P(seen | clicks above) of each entry, [entries]."""
        ...

    def draw(self, clicks: Clicks, attraction: Float64, chances: Float64) -> Bool:
        """New clicks, where `chances` [entries], uniform on [0, 1), fall below P(click | clicks above)."""
        ...


@final
@dataclass(frozen=True, eq=False)
class FittedModel:
    """A click model that was fitted to a log.

    Attributes:
        name: of the model.
        parameters: by name: numbers, or vectors over documents or positions.
        attraction: the probability of a click once seen, [documents]; the prior's where a document was never shown.
        behaviour: when users see an entry.
        iterations: how many steps the fit took, 0 where counts suffice.
        converged: whether it had stopped.
    """

    name: str
    parameters: Mapping[str, Float64]
    attraction: Float64
    behaviour: Behaviour
    iterations: int = 0
    converged: bool = True

    def observation(self, clicks: Clicks) -> Float64:
        """How probably each position is seen, relative to the first, on average over the sessions of a log.

        nan where nothing was shown, and everywhere if the first position was not.
        """
        places, shown = clicks.positions - 1, clicks.list_impressions
        seen = self.behaviour.expected(clicks, self._of(clicks))
        with np.errstate(invalid="ignore", divide="ignore"):
            curve = np.bincount(places, weights=shown * seen) / np.bincount(places, weights=shown)
            return np.asarray(curve / curve[:1], dtype=np.float64)

    def click_probability(self, clicks: Clicks) -> Float64:
        """P(click) of each entry before anything of the session is known: the predicted click rate, [entries]."""
        attraction = self._of(clicks)
        return attraction * self.behaviour.expected(clicks, attraction)

    def conditional_probability(self, clicks: Clicks) -> Float64:
        """P(click | clicks above) of each entry, [entries]."""
        if self.behaviour.needs_patterns:
            check_patterns(clicks)
        attraction = self._of(clicks)
        return attraction * self.behaviour.given(clicks, attraction)

    def log_likelihood(self, clicks: Clicks) -> Float64:
        """Log P(clicks) of all sessions of each ranked list together, [ranked lists].

        The sum of log P(click or not | clicks above), which is exact; probabilities are kept 1e-6 from 0 and 1.
        """
        owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))
        terms = log_terms(self.conditional_probability(clicks), clicks)
        return np.bincount(owner, weights=terms, minlength=len(clicks)).astype(np.float64)

    def sample(self, clicks: Clicks, *, seed: int) -> Clicks:
        """New sessions on the same ranked lists, as many as there were, each on its own (`merge` joins them)."""
        sessions = clicks.take(np.repeat(np.arange(len(clicks)), clicks.impressions))
        chances = np.random.default_rng(seed).random(len(sessions.rows))
        drawn = self.behaviour.draw(sessions, self._of(sessions), chances)
        return replace(sessions, clicks=drawn.astype(np.int64), impressions=np.ones(len(sessions), dtype=np.int64))

    def _of(self, clicks: Clicks) -> Float64:
        if clicks.lists.documents != len(self.attraction):
            raise DataError(
                f"the model knows {len(self.attraction)} documents, the log has {clicks.lists.documents}",
                remedy="Fit and evaluate on clicks over the same lists.",
            )
        return self.attraction[clicks.rows]


class ClickModel(Protocol):
    """Settings of a click model, a frozen dataclass that is final."""

    name: ClassVar[str]

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit the model to a log."""
        ...

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """The model with these parameters."""
        ...


def check_patterns(clicks: Clicks) -> None:
    """Refuse a log that does not say what was clicked together."""
    if not clicks.are_patterns:
        raise UnsupportedError(
            "the sessions were merged by list, so it is not known what was clicked together",
            remedy=BY_PATTERN,
        )


def check_sessions(clicks: Clicks) -> None:
    """Refuse what is no log, and a log without sessions."""
    require_clicks(clicks)
    if len(clicks.rows) == 0:
        raise UnsupportedError("there are no sessions to fit a click model to")


def check_steps(tolerance: float, max_iterations: int) -> None:
    """Refuse settings of a fit that cannot end."""
    if not 0 < tolerance < 1:
        raise SettingError("tolerance", tolerance, "be between 0 and 1")
    if max_iterations < 1:
        raise SettingError("max_iterations", max_iterations, "be at least 1")


def by_document(clicks: Clicks, weights: Int64 | Float64 | Bool) -> Float64:
    """Sums of something of each entry over the entries of each document, [documents]."""
    return np.bincount(clicks.rows, weights=weights, minlength=clicks.lists.documents).astype(np.float64)


def unseen(known: Float64, prior: Prior) -> float:
    """What to think of a document that was never shown: what the prior says, else the mean of those that were."""
    return prior.clicks / sum(prior.pair) if sum(prior.pair) > 0 else float(known.mean())


def filled(observation: Float64) -> Float64:
    """Observation with the mean of what is known where nothing was shown."""
    known = np.isfinite(observation)
    return np.where(known, observation, observation[known].mean())
