"""How often positions are seen, where no document moved: from documents that the ranking could hardly tell apart.

    P(the click falls on i, given its list) = softmax_i(g(f_i) + v . x_i + s(x_i) b_k),    s(x) = max(1 + w . x, 0)

f is the score by which the log was ranked, learned from its order; g, piecewise linear, is what documents of a score
are worth, and b_k what their position adds. Two documents whose scores are almost equal stand one above the other by
chance, so b_k is told from g where lists differ in how far scores are apart. It holds if the ranking knew nothing of
relevance but what the features tell; what else relevance has is then the same at every position. s is how features bend
the curve: what draws the eye, or, where poor documents are clicked at the top by trust, what makes them poor. Where the
engine heeds past clicks it knows more than features: those clicks stand beside them then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
from scipy.optimize import minimize

from clickprism.errors import DataError
from clickprism.types import Bool, Clicks, Float64, Int64, slices

KNOTS: Final = 6
RIDGE: Final = 1.0  # on v and g, of standardised columns
SMOOTH: Final = 2.0  # on the steps of b
ENOUGH: Final = 20.0  # clicks of a query that say as much as endless ones: its documents are few
HELD_OUT: Final = 0.4
STIFF: Final = 20.0  # on the squares of w
LISTS: Final = 4000  # those with the most clicks are used, at most
STEPS: Final = 100
LEAST: Final = 10  # queries with clicks, on either side


@final
@dataclass(frozen=True, eq=False)
class Alike:
    """Log o_k(x) = s(x) b_k relative to the first position, s(x) = max(1 + w . x + a, 0), and who believes it.

    Attributes:
        below: b, [positions].
        slopes: w, [features]; all 0 without a bend.
        shift: a.
        gains: of log-likelihood by b, by query held out, [queries held out]; against no bias.
        bent: the same by b and w together; empty where no bend was asked for.
    """

    below: Float64
    slopes: Float64
    shift: float
    gains: Float64
    bent: Float64


def fit_alike(clicks: Clicks, *, past: Float64 | None = None, bend: bool = False, seed: int = 0) -> Alike:
    """The curve of a log by documents that look alike to its ranking; a log with few clicks is refused.

    Args:
        clicks: the log; features are about as wide as each other. Merged by list, within a day if there is a past.
        past: of a log whose engine heeds past clicks, what it may have known of each entry beside the features: the
            clicks of its document on the days before, [entries].
        bend: whether features bend the curve.
        seed: decides which queries are held out.
    """
    data = _Lists.of(clicks.merge() if past is None else clicks, past)
    held = np.random.default_rng([seed, 41]).random(len(clicks.lists)) < HELD_OUT
    out = held[data.queries]
    if min(len(np.unique(data.queries[out])), len(np.unique(data.queries[~out]))) < LEAST:
        raise DataError("too few queries were clicked to compare documents that look alike", remedy="Log more searches")
    learn, check = data.take(~out), data.take(out)
    plain, curve = learn.fit(curve=False), learn.fit(curve=True)
    none = check.values(plain)
    gains, bent = check.by_query(check.values(curve) - none), np.zeros(0)
    found, slopes = data.fit(curve=True), np.zeros(data.features.shape[1])
    if bend:
        bent = check.by_query(check.values(*learn.fit_bend(curve)) - none)
        found, slopes = data.fit_bend(found)
    slopes = slopes / data.spread
    below = np.concatenate([[0.0], found[: data.depth - 1]])
    return Alike(below, slopes, -float(slopes @ data.mean), gains, bent)


@dataclass(frozen=True, eq=False)
class _Lists:
    """Ranked lists with clicks, their entries together.

    Attributes:
        depth: the lowest position.
        queries: of the lists, [lists].
        of_entry: the list of each entry, [entries].
        positions: from 0, [entries].
        weights: clicks, those of queries with many scaled down, [entries].
        columns: g's and x's, less their mean in the list, [entries, columns].
        features: standardised, [entries, features].
        mean: of the features before, [features].
        spread: their standard deviation, infinite for a constant, [features].
    """

    depth: int
    queries: Int64
    of_entry: Int64
    positions: Int64
    weights: Float64
    columns: Float64
    features: Float64
    mean: Float64
    spread: Float64

    @classmethod
    def of(cls, clicks: Clicks, past: Float64 | None = None) -> _Lists:
        owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))
        clicked = np.bincount(owner, weights=clicks.clicks, minlength=len(clicks))
        chosen = np.flatnonzero((clicked > 0) & (np.diff(clicks.offsets) > 1))
        if len(chosen) > LISTS:
            chosen = np.sort(chosen[np.argsort(-clicked[chosen], kind="stable")[:LISTS]])
        kept = clicks.take(chosen)
        of_entry = np.repeat(np.arange(len(kept)), np.diff(kept.offsets))
        x = kept.lists.features[kept.rows].astype(np.float64)
        mean, spread = (x.mean(axis=0), x.std(axis=0)) if len(x) else (np.zeros(x.shape[1]), np.ones(x.shape[1]))
        spread = np.where(spread > 1e-9 * np.maximum(np.abs(mean), 1.0), spread, np.inf)
        x = (x - mean) / spread
        known = x
        if past is not None:
            before = np.log1p(past[slices(clicks.offsets, chosen)[0]])[:, None]
            known = np.concatenate([x, before, np.square(before)], axis=1)
            known[:, -2:] /= np.maximum(known[:, -2:].std(axis=0), 1e-9)
        score = _order(known, of_entry, kept.positions.astype(np.float64))
        knots = np.quantile(score, np.linspace(0, 1, KNOTS)[1:-1]) if len(score) else np.zeros(KNOTS - 2)
        bends = np.maximum(score[:, None] - knots, 0.0)
        columns = _centred(np.concatenate([score[:, None], bends, known], axis=1), of_entry)
        columns = columns / np.maximum(columns.std(axis=0), 1e-9) if len(columns) else columns
        queries = kept.lists.list_of[kept.rows[kept.offsets[:-1]]]
        total = np.bincount(queries[of_entry], weights=kept.clicks)[queries] if len(kept) else np.zeros(0)
        weights = kept.clicks / (1 + total / ENOUGH)[of_entry]
        positions = kept.positions.astype(np.int64) - 1
        return cls(clicks.max_position, queries, of_entry, positions, weights, columns, x, mean, spread)

    def take(self, lists: Bool) -> _Lists:
        """Some of the lists."""
        entries, number = lists[self.of_entry], np.cumsum(lists) - 1
        return replace(
            self,
            queries=self.queries[lists],
            of_entry=number[self.of_entry[entries]],
            positions=self.positions[entries],
            weights=self.weights[entries],
            columns=self.columns[entries],
            features=self.features[entries],
        )

    def by_query(self, values: Float64) -> Float64:
        """Sums of values of lists, one a query, [queries]."""
        return np.bincount(self.queries, weights=values)[np.unique(self.queries)].astype(np.float64)

    def values(self, vector: Float64, slopes: Float64 | None = None) -> Float64:
        """The log-likelihood of each list."""
        logs = self.weights * self._logs(vector, slopes)
        return np.bincount(self.of_entry, weights=logs, minlength=len(self.queries)).astype(np.float64)

    def _logs(self, vector: Float64, slopes: Float64 | None = None) -> Float64:
        """Log softmax, [entries]."""
        below = np.concatenate([[0.0], vector[: self.depth - 1]])[self.positions]
        steep = 1.0 if slopes is None else np.maximum(1 + self.features @ slopes, 0.0)
        logits = self.columns @ vector[self.depth - 1 :] + steep * below
        starts = np.flatnonzero(np.diff(self.of_entry, prepend=-1))
        top = np.maximum.reduceat(logits, starts)
        total = np.add.reduceat(np.exp(logits - top[self.of_entry]), starts)
        return np.asarray(logits - (np.log(total) + top)[self.of_entry], dtype=np.float64)

    def fit(self, *, curve: bool) -> Float64:
        """The curve from position 2 on, then the weights of the columns."""
        return self._fit(np.zeros(self.depth - 1 + self.columns.shape[1]), None, curve=curve)[0]

    def fit_bend(self, start: Float64) -> tuple[Float64, Float64]:
        """The same, and w of standardised features, both at once."""
        return self._fit(start, np.zeros(self.features.shape[1]), curve=True)

    def _fit(self, start: Float64, slopes: Float64 | None, *, curve: bool) -> tuple[Float64, Float64]:
        below, size = self.depth - 1, len(start)
        total = np.bincount(self.of_entry, weights=self.weights)[self.of_entry]

        def loss(both: Float64) -> tuple[float, Float64]:
            vector, bends = both[:size], both[size:] if slopes is not None else None
            logs = self._logs(vector, bends)
            pull = total * np.exp(logs) - self.weights
            steps, weights = np.diff(vector[:below], prepend=0.0), vector[below:]
            value = -float(self.weights @ logs) + 0.5 * SMOOTH * float(steps @ steps)
            value += 0.5 * RIDGE * float(weights @ weights)
            gradient, steep = np.zeros_like(both), np.ones(1)
            gradient[below:size] = self.columns.T @ pull + RIDGE * weights
            if bends is not None:
                raw = 1 + self.features @ bends
                steep = np.maximum(raw, 0.0)
                logs_below = np.concatenate([[0.0], vector[:below]])[self.positions]
                gradient[size:] = self.features.T @ (pull * logs_below * (raw > 0)) + STIFF * bends
                value += 0.5 * STIFF * float(bends @ bends)
            if curve:
                by_position = np.bincount(self.positions, weights=pull * steep, minlength=self.depth)[1:]
                gradient[:below] = by_position + SMOOTH * (steps - np.append(steps[1:], 0.0))
            return value, gradient

        begin = start if slopes is None else np.concatenate([start, slopes])
        found = minimize(loss, begin, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
        return np.asarray(found[:size], dtype=np.float64), np.asarray(found[size:], dtype=np.float64)


def _order(x: Float64, of_entry: Int64, positions: Float64) -> Float64:
    """The score that ranked the lists, as far as it is linear in the features: least squares within lists."""
    height = _centred(-np.sqrt(positions)[:, None], of_entry)[:, 0]
    inside = _centred(x, of_entry)
    ridge = 1e-3 * len(x) * np.eye(x.shape[1])
    return np.asarray(x @ np.linalg.solve(inside.T @ inside + ridge, inside.T @ height), dtype=np.float64)


def _centred(columns: Float64, of_entry: Int64) -> Float64:
    starts = np.flatnonzero(np.diff(of_entry, prepend=-1))
    sizes = np.bincount(of_entry)
    return np.asarray(columns - (np.add.reduceat(columns, starts, axis=0) / sizes[:, None])[of_entry])
