"""Click models fitted to a log: their parameters, what they say about observation, and their likelihood.

Every model is P(click at k) = P(observed at k) a, where a is the attraction of the document. Models differ in when
users observe an entry: by position and last click (`Browsing`), or reading from the top down (`Reading`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np

from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.settings import check_fields
from clickprism.types import Bool, Clicks, Float64, Int64

BY_PATTERN: Final = 'Simulate with --simulation.merge pattern, or merge with clicks.merge(by="pattern")'
FLOOR: Final = 1e-6


@final
@dataclass(frozen=True)
class Prior:
    """Pseudo-counts of every probability of a model: a Beta(clicks + 1, skips + 1) prior, whose mode is estimated.

    Attributes:
        clicks: number of successes; 0 with `skips` 0 is maximum likelihood.
        skips: number of failures.
    """

    clicks: float = 1.0
    skips: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, clicks=(0, None), skips=(0, None))

    @property
    def pair(self) -> tuple[float, float]:
        """Return clicks and skips."""
        return self.clicks, self.skips

    def share(self, successes: Float64, trials: Float64) -> Float64:
        """Return the most probable success rates; without prior and trials, the rate of all together."""
        total = trials + self.clicks + self.skips
        common = float(successes.sum()) / max(float(trials.sum()), 1e-300)
        return np.where(total > 0, (successes + self.clicks) / np.maximum(total, 1e-300), common)

    def spread(self, known: Float64, rows: Int64, documents: int) -> Float64:
        """Return `known` for the documents `rows`, and the prior's mode (or the mean) for the others, [documents]."""
        rest = self.clicks / sum(self.pair) if sum(self.pair) > 0 else float(known.mean())
        values = np.full(documents, rest)
        values[rows] = known
        return values

    def log_density(self, probabilities: Float64) -> float:
        """Return the log of the prior density up to a constant: sum of clicks log x + skips log(1 - x)."""
        value = 0.0
        if self.clicks > 0:
            value += self.clicks * float(np.log(probabilities).sum())
        if self.skips > 0:
            value += self.skips * float(np.log1p(-probabilities).sum())
        return value


@dataclass(frozen=True)
class Counted:
    """Settings of every click model.

    Attributes:
        prior: pseudo-counts of every probability.
    """

    prior: Prior = field(default_factory=Prior)


@dataclass(frozen=True)
class Iterated(Counted):
    """Settings of a click model that is fitted in steps.

    Attributes:
        tolerance: stop when the estimated relative distance of every shared probability to its limit is below this.
        max_iterations: maximum number of steps.
    """

    tolerance: float = 1e-4
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise SettingError("tolerance", self.tolerance, "be between 0 and 1")
        check_fields(self, max_iterations=(1, None))


@final
@dataclass(frozen=True, eq=False)
class Browsing:
    """P(observed at k | clicks above) = o(k, d), with d the distance to the last click above, 0 for none.

    Attributes:
        table: row k - 1 for position k, column d, [positions, distances]. The last row holds for all positions below,
            the last column for all longer distances. One column is the position-based model.
    """

    table: Float64

    @property
    def needs_patterns(self) -> bool:
        """Return whether the log must record which documents were clicked in the same session."""
        return bool(self.table.shape[1] > 1)

    def expected(self, clicks: Clicks, attraction: Float64) -> Float64:
        """Return P(observed) of each entry before any click is known, [entries]."""
        if not self.needs_patterns:
            return np.asarray(self.table[np.minimum(clicks.positions, len(self.table)) - 1, 0], dtype=np.float64)
        from clickprism.click_models.kernels import marginal_last_click

        observed = np.empty(len(clicks.rows))
        marginal_last_click((clicks.offsets, clicks.positions, attraction), self.table, observed)
        return observed

    def given_clicks(self, clicks: Clicks, attraction: Float64) -> Float64:
        """Return P(observed | clicks above) of each entry, [entries]."""
        rows = np.minimum(clicks.positions, len(self.table)) - 1
        if not self.needs_patterns:
            return np.asarray(self.table[rows, 0], dtype=np.float64)
        longest = np.minimum(rows, self.table.shape[1] - 1)
        return np.asarray(self.table[rows, np.minimum(last_click_distances(clicks), longest)], dtype=np.float64)


@final
@dataclass(frozen=True, eq=False)
class Reading:
    """Users read from the top down, always observe the first entry, and stop somewhere.

    Attributes:
        after_skip: probability to continue after no click.
        after_click: probability to continue after a click, by document, [documents].
        at_position: factor to it by position; the last value holds below, [positions].
    """

    after_skip: float
    after_click: Float64
    at_position: Float64 = field(default_factory=lambda: np.ones(1))

    @property
    def needs_patterns(self) -> bool:
        """Return True: the log must record which documents were clicked in the same session."""
        return True

    def expected(self, clicks: Clicks, attraction: Float64) -> Float64:
        """Return P(observed) of each entry before any click is known, [entries]."""
        from clickprism.click_models.kernels import marginal_chain

        observed = np.empty(len(clicks.rows))
        marginal_chain((clicks.offsets, attraction, self._after_click(clicks)), self.after_skip, observed)
        return observed

    def given_clicks(self, clicks: Clicks, attraction: Float64) -> Float64:
        """Return P(observed | clicks above) of each entry, [entries]."""
        from clickprism.click_models.kernels import conditional_chain

        observed = np.empty(len(clicks.rows))
        sessions = (clicks.offsets, attraction, self._after_click(clicks))
        conditional_chain(sessions, self.after_skip, clicks.clicks > 0, observed)
        return observed

    def _after_click(self, clicks: Clicks) -> Float64:
        indices = np.minimum(clicks.positions, len(self.at_position)) - 1
        return np.asarray(self.after_click[clicks.rows] * self.at_position[indices], dtype=np.float64)


@final
@dataclass(frozen=True, eq=False)
class FittedModel:
    """A click model with estimated parameters.

    Attributes:
        name: name of the model.
        parameters: by name: numbers, or vectors over documents or positions.
        attraction: probability of a click if observed, [documents]; the prior's for documents that were never shown.
        behaviour: when users observe an entry.
        iterations: number of steps of the fit; 0 if the estimates are shares of counts.
        converged: whether the fit converged.
    """

    name: str
    parameters: Mapping[str, Float64]
    attraction: Float64
    behaviour: Browsing | Reading
    iterations: int = 0
    converged: bool = True

    def observation(self, clicks: Clicks) -> Float64:
        """Return the observation probability at each position relative to position 1, averaged over a log's sessions.

        nan at positions that were never shown, and everywhere if position 1 was not, [positions].
        """
        indices, shown = clicks.positions - 1, clicks.list_impressions
        observed = self.behaviour.expected(clicks, self._of(clicks))
        with np.errstate(invalid="ignore", divide="ignore"):
            curve = np.bincount(indices, weights=shown * observed) / np.bincount(indices, weights=shown)
            return np.asarray(curve / curve[:1], dtype=np.float64)

    def click_probability(self, clicks: Clicks) -> Float64:
        """Return P(click) of each entry before any click of the session is known, [entries]."""
        attraction = self._of(clicks)
        return attraction * self.behaviour.expected(clicks, attraction)

    def conditional_probability(self, clicks: Clicks) -> Float64:
        """Return P(click | clicks above) of each entry, [entries]."""
        if self.behaviour.needs_patterns:
            check_patterns(clicks)
        attraction = self._of(clicks)
        return attraction * self.behaviour.given_clicks(clicks, attraction)

    def log_likelihood(self, clicks: Clicks) -> Float64:
        """Return log P(clicks) of all sessions of each ranked list together, [ranked lists].

        The sum of log P(click or not | clicks above), which is exact; probabilities are kept 1e-6 from 0 and 1.
        """
        owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))
        terms = log_terms(self.conditional_probability(clicks), clicks)
        return np.bincount(owner, weights=terms, minlength=len(clicks)).astype(np.float64)

    def _of(self, clicks: Clicks) -> Float64:
        if clicks.lists.documents != len(self.attraction):
            raise DataError(
                f"the model knows {len(self.attraction)} documents, the log has {clicks.lists.documents}",
                remedy="Fit and evaluate on clicks over the same lists.",
            )
        return self.attraction[clicks.rows]


def log_terms(probability: Float64, clicks: Clicks) -> Float64:
    """Return each entry's term of the log-likelihood, c log p + (n - c) log(1 - p), n its impressions, [entries].

    Probabilities are kept 1e-6 away from 0 and 1: a model that excludes a click that happened, as the cascade model
    excludes a second one, gets a very low but finite value.
    """
    if probability.shape != clicks.rows.shape:
        raise DataError(f"{len(clicks.rows)} entries but probabilities of shape {probability.shape}")
    if not ((probability >= 0) & (probability <= 1 + 1e-9)).all():
        raise DataError("click probabilities must be between 0 and 1")
    kept = np.clip(probability, FLOOR, 1 - FLOOR)
    hits, misses = clicks.clicks, clicks.list_impressions - clicks.clicks
    result: Float64 = hits * np.log(np.where(hits > 0, kept, 1.0)) + misses * np.log1p(-np.where(misses > 0, kept, 0.0))
    return result


def require_clicks(log: object) -> None:
    """Raise TypeError unless `log` is a Clicks; the message helps if it is the result of `read_sessions`."""
    if not isinstance(log, Clicks):
        remedy = ": pass its .clicks" if isinstance(getattr(log, "clicks", None), Clicks) else ""
        raise TypeError(f"clicks must be a clickprism.Clicks, not a {type(log).__name__}{remedy}")


def check_patterns(clicks: Clicks) -> None:
    """Raise UnsupportedError if the log does not record which documents were clicked in the same session."""
    if not clicks.are_patterns:
        raise UnsupportedError(
            "the sessions were merged by list, so it is not known what was clicked together",
            remedy=BY_PATTERN,
        )


def check_sessions(clicks: Clicks) -> None:
    """Raise TypeError if this is not a log, and UnsupportedError if it has no sessions."""
    require_clicks(clicks)
    if len(clicks.rows) == 0:
        raise UnsupportedError("there are no sessions to fit a click model to")


def last_click_distances(clicks: Clicks) -> Int64:
    """Return the distance of each entry to the last click above it, 0 if there is none, [entries]."""
    from clickprism.click_models.kernels import write_distances

    distances = np.empty(len(clicks.rows), dtype=np.int64)
    write_distances(clicks.offsets, clicks.positions, clicks.clicks > 0, distances)
    return distances


def by_document(clicks: Clicks, weights: Int64 | Float64 | Bool) -> Float64:
    """Return the sum of a value of each entry over the entries of each document, [documents]."""
    return np.bincount(clicks.rows, weights=weights, minlength=clicks.lists.documents).astype(np.float64)


def filled(observation: Float64) -> Float64:
    """Return the observation probabilities with their mean in place of nan."""
    known = np.isfinite(observation)
    return np.where(known, observation, observation[known].mean())
