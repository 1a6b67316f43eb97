"""Alpha and beta of a log, by every way it supports: by chance, by harvest, by expectation maximisation.

All are in the gauge of the first slot (see `parameters`). Intervals are by the bootstrap of scores: with weights drawn
for queries, an estimate moves by the weighted sum of what each query pulls, over the curvature; so a draw costs a
matrix product, not a fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, NamedTuple, Protocol, final

import numpy as np

from clickprism.errors import DataError, SettingError, TrainingError
from clickprism.observation.affine_map import MovedRates, first_slot_tells, fit_affine, scores
from clickprism.observation.bootstrap import BLOCKS, FEW, Bootstrap
from clickprism.observation.counts import Counts
from clickprism.observation.curve import sums
from clickprism.observation.pairs import LEAST_CLICKS, link, refuse_few
from clickprism.observation.parameters import NOT_LEVEL, ClickParameters
from clickprism.observation.placed import PlacedCounts
from clickprism.observation.support import linked_depth, require_linked
from clickprism.observation.trust import fit_trust
from clickprism.settings import choose
from clickprism.types import Float64, Int64

SURE: Final = 2.0  # standard errors by which a slope must be above 0


@final
class Fitted(NamedTuple):
    """The affine map of a log, alpha and beta, [positions]; what it rests on; how each document pulls at it.

    Attributes:
        rows: the documents that it rests on.
        shown: impressions of each of them.
        pull: given a group of each document, the sums of their scores, [groups, parameters], and how alpha_2, ...,
            beta_2, ... move with these, [parameters, 2 (positions - 1)].
        tells: how surely clicks in the first slot tell documents apart (`first_slot_tells`).
    """

    alpha: Float64
    beta: Float64
    note: str
    rows: Int64
    shown: Float64
    pull: Callable[[Int64], tuple[Float64, Float64]]
    tells: float = float("inf")


class ParameterEstimator(Protocol):
    """What finds the affine map of a log."""

    name: ClassVar[str]

    def counts(self, placed: PlacedCounts) -> Counts:
        """The counts that it rests on; a `DataError` says what the log lacks."""

    def fit(self, placed: PlacedCounts, counts: Counts) -> Fitted:
        """The map."""


PARAMETER_ESTIMATORS: Final = {
    "randomised": "clickprism.observation.estimate_parameters:RandomisedMap",
    "harvest": "clickprism.observation.estimate_parameters:HarvestedMap",
    "em": "clickprism.observation.estimate_parameters:TrustMap",
}


@final
@dataclass(frozen=True)
class RandomisedMap:
    """The line from the first slot, where chance alone put a document, to each position where it was seen.

    Unbiased for any relevance and any ranking (`affine_map`), as long as rankings do not follow the clicks counted
    here: where they do, a lucky document leaves its position, and its clicks there count too little. `only` is immune.

    Attributes:
        least_clicks: in effect, that the links between positions must rest on.
        only: take nothing but what chance placed, at all positions, which needs whole lists in random order.
    """

    name: ClassVar[str] = "randomised"

    least_clicks: float = LEAST_CLICKS
    only: bool = False

    def __post_init__(self) -> None:
        _check(self.least_clicks)

    def counts(self, placed: PlacedCounts) -> Counts:
        """All impressions, or only those by chance; in the first slot only these."""
        mixed = placed.first_by_chance
        return placed.randomised if self.only and placed.randomised is not None else mixed

    def fit(self, placed: PlacedCounts, counts: Counts) -> Fitted:
        """The map, and its weakest link."""
        remedy = "Fill the first slot at random in more searches, or wait for more clicks"
        note = require_linked(link(counts), self.least_clicks, remedy=remedy)
        shown, rates = counts.impressions[counts.positions == 1].sum(), MovedRates.of(counts)
        return _fitted(rates, *fit_affine(rates), f"{shown:,.0f} first slots by chance; {note}")


@final
@dataclass(frozen=True)
class HarvestedMap:
    """The same line, from every document seen at several positions, by whatever rankings.

    Unbiased for any relevance, as long as which ranking a search got did not depend on its user or on the clicks that
    are counted, and relevance stayed the same over the log.

    Attributes:
        least_clicks: in effect, that the links between positions must rest on.
    """

    name: ClassVar[str] = "harvest"

    least_clicks: float = LEAST_CLICKS

    def __post_init__(self) -> None:
        _check(self.least_clicks)

    def counts(self, placed: PlacedCounts) -> Counts:
        """All impressions."""
        return placed.counts

    def fit(self, placed: PlacedCounts, counts: Counts) -> Fitted:
        """The map, and its weakest link."""
        note = require_linked(link(counts), self.least_clicks)
        rates = MovedRates.of(counts)
        return _fitted(rates, *fit_affine(rates), note)


@final
@dataclass(frozen=True)
class TrustMap:
    """Maximum likelihood by expectation maximisation on the whole log (`fit_trust`), brought into the gauge.

    Relevance is a parameter of each document, or a function of its features (`fit_trust_by_features`): then few
    impressions of each suffice, and none need be seen at several positions; but the slopes are biased by whatever of
    relevance the features do not explain.

    Attributes:
        least_clicks: in effect, that the links between positions must rest on.
        by_features: whether relevance is a function of the features.
        tolerance: of the parameters.
        max_iterations: steps at most.
    """

    name: ClassVar[str] = "em"

    least_clicks: float = LEAST_CLICKS
    by_features: bool = False
    tolerance: float = 1e-3
    max_iterations: int = 20_000

    def __post_init__(self) -> None:
        _check(self.least_clicks)
        if not 0 < self.tolerance < 1:
            raise SettingError("tolerance", self.tolerance, "be between 0 and 1")
        if self.max_iterations < 1:
            raise SettingError("max_iterations", self.max_iterations, "be at least 1")

    def counts(self, placed: PlacedCounts) -> Counts:
        """All impressions."""
        return placed.counts

    def fit(self, placed: PlacedCounts, counts: Counts) -> Fitted:
        """The map, and its weakest link."""
        if self.by_features:
            if placed.features is None:
                raise DataError("the documents have no features", remedy="TrustMap(by_features=False)")
            return _by_features(counts, placed.features)
        note = require_linked(link(counts), self.least_clicks)
        fitted = fit_trust(counts, tolerance=self.tolerance, max_iterations=self.max_iterations)
        if not fitted.converged:
            raise TrainingError(f"expectation maximisation has not settled after {fitted.iterations:,} steps")
        made = ClickParameters.of_affine(fitted.alpha, fitted.beta)
        return _fitted(MovedRates.of(counts), made.alpha, made.beta, f"{fitted.iterations:,} steps; {note}")


@final
@dataclass(frozen=True, eq=False)
class EstimatedParameters:
    """The parameters of a log by several estimators.

    Attributes:
        found: by name of the estimator.
        refused: why the log cannot support the others, by name.
    """

    found: dict[str, ClickParameters]
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> ClickParameters | None:
        """Those to use: by harvest, which rest on the most; by chance where the two disagree, or there is no other."""
        both = self.apart.get(("randomised", "harvest"), self.apart.get(("harvest", "randomised"), ()))
        order = ("randomised", "harvest", "em") if len(both) else ("harvest", "randomised", "em")
        return next((self.found[name] for name in order if name in self.found), None)

    @property
    def apart(self) -> dict[tuple[str, str], Int64]:
        """The positions at which two estimators disagree: their intervals of alpha do not meet."""
        names, made = list(self.found), {}
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                first, second = self.found[one], self.found[other]
                both = slice(1, min(len(first), len(second)))
                above = first.alpha_lower[both] > second.alpha_upper[both]
                below = first.alpha_upper[both] < second.alpha_lower[both]
                made[one, other] = np.flatnonzero(above | below) + 2
        return made


def estimate_parameters(
    placed: PlacedCounts, estimator: ParameterEstimator | None = None, *, bootstrap: Bootstrap | None = None
) -> ClickParameters:
    """The parameters of a log by one estimator, by default `HarvestedMap`, with intervals.

    A `DataError` names the position that the log says too little about, and what to do.

    >>> m, alpha, beta = np.array([0.2, 0.4, 0.8]), np.array([1.0, 0.5]), np.array([0.0, -0.05])
    >>> chance = (m[:, None] * alpha + beta).ravel()
    >>> counts = Counts(np.repeat([0, 1, 2], 2), np.tile([1, 2], 3), 1e6 * chance, np.full(6, 1e6))
    >>> estimate_parameters(PlacedCounts(counts, np.array([0, 1, 2]))).alpha.round(3).tolist()
    [1.0, 0.5]
    """
    estimator, bootstrap = estimator or HarvestedMap(), bootstrap or Bootstrap()
    counts = estimator.counts(placed)
    refuse_few(counts)
    fitted = estimator.fit(placed, counts)
    groups, unit = _groups(fitted.shown, placed.queries[fitted.rows], bootstrap)
    alpha, beta, (pulls, turns) = fitted.alpha, fitted.beta, fitted.pull(groups)
    moves = pulls @ turns
    _require_spread(alpha, np.sqrt((moves**2).sum(axis=0))[: len(alpha) - 1], fitted.tells)
    rng = np.random.default_rng([bootstrap.seed, 1])
    draws = (rng.exponential(size=(bootstrap.resamples, len(moves))) - 1) @ moves
    drawn = f"intervals drawn by {unit}" if len(draws) else "no intervals"
    if len(draws) and estimator.name == TrustMap.name:
        drawn += "; those of em are too narrow where documents have few impressions, as each has its own relevance"
    notes = [NOT_LEVEL, fitted.note, drawn]
    made = ClickParameters(alpha, beta, placed.theta, source=estimator.name)
    if len(draws):
        size, tail = len(alpha) - 1, (1 - bootstrap.confidence) / 2
        ends = -np.quantile(draws, [1 - tail, tail], axis=0)
        first, last = (np.insert(part, [0, size], 0.0) for part in ends)
        made = replace(
            made,
            alpha_lower=alpha + first[: size + 1],
            alpha_upper=alpha + last[: size + 1],
            beta_lower=beta + first[size + 1 :],
            beta_upper=beta + last[size + 1 :],
            confidence=bootstrap.confidence,
        )
        if ((made.beta_lower <= 0) & (made.beta_upper >= 0)).all():
            notes.append("no sign of trust bias: every interval of beta holds 0, the position-based model fits")
    if placed.theta is None:
        notes.append("theta is unknown: the log has no examination estimates (clickprism examine, windows)")
    else:
        notes.append(f"theta is {placed.theta_source}")
    return replace(made, notes=tuple(notes))


def with_curve(placed: PlacedCounts) -> PlacedCounts:
    """The same log with theta by the curve of the position-based model, 1 at the first position by assumption."""
    from clickprism.observation.click_models.pbm import fit_position

    refuse_few(placed.counts)
    require_linked(link(placed.counts), LEAST_CLICKS)
    curve = fit_position(placed.counts).curve
    source = "the curve of the position-based model, 1 at the first position by assumption"
    return replace(placed, theta=np.minimum(curve / curve[0], 1.0), theta_source=source)


def deepest_parameters(
    placed: PlacedCounts, estimator: ParameterEstimator | None = None, *, bootstrap: Bootstrap | None = None
) -> ClickParameters:
    """The same, down to the deepest position that the log supports; a note names what is left out."""
    estimator = estimator or HarvestedMap()
    counts = estimator.counts(placed)
    whole, refusal = counts.max_position, None
    for depth in range(linked_depth(link(counts), LEAST_CLICKS), 1, -1):
        try:
            found = estimate_parameters(placed.cut(depth), estimator, bootstrap=bootstrap)
        except DataError as error:
            refusal = refusal or error
            continue
        if depth == whole:
            return found
        return replace(found, notes=(*found.notes, f"positions below {depth} are left out: the log says too little"))
    if refusal is not None:
        raise refusal
    return estimate_parameters(placed, estimator, bootstrap=bootstrap)


def estimate_all(
    placed: PlacedCounts,
    estimators: Iterable[ParameterEstimator] | None = None,
    *,
    bootstrap: Bootstrap | None = None,
    shallower: bool = False,
) -> EstimatedParameters:
    """The parameters by several estimators, by default all; those that the log cannot support are named with why.

    `shallower` leaves out the deep positions that the log says too little about, instead of refusing it.
    """
    found, refused = {}, {}
    chosen = [choose(PARAMETER_ESTIMATORS, name, path="by") for name in PARAMETER_ESTIMATORS]
    estimate = deepest_parameters if shallower else estimate_parameters
    for estimator in chosen if estimators is None else estimators:
        try:
            found[estimator.name] = estimate(placed, estimator, bootstrap=bootstrap)
        except (DataError, TrainingError) as error:
            refused[estimator.name] = str(error)
    return EstimatedParameters(found, refused)


def rate_error(estimated: ClickParameters, truth: ClickParameters, first: Float64) -> Float64:
    """How far click rates are off: the mean of |predicted / true - 1| over documents with these c_1, [positions].

    An intercept near 0 may be off by any factor and do no harm: what counts is the click rate that the line predicts.

    >>> truth = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.1]))
    >>> off = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.13]))
    >>> rate_error(off, truth, np.array([0.4])).round(3).tolist()
    [0.0, 0.1]
    """
    predicted, true = (np.outer(first, each.alpha) + each.beta for each in (estimated, truth))
    return np.asarray(np.abs(predicted / true - 1).mean(axis=0))


def _fitted(rates: MovedRates, alpha: Float64, beta: Float64, note: str) -> Fitted:
    """A map between the positions that documents were seen at."""

    def pull(groups: Int64) -> tuple[Float64, Float64]:
        pulls, bend = scores(rates, alpha, beta, groups)
        known = np.linalg.eigvalsh(bend)[0] > 0
        return pulls, np.asarray(np.linalg.inv(bend)) if known else np.full(bend.shape, np.nan)

    tells = first_slot_tells(rates, alpha, beta)
    return Fitted(alpha, beta, note, rates.rows, rates.by_pair(rates.shown), pull, tells)


def _by_features(counts: Counts, features: Float64) -> Fitted:
    """A map by relevance as a function of the features."""
    from clickprism.observation.trust_features import fit_trust_by_features

    made = fit_trust_by_features(counts, features)
    document = np.searchsorted(made.rows, counts.rows)

    def pull(groups: Int64) -> tuple[Float64, Float64]:
        size, width = int(groups.max()) + 1, made.pulls.shape[1]
        cells = (groups[:, None] * width + np.arange(width)).ravel()
        return sums(cells, made.pulls.ravel(), size * width).reshape(size, width), made.turns

    note = f"{made.steps:,} steps; relevance by {features.shape[1]} features"
    return Fitted(made.alpha, made.beta, note, made.rows, sums(document, counts.impressions, len(made.rows)), pull)


def _groups(shown: Float64, queries: Int64, bootstrap: Bootstrap) -> tuple[Int64, str]:
    """What is drawn together, and its name: queries, or single documents where there are few queries in effect."""
    _, numbers = np.unique(queries, return_inverse=True)
    asked = np.bincount(numbers, weights=shown)
    if bootstrap.unit not in ("auto", "query"):
        raise SettingError("unit", bootstrap.unit, "be auto or query: parameters are estimated from counts")
    unit = "query"
    if bootstrap.unit == "auto" and asked.sum() ** 2 < FEW * (asked**2).sum():
        numbers, unit = np.arange(len(queries)), "document, as there are few queries"
    size = int(numbers.max()) + 1
    if size > BLOCKS:
        numbers = (np.random.default_rng([bootstrap.seed, 0]).permutation(size) % BLOCKS)[numbers]
    return numbers, unit


def _require_spread(alpha: Float64, error: Float64, tells: float) -> None:
    """Refuse a slope that cannot be told from none, or from any: documents that differ too little, too few clicks."""
    sure = np.isfinite(alpha[1:]) & (alpha[1:] > SURE * error)
    if not sure.all():
        place = int(np.flatnonzero(~sure)[0]) + 2
        raise DataError(
            f"clicks at position {place} do not tell how they follow relevance (slope {alpha[place - 1]:.3g} with a "
            f"standard error of {error[place - 2]:.2g}): documents seen there and elsewhere differ too little, or have "
            "too few clicks",
            remedy="More searches, more of them randomised, or several rankings of the same query"
            + (f"; or cut the log: --depth {place - 1}" if place > 2 else ""),
        )
    if not tells > SURE**2:
        raise DataError(
            f"clicks in the first slot do not tell documents apart (chi-squared {tells:.2g}, {SURE**2:g} needed): "
            f"slopes relative to it, here up to {alpha.max():.3g}, mean nothing",
            remedy="More searches, or more of them with a first slot filled at random",
        )


def _check(least_clicks: float) -> None:
    if not 0 < least_clicks < float("inf"):
        raise SettingError("least_clicks", least_clicks, "be above 0")
