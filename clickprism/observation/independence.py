"""Whether relevance depends on observation: mutual information, and the two propositions built on it, as code.

R and O are binary; given the features x, r1 = P(R = 1 | O = 1, x), r0 = P(R = 1 | O = 0, x), o = P(O = 1 | x) are all
there is. Equation numbers are those of InfoRank (Jin et al. 2024); `docs/independence.md` says which hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, final, get_args

import numpy as np
from numpy.typing import ArrayLike

from clickprism.errors import DataError, SettingError
from clickprism.types import Bool, Float64, Int64, Simulation

By: TypeAlias = Literal["document", "position"]

SMALL: Final = 0.2  # below, the excess is taken by its series: the closed form would lose its leading digits
TERMS: Final = 9


def mutual_information(r1: ArrayLike, r0: ArrayLike, o: ArrayLike, *, logits: bool = False) -> Float64:
    """I(R; O | x) of each document, in nats (Eq. 14), never negative, and 0 exactly where R and O are independent.

    With q = o r1 + (1 - o) r0 (Eq. 15), a sum of four terms, none of them negative, since the parts linear in r - q
    cancel: P(O) P(R) e(P(R | O) / P(R) - 1), with the excess e(t) = (1 + t) log(1 + t) - t. So nothing is lost where
    the two are nearly independent, and no rounding can make it negative. Where o is 0 or 1 it is 0 whatever r1 and r0
    are, and what is below 1e-308 is 0.

    Args:
        r1: P(R = 1 | O = 1, x), any shape; the three are broadcast.
        r0: P(R = 1 | O = 0, x).
        o: P(O = 1 | x).
        logits: all three are log odds; exact for saturated ones too, infinite ones among them.

    >>> mutual_information([0.5, 1.0, 0.9], [0.5, 0.0, 0.1], [0.3, 0.5, 1.0]).round(6).tolist()  # the second is log 2
    [0.0, 0.693147, 0.0]
    >>> float(mutual_information(0.5 + 2**-30, 0.5, 0.5)) / 2**-61  # half the squared difference
    1.0
    """
    first, second, seen = (np.asarray(value, dtype=np.float64) for value in (r1, r0, o))
    if logits:
        _check_odds(r1=first, r0=second, o=seen)
        gap, unseen, seen = _gap(first, second), _expit(-seen), _expit(seen)
        yes, no = (_expit(first), _expit(second)), (_expit(-first), _expit(-second))
    else:
        for name, value in (("r1", first), ("r0", second), ("o", seen)):
            _check_probability(name, value)
        yes, no, gap, unseen = (first, second), (1 - first, 1 - second), first - second, 1 - seen
    total = np.zeros(np.broadcast_shapes(first.shape, second.shape, seen.shape))
    for (one, other), sign in ((yes, 1), (no, -1)):
        marginal = seen * one + unseen * other
        total = total + seen * _excess(one, marginal, sign * unseen * gap)
        total = total + unseen * _excess(other, marginal, -sign * seen * gap)
    return np.asarray(total, dtype=np.float64)


def delta_ci(r1: ArrayLike, r0: ArrayLike, *, logits: bool = False) -> Float64:
    """Delta-CI of each document, |P(R = 1 | O = 1, x) - P(R = 1 | O = 0, x)| (Eq. 5); `logits` for log odds.

    >>> delta_ci([0.5, 0.9], [0.5, 0.1]).tolist()
    [0.0, 0.8]
    """
    first, second = np.asarray(r1, dtype=np.float64), np.asarray(r0, dtype=np.float64)
    if logits:
        _check_odds(r1=first, r0=second)
        return np.abs(_gap(first, second))
    _check_probability("r1", first)
    _check_probability("r0", second)
    return np.asarray(np.abs(first - second), dtype=np.float64)


def largest_delta_ci(information: ArrayLike, o: ArrayLike) -> Float64:
    """The most that Delta-CI can be at this mutual information: I >= 2 o (1 - o) Delta-CI^2 (Pinsker), at most 1.

    So a small mutual information says little about Delta-CI where observation is nearly certain or nearly impossible.

    >>> largest_delta_ci([0.02, 0.02, 0.0], [0.5, 0.99, 1.0]).round(3).tolist()
    [0.2, 1.0, 1.0]
    """
    nats, seen = np.broadcast_arrays(np.asarray(information, dtype=np.float64), np.asarray(o, dtype=np.float64))
    _check_probability("o", seen)
    if not (nats >= 0).all():
        raise DataError(f"information must be at least 0, got {nats[~(nats >= 0)].flat[0]:g}")
    doubt = 2 * seen * (1 - seen)
    share: Float64 = np.divide(nats, doubt, out=np.ones_like(doubt), where=nats < doubt)
    return np.sqrt(share)


class Statements(NamedTuple):
    """The statements of Proposition 3.1, each true or false for every document."""

    independent: Bool  # P(R, O | x) = P(R | x) P(O | x)
    no_information: Bool  # I(R; O | x) = 0
    no_gap: Bool  # Delta-CI = 0


def statements(r1: ArrayLike, r0: ArrayLike, o: ArrayLike) -> Statements:
    """Which statements of Proposition 3.1 hold. The first two always agree, the third only where 0 < o < 1.

    P(R = 1, O = 1) - P(R = 1) P(O = 1) = o (1 - o) (r1 - r0), and the other three cells differ by as much.

    >>> [statement.tolist() for statement in statements([0.4, 0.9, 0.9], [0.4, 0.1, 0.1], [0.5, 0.5, 1.0])]
    [[True, False, True], [True, False, True], [True, False, False]]
    """
    seen = np.asarray(o, dtype=np.float64)
    information, gap = mutual_information(r1, r0, seen), delta_ci(r1, r0)
    certain = (seen == 0) | (seen == 1)
    gap, certain = np.broadcast_arrays(gap, certain)
    return Statements(certain | (gap == 0), information == 0, gap == 0)


class Risks(NamedTuple):
    """The expected loss of a document whose clicks are R and O, in four ways; see `risks`."""

    ideal: Float64
    printed: Float64
    clicks_only: Float64
    corrected: Float64


def risks(r: ArrayLike, o: ArrayLike, if_clicked: ArrayLike, if_not: ArrayLike) -> Risks:
    """What Proposition 3.2 compares, where R and O are independent, for any loss of one document.

    The loss is Delta(f, 1) = `if_clicked` and Delta(f, 0) = `if_not`.

    - ideal: E Delta(f, R), what labels would give.
    - printed: E Delta(f, C) / o (Eq. 18) = ideal + (1 / o - 1) Delta(f, 0): unbiased only where a loss charges nothing
      for what is not clicked, or everything is seen.
    - clicks_only: E C / o Delta(f, 1) (Joachims et al. 2017): the relevant part of the ideal.
    - corrected: E C / o Delta(f, 1) + (1 - C / o) Delta(f, 0) (Saito et al. 2020): the ideal, for any loss.

    >>> [round(float(risk), 6) for risk in risks(0.5, 0.25, 2.0, 1.0)]
    [1.5, 4.5, 1.0, 1.5]
    """
    relevant, seen, one, zero = (np.asarray(value, dtype=np.float64) for value in (r, o, if_clicked, if_not))
    _check_probability("r", relevant)
    _check_probability("o", seen)
    if not (seen > 0).all():
        raise DataError("observation must be above 0 to weight by its inverse", remedy="Leave out what is never seen")
    click = relevant * seen
    return Risks(
        ideal=np.asarray(relevant * one + (1 - relevant) * zero),
        printed=np.asarray((click * one + (1 - click) * zero) / seen),
        clicks_only=np.asarray(click / seen * one),
        corrected=np.asarray(click / seen * one + (1 - click / seen) * zero),
    )


class History(NamedTuple):
    """Both sides of Eqs. 3, 7 and 19 for one document, from the joint of R now, O and R in the past; see `history`."""

    clicked: float  # P(C): left of Eq. 19
    product: float  # P(past O) P(past R): right of Eq. 19
    given_clicks: float  # P(R | C): left of Eqs. 3 and 7
    claimed: float  # P(R | past O) / P(R) P(R | past R): right of Eq. 7
    given_relevance: float  # P(R | past R): right of Eq. 3


def history(joint: ArrayLike) -> History:
    """Check the popularity argument (Eqs. 3, 7, 19) on a joint distribution, [R, past O, past R], each 0 or 1.

    "Past O" is the event that all earlier users saw the document, "past R" that it was relevant to all of them; both
    together are its clicks. Eq. 7 needs Eq. 19 twice, once as printed and once given R = 1.

    >>> either = [[[0.25, 0], [0, 0]], [[0, 0.25], [0.25, 0.25]]]  # two fair coins, R where either shows heads
    >>> history(either)
    History(clicked=0.25, product=0.25, given_clicks=1.0, claimed=1.3333333333333333, given_relevance=1.0)
    """
    table = np.asarray(joint, dtype=np.float64)
    if table.shape != (2, 2, 2) or (table < 0).any() or not np.isclose(table.sum(), 1):
        raise DataError(f"a joint distribution of three binary events sums to 1, got {table.tolist()}")
    relevant, seen, liked = table[1].sum(), table[:, 1].sum(), table[:, :, 1].sum()
    clicked = table[:, 1, 1].sum()
    if min(relevant, seen, liked, clicked) <= 0:
        raise DataError("every event must have a positive probability to be a condition")
    by_seen, by_liked = table[1, 1].sum() / seen, table[1, :, 1].sum() / liked
    values = (clicked, seen * liked, table[1, 1, 1] / clicked, by_seen / relevant * by_liked, by_liked)
    return History(*map(float, values))


@final
@dataclass(frozen=True, eq=False)
class Observed:
    """How relevance and observation go together in simulated truth, one 2x2 table a document and position.

    Counts of impressions, each [tables]: in all, of what was seen, of what attracts, of both. What is estimated from
    few of them is noise: Delta-CI of the shares is far from 0 where the truth is 0, so there is a test.
    """

    shown: Int64
    seen: Int64
    liked: Int64
    both: Int64

    @property
    def r1(self) -> Float64:
        """The share that attracted of what was seen; NaN where nothing was, [tables]."""
        return self.both / np.where(self.seen > 0, self.seen, np.nan)

    @property
    def r0(self) -> Float64:
        """The share that attracted of what was not seen; NaN where all was, [tables]."""
        unseen = self.shown - self.seen
        return (self.liked - self.both) / np.where(unseen > 0, unseen, np.nan)

    @property
    def o(self) -> Float64:
        """The share that was seen, [tables]."""
        return self.seen / np.maximum(self.shown, 1)

    @property
    def information(self) -> Float64:
        """The mutual information of these shares; 0 where all or nothing was seen, [tables]."""
        return mutual_information(np.nan_to_num(self.r1), np.nan_to_num(self.r0), self.o)

    @property
    def difference(self) -> float:
        """The mean of r1 - r0, sign and all, weighted by n o (1 - o): about 0 where R and O are independent."""
        weight = self.shown * self.o * (1 - self.o)
        gap = np.where(weight > 0, self.r1 - self.r0, 0.0)
        return float(weight @ gap / weight.sum()) if weight.any() else 0.0

    @property
    def test(self) -> tuple[float, float, float]:
        """A test of independence in every table: sum of squared deviations, its expectation, and the p-value.

        Given how often each happened, `both` is hypergeometric if they are independent. The squares of its standardised
        deviations have mean 1 each, exactly; their sum is compared with a gamma distribution of the same mean and
        variance, a chi-squared one where counts are large. Tables of fewer than four impressions, or where one of the
        two always or never happened, cannot show anything and are left out.
        """
        from scipy.stats import gamma

        unseen, disliked = self.shown - self.seen, self.shown - self.liked
        some = (self.shown >= 4) & (np.minimum(np.minimum(self.seen, unseen), np.minimum(self.liked, disliked)) > 0)
        n, seen, liked, both = (
            counts[some].astype(np.float64) for counts in (self.shown, self.seen, self.liked, self.both)
        )
        if not len(n):
            return 0.0, 0.0, 1.0
        sizes = seen * (n - seen) * liked * (n - liked)
        squares = (both - seen * liked / n) ** 2 * n**2 * (n - 1) / sizes
        inner = n * (n + 1) - 6 * liked * (n - liked) - 6 * seen * (n - seen)
        excess = ((n - 1) * n**2 * inner / sizes + 6 * (5 * n - 6)) / ((n - 2) * (n - 3))
        mean, variance = float(len(n)), float((2 + excess).sum())
        total = float(squares.sum())
        return total, mean, float(gamma.sf(total, mean**2 / variance, scale=variance / mean))

    def summary(self) -> dict[str, float]:
        """Return the number of tables, the mean difference and information, and the result of the test."""
        statistic, expected, p_value = self.test
        return {
            "tables": len(self.shown),
            "difference": self.difference,
            "information": float(self.shown @ self.information / max(self.shown.sum(), 1)),
            "statistic": statistic,
            "expected": expected,
            "p_value": p_value,
        }


def observed(simulation: Simulation, *, by: By = "document") -> Observed:
    """The truth of a simulation as 2x2 tables of seen and attracted, for users who click what they see and like.

    Args:
        simulation: of users whose click is both: pbm, ubm, ccm and other chains, coupled; not of those with trust bias.
        by: "document" holds document and position fixed, which is Eq. 4; "position" only the position.
    """
    if by not in get_args(By):
        raise SettingError("by", by, f"be one of {', '.join(get_args(By))}")
    clicks, truth = simulation.clicks, simulation.truth
    if (clicks.clicks > np.minimum(truth.observed, truth.attracted)).any():
        raise DataError(
            "a click here is not always on what was seen and attracted", remedy="Use users without trust bias"
        )
    cell = clicks.positions.astype(np.int64)
    if by == "document":
        cell = clicks.rows * (clicks.max_position + 1) + cell
    owner = np.unique(cell, return_inverse=True)[1]
    shown, seen, liked, both = (
        np.bincount(owner, weights=counts).astype(np.int64)
        for counts in (clicks.list_impressions, truth.observed, truth.attracted, clicks.clicks)
    )
    if (liked - both > shown - seen).any():
        raise DataError(
            "more attracted unseen than were unseen", remedy="Use users who click all that they see and like"
        )
    return Observed(shown, seen, liked, both)


def _excess(given: Float64, marginal: Float64, change: Float64) -> Float64:
    """`marginal` times (1 + t) log(1 + t) - t at t = change / marginal, with change = given - marginal, at least 0.

    0 where the marginal is: then either nothing changes, or the weight is 0.
    """
    small = np.abs(change) < SMALL * marginal
    t = np.where(small, change, 0.0) / np.where(small, marginal, 1.0)
    v = t / (2 + t)  # log(1 + t) = 2 (v + v^3 / 3 + v^5 / 5 + ...)
    odd = np.zeros_like(v)
    for term in range(TERMS, 0, -1):
        odd = odd * v * v + v / (2 * term + 1)
    near = marginal * 2 * v * v / (1 - v) * (1 + (1 + v) * odd)
    logs = np.log(np.where(given > 0, given, 1.0)) - np.log(np.where(marginal > 0, marginal, 1.0))
    far = given * logs - change
    return np.asarray(np.where(small, near, np.where(marginal > 0, far, 0.0)), dtype=np.float64)


def _gap(first: Float64, second: Float64) -> Float64:
    """The difference of the probabilities of two log odds, without loss where both are near 0 or 1."""
    first, second = np.broadcast_arrays(first, second)
    wide = np.where(first >= second, _expit(first) * _expit(-second), -_expit(second) * _expit(-first))
    apart = np.subtract(first, second, out=np.zeros(first.shape), where=first != second)  # equal ones may be infinite
    return np.asarray(wide * -np.expm1(-np.abs(apart)), dtype=np.float64)


def _expit(logits: Float64) -> Float64:
    small = np.exp(-np.abs(logits))
    return np.asarray(np.where(logits >= 0, 1.0, small) / (1 + small), dtype=np.float64)


def _check_odds(**odds: Float64) -> None:
    for name, values in odds.items():
        if np.isnan(values).any():
            raise DataError(
                f"{int(np.isnan(values).sum())} of {values.size} log odds {name} are not a number",
                remedy="A model that diverged gives such log odds: lower its learning rate",
            )


def _check_probability(name: str, values: Float64) -> None:
    if not ((values >= 0) & (values <= 1)).all():
        wrong = values[~((values >= 0) & (values <= 1))].flat[0]
        raise DataError(f"{name} must be a probability, between 0 and 1, got {wrong:g}")
