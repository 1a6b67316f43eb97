"""How documents that moved were seen, and what was clicked without relevance: one likelihood for every form of bias.

    P(click on d at place j) = o_j(x_d) (q_d + u_k),    log o_j(x) = s(x) b_j,    s(x) = max(1 + w . x + a, 0)

k is the position of the place, b_1 = 0, u_k falls with k and is 0 at the lowest position: the affine model of trust,
whose observation features may bend, and which may know the last click above. q_d, what a document would earn without
trust, is not estimated but integrated out over a grid, with a prior for documents that mostly stood alike high, since
rankings put better documents higher. The likelihood of queries held out compares all forms, from no bias on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from scipy.optimize import minimize

from clickprism.errors import DataError
from clickprism.observation.places import Places
from clickprism.observation.support import SEVERAL
from clickprism.types import Bool, Float64, Int64, Lists

GRID: Final = np.geomspace(0.01, 0.95, 8)
GROUPS: Final = 5
DOCUMENTS: Final = 4000  # to learn from, at most
LEAST: Final = 30  # documents that moved, and clicks on them
SMOOTH: Final = 1.0  # clicks that say that a position is seen as often as the one above it
APART: Final = 1.0  # clicks that say that places of one position are seen alike
CALM: Final = 4.0  # on the squares of the steps of u
STEPS: Final = 150
HIGHEST: Final = float(np.log(1 - 1e-3))
FLOOR: Final = 0.03


@final
@dataclass(frozen=True)
class Form:
    """Which biases there may be.

    Attributes:
        curve: positions are seen differently.
        browsing: and so are places of one position, by the last click above.
        trust: clicks come without relevance, u.
        bend: the standard deviation of w, of standardised features; 0 is no bend.
    """

    curve: bool = True
    browsing: bool = False
    trust: bool = False
    bend: float = 0.0

    @property
    def size(self) -> int:
        """How many biases."""
        return int(self.curve) + int(self.browsing) + int(self.trust) + int(self.bend > 0)


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """A fitted form.

    Attributes:
        form: which.
        below: b of each place, [places].
        trusted: u of each position, [positions].
        slopes: w, of raw features, [features].
        shift: a.
    """

    form: Form
    below: Float64
    trusted: Float64
    slopes: Float64
    shift: float

    def steepness(self, lists: Lists) -> Float64:
        """s(x) of every document, [documents]."""
        return np.asarray(np.maximum(1 + lists.features @ self.slopes + self.shift, 0.0), dtype=np.float64)


@final
@dataclass(frozen=True, eq=False)
class MovedLines:
    """Documents that stood at several places, one line a place, those of a document together.

    Attributes:
        position_of: the position of each place, from 0, [places].
        rows: of the documents, [documents].
        queries: of the documents, [documents].
        groups: by how high they mostly stood, [documents].
        of_line: the document of each line, from 0, [lines].
        places: of each line, [lines].
        clicks: [lines].
        shown: impressions, [lines].
        features: standardised, [documents, features].
        mean: of the features before, [features].
        spread: their standard deviation, infinite for a constant, [features].
    """

    position_of: Int64
    rows: Int64
    queries: Int64
    groups: Int64
    of_line: Int64
    places: Int64
    clicks: Float64
    shown: Float64
    features: Float64
    mean: Float64
    spread: Float64

    @classmethod
    def of(cls, places: Places, lists: Lists, *, seed: int = 0, most: int = DOCUMENTS) -> MovedLines:
        """Those of a log, at most so many, by chance; a log with too few is refused."""
        _, line, times = np.unique(places.rows, return_inverse=True, return_counts=True)
        positions = places.position_of[places.places]
        lowest, highest = np.full(len(times), 10**9), np.full(len(times), -1)
        np.minimum.at(lowest, line, positions)
        np.maximum.at(highest, line, positions)
        moved = np.flatnonzero(highest > lowest)
        if len(moved) < LEAST or places.clicks[(highest > lowest)[line]].sum() < LEAST:
            raise DataError("no documents were clicked that stood at several positions", remedy=SEVERAL)
        if len(moved) > most:
            moved = np.sort(np.random.default_rng([seed, 17]).choice(moved, most, replace=False))
        chosen = np.zeros(len(times), dtype=np.bool_)
        chosen[moved] = True
        kept = chosen[line]
        rows, of_line = np.unique(places.rows[kept], return_inverse=True)
        shown = places.impressions[kept]
        height = np.bincount(of_line, weights=shown * positions[kept]) / np.bincount(of_line, weights=shown)
        groups = np.searchsorted(np.quantile(height, np.linspace(0, 1, GROUPS + 1)[1:-1]), height)
        features = lists.features[rows].astype(np.float64)
        mean, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 1e-9 * np.maximum(np.abs(mean), 1.0), spread, np.inf)
        return cls(
            places.position_of,
            rows,
            lists.list_of[rows],
            groups.astype(np.int64),
            of_line.astype(np.int64),
            places.places[kept],
            places.clicks[kept],
            shown,
            (features - mean) / spread,
            mean,
            spread,
        )

    def take(self, documents: Bool) -> MovedLines:
        """Some of the documents."""
        lines, number = documents[self.of_line], np.cumsum(documents) - 1
        return replace(
            self,
            rows=self.rows[documents],
            queries=self.queries[documents],
            groups=self.groups[documents],
            of_line=number[self.of_line[lines]],
            places=self.places[lines],
            clicks=self.clicks[lines],
            shown=self.shown[lines],
            features=self.features[documents],
        )


@final
class _Problem:
    """The likelihood of a form, by a vector of parameters: b, extra of places, u, w, then logits of the priors."""

    def __init__(self, data: MovedLines, form: Form) -> None:
        self.data, self.form = data, form
        self.positions, self.count = int(data.position_of.max()) + 1, len(data.position_of)
        sizes = (
            self.positions - 1 if form.curve else 0,
            self.count if form.browsing else 0,
            self.positions - 1 if form.trust else 0,
            data.features.shape[1] if form.bend > 0 else 0,
            GROUPS * len(GRID),
        )
        self.ends = np.cumsum((0, *sizes))
        self.starts = np.flatnonzero(np.diff(data.of_line, prepend=-1))
        self.position = data.position_of[data.places]

    def start(self) -> Float64:
        start = np.zeros(self.ends[-1])
        start[: self.ends[1]] = -0.1 * np.arange(1, self.ends[1] + 1)
        if self.form.trust:
            start[self.ends[2] : self.ends[3]] = 0.01
        return start

    def bounds(self) -> list[tuple[float, float]]:
        low, high = np.full(self.ends[-1], -12.0), np.full(self.ends[-1], 12.0)
        low[self.ends[2] : self.ends[3]], high[self.ends[2] : self.ends[3]] = 0.0, 0.9
        low[self.ends[3] : self.ends[4]], high[self.ends[3] : self.ends[4]] = -5.0, 5.0
        return list(zip(low.tolist(), high.tolist(), strict=True))

    def parts(self, vector: Float64) -> tuple[Float64, Float64, Float64, Float64, Float64]:
        """The curve, extra, u, w and the log priors, in full."""
        first, extra, trusted, slopes, logits = (
            vector[a:b] for a, b in zip(self.ends[:-1], self.ends[1:], strict=True)
        )
        curve = np.concatenate([[0.0], first]) if self.form.curve else np.zeros(self.positions)
        apart = np.where(self.data.position_of == 0, 0.0, extra) if self.form.browsing else np.zeros(self.count)
        trust = np.append(np.cumsum(trusted[::-1])[::-1], 0.0) if self.form.trust else np.zeros(self.positions)
        weights = slopes if self.form.bend > 0 else np.zeros(self.data.features.shape[1])
        prior = logits.reshape(GROUPS, len(GRID))
        prior = prior - np.logaddexp.reduce(prior, axis=1, keepdims=True)
        return curve, apart, trust, weights, prior

    def documents(self, vector: Float64) -> Float64:
        """The log-likelihood of each document, [documents]."""
        return np.asarray(np.logaddexp.reduce(self._joint(vector)[0], axis=1), dtype=np.float64)

    def _joint(self, vector: Float64) -> tuple[Any, ...]:
        data = self.data
        curve, apart, trust, weights, prior = self.parts(vector)
        logs = (curve[data.position_of] + apart)[data.places]
        raw = 1 + data.features @ weights
        steep = np.maximum(raw, 0.0)[data.of_line]
        earned = GRID + trust[self.position][:, None]
        log_p = (steep * logs)[:, None] + np.log(earned)
        inside = log_p < HIGHEST
        log_p = np.where(inside, log_p, HIGHEST)
        p = np.exp(log_p)
        value = data.clicks[:, None] * log_p + (data.shown - data.clicks)[:, None] * np.log1p(-p)
        joint = np.add.reduceat(value, self.starts, axis=0) + prior[data.groups]
        return joint, p, inside, earned, steep, logs, raw, prior

    def loss(self, vector: Float64) -> tuple[float, Float64]:
        data, ends = self.data, self.ends
        joint, p, inside, earned, steep, logs, raw, prior = self._joint(vector)
        each = np.logaddexp.reduce(joint, axis=1)
        post = np.exp(joint - each[:, None])
        # d value / d log p = (c - n p) / (1 - p)
        pull = post[data.of_line] * inside * (data.clicks[:, None] - data.shown[:, None] * p) / (1 - p)
        line = pull.sum(axis=1)
        gradient = np.zeros_like(vector)
        curve, apart, trust, weights, _ = self.parts(vector)
        value = -float(each.sum())
        by_place = -np.bincount(data.places, weights=line * steep, minlength=self.count)
        if self.form.curve:
            steps = np.diff(curve)
            value += 0.5 * SMOOTH * float(steps @ steps)
            by_position = np.bincount(data.position_of, weights=by_place, minlength=self.positions)[1:]
            gradient[: ends[1]] = by_position + SMOOTH * (steps - np.append(steps[1:], 0.0))
        if self.form.browsing:
            value += 0.5 * APART * float(apart @ apart)
            gradient[ends[1] : ends[2]] = np.where(data.position_of == 0, 0.0, by_place + APART * apart)
        if self.form.trust:
            steps = np.diff(trust)
            value += 0.5 * CALM * float(steps @ steps)
            by_position = -np.bincount(self.position, weights=(pull / earned).sum(axis=1), minlength=self.positions)
            gradient[ends[2] : ends[3]] = np.cumsum(by_position)[:-1] - CALM * steps
        if self.form.bend > 0:
            value += 0.5 * float(weights @ weights) / self.form.bend**2
            lines = line * logs * (raw > 0)[data.of_line]
            by_document = np.bincount(data.of_line, weights=lines, minlength=len(data.rows))
            gradient[ends[3] : ends[4]] = -data.features.T @ by_document + weights / self.form.bend**2
        chances = np.exp(prior)
        hits = np.zeros((GROUPS, len(GRID)))
        np.add.at(hits, data.groups, post)
        value += -float((chances.shape[1] ** -1 * prior).sum())  # one document of each kind in a group
        hits = hits + 1 / len(GRID)
        gradient[ends[4] :] = -(hits - hits.sum(axis=1, keepdims=True) * chances).ravel()
        return value, gradient


def fit_form(data: MovedLines, form: Form, *, start: Float64 | None = None) -> Float64:
    """The most probable parameters of a form, as `_Problem` orders them."""
    problem = _Problem(data, form)
    vector, bounds = problem.start() if start is None else start, problem.bounds()
    options: Any = {"maxiter": STEPS, "ftol": 1e-8}
    found = minimize(problem.loss, vector, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.asarray(found.x, dtype=np.float64)


def likelihoods(data: MovedLines, form: Form, vector: Float64) -> Float64:
    """The log-likelihood of each document under a fit of other documents, [documents]."""
    return _Problem(data, form).documents(vector)


def seen_of(data: MovedLines, form: Form, vector: Float64) -> Seen:
    """The fit in the units of raw features."""
    curve, apart, trust, weights, _ = _Problem(data, form).parts(vector)
    slopes = weights / data.spread
    return Seen(form, curve[data.position_of] + apart, trust, slopes, -float(slopes @ data.mean))
