"""What a fitted model of a log says: curve, tests, links between positions, goodness of fit, relevance of each pair."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final, Literal, TypeAlias, final

import numpy as np

from clickprism.types import Bool, Float64, Int64, Text, check

Verdict: TypeAlias = Literal["present", "absent", "inconclusive"]
Identified: TypeAlias = Literal["views", "randomised", "documents", "features", "not identified"]
CLOSE: Final = 0.1  # relative difference of two curves that does not matter


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """Observation at each position relative to position 1, with intervals.

    Attributes:
        name: Name of the estimator, or of the context.
        values: 1 at position 1, [positions].
        lower: Lower ends of the intervals, [positions]; nan if unknown.
        upper: Upper ends, [positions].
        confidence: Confidence level of the intervals.
        documents: Number of (query, document) pairs that the estimate is based on.
        clicks: Number of clicks that it is based on.
        note: What else a reader should know, such as the weakest link.
    """

    name: str
    values: Float64
    lower: Float64
    upper: Float64
    confidence: float = 0.95
    documents: int = 0
    clicks: float = 0.0
    note: str = ""

    def __len__(self) -> int:
        return len(self.values)

    def error(self, truth: Float64) -> float:
        """Return the mean of |estimate / truth - 1| below position 1, both relative to position 1.

        >>> Curve("", np.array([1, 0.55, 0.2]), np.ones(3), np.ones(3)).error(np.array([0.8, 0.4, 0.2]))
        0.15
        """
        depth = min(len(self), len(truth))
        known = np.flatnonzero((truth[:depth] > 0) & np.isfinite(self.values[:depth]))[1:]
        if len(known) == 0 or truth[0] == 0:
            return float("nan")
        return round(float(np.abs(self.values[known] / (truth[known] / truth[0]) - 1).mean()), 12)


@final
@dataclass(frozen=True)
class Test:
    """A test whether a bias is in the log, and how large it is.

    Attributes:
        name: What is tested: "position", "trust", "coupling", "popularity", "steepness", "context", "browsing".
        verdict: "present", "absent", or "inconclusive" if the log does not contain enough evidence.
        estimate: Size of the bias in `unit`; nan if unknown.
        lower: Lower end of its interval.
        upper: Upper end of its interval.
        unit: What the estimate measures.
        p_value: Of the hypothesis that the bias is absent; nan if it was not tested.
        gain: Improvement of the held-out log-likelihood if the model includes the bias.
        error: Standard error of the gain.
        used: Whether the model includes it.
        note: Why a test is inconclusive, and what to do.
    """

    name: str
    verdict: Verdict
    estimate: float = float("nan")
    lower: float = float("nan")
    upper: float = float("nan")
    unit: str = ""
    p_value: float = float("nan")
    gain: float = float("nan")
    error: float = float("nan")
    used: bool = False
    note: str = ""


@final
@dataclass(frozen=True, eq=False)
class Linkage:
    """Which positions can be compared, by what, and what would repair the rest.

    Attributes:
        identified: How the curve is identified at each position: by the "views" that the log records, by "randomised"
            positions, by "documents" shown at several positions, by "features" of different documents only, or "not
            identified", [positions].
        evidence: Effective number of clicks that link each position to position 1 through documents, [positions].
        groups: Number of the group of linked positions that each position belongs to, that of position 1 is 0,
            [positions].
        moved: Number of pairs that were shown at several positions.
        pairs: Number of pairs.
        weakest: The two positions (from 1) of the weakest link that is needed, and its effective clicks; None if no
            link is.
        repair: The cheapest repair in one sentence: which positions to swap; empty if nothing needs repair.
    """

    identified: tuple[Identified, ...]
    evidence: Float64
    groups: Int64
    moved: int
    pairs: int
    weakest: tuple[int, int, float] | None
    repair: str

    @property
    def linked(self) -> bool:
        """Return whether documents, randomisation or recorded views link all positions."""
        return bool((self.groups == 0).all())

    @property
    def depth(self) -> int:
        """Return the deepest position to which all positions are linked."""
        return len(self.groups) if self.linked else int(np.flatnonzero(self.groups != 0)[0])


@final
@dataclass(frozen=True, eq=False)
class GoodnessOfFit:
    """Observed over expected clicks by position and first-shown position.

    Attributes:
        ratio: Observed over expected clicks, [positions, bins]; nan where fewer than 5 clicks are expected.
        z: Difference in standard errors, clustered by query, [positions, bins].
        bins: Label of each bin of first-shown positions, [bins].
        p_value: Of the hypothesis that the model fits.
        largest: Largest |log ratio| that is significant; 0 if none is.
        fits: Whether the model fits well enough to trust its intervals.
    """

    ratio: Float64
    z: Float64
    bins: tuple[str, ...]
    p_value: float
    largest: float
    fits: bool

    @property
    def largest_factor(self) -> str:
        """Return the largest significant difference as words.

        >>> GoodnessOfFit(np.ones((1, 1)), np.ones((1, 1)), ("1",), 0.001, 0.47, False).largest_factor
        'off by a factor of up to 1.6'
        """
        return f"off by a factor of up to {np.exp(self.largest):.2g}"


@final
@dataclass(frozen=True)
class Feedback:
    """Whether the engine reacts to clicks: whether a document moves up after it was clicked more than expected.

    Given how often a document was clicked in all, the days on which it was clicked do not depend on its relevance. If
    clicks come before better positions more often than after them, the engine reacts to clicks.

    Attributes:
        verdict: "present", "absent", or "inconclusive" if the log has one day only, or too few clicks and changes of
            positions to find a reaction.
        z: Test statistic; below -2.5 the engine reacts to clicks.
        p_value: One-sided.
        reaction: Change of the log position of a document by a click rate that is higher by 1; negative if clicked
            documents move up; nan if unknown.
        lower: Lower end of its interval.
        upper: Upper end.
    """

    verdict: Verdict
    z: float
    p_value: float
    reaction: float = float("nan")
    lower: float = float("nan")
    upper: float = float("nan")


@final
@dataclass(frozen=True, eq=False)
class Agreement:
    """Whether a model-free estimate of the curve agrees with the model.

    Attributes:
        curve: The model-free curve ("allpairs" or "randomised").
        p_value: Of the hypothesis that both estimate the same curve; nan without intervals.
        agrees: Whether p_value is at least .01, or all differences are below 10% (`CLOSE`).
        largest: Position (from 1) of the largest difference.
        ratio: Model over model-free estimate there.
    """

    curve: Curve
    p_value: float
    agrees: bool
    largest: int
    ratio: float

    @property
    def words(self) -> str:
        """Return how the two curves compare, as the rest of a sentence.

        >>> curve = Curve("", np.ones(2), np.ones(2), np.ones(2))
        >>> Agreement(curve, 1e-7, True, 2, 0.95).words
        'differs by less than 10%'
        >>> Agreement(curve, 0.03, True, 2, 0.6).words, Agreement(curve, 0.001, False, 2, 0.6).words
        ('agrees within chance (p = 0.03)', 'differs at position 2 (p = 0.001)')
        """
        if self.largest == 1:
            return "has no position in common below position 1"
        if abs(np.log(self.ratio)) < CLOSE:
            return f"differs by less than {CLOSE:.0%}"
        known = "" if np.isnan(self.p_value) else f" ({p_text(self.p_value)})"
        return f"agrees within chance{known}" if self.agrees else f"differs at position {self.largest}{known}"


@final
@dataclass(frozen=True, eq=False)
class Relevance:
    """Relevance of each (query, document) pair: c_1, its click probability at the first position.

    Attributes:
        rows: Row of each pair in the log's documents, increasing, [pairs].
        value: Posterior mean, [pairs].
        lower: Lower ends of the intervals, [pairs].
        upper: Upper ends, [pairs].
        prior: Prior mean m, before the pair's own clicks, [pairs].
        weight: Number of impressions at the first position that the clicks of the pair are equivalent to, [pairs].
        share: Weight of the clicks in the value, from 0 (prior only) to 1, [pairs].
        source: Where most of the value comes from: "clicks", "position", "features" or "imputation", [pairs].
        impressions: [pairs].
        clicks: [pairs].
    """

    rows: Int64
    value: Float64
    lower: Float64
    upper: Float64
    prior: Float64
    weight: Float64
    share: Float64
    source: Text
    impressions: Float64
    clicks: Float64

    def __post_init__(self) -> None:
        for each in fields(self):
            check(len(getattr(self, each.name)) == len(self), f"{each.name} must have {len(self)} values")

    def __len__(self) -> int:
        return len(self.rows)

    def by_document(self, documents: int, *, cold: Float64 | float) -> Float64:
        """Return the value of every document of the log; documents that were never shown get `cold`, [documents]."""
        values = np.full(documents, cold) if isinstance(cold, float) else np.array(cold, dtype=np.float64)
        values[self.rows] = self.value
        return values

    def select(self, pairs: Int64 | Bool) -> Relevance:
        """Return these pairs only, in this order."""
        return Relevance(*(getattr(self, each.name)[pairs] for each in fields(self)))


@final
@dataclass(frozen=True)
class Size:
    """Size of the log that a model was fitted to."""

    sessions: int
    queries: int
    pairs: int
    impressions: int
    clicks: int
    contexts: tuple[str, ...] = field(default=())


def p_text(value: float) -> str:
    """Return a p value as text.

    >>> p_text(0.0312), p_text(1e-30)
    ('p = 0.031', 'p < 0.0001')
    """
    return f"p = {value:.2g}" if value >= 1e-4 else "p < 0.0001"
