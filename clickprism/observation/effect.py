"""The effect of a position on a document: how its clicks there compare with its clicks in the first place.

    tau_k(x) = c_k(x) / c_1(x) = o_k(x) / o_1(x)

An experiment that shows the same document at k and in the first place measures it, as a heterogeneous treatment effect
(Tian et al. 2020). Clicks divided by it are those the document would have had in the first place, and any method may
learn from them. What that leaves is o_1(x): the ranking is right if the first place is seen whatever stands there.

The idea, and the swap with the first place, are taken from the description in Chen et al. (2022, LBD); the estimator is
our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, final

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from clickprism.errors import DataError, SettingError, TrainingError
from clickprism.observation.counts import Counts, count, require_clicks
from clickprism.observation.pairs import LEAST_CLICKS, link, refuse_few
from clickprism.types import Bool, Clicks, Float32, Float64, Int32, Int64, Lists
from clickprism.users.coupled import CoupledUser
from clickprism.users.pbm import PositionUser

BLOCK: Final = 65_536
SCALES: Final = (0.01, 0.03, 0.1, 0.3)
LARGEST_LOG: Final = 20.0
STEPS: Final = 2000
SWAP: Final = 'Trade the first document with a random other one in some sessions (Intervention(kind="pivot", pivot=1))'
Fit: TypeAlias = tuple[Float64, Float64]  # b, [positions - 1], and W, [positions - 1, features]


class Effect(Protocol):
    """What says how each position treats each document."""

    def log_effect(self, lists: Lists, rows: Int64, positions: Int32 | Int64) -> Float64:
        """Log tau_k(x) of each of these documents at its position, [rows]."""
        ...


def corrected(clicks: Clicks, effect: Effect, *, floor: float = 0.02) -> Clicks:
    """The log with each click weighted by 1 / tau_k(x): clicks as in the first place.

    Unbiased for r(x) o_1(x) where the effect is right and not below the floor.

    Args:
        clicks: the log; weights that it has are replaced.
        effect: estimated (`estimate_effect`) or true (`TrueEffect`).
        floor: effects below this are raised to it: a limit on weights, at the price of some bias.

    >>> lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> once, places = np.ones(2, np.int64), np.array([1, 2], np.int32)
    >>> log = Clicks(lists, np.array([0, 2]), np.array([1, 0]), places, once, once[:1])
    >>> corrected(log, TrueEffect(PositionUser(curve=(0.8, 0.2)))).weights.round(6).tolist()
    [1.0, 4.0]
    """
    if not 0 < floor <= 1:
        raise SettingError("floor", floor, "be above 0 and at most 1")
    effects = np.exp(effect.log_effect(clicks.lists, clicks.rows, clicks.positions))
    return clicks.weighted(1 / np.maximum(effects, floor))


@final
@dataclass(frozen=True)
class TrueEffect:
    """What only a simulation knows: o_k(x) / o_1(x) of its users.

    Attributes:
        user: who clicked; a `CoupledUser` that is adapted to the documents.
        relative: to the first place. Without it the effect is o_k(x) itself: clicks corrected by it are unbiased for
            relevance, which no experiment on positions can reach.
    """

    user: PositionUser | CoupledUser
    relative: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.user, (PositionUser, CoupledUser)):
            kind = getattr(self.user, "name", type(self.user).__name__)
            raise SettingError("user", kind, "be pbm or coupled, whose observation hangs on nothing but the document")

    def log_effect(self, lists: Lists, rows: Int64, positions: Int32 | Int64) -> Float64:
        """Log o_k(x), less log o_1(x) if relative, [rows]."""
        seen = self._observation(lists, rows, positions)
        if self.relative:
            seen = seen / np.maximum(self._observation(lists, rows, np.ones_like(positions)), 1e-300)
        with np.errstate(divide="ignore"):
            return np.log(seen)

    def _observation(self, lists: Lists, rows: Int64, positions: Int32 | Int64) -> Float64:
        if isinstance(self.user, CoupledUser):
            return self.user.observation(lists, rows, positions)
        return self.user.observation(positions)


@final
@dataclass(frozen=True, eq=False)
class LinearEffect:
    """Log tau_k(x) = w_k . x + b_k, 0 in the first place.

    Attributes:
        coefficients: w_k and, last, b_k of every position, [positions, features + 1].
        scales: the prior's that held-out clicks chose, `shared` and `own` of `EffectSettings`.
        gain: what the features add to the log-likelihood of a held-out click, on average; not above 0 where they say
            nothing that a curve over positions does not.
    """

    coefficients: Float64
    scales: tuple[float, float] = (0.0, 0.0)
    gain: float = 0.0

    def __post_init__(self) -> None:
        if self.coefficients.ndim != 2 or not np.isfinite(self.coefficients).all():
            raise DataError("coefficients must be finite, [positions, features + 1]")
        if self.coefficients[:1].any():
            raise DataError("the effect of the first position must be 0")

    def log_effect(self, lists: Lists, rows: Int64, positions: Int32 | Int64) -> Float64:
        """Log tau_k(x) of each of these documents at its position, [rows]."""
        known, width = len(self.coefficients), self.coefficients.shape[1] - 1
        if lists.features.shape[1] != width:
            raise DataError(f"the effect is one of {width} features, the documents have {lists.features.shape[1]}")
        if positions.max(initial=1) > known:
            problem = f"the effect is known down to position {known}, the log goes to {positions.max()}"
            raise DataError(problem, remedy="Cut the log, or trade places as far down")
        effects = np.empty(len(rows))
        for start in range(0, len(rows), BLOCK):
            part = slice(start, start + BLOCK)
            chosen = self.coefficients[positions[part] - 1]
            effects[part] = np.einsum("ef,ef->e", lists.features[rows[part]], chosen[:, :-1]) + chosen[:, -1]
        return effects


@final
@dataclass(frozen=True)
class EffectSettings:
    """How an effect is estimated.

    Features are standardised; then w_k = z_k u + v_k with u and v_k normal around 0 and z_k the effect of position k on
    the average document: what makes a document less seen does so the more, the lower it stands, but for what v_k adds.

    Attributes:
        shared: standard deviations of u to choose from; 0 is always tried.
        own: those of v_k; 0 is always tried.
        held_out: the share of queries whose clicks choose.
        least_clicks: in effect, that each position must have against the first.
        seed: decides which queries are held out.
    """

    shared: tuple[float, ...] = (*SCALES, 1.0)
    own: tuple[float, ...] = SCALES
    held_out: float = 0.2
    least_clicks: float = LEAST_CLICKS
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("shared", "own"):
            scales = getattr(self, name)
            if not all(0 < scale < np.inf for scale in scales):
                raise SettingError(name, scales, "be finite and above 0")
        if not 0 < self.held_out < 1:
            raise SettingError("held_out", self.held_out, "be between 0 and 1")
        if not 0 < self.least_clicks < np.inf:
            raise SettingError("least_clicks", self.least_clicks, "be above 0")
        if self.seed < 0:
            raise SettingError("seed", self.seed, "not be negative")


def estimate_effect(interventions: Clicks, *, settings: EffectSettings | None = None) -> LinearEffect:
    """The effect of positions, from documents seen both there and in the first place.

    maximise  sum over documents and k of  C_k log q + C_1 log(1 - q),  logit q = log(n_k / n_1) + w_k . x + b_k

    with C and n the clicks and impressions of the document at k and in the first place. Its gradient is a weighted sum
    of C_k / n_k - tau_k(x) C_1 / n_1, whose weights do not depend on clicks, so it is 0 in expectation at the true
    effect whatever the relevance of each document and however probable clicks are. (For rare clicks it is the
    likelihood given the sum of both, in which relevance cancels.) It is concave. How far features may matter is chosen
    by the clicks on queries that were held out.

    Unbiased when log tau is linear in the features, and which place a document got did not depend on who asked.

    Args:
        interventions: a log in which documents traded places with the first, by `Intervention(kind="pivot", pivot=1)`
            or otherwise.
        settings: of the estimate.
    """
    require_clicks(interventions)
    settings = settings or EffectSettings()
    counts = count(interventions)
    refuse_few(counts)
    _require_first(counts, settings.least_clicks)
    data = _Data.of(counts, interventions.lists)
    queries = interventions.lists.list_of[data.rows]
    learn = np.random.default_rng(settings.seed).random(len(interventions.lists))[queries] >= settings.held_out
    chosen, gain = _choose(data.take(learn), data.take(~learn), settings)
    base, slopes = data.fit(*chosen)
    slopes = slopes / data.scale
    coefficients = np.zeros((counts.max_position, slopes.shape[1] + 1))
    coefficients[1:, :-1], coefficients[1:, -1] = slopes, base - slopes @ data.mean
    return LinearEffect(coefficients, chosen, gain)


def _choose(learn: _Data, check: _Data, settings: EffectSettings) -> tuple[tuple[float, float], float]:
    """The scales that explain held-out clicks best, first the shared one, then the others; and what they gain."""
    total = check.both.sum()
    if learn.both.sum() == 0 or total == 0:
        return (0.0, 0.0), 0.0
    best = none = check.value(learn.fit(0.0, 0.0))
    chosen = (0.0, 0.0)
    for place, scales in enumerate((settings.shared, settings.own)):
        start = chosen
        for scale in scales:
            tried = (scale, start[1]) if place == 0 else (start[0], scale)
            value = check.value(learn.fit(*tried))
            if value > best:
                best, chosen = value, tried
    return chosen, float((best - none) / total)


def _require_first(counts: Counts, least: float) -> None:
    """Refuse a log in which some position shares too little with the first."""
    links = link(counts)
    others = np.arange(1, links.positions)
    pairs = links.at(np.zeros_like(others), others)
    strength = np.where(pairs >= 0, links.strength[pairs] if len(links.strength) else 0.0, 0.0)
    weak = others[strength < least] + 1
    if len(weak):
        named = ", ".join(str(place) for place in weak)
        what = f"too few clicks on documents seen both in the first place and at {named}"
        raise DataError(f"{what} (fewer than {least:g} in effect)", remedy=SWAP)


@dataclass(frozen=True, eq=False)
class _Data:
    """The documents of an experiment, one line for each position they shared with the first, by position.

    Attributes:
        positions: how many there are but the first.
        bounds: the lines of the position k + 2 are those from `bounds[k]` to `bounds[k + 1]`.
        rows: the document of each line, [lines].
        features: standardised, in single precision, as there may be many, [lines, features].
        mean: of the features as they were, [features].
        scale: their standard deviations, [features].
        low: clicks at the position, [lines].
        both: the same with those in the first place, [lines].
        offset: log(n_k / n_1), [lines].
    """

    positions: int
    bounds: Int64
    rows: Int64
    features: Float32
    mean: Float64
    scale: Float64
    low: Float64
    both: Float64
    offset: Float64

    @classmethod
    def of(cls, counts: Counts, lists: Lists) -> _Data:
        """What the counts of a log say; a document that was clicked at neither place says nothing."""
        first = np.flatnonzero(counts.positions == 1)
        at_first = np.full(lists.documents, -1)
        at_first[counts.rows[first]] = first
        low = np.flatnonzero((counts.positions > 1) & (at_first[counts.rows] >= 0))
        low = low[counts.clicks[low] + counts.clicks[at_first[counts.rows[low]]] > 0]
        low = low[np.argsort(counts.positions[low], kind="stable")]
        high = at_first[counts.rows[low]]
        features = lists.features[counts.rows[low]]
        if not np.isfinite(features).all():
            raise DataError("features must be finite", remedy="Impute missing values first (normalise does)")
        mean = features.mean(axis=0, dtype=np.float64)
        features -= mean.astype(np.float32)
        scale = np.sqrt(np.einsum("lf,lf->f", features, features, dtype=np.float64) / max(len(low), 1))
        scale = np.where(scale > 1e-9 * np.maximum(np.abs(mean), 1.0), scale, np.inf)
        return cls(
            counts.max_position - 1,
            np.searchsorted(counts.positions[low], np.arange(2, counts.max_position + 2)),
            counts.rows[low],
            features / scale.astype(np.float32),
            mean,
            scale,
            counts.clicks[low],
            counts.clicks[low] + counts.clicks[high],
            np.log(counts.impressions[low] / counts.impressions[high]),
        )

    def take(self, chosen: Bool) -> _Data:
        """Some of the lines."""
        bounds = np.concatenate([[0], np.cumsum(chosen)])[self.bounds]
        parts = (each[chosen] for each in (self.low, self.both, self.offset))
        return _Data(self.positions, bounds, self.rows[chosen], self.features[chosen], self.mean, self.scale, *parts)

    def logits(self, fit: Fit) -> Float64:
        """Logit q of every line."""
        logits = self.offset + np.repeat(fit[0], np.diff(self.bounds))
        for begin, end, slope in zip(self.bounds[:-1], self.bounds[1:], fit[1], strict=True):
            logits[begin:end] += self.features[begin:end] @ slope.astype(np.float32)
        return logits

    def value(self, fit: Fit) -> float:
        """The log-likelihood."""
        logits = self.logits(fit)
        return float(self.low @ logits - self.both @ np.logaddexp(0.0, logits))

    def sums(self, values: Float64) -> Float64:
        """Sums over the lines of each position, [positions]."""
        return np.diff(np.concatenate([[0.0], np.cumsum(values)])[self.bounds])

    def curve(self) -> Fit:
        """The fit without features, by Newton's method, and the curvature there."""
        base, bend = np.zeros(self.positions), np.ones(self.positions)
        for _ in range(100):
            share = expit(self.offset + np.repeat(base, np.diff(self.bounds)))
            bend = np.maximum(self.sums(self.both * share * (1 - share)), 1e-12)
            step = np.clip(self.sums(self.low - self.both * share) / bend, -1.0, 1.0)
            base = np.clip(base + step, -LARGEST_LOG, LARGEST_LOG)
            if np.abs(step).max(initial=0.0) < 1e-10:
                break
        return base, bend

    def fit(self, shared: float, own: float) -> Fit:
        """The most probable b and W, where w_k = z_k u + v_k and u, v_k have these standard deviations."""
        curve, bend = self.curve()
        size, width = self.positions, self.features.shape[1]
        if shared == own == 0 or width == 0:
            return curve, np.zeros((size, width))
        prior = np.array([1 / shared**2 if shared > 0 else np.inf] + [1 / own**2 if own > 0 else np.inf] * size)
        unit = 1 / np.sqrt(prior + np.append(curve**2 @ bend, bend))  # about one over the curvature: well conditioned
        weight = np.where(unit > 0, np.where(np.isfinite(prior), prior, 0.0) * unit**2, 0.0)

        def parts(point: Float64) -> Fit:
            steps = unit[:, None] * point[size:].reshape(-1, width)
            return curve + point[:size] / np.sqrt(bend), curve[:, None] * steps[0] + steps[1:]

        def loss(point: Float64) -> tuple[float, Float64]:
            logits, steps = self.logits(parts(point)), point[size:].reshape(-1, width)
            rest = self.both * expit(logits) - self.low
            short, pairs = rest.astype(np.float32), zip(self.bounds[:-1], self.bounds[1:], strict=True)
            slopes = np.stack([short[begin:end] @ self.features[begin:end] for begin, end in pairs])
            slopes = np.concatenate([[curve @ slopes], slopes]) * unit[:, None] + weight[:, None] * steps
            value = self.both @ np.logaddexp(0.0, logits) - self.low @ logits + weight @ (steps**2).sum(axis=1) / 2
            return float(value), np.concatenate([self.sums(rest) / np.sqrt(bend), slopes.ravel()])

        start = np.zeros(size + (size + 1) * width)
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": 1e-9})
        if not np.isfinite(found.fun) or found.nit >= STEPS:
            raise TrainingError(f"the effect has not settled after {found.nit} steps")
        return parts(found.x)
