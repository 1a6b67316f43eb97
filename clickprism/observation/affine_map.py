"""The affine map between positions, from documents seen at several of them: lines through noise on both axes.

    y_dk = C_dk / n_dk = alpha_k m_d + beta_k + noise,    m_d = c_1 of the document, free

Click rates are noisy on both sides, so that plain regression on those of the first slot finds slopes that are too flat
(attenuation), and maximum likelihood with a parameter for each document ones that are too steep or too flat where there
are few impressions. Here the parameters minimise the squared distances of each document from the line,

    sum_d  min_m sum_k w_dk (y_dk - beta_k - alpha_k m)^2 - (what noise alone would make of it),

where the second term takes the unbiased estimate y (1 - y) / (n - 1) of the variance of each rate. The expected value
of a term is then 0 at the true line and nowhere lower, whatever the relevance of the document, however few its
impressions, and however it came to its positions, as long as that did not depend on its clicks: total least squares
with known variances (Fuller 1987, chapter 2). The weights are one over the variance that the line itself predicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np
from scipy.sparse import csr_array

from clickprism.errors import DataError
from clickprism.observation.counts import Counts
from clickprism.observation.curve import sums
from clickprism.types import Float64, Int64

LEAST_IMPRESSIONS: Final = 2  # of a document at a position: of one there is no variance
ROUNDS: Final = 6  # of weights
STEPS: Final = 200
CLOSE: Final = 50  # times as large as its noise is the spread of documents around one that is known closely
STUCK: Final = 1e12  # damping at which no step leads lower
TOLERANCE: Final = 1e-9
EDGE: Final = 1e-6  # from 0 and 1, of the probabilities that weights are made of
TINY: Final = 1e-300
STEEP: Final = 1e6  # times steeper is a line along which the first slot stays the same


@final
@dataclass(frozen=True, eq=False)
class MovedRates:
    """Click rates of the documents seen at several positions, one entry for each document and position.

    Attributes:
        rows: the document of each pair, [pairs].
        offsets: pair d owns the entries `offsets[d]` to `offsets[d + 1]`, two or more, [pairs + 1].
        places: from 0, [entries].
        shown: impressions, [entries].
        rates: clicks over impressions, [entries].
        variances: unbiased, of the rates, [entries].
        positions: how many there are.
    """

    rows: Int64
    offsets: Int64
    places: Int64
    shown: Float64
    rates: Float64
    variances: Float64
    positions: int

    @classmethod
    def of(cls, counts: Counts) -> MovedRates:
        """Those of a log; entries with a single impression are left out.

        A `DataError` names a position without a click on any of them: nothing can be said of it.
        """
        often = counts.impressions >= LEAST_IMPRESSIONS
        several = np.bincount(counts.rows[often], minlength=int(counts.rows.max(initial=-1)) + 1) > 1
        kept = np.flatnonzero(often & several[counts.rows])
        rows, first = np.unique(counts.rows[kept], return_index=True)
        shown = counts.impressions[kept]
        rates = counts.clicks[kept] / shown
        places, size = counts.positions[kept] - 1, counts.max_position
        silent = np.flatnonzero(sums(places, counts.clicks[kept], size) == 0) + 1
        if len(silent) or size == 0:
            place = int(silent[0]) if len(silent) else 1
            raise DataError(
                f"no click at position {place} on a document shown at least twice there and at another position",
                remedy="More searches, or several rankings of the same query"
                + (f"; or cut the log: --depth {place - 1}" if place > 2 else ""),
            )
        offsets = np.append(first, len(kept)).astype(np.int64)
        return cls(rows, offsets, places, shown, rates, rates * (1 - rates) / (shown - 1), size)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def pairs(self) -> Int64:
        """The pair of each entry, [entries]."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @cached_property
    def means(self) -> Float64:
        """The click rate of each position, [positions]."""
        return self.by_place(self.shown * self.rates) / np.maximum(self.by_place(self.shown), 1)

    @cached_property
    def home(self) -> Int64:
        """The place where each pair was shown most, [pairs]."""
        order = np.lexsort((self.places, -self.shown, self.pairs))
        return self.places[order[self.offsets[:-1]]]

    def by_pair(self, values: Float64) -> Float64:
        """Sums over the entries of each pair, [pairs]."""
        return np.add.reduceat(values, self.offsets[:-1])

    def by_place(self, values: Float64) -> Float64:
        """Sums over the entries of each position, [positions]."""
        return sums(self.places, values, self.positions)


def fit_affine(rates: MovedRates) -> tuple[Float64, Float64]:
    """Alpha and beta of every position, relative to the first, by corrected total least squares, [positions] each.

    >>> m, alpha, beta = np.array([0.2, 0.4, 0.8]), np.array([1.0, 0.5]), np.array([0.0, -0.05])
    >>> chance = (m[:, None] * alpha + beta).ravel()
    >>> counts = Counts(np.repeat([0, 1, 2], 2), np.tile([1, 2], 3), 1e6 * chance, np.full(6, 1e6))
    >>> alpha, beta = fit_affine(MovedRates.of(counts))
    >>> alpha.round(3).tolist(), beta.round(3).tolist()
    ([1.0, 0.5], [0.0, -0.05])
    """
    alpha, beta = rates.means / rates.means[0], np.zeros(rates.positions)
    chance = np.clip(rates.means, EDGE, 1 - EDGE)[rates.places]
    for _ in range(ROUNDS):
        weight = rates.shown / (chance * (1 - chance))
        alpha, beta = _settle(rates, weight, alpha, beta)
        chance = _chances(rates, weight, alpha, beta)
    return alpha, beta


def scores(rates: MovedRates, alpha: Float64, beta: Float64, groups: Int64) -> tuple[Float64, Float64]:
    """How each group of documents would move the parameters, however these were found.

    Args:
        rates: of the log.
        alpha: [positions].
        beta: [positions].
        groups: of each pair, from 0, [pairs].

    Returns:
        the scores of alpha_2, ..., beta_2, ..., [groups, 2 (positions - 1)], and their slope, [2 (positions - 1)]
        squared: with weights on the groups the parameters move by slope^-1 times the weighted sum of the scores.
    """
    here = _Distance.at(rates, _weights(rates, alpha, beta), alpha, beta)
    size, count = rates.positions, int(groups.max(initial=0)) + 1
    cells = groups[rates.pairs] * size + rates.places
    parts = [sums(cells, each, count * size).reshape(count, size)[:, 1:] for each in here.scores(rates)]
    return np.concatenate(parts, axis=1), here.bend(rates)


def first_slot_tells(rates: MovedRates, alpha: Float64, beta: Float64) -> float:
    """How much worse the line would be if all documents were alike in the first slot: about twice a log likelihood.

    Slopes are relative to the first slot. Where its clicks do not tell documents apart, the line is as good with any
    slopes, however steep, and the standard errors at the one that was found say nothing of it.

    Args:
        rates: of the log.
        alpha: [positions].
        beta: [positions].
    """
    weight = _weights(rates, alpha, beta)
    first = np.flatnonzero(rates.places == 0)
    centre = float((weight * rates.rates)[first].sum() / max(weight[first].sum(), TINY))
    steep = np.where(np.arange(rates.positions) == 0, alpha, STEEP * alpha)
    alike = _Distance.at(rates, weight, steep, beta + (alpha - steep) * centre)
    return alike.value - _Distance.at(rates, weight, alpha, beta).value


def _weights(rates: MovedRates, alpha: Float64, beta: Float64) -> Float64:
    """One over the variance that the line predicts for each rate, [entries]."""
    chance = np.clip(rates.means, EDGE, 1 - EDGE)[rates.places]
    for _ in range(3):
        chance = _chances(rates, rates.shown / (chance * (1 - chance)), alpha, beta)
    return np.asarray(rates.shown / (chance * (1 - chance)))


def _chances(rates: MovedRates, weight: Float64, alpha: Float64, beta: Float64) -> Float64:
    """The click probability of each entry by the line.

    Weights made of it must not know the noise of the clicks they weigh, or they bias the line by about 1 / n. So the
    document's own place on the line counts only where it is known closely; else that of documents of the same home.
    """
    here, home, size = _Distance.at(rates, weight, alpha, beta), rates.home, rates.positions
    spread, centre, noise = np.full(size, 0.01), np.zeros(size), 1 / here.bends
    many = np.bincount(home, minlength=size) > 5
    for _ in range(20):
        share = 1 / (spread[home] + noise)
        centre = sums(home, share * here.first, size) / np.maximum(sums(home, share, size), TINY)
        beyond = sums(home, share**2 * ((here.first - centre[home]) ** 2 - noise), size)
        spread = np.maximum(beyond / np.maximum(sums(home, share**2, size), TINY), 1e-4)
        spread = np.where(many, spread, 0.01)
    first = np.where(noise * CLOSE < spread[home], here.first, centre[home])
    chance = first[rates.pairs] * alpha[rates.places] + beta[rates.places]
    low, high = np.maximum(0.1 * rates.means, EDGE), 1 - np.clip(0.1 * (1 - rates.means), EDGE, 0.02)
    return np.asarray(np.clip(chance, low[rates.places], high[rates.places]))


@final
@dataclass(frozen=True, eq=False)
class _Distance:
    """The distance of each document from the line, less what noise makes of it, and what its slope needs.

    Attributes:
        weight: of each entry.
        slope: alpha of each entry.
        value: of all together.
        first: the document's place on the line, its c_1, [pairs].
        bends: one over the variance of that, [pairs].
        rest: how far each entry is from it.
        noise: [pairs].
    """

    weight: Float64
    slope: Float64
    value: float
    first: Float64
    bends: Float64
    rest: Float64
    noise: Float64

    @classmethod
    def at(cls, rates: MovedRates, weight: Float64, alpha: Float64, beta: Float64) -> _Distance:
        """That from the line with these parameters."""
        slope, above, pairs = alpha[rates.places], rates.rates - beta[rates.places], rates.pairs
        bends = rates.by_pair(weight * slope**2)
        first = rates.by_pair(weight * slope * above) / bends
        rest = above - slope * first[pairs]
        noise = rates.by_pair((weight * slope) ** 2 * rates.variances) / bends
        value = float((weight * (rest**2 - rates.variances)).sum() + noise.sum())
        return cls(weight, slope, value, first, bends, rest, noise)

    def scores(self, rates: MovedRates) -> tuple[Float64, Float64]:
        """Minus half the slope of the value in the alpha and in the beta of each entry, [entries]."""
        pairs = rates.pairs
        of_noise = self.slope / self.bends[pairs] * (self.weight * rates.variances - self.noise[pairs])
        return self.weight * (self.first[pairs] * self.rest - of_noise), self.weight * self.rest

    def bend(self, rates: MovedRates) -> Float64:
        """The expected slope of minus the scores, with the documents' places eliminated."""
        pairs, shape = rates.pairs, (len(rates), rates.positions)
        across = self.weight * self.slope / np.sqrt(self.bends)[pairs]
        inner = []
        for factor in (self.first**2 - self.noise / self.bends, self.first, np.ones(len(rates))):
            one, other = (
                csr_array((values, rates.places, rates.offsets), shape=shape)
                for values in (across * factor[pairs], across)
            )
            block = np.diag(rates.by_place(self.weight * factor[pairs])) - (one.T @ other).toarray()
            inner.append(block[1:, 1:])
        return np.block([[inner[0], inner[1]], [inner[1].T, inner[2]]])


def _solved(matrix: Float64, right: Float64) -> Float64:
    """The solution; where there is none to be had, no number, which no step is taken by."""
    try:
        return np.asarray(np.linalg.solve(matrix, right))
    except np.linalg.LinAlgError:
        return np.full(len(right), np.nan)


def _settle(rates: MovedRates, weight: Float64, alpha: Float64, beta: Float64) -> tuple[Float64, Float64]:
    """Newton's method, damped as it must be, at fixed weights."""
    here, damp, size = _Distance.at(rates, weight, alpha, beta), 1e-3, rates.positions
    for _ in range(STEPS):
        slopes = np.concatenate([rates.by_place(each)[1:] for each in here.scores(rates)])
        bend = here.bend(rates)
        scale = np.diag(np.maximum(np.diag(bend), 1e-12))
        while True:
            step = _solved(bend + damp * scale, slopes)
            moved = np.append(0.0, step[: size - 1]), np.append(0.0, step[size - 1 :])
            there = _Distance.at(rates, weight, alpha + moved[0], beta + moved[1])
            if there.value <= here.value:
                break
            damp *= 10
            if damp > STUCK:
                return alpha, beta
        gain, here, damp = here.value - there.value, there, damp / 10
        alpha, beta = alpha + moved[0], beta + moved[1]
        if gain < TOLERANCE * len(rates):
            return alpha, beta
    raise DataError(
        f"the affine map has not settled after {STEPS} steps: documents seen at several positions differ too little",
        remedy="More searches, more of them randomised, or several rankings of the same query",
    )
