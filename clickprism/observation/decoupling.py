"""The theory of decoupling as code: which smoothness, and which dropping, lets clicks order a pair of documents.

Clicks are c_p(x) = r(x) o_p(x). Any r' = r / s and o' = s o explain them as well, for any s(x) that keeps both at most
1; s does not depend on the position. Chen et al. (2022, LBD, Theorems 1 to 4) bound beta, the Lipschitz constant of o',
and t, the share of o' that is dropped to 1, so that every fit that is left orders a pair as the truth does.
`docs/decoupling.md` says where their statements slip and derives what stands here. In a pair the more relevant document
is the first, in all four theorems. Simulated truth only: a log knows c, not r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.observation.lipschitz import crux_weights, true_gradients
from clickprism.types import Clicks, Float32, Float64, Int64
from clickprism.users.coupled import CoupledUser

Observation: TypeAlias = Callable[[Float64], Float64]  # features [..., features] to o [..., positions]

POINTS = 33
QUANTILES = (0.1, 0.5, 0.9)
CHUNK = 256  # pairs whose lines are held in memory at once
ROUNDS = 100


@final
@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of documents with their truth; the more relevant one is the first.

    Attributes:
        relevance: r, [pairs, 2].
        observation: o_p at every position, above 0, [pairs, 2, positions].
        distance: between the features of the two, [pairs].
    """

    relevance: Float64
    observation: Float64
    distance: Float64

    def __post_init__(self) -> None:
        count = len(self.distance)
        if self.relevance.shape != (count, 2) or self.observation.shape[:2] != (count, 2) or self.observation.ndim != 3:
            shapes = self.relevance.shape, self.observation.shape, self.distance.shape
            raise DataError(f"pairs need relevance [n, 2], observation [n, 2, positions], distance [n], got {shapes}")
        if not ((self.relevance >= 0) & (self.relevance <= 1)).all():
            raise DataError("relevance must be a probability")
        if not ((self.observation > 0) & (self.observation <= 1)).all():
            raise DataError("observation must be a probability above 0", remedy="Leave out positions never seen.")
        if not ((self.relevance[:, 0] >= self.relevance[:, 1]) & (self.relevance[:, 0] > 0)).all():
            raise DataError("the first document of a pair must be the more relevant one, and relevant at all")
        if not ((self.distance >= 0) & np.isfinite(self.distance)).all():
            raise DataError("distances must be finite and not negative")

    def __len__(self) -> int:
        return len(self.distance)

    @property
    def clicks(self) -> Float64:
        """The click probability c = r o, [pairs, 2, positions]."""
        return self.relevance[:, :, None] * self.observation


def largest_beta(
    pairs: Pairs, *, alpha: float | Float64, line: Float64 | None = None, fitted: Float64 | None = None
) -> Float64:
    """Theorem 1: a fit that is beta-Lipschitz for no more than this orders the pair rightly, [pairs].

        r_1 / r_2 - 1 >= o_p(x_2) / o'_p(x_2) * integral of (beta o_p + alpha o'_p) / o_p^2 |dx|,   for some p

    solved for beta at each position; the largest counts, since s = o'_p / o_p is the same at all of them. The integral
    runs along the straight line, by the trapezium rule; the theorem's infimum over curves can only be smaller, so the
    condition is sufficient and not necessary. Negative where no beta meets it. `exact_beta` needs no integral.

    Args:
        pairs: the truth at the two documents.
        alpha: the Lipschitz constant of the true o along the line: one, [pairs, 1] or [pairs, positions].
        line: the true o at equal steps from the first document to the second, [pairs, points, positions]; with one
            point it is the same all along. By default the two ends alone.
        fitted: the fitted o' at the same points, by default the truth (s = 1); ones for a fit without debiasing.

    Where o and o' are constant along the line, beta <= o' ((r_1 / r_2 - 1) / d - alpha / o):

    >>> pair = Pairs(np.array([[0.4, 0.2]]), np.full((1, 2, 1), 0.5), np.array([2.0]))
    >>> largest_beta(pair, alpha=0.1, fitted=np.full((1, 1, 1), 0.8), line=np.full((1, 1, 1), 0.5)).round(6).tolist()
    [0.24]
    """
    true = pairs.observation if line is None else line
    guess = true if fitted is None else fitted
    if true.shape != guess.shape or true.shape[::2] != pairs.observation.shape[::2]:
        count, _, positions = pairs.observation.shape
        raise DataError(f"o along lines must be [{count}, points, {positions}], got {true.shape} and {guess.shape}")
    apart = pairs.distance[:, None]
    with np.errstate(divide="ignore"):
        gain = (pairs.relevance[:, :1] - pairs.relevance[:, 1:]) / pairs.relevance[:, 1:]
        room = gain * guess[:, -1] / true[:, -1]
        room = np.divide(room, apart, out=np.full_like(room, np.inf), where=apart > 0)  # none to go: any beta will do
    bounds: Float64 = (room - alpha * _along(guess / true**2)) / _along(1 / true)
    return np.asarray(bounds.max(axis=1), dtype=np.float64)


def least_beta(pairs: Pairs, *, bounded: bool = True) -> Float64:
    """Theorem 2: no fit is beta-Lipschitz for less than this, whatever order it gives, [pairs].

        inf over m, n of max_p |m c_p(x_1) - n c_p(x_2)| / |x_1 - x_2|,   m = 1 / r'(x_1), n = 1 / r'(x_2)

    m and n are at least 1, and at most 1 / max_p c_p since o' is at most 1; `bounded=False` leaves that out, as the
    paper does. Exact: the smaller of m and n is 1 at the optimum, which leaves a linear programme in one variable.

    >>> pair = Pairs(np.array([[0.5, 0.5]]), np.array([[[0.8, 0.4], [0.8, 0.2]]]), np.array([1.0]))
    >>> least_beta(pair).round(6).tolist()  # n = 1.2: |.4 - 1.2 * .4| = |.2 - 1.2 * .1| = .08
    [0.08]
    """
    return np.minimum(*_both_orders(pairs, bounded))


def exact_beta(pairs: Pairs) -> tuple[Float64, Float64]:
    """The whole range of beta that decouples a pair: from the first value to below the second, each [pairs].

    The first is the least beta of a fit that orders the pair rightly (m <= n in `least_beta`), the second that of a fit
    that does not (m >= n). Below the second no fit is wrong: it is the largest upper bound of Theorem 1's kind that
    holds for every fit. If the first is not below it, no beta decouples the pair by itself. More documents leave fewer
    fits, so that together more pairs may be in order than this guarantees.

    >>> pair = Pairs(np.array([[0.4, 0.2]]), np.full((1, 2, 1), 0.5), np.array([2.0]))
    >>> [value.round(6).tolist() for value in exact_beta(pair)]
    [[0.0], [0.05]]
    """
    wrong, right = _both_orders(pairs, bounded=True)
    return right, wrong


def least_t(pairs: Pairs, *, alpha: float | Float64 | None = None) -> Float64:
    """Theorem 3: dropping with at least this probability orders the pair rightly, [pairs].

    Dropping keeps o' in [t, 1], so max_p c_p <= r' <= min_p c_p / t, and the pair is in order if

        t >= min_p c_p(x_2) / max_p c_p(x_1)

    which is exact: with a smaller t some fit is wrong, if any fits. With `alpha`, one or [pairs], the paper's own and
    larger bound, r_2 / r_1 (1 + alpha |x_1 - x_2| / max_p o_p(x_1)), which compares the two at the same position.

    >>> pair = Pairs(np.array([[0.8, 0.4]]), np.array([[[0.5, 0.1], [0.5, 0.1]]]), np.array([1.0]))
    >>> least_t(pair).round(6).tolist(), least_t(pair, alpha=0).round(6).tolist()
    ([0.1], [0.5])
    """
    if alpha is not None:
        ratio = pairs.relevance[:, 1] / pairs.relevance[:, 0]
        printed: Float64 = ratio * (1 + alpha * pairs.distance / pairs.observation[:, 0].max(axis=1))
        return printed
    first, second = pairs.clicks[:, 0].max(axis=1), pairs.clicks[:, 1].min(axis=1)
    return np.where(first < 1, second / first, 0.0)


def largest_t(pairs: Pairs) -> Float64:
    """Theorem 4: dropping with more than this probability leaves no fit, [pairs].

    t <= min_p o_p(x) / max_p o_p(x), of both documents. Needs o' to be at most 1.

    >>> pair = Pairs(np.array([[0.8, 0.4]]), np.array([[[0.5, 0.1], [0.5, 0.2]]]), np.array([1.0]))
    >>> largest_t(pair).tolist()
    [0.2]
    """
    o = pairs.observation
    return np.asarray((o.min(axis=2) / o.max(axis=2)).min(axis=1), dtype=np.float64)


def coupled_observation(user: CoupledUser, *, features: int, positions: int) -> Observation:
    """The true o_p(x) of such users as a function of features [..., features]: v_p^max(1 + w.x, 0)."""
    weights = crux_weights(user, features)
    curve = user.base.observation(np.arange(1, positions + 1))

    def observation(x: Float64) -> Float64:
        exponent = np.maximum(1 + np.asarray(x, dtype=np.float64) @ weights, 0)
        result: Float64 = curve ** exponent[..., None]
        return result

    return observation


def on_lines(
    observation: Observation, first: Float32 | Float64, second: Float32 | Float64, *, points: int = POINTS
) -> Float64:
    """The observation at equal steps on the lines between documents [pairs, features]: [pairs, points, positions]."""
    if points < 2:
        raise SettingError("points", points, "be at least 2")
    steps = np.linspace(0, 1, points)[:, None]
    parts = []
    for start in range(0, max(len(first), 1), CHUNK):
        x, y = (side[start : start + CHUNK, None].astype(np.float64) for side in (first, second))
        parts.append(observation(x + steps * (y - x)))
    return np.concatenate(parts)


def sample_pairs(clicks: Clicks, relevance: Float32 | Float64, *, count: int = 10_000, seed: int = 0) -> Int64:
    """Rows of pairs of documents shown for the same query, the more relevant first, [pairs, 2].

    Drawn with replacement: a document shown, then another of its query, until they differ in relevance.
    """
    if count < 1:
        raise SettingError("count", count, "be at least 1")
    if relevance.shape != (clicks.lists.documents,):
        raise DataError(f"{clicks.lists.documents} documents but relevance of shape {relevance.shape}")
    rows = np.unique(clicks.rows)
    query = clicks.lists.list_of[rows]
    start, end = (np.searchsorted(query, query, side=side) for side in ("left", "right"))
    rng = np.random.default_rng(seed)
    found = np.zeros((0, 2), dtype=np.int64)
    for _ in range(ROUNDS if len(rows) else 0):
        one = rng.integers(len(rows), size=count)
        both = rows[np.stack([one, rng.integers(start[one], end[one])], axis=1)]
        gap = relevance[both[:, 0]] - relevance[both[:, 1]]
        both = np.where(gap[:, None] > 0, both, both[:, ::-1])
        found = np.concatenate([found, both[gap != 0]])
        if len(found) >= count:
            return found[:count]
    if len(found) == 0:
        raise DataError("no query has two shown documents of different relevance")
    return found


@final
@dataclass(frozen=True)
class DecouplingBounds:
    """What the theorems allow on the pairs of a simulated log.

    Attributes:
        pairs: how many were drawn.
        alpha: the largest gradient norm of the true o on the lines between them, over all positions.
        common_beta: the least with which all pairs can be fitted.
        common_t: the largest with which all can.
        shares: of the pairs; `beta printed` and `t printed` have bounds as in the paper, lower at most upper (for beta
            with o' = o), `beta local` too with alpha of the pair and position, `beta exact` and `t exact` those of this
            module; `beta common` and `t common` are decoupled by the common value, `beta truth` by the least beta that
            the truth itself meets, alpha; `first` and `last` have the clicks at that position in the right order.
        quantiles: of each bound, at 10, 50 and 90%.
    """

    pairs: int
    alpha: float
    common_beta: float
    common_t: float
    shares: dict[str, float]
    quantiles: dict[str, tuple[float, ...]]


def decoupling(
    clicks: Clicks,
    relevance: Float32 | Float64,
    user: CoupledUser,
    *,
    count: int = 10_000,
    points: int = POINTS,
    seed: int = 0,
) -> DecouplingBounds:
    """The bounds of all four theorems over pairs of documents shown in a log of coupled users.

    Args:
        clicks: says what was shown, and down to which position; clicks themselves are not looked at.
        relevance: the true r of each document, such as `users.base.attraction` gives, [documents].
        user: adapted to the documents.
        count: pairs to draw.
        points: of the path integral of Theorem 1.
        seed: of the draw.
    """
    matrix, positions = clicks.lists.features, clicks.max_position
    rows = sample_pairs(clicks, relevance, count=count, seed=seed)
    first, second = matrix[rows[:, 0]], matrix[rows[:, 1]]
    truth = coupled_observation(user, features=matrix.shape[1], positions=positions)
    line = on_lines(truth, first, second, points=points)
    distance = np.linalg.norm(first.astype(np.float64) - second, axis=1)
    pairs = Pairs(relevance[rows].astype(np.float64), line[:, [0, -1]], distance)
    logs = [true_gradients(user, side, positions=positions, of="log") for side in (first, second)]
    local = np.maximum(*logs) * pairs.observation.max(axis=1)  # the exponent is monotone along a line
    alpha = float(local.max())
    right, wrong = exact_beta(pairs)
    bounds = {
        "least beta": least_beta(pairs),
        "largest beta printed": largest_beta(pairs, alpha=alpha, line=line),
        "largest beta local": largest_beta(pairs, alpha=local, line=line),
        "least beta in order": right,
        "largest beta exact": wrong,
        "least t printed": least_t(pairs, alpha=alpha),
        "least t exact": least_t(pairs),
        "largest t": largest_t(pairs),
    }
    common_beta, common_t = float(bounds["least beta"].max()), float(bounds["largest t"].min())
    c = pairs.clicks
    holds = {
        "beta printed": bounds["least beta"] <= bounds["largest beta printed"],
        "beta local": bounds["least beta"] <= bounds["largest beta local"],
        "beta exact": right < wrong,
        "beta common": common_beta < wrong,
        "beta truth": alpha < wrong,
        "t printed": bounds["least t printed"] <= bounds["largest t"],
        "t exact": bounds["least t exact"] <= bounds["largest t"],
        "t common": bounds["least t exact"] <= common_t,
        "first": c[:, 0, 0] > c[:, 1, 0],
        "last": c[:, 0, -1] > c[:, 1, -1],
    }
    return DecouplingBounds(
        pairs=len(pairs),
        alpha=alpha,
        common_beta=common_beta,
        common_t=common_t,
        shares={name: float(values.mean()) for name, values in holds.items()},
        quantiles={
            name: tuple(np.quantile(values, QUANTILES, method="lower").tolist()) for name, values in bounds.items()
        },
    )


def _along(values: Float64) -> Float64:
    """The mean over the points of a line by the trapezium rule, [pairs, points, ...] to [pairs, ...]."""
    inner = values if values.shape[1] == 1 else (values[:, 1:] + values[:, :-1]) / 2
    return np.asarray(inner.mean(axis=1), dtype=np.float64)


def _both_orders(pairs: Pairs, bounded: bool) -> tuple[Float64, Float64]:
    """The least beta of a fit with m >= n (r' in the wrong order, or equal) and with n >= m, each [pairs]."""
    first, second = pairs.clicks[:, 0], pairs.clicks[:, 1]
    wrong = _least_gap(first, second, bounded)
    right = np.where(pairs.relevance[:, 1] > 0, _least_gap(second, first, bounded), 0.0)
    return _over(wrong, pairs.distance), _over(right, pairs.distance)


def _over(gap: Float64, distance: Float64) -> Float64:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gap > 0, gap / distance, 0.0)


def _least_gap(scaled: Float64, other: Float64, bounded: bool) -> Float64:
    """The minimum over u from 1 to 1 / max(a) of max_p |u a_p - b_p|, a `scaled` and b `other`, [pairs].

    The maximum of rising lines u a_p - b_p and falling ones b_q - u a_q: least at the highest crossing of one with the
    other, (a_p b_q - a_q b_p) / (a_p + a_q), unless that lies outside, where the rising ones count at 1 and the falling
    ones at the far end.
    """
    gap: Float64 = np.maximum((scaled - other).max(axis=1), 0)
    if bounded:
        top = scaled.max(axis=1, keepdims=True)
        gap = np.maximum(gap, (other - scaled / np.where(top > 0, top, 1)).max(axis=1))
    for place in range(scaled.shape[1]):
        a, b = scaled[:, [place]], other[:, [place]]
        total = a + scaled
        gap = np.maximum(gap, ((a * other - scaled * b) / np.where(total > 0, total, 1)).max(axis=1))
    return gap
