"""HTE: the effect of a position on a document, estimated on swaps with the first position (Tian et al. 2020).

    tau_k(x) = c_k(x) / c_1(x) = o_k(x) / o_1(x)

Clicks divided by the effect are the clicks that the document would have had at the first position, and any method can
be trained on them. They are unbiased for r(x) o_1(x), not for r(x). LBD (Chen et al. 2022) describes the idea and the
swap with the first position; the estimator is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, final

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

import clickprism as cp
from clickprism.click_models.coupled import CoupledUser
from clickprism.errors import DataError, TrainingError
from clickprism.types import Bool, Float32, Float64, Int32, Int64

BLOCK: Final = 65_536  # documents whose effect is computed at once
SHARED: Final = (0.01, 0.03, 0.1, 0.3, 1.0)  # standard deviations of u to choose from, beside 0
OWN: Final = (0.01, 0.03, 0.1, 0.3)  # standard deviations of v_k
HELD_OUT: Final = 0.2  # share of queries whose clicks choose
FEWEST_CLICKS: Final = 10  # on documents shown both at the first position and at k, at each of the two
LARGEST_LOG: Final = 20.0
STEPS: Final = 2000
Fit: TypeAlias = tuple[Float64, Float64]  # b, [positions - 1], and W, [positions - 1, features]


class Effect(Protocol):
    """The effect of positions on documents."""

    def log_effect(self, lists: cp.Lists, rows: Int64, positions: Int32 | Int64) -> Float64:
        """Return log tau_k(x) of each of these documents at its position, [rows]."""
        ...


def corrected(clicks: cp.Clicks, effect: Effect, *, floor: float = 0.02) -> cp.Clicks:
    """Return the log with each click weighted by 1 / tau_k(x).

    Unbiased for r(x) o_1(x) if the effect is right and not below the floor.

    Args:
        clicks: the log; weights that it has are replaced.
        effect: estimated (`estimate_effect`) or true (`TrueEffect`).
        floor: smaller effects are raised to this value, which limits the weights and adds some bias.
    """
    effects = np.exp(effect.log_effect(clicks.lists, clicks.rows, clicks.positions))
    return clicks.weighted(1 / np.maximum(effects, floor))


@final
@dataclass(frozen=True)
class TrueEffect:
    """The true effect of simulated users, o_k(x) / o_1(x).

    Attributes:
        user: coupled users, adapted to the documents.
        relative: to the first position. If false, the effect is o_k(x) itself: clicks corrected by it are unbiased for
            relevance, which no experiment on positions can reach.
    """

    user: CoupledUser
    relative: bool = True

    def log_effect(self, lists: cp.Lists, rows: Int64, positions: Int32 | Int64) -> Float64:
        """Return log o_k(x), minus log o_1(x) if relative, [rows]."""
        observation = self.user.observation(lists, rows, positions)
        if self.relative:
            observation = observation / np.maximum(self.user.observation(lists, rows, np.ones_like(positions)), 1e-300)
        with np.errstate(divide="ignore"):
            return np.log(observation)


@final
@dataclass(frozen=True, eq=False)
class LinearEffect:
    """Log tau_k(x) = w_k . x + b_k, which is 0 at the first position.

    Attributes:
        coefficients: w_k and, last, b_k of every position, [positions, features + 1].
        scales: standard deviations of u and v_k that held-out clicks chose.
        gain: mean gain in log-likelihood of a held-out click by the features; not above 0 if they do not help.
    """

    coefficients: Float64
    scales: tuple[float, float] = (0.0, 0.0)
    gain: float = 0.0

    def log_effect(self, lists: cp.Lists, rows: Int64, positions: Int32 | Int64) -> Float64:
        """Return log tau_k(x) of each of these documents at its position, [rows]."""
        effects = np.empty(len(rows))
        for start in range(0, len(rows), BLOCK):
            part = slice(start, start + BLOCK)
            chosen = self.coefficients[positions[part] - 1]
            effects[part] = np.einsum("ef,ef->e", lists.features[rows[part]], chosen[:, :-1]) + chosen[:, -1]
        return effects


def estimate_effect(swaps: cp.Clicks, *, seed: int = 0) -> LinearEffect:
    """Return the effect of positions, estimated on documents shown both there and at the first position.

    maximise  sum over documents and k of  C_k log q + C_1 log(1 - q),  logit q = log(n_k / n_1) + w_k . x + b_k

    C and n are the clicks and impressions of the document at k and at the first position. The gradient is a weighted
    sum of C_k / n_k - tau_k(x) C_1 / n_1, whose weights do not depend on clicks, so its expectation is 0 at the true
    effect, for any relevance of the documents and any click probability. The objective is concave.

    Features are standardised, and w_k = z_k u + v_k, where u and v_k are normal around 0 and z_k is the effect of
    position k on the average document. The clicks on held-out queries choose the standard deviations of u and v_k.

    Unbiased if log tau is linear in the features, and if the position of a document did not depend on the user.

    Args:
        swaps: a log in which documents were swapped with the first one, `Intervention(kind="pivot", pivot=1)`.
        seed: random seed of the held-out queries.
    """
    data = _Data.of(swaps)
    learn = np.random.default_rng(seed).random(len(swaps.lists))[swaps.lists.list_of[data.rows]] >= HELD_OUT
    scales, gain = _choose(data.take(learn), data.take(~learn))
    base, slopes = data.fit(*scales)
    slopes = slopes / data.scale
    coefficients = np.zeros((data.positions + 1, slopes.shape[1] + 1))
    coefficients[1:, :-1], coefficients[1:, -1] = slopes, base - slopes @ data.mean
    return LinearEffect(coefficients, scales, gain)


def _choose(learn: _Data, check: _Data) -> tuple[tuple[float, float], float]:
    """Return the scales that predict held-out clicks best, first that of u, then that of v_k; and their gain."""
    total = check.both.sum()
    if learn.both.sum() == 0 or total == 0:
        return (0.0, 0.0), 0.0
    best = without = check.value(learn.fit(0.0, 0.0))
    chosen = (0.0, 0.0)
    for number, scales in enumerate((SHARED, OWN)):
        start = chosen
        for scale in scales:
            tried = (scale, start[1]) if number == 0 else (start[0], scale)
            value = check.value(learn.fit(*tried))
            if value > best:
                best, chosen = value, tried
    return chosen, float((best - without) / total)


@dataclass(frozen=True, eq=False)
class _Data:
    """One line for each document and position k at which it was shown, if it was also shown first, sorted by k.

    Attributes:
        positions: number of positions below the first.
        bounds: the lines of position k + 2 are those from `bounds[k]` to `bounds[k + 1]`.
        rows: document of each line, [lines].
        features: standardised, in single precision, [lines, features].
        mean: means of the features, [features].
        scale: standard deviations of the features, [features].
        low: clicks at the position, [lines].
        both: clicks at the position and at the first one, [lines].
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
    def of(cls, log: cp.Clicks) -> _Data:
        """Return the lines of a log, without documents that were clicked at neither position."""
        depth = log.max_position + 1
        keys, pair = np.unique(log.rows * depth + log.positions, return_inverse=True)
        rows, positions = keys // depth, keys % depth
        clicks, shown = (np.bincount(pair, weights=each) for each in (log.clicks, log.list_impressions))
        first = np.flatnonzero(positions == 1)
        at_first = np.full(log.lists.documents, -1)
        at_first[rows[first]] = first
        low = np.flatnonzero((positions > 1) & (at_first[rows] >= 0))
        low = low[clicks[low] + clicks[at_first[rows[low]]] > 0]
        low = low[np.argsort(positions[low], kind="stable")]
        high = at_first[rows[low]]
        fewest = np.minimum(
            *(np.bincount(positions[low], weights=clicks[each], minlength=depth) for each in (low, high))
        )
        weak = [str(position) for position in range(2, depth) if fewest[position] < FEWEST_CLICKS]
        if weak:
            raise DataError(
                f"too few clicks on documents shown both at the first position and at {', '.join(weak)}",
                remedy='Swap the first document with a random one: Intervention(kind="pivot", pivot=1)',
            )
        features = log.lists.features[rows[low]]
        mean = features.mean(axis=0, dtype=np.float64)
        features -= mean.astype(np.float32)
        scale = np.sqrt(np.einsum("lf,lf->f", features, features, dtype=np.float64) / max(len(low), 1))
        scale = np.where(scale > 1e-9 * np.maximum(np.abs(mean), 1.0), scale, np.inf)
        return cls(
            depth - 2,
            np.searchsorted(positions[low], np.arange(2, depth + 1)),
            rows[low],
            features / scale.astype(np.float32),
            mean,
            scale,
            clicks[low],
            clicks[low] + clicks[high],
            np.log(shown[low] / shown[high]),
        )

    def take(self, chosen: Bool) -> _Data:
        """Return some of the lines."""
        bounds = np.concatenate([[0], np.cumsum(chosen)])[self.bounds]
        parts = (each[chosen] for each in (self.low, self.both, self.offset))
        return _Data(self.positions, bounds, self.rows[chosen], self.features[chosen], self.mean, self.scale, *parts)

    def logits(self, fit: Fit) -> Float64:
        """Return logit q of every line."""
        logits = self.offset + np.repeat(fit[0], np.diff(self.bounds))
        for begin, end, slope in zip(self.bounds[:-1], self.bounds[1:], fit[1], strict=True):
            logits[begin:end] += self.features[begin:end] @ slope.astype(np.float32)
        return logits

    def value(self, fit: Fit) -> float:
        """Return the log-likelihood."""
        logits = self.logits(fit)
        return float(self.low @ logits - self.both @ np.logaddexp(0.0, logits))

    def sums(self, values: Float64) -> Float64:
        """Return sums over the lines of each position, [positions]."""
        return np.diff(np.concatenate([[0.0], np.cumsum(values)])[self.bounds])

    def curve(self) -> Fit:
        """Return the fit without features, by Newton's method, and the curvature there."""
        base, curvature = np.zeros(self.positions), np.ones(self.positions)
        for _ in range(100):
            share = expit(self.offset + np.repeat(base, np.diff(self.bounds)))
            curvature = np.maximum(self.sums(self.both * share * (1 - share)), 1e-12)
            step = np.clip(self.sums(self.low - self.both * share) / curvature, -1.0, 1.0)
            base = np.clip(base + step, -LARGEST_LOG, LARGEST_LOG)
            if np.abs(step).max(initial=0.0) < 1e-10:
                break
        return base, curvature

    def fit(self, shared: float, own: float) -> Fit:
        """Return the most probable b and W, where w_k = z_k u + v_k and u, v_k have these standard deviations."""
        curve, curvature = self.curve()
        size, width = self.positions, self.features.shape[1]
        if shared == own == 0 or width == 0:
            return curve, np.zeros((size, width))
        prior = np.array([1 / shared**2 if shared > 0 else np.inf] + [1 / own**2 if own > 0 else np.inf] * size)
        unit = 1 / np.sqrt(prior + np.append(curve**2 @ curvature, curvature))  # about one over the curvature
        weight = np.where(unit > 0, np.where(np.isfinite(prior), prior, 0.0) * unit**2, 0.0)

        def parts(point: Float64) -> Fit:
            steps = unit[:, None] * point[size:].reshape(-1, width)
            return curve + point[:size] / np.sqrt(curvature), curve[:, None] * steps[0] + steps[1:]

        def loss(point: Float64) -> tuple[float, Float64]:
            logits, steps = self.logits(parts(point)), point[size:].reshape(-1, width)
            rest = self.both * expit(logits) - self.low
            short, pairs = rest.astype(np.float32), zip(self.bounds[:-1], self.bounds[1:], strict=True)
            slopes = np.stack([short[begin:end] @ self.features[begin:end] for begin, end in pairs])
            slopes = np.concatenate([[curve @ slopes], slopes]) * unit[:, None] + weight[:, None] * steps
            value = self.both @ np.logaddexp(0.0, logits) - self.low @ logits + weight @ (steps**2).sum(axis=1) / 2
            return float(value), np.concatenate([self.sums(rest) / np.sqrt(curvature), slopes.ravel()])

        start = np.zeros(size + (size + 1) * width)
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": 1e-9})
        if not np.isfinite(found.fun) or found.nit >= STEPS:
            raise TrainingError(f"the estimate of the effect did not converge in {found.nit} steps")
        return parts(found.x)


@dataclass(frozen=True)
class Coupling:
    """Measured strength of a coupling; report it with eta.

    Attributes:
        deviation: standard deviation of w.x over documents.
        correlation: correlation of the exponent with the grade; 0 if either does not vary.
        floored: share of documents whose exponent would be below 0; they are always observed.
    """

    deviation: float
    correlation: float
    floored: float


def coupling(user: CoupledUser, judged: cp.JudgedLists) -> Coupling:
    """Measure the coupling of an adapted user on these documents."""
    exponent = user.exponent(judged.lists)
    weighted = np.zeros(judged.lists.documents)
    for column, weight in zip(user.columns, user.weights, strict=True):
        weighted += weight * judged.lists.features[:, column].astype(np.float64)
    varies = len(exponent) > 1 and exponent.std() > 0 and judged.grades.std() > 0
    return Coupling(
        deviation=float(weighted.std()) if len(weighted) else 0.0,
        correlation=float(np.corrcoef(exponent, judged.grades)[0, 1]) if varies else 0.0,
        floored=float((weighted < -1).mean()) if len(weighted) else 0.0,
    )
