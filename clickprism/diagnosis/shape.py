"""How clicks on a document change as it moves over the page: what every document shares, and what is its own.

Of document d with so many sights n at place l,

    E[clicks] = n o_l(d) (a_d + t_k),    log o_l(d) = s_d b_l,    s_d = max(1 + u . x_d, LEAST),    t_k = kappa g_k

with its own rate a_d, the curve b of all, a steepness s_d by what is told of it, and trust t_k, less further down.
For given (b, u, kappa) it is linear in a_d, so that

    R_l = (c_l - n_l o_l t_k) - n_l o_l (sum of the same over l) / (sum of n_l o_l)

is 0 in expectation whatever a_d is and however it was chosen, as long as what was shown was not chosen by these very
clicks. So is its product with anything that does not hang on these clicks: sums of such products are the equations to
solve and the scores to test. Where it was chosen by them, a_d is expected by what was known before (`Expected`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np
from scipy.sparse import csr_matrix

from clickprism.diagnosis.lines import Lines, lines_of
from clickprism.diagnosis.sight import Sight
from clickprism.types import Bool, Clicks, Float64

LEAST: Final = 0.05  # of a steepness
STEPS: Final = 40
STEEP: Final = -0.05  # a place further down, to begin with
TOLERANCE: Final = 1e-4
CURVE_RIDGE: Final = 0.05  # in clicks: a place without any is not taken to be never seen


class _Parts(NamedTuple):
    steep: Float64
    free: Float64
    curve: Float64
    seen: Float64
    share: Float64
    turned: Float64
    residual: Float64


@final
@dataclass(frozen=True, eq=False)
class Shape:
    """The equations.

    Attributes:
        lines: the counts.
        own: x_d of each group of lines, [groups, columns].
        ridge: of each column, in clicks, [columns].
        trust: g_k by position, [positions]; trust is one parameter, the last.
        suspicion: what each line weighs in the equation of trust: more where a_d is likely low, [lines].
    """

    lines: Lines
    own: Float64
    ridge: Float64
    trust: Float64
    suspicion: Float64

    @property
    def places(self) -> int:
        """How many there are."""
        return len(self.lines.position_of)

    def free(self, *, own: Bool, trust: bool) -> Bool:
        """Which parameters are free: all places below the first position, some columns, trust or not."""
        below = np.bincount(self.lines.places, minlength=self.places) > 0
        below &= self.lines.position_of > 0
        return np.concatenate([below, own, [trust]])

    def solve(self, free: Bool, start: Float64 | None = None) -> Float64:
        """The parameters (b, u, kappa) that solve the equations of those that are free; the others are 0."""
        size, width = self.places, self.own.shape[1]
        point = np.zeros(size + width + 1)
        point[:size] = STEEP * self.lines.position_of
        point = np.where(free, point if start is None else start, 0.0)
        places = np.flatnonzero(free)
        for _ in range(STEPS if len(places) else 0):
            score, bend = self.slopes(point)
            step = -np.linalg.lstsq(bend[np.ix_(places, places)], score[places], rcond=1e-10)[0]
            largest = float(np.abs(step).max())
            point[places] += step * min(1.0, 0.5 / max(largest, 1e-12))
            if largest < TOLERANCE:
                break
        return point

    def scores(self, point: Float64, free: Bool, tested: Bool) -> tuple[Float64, Float64]:
        """Of each group the scores of the tested parameters, less what the free ones take, and how these turn.

        Returns:
            scores [groups, tested] and their derivative by the tested parameters [tested, tested].
        """
        _, bend = self.slopes(point)
        fixed, asked = np.flatnonzero(free & ~tested), np.flatnonzero(tested)
        inner, across = bend[np.ix_(fixed, fixed)], bend[np.ix_(asked, fixed)]
        taken = np.linalg.lstsq(inner.T, across.T, rcond=1e-10)[0].T
        turn = np.zeros((len(asked), len(point)))
        turn[:, fixed] = -taken
        turn[np.arange(len(asked)), asked] += 1
        parts, size = self._parts(point), self.places
        lines = self.lines
        curve = self._table(parts.steep[lines.group] * parts.residual) @ turn[:, :size].T
        own = (self.own * (parts.free * lines.total(parts.curve * parts.residual))[:, None]) @ turn[:, size:-1].T
        trust = lines.total(self.suspicion * self._trust * parts.residual)[:, None] * turn[:, -1]
        return np.asarray(curve + own + trust), bend[np.ix_(asked, asked)] - taken @ bend[np.ix_(fixed, asked)]

    @property
    def _trust(self) -> Float64:
        return self.trust[self.lines.position_of[self.lines.places]]

    def _table(self, values: Float64) -> csr_matrix:
        """Values of lines as [groups, places]."""
        lines = self.lines
        made = csr_matrix((values, lines.places, lines.ends), shape=(len(lines.rows), self.places))
        made.sum_duplicates()
        return made

    def _parts(self, point: Float64) -> _Parts:
        lines, size = self.lines, self.places
        raw = 1 + self.own @ point[size:-1]
        steep, curve = np.maximum(raw, LEAST), point[:size][lines.places]
        seen = lines.shown * np.exp(steep[lines.group] * curve)
        share = seen / (lines.total(seen) + lines.strength / lines.mean)[lines.group]
        trusted = seen * point[-1] * self._trust
        left = lines.clicks - trusted
        whole = (lines.total(left) + lines.strength)[lines.group]
        residual, turned = left - share * whole, trusted + whole * share
        return _Parts(steep, (raw > LEAST).astype(np.float64), curve, seen, share, turned, residual)

    def slopes(self, point: Float64) -> tuple[Float64, Float64]:
        """The equations at a point, and how they turn with it, [parameters] and [parameters, parameters]."""
        lines, size = self.lines, self.places
        parts, weight, trust = self._parts(point), self.suspicion, self._trust
        steep, curve, share, turned = parts.steep[lines.group], parts.curve, parts.share, parts.turned
        own = self.own * parts.free[:, None]
        score = np.concatenate(
            [
                np.bincount(lines.places, weights=steep * parts.residual, minlength=size),
                own.T @ lines.total(curve * parts.residual),
                [float((weight * trust) @ parts.residual)],
            ]
        )
        bend = np.zeros((len(point), len(point)))
        by_share, by_turn, both = (
            self._table(each) for each in (share * steep, turned * steep, steep * turned * curve)
        )
        shares, turns = lines.total(share * curve), lines.total(turned * curve)
        diagonal = np.diag(np.bincount(lines.places, weights=turned * steep**2, minlength=size))
        bend[:size, :size] = (by_share.T @ by_turn).toarray() - diagonal
        bend[:size, size:-1] = by_share.T @ (own * turns[:, None]) - both.T @ own
        bend[size:-1, :size] = (by_turn.T @ (own * shares[:, None]) - both.T @ own).T
        bend[size:-1, size:-1] = own.T @ (own * (shares * turns - lines.total(turned * curve**2))[:, None])
        moved = share * lines.total(parts.seen * trust)[lines.group] - parts.seen * trust
        bend[:size, -1] = np.bincount(lines.places, weights=steep * moved, minlength=size)
        bend[size:-1, -1] = own.T @ lines.total(curve * moved)
        bend[-1, -1] = float((weight * trust) @ moved)
        weighed = lines.total(weight * trust * share)
        taken = np.bincount(lines.places, weights=steep * turned * trust * weight, minlength=size)
        bend[-1, :size] = by_turn.T @ weighed - taken
        bend[-1, size:-1] = own.T @ (weighed * turns - lines.total(weight * trust * turned * curve))
        penalty = np.concatenate([np.full(size, CURVE_RIDGE), self.ridge, [0.0]])
        return score - penalty * point, bend - np.diag(penalty)


def plain_shape(lines: Lines) -> Shape:
    """The curve alone: no columns, and no trust."""
    nothing = np.zeros((len(lines.rows), 0))
    return Shape(lines, nothing, np.zeros(0), np.zeros(int(lines.position_of.max()) + 1), np.ones(len(lines.places)))


def curve_of(clicks: Clicks, sight: Sight) -> Float64:
    """b, log observation of each place relative to the first position, by documents seen at several, [places]."""
    shape = plain_shape(lines_of(clicks, sight))
    return shape.solve(shape.free(own=np.zeros(0, dtype=np.bool_), trust=False))[: shape.places]
