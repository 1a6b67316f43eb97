"""Alpha and beta of a log, by every way it supports: by chance, by harvest, by expectation maximisation.

All are in the gauge of the first slot (see `parameters`). Intervals are by the bootstrap of scores: with weights drawn
for queries, an estimate moves by the weighted sum of what each query pulls, over the curvature; so a draw costs a
matrix product, not a fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import ClassVar, Final, Literal, NamedTuple, Protocol, final

import numpy as np

from clickprism._util.tables import Table
from clickprism.errors import DataError, SettingError, TrainingError, UnsupportedError
from clickprism.observation.affine_map import MovedRates, first_slot_tells, fit_affine, scores
from clickprism.observation.bootstrap import BLOCKS, FEW, Bootstrap
from clickprism.observation.counts import Counts
from clickprism.observation.curve import sums
from clickprism.observation.pairs import LEAST_CLICKS, link, refuse_few
from clickprism.observation.parameters import NOT_LEVEL, ClickParameters
from clickprism.observation.placed import PlacedCounts
from clickprism.observation.support import linked_depth, require_linked
from clickprism.observation.trust import fit_trust
from clickprism.settings import choose, suggest
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
@dataclass(frozen=True, kw_only=True)
class TrustSettings:
    """How to estimate the click parameters of each position.

    Attributes:
        method: Estimator: randomised (first results placed at random), harvest (documents shown at several positions)
            or em (maximum likelihood); repeat the option for several.
        only_random: Let the estimator randomised use only impressions at random positions, also below the first; for
            rankings that depend on clicks. Needs whole lists in random order.
        depth: Use only positions 1 to this one; by default as many as the log supports.
        theta: Observation probability of each position: the mean of the log's examination estimates, if it has any
            (auto), the curve of the position-based model (curve), or none.
    """

    method: tuple[str, ...] = tuple(PARAMETER_ESTIMATORS)
    only_random: bool = False
    depth: int | None = None
    theta: Literal["auto", "curve", "none"] = "auto"

    def __post_init__(self) -> None:
        for name in self.method:
            if name not in PARAMETER_ESTIMATORS:
                raise SettingError("method", name, f"be a known estimator ({suggest(name, PARAMETER_ESTIMATORS)})")
        if self.depth is not None and self.depth < 2:
            raise SettingError("depth", self.depth, "be at least 2")


@final
@dataclass(frozen=True, eq=False)
class EstimatedParameters:
    """The click parameters of a log by several estimators.

    Attributes:
        parameters: Parameters by name of the estimator.
        unsupported: Why the log does not support the other estimators, by name.
        disagreements: Positions at which the intervals of alpha of two estimators do not overlap, by their names.
        best: Name of the estimator to prefer: harvest, which uses the most data, or randomised where the two disagree.
    """

    parameters: dict[str, ClickParameters]
    unsupported: dict[str, str] = field(default_factory=dict)
    disagreements: dict[str, list[int]] = field(init=False)
    best: str | None = field(init=False)

    def __post_init__(self) -> None:
        apart = {}
        for one, other in combinations(self.parameters, 2):
            first, second = self.parameters[one], self.parameters[other]
            both = slice(1, min(len(first), len(second)))
            above = first.alpha_lower[both] > second.alpha_upper[both]
            below = first.alpha_upper[both] < second.alpha_lower[both]
            apart[f"{one}, {other}"] = (np.flatnonzero(above | below) + 2).tolist()
        disagree = apart.get("randomised, harvest") or apart.get("harvest, randomised")
        order = ("randomised", "harvest", "em") if disagree else ("harvest", "randomised", "em")
        object.__setattr__(self, "disagreements", apart)
        object.__setattr__(self, "best", next((name for name in order if name in self.parameters), None))

    def tables(self) -> list[Table]:
        """Return the parameters, one row per position, and what each estimator is based on."""
        found = list(self.parameters.values())
        tables = []
        if found:
            intervals = f"; {found[0].confidence:.0%} intervals" if np.isfinite(found[0].alpha_lower[-1]) else ""
            longest = max(found, key=len)
            theta = longest.theta
            names = [(each, name) for each in found for name in ("alpha", "beta")]
            header = ["position", *(f"{name} {each.source}" for each, name in names)]
            rows = [
                [str(index + 1), *(_cell(each, name, index) for each, name in names)] for index in range(len(longest))
            ]
            if theta is not None:
                header.append("theta")
                rows = [[*row, f"{value:.3f}"] for row, value in zip(rows, theta, strict=True)]
            caption = f"P(click at position k) = alpha P(click at position 1) + beta{intervals}"
            tables.append(Table(caption, header, rows))
        facts = [[each.source, each.notes[1]] for each in found]
        facts += [[name, f"not supported: {reason}"] for name, reason in self.unsupported.items()]
        facts += [
            [names, f"disagree by more than their intervals at position {', '.join(map(str, positions))}"]
            for names, positions in self.disagreements.items()
            if positions
        ]
        return [*tables, Table("", ["estimator", "based on"], facts)]


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
        notes.append(
            "theta is unknown: the log has no examination estimates (clickprism bias examination, then log features)"
        )
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
    placed: PlacedCounts, settings: TrustSettings | None = None, *, bootstrap: Bootstrap | None = None
) -> EstimatedParameters:
    """Estimate the parameters by several estimators; those that the log does not support are named with the reason.

    Without a depth, deep positions that the log says too little about are excluded; with a depth, the log must support
    all positions up to it.
    """
    settings = settings or TrustSettings()
    if settings.depth is not None:
        placed = placed.cut(settings.depth)
    if settings.theta != "auto":
        placed = with_curve(placed) if settings.theta == "curve" else replace(placed, theta=None)
    estimate = deepest_parameters if settings.depth is None else estimate_parameters
    found, unsupported = {}, {}
    for name in dict.fromkeys(settings.method):
        own = {"only": settings.only_random} if name == RandomisedMap.name else {}
        try:
            found[name] = estimate(
                placed, choose(PARAMETER_ESTIMATORS, {"name": name, **own}, path="method"), bootstrap=bootstrap
            )
        except (DataError, TrainingError) as error:
            unsupported[name] = str(error)
    return EstimatedParameters(found, unsupported)


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
        raise UnsupportedError(
            f"clicks at position {place} do not tell how they follow relevance (slope {alpha[place - 1]:.3g} with a "
            f"standard error of {error[place - 2]:.2g}): documents seen there and elsewhere differ too little, or have "
            "too few clicks",
            remedy="More searches, more of them randomised, or several rankings of the same query"
            + (f"; or cut the log: --depth {place - 1}" if place > 2 else ""),
        )
    if not tells > SURE**2:
        raise UnsupportedError(
            f"clicks in the first slot do not tell documents apart (chi-squared {tells:.2g}, {SURE**2:g} needed): "
            f"slopes relative to it, here up to {alpha.max():.3g}, mean nothing",
            remedy="More searches, or more of them with a first slot filled at random",
        )


def _cell(parameters: ClickParameters, name: str, index: int) -> str:
    if index >= len(parameters):
        return "-"
    value, low, high = (getattr(parameters, each)[index] for each in (name, f"{name}_lower", f"{name}_upper"))
    return f"{value:.3f}" if index == 0 or np.isnan(low) else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _check(least_clicks: float) -> None:
    if not 0 < least_clicks < float("inf"):
        raise SettingError("least_clicks", least_clicks, "be above 0")
