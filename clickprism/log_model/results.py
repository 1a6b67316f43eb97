"""What a fitted model of a log says: curve, tests, links between positions, goodness of fit, relevance of each pair.

Click parameters are the click probability at each position as a line in that at position 1:

    P(click at k) = alpha_k c_1 + beta_k,    alpha_1 = 1,  beta_1 = 0

c_1 is the click probability of the document at position 1, the part of relevance that clicks identify. Trust bias has
P(click at k) = theta_k (plus_k gamma + minus_k (1 - gamma)) = a_k gamma + b_k (Agarwal et al. 2019), which gives
alpha_k = a_k / a_1 and beta_k = b_k - b_1 a_k / a_1; beta may be below 0. Clicks identify alpha and beta, but not the
level, a_1 and b_1: gamma and any s gamma + t explain the same clicks. The order of documents does not depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, final

import msgspec
import numpy as np
from scipy.stats import norm

from clickprism._util.files import read_json, write_file
from clickprism._util.tables import to_plain
from clickprism.errors import DataError
from clickprism.types import Bool, Float64, Int64, Text, check

Verdict: TypeAlias = Literal["present", "absent", "inconclusive"]
Identified: TypeAlias = Literal["views", "randomised", "documents", "features", "not identified"]
CLOSE: Final = 0.1  # relative difference of two curves that does not matter
FORMAT: Final = "clickprism parameters 1"
ENDS: Final = ("alpha_lower", "alpha_upper", "beta_lower", "beta_upper")
NOT_LEVEL: Final = (
    "clicks do not identify the level of relevance: it is measured as c_1, the click probability at position 1 "
    "(alpha_1 = 1, beta_1 = 0); theta, eps+ and eps- need an assumed level"
)
REMEDY: Final = "Create the file again with: clickprism bias trust LOG --out FILE"
CURVE_REMEDY: Final = (
    "Write one number for each position, position 1 first: one a line, or a JSON list such as [1, 0.6, 0.4]"
)


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

    def with_covariance(self, covariance: Float64) -> Curve:
        """Return the curve with the intervals that follow from the covariance of its logarithm."""
        reach = norm.isf((1 - self.confidence) / 2) * np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
        return replace(self, lower=self.values * np.exp(-reach), upper=self.values * np.exp(reach))

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
        value: What pairs are ranked and graded by; where clicks are few, nearer to the order of the engine than
            `expected`, [pairs].
        expected: Posterior mean, from which clicks are predicted, [pairs].
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
    expected: Float64
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


def _unknown() -> Float64:
    return np.zeros(0)


@final
@dataclass(frozen=True, eq=False)
class ClickParameters:
    """Slope and intercept of the click probability at each position in c_1, the click probability at position 1.

    Attributes:
        alpha: Slopes, 1 at position 1, [positions].
        beta: Intercepts, 0 at position 1, [positions].
        theta: Mean observation at each position, [positions]; None if it is neither known nor assumed.
        alpha_lower: Lower ends of the intervals of alpha, nan where unknown, [positions].
        alpha_upper: Upper ends, [positions].
        beta_lower: Lower ends of the intervals of beta, [positions].
        beta_upper: Upper ends, [positions].
        confidence: Confidence level of the intervals.
        source: Where the parameters come from: "log model" or "given".
        notes: What is assumed, and what the log does not identify.

    >>> ClickParameters(np.array([1.0, 0.5]), np.array([0.0, -0.1])).click_rates(np.array([0.6]))
    array([[0.6, 0.2]])
    """

    alpha: Float64
    beta: Float64
    theta: Float64 | None = None
    alpha_lower: Float64 = field(default_factory=_unknown)
    alpha_upper: Float64 = field(default_factory=_unknown)
    beta_lower: Float64 = field(default_factory=_unknown)
    beta_upper: Float64 = field(default_factory=_unknown)
    confidence: float = 0.95
    source: str = "given"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        size = len(self.alpha)
        for name in ENDS:
            if len(getattr(self, name)) == 0:
                object.__setattr__(self, name, np.full(size, np.nan))
        for name in ("alpha", "beta", "theta", *ENDS):
            values = getattr(self, name)
            if values is not None and values.shape != (size,):
                raise DataError(f"{name} must have one number a position, {size}, got shape {values.shape}")
        if size == 0:
            raise DataError("parameters need at least one position")
        if not 0 < self.confidence < 1:
            raise DataError(f"the confidence of intervals must be between 0 and 1, got {self.confidence:g}")
        for name in ("alpha", "beta"):
            lower, upper = getattr(self, f"{name}_lower"), getattr(self, f"{name}_upper")
            if (lower > upper).any() or np.isinf([lower, upper]).any():
                raise DataError(f"the lower end of an interval of {name} is above its upper end, or not finite")
        sound = np.isfinite(self.alpha) & np.isfinite(self.beta) & (self.alpha > 0)
        if not sound.all():
            at = int(np.flatnonzero(~sound)[0])
            values = f"alpha is {self.alpha[at]:g} and beta {self.beta[at]:g}"
            raise DataError(f"at position {at + 1} {values}: both must be finite, and alpha above 0")
        if abs(self.alpha[0] - 1) > 1e-9 or abs(self.beta[0]) > 1e-9:
            raise DataError(
                f"alpha_1 must be 1 and beta_1 0, got {self.alpha[0]:g} and {self.beta[0]:g}",
                remedy="Convert other parameters with ClickParameters.of_affine",
            )
        if self.theta is not None and not ((self.theta > 0) & (self.theta <= 1)).all():
            raise DataError(f"theta must be above 0 and at most 1, got {self.theta.round(6).tolist()}")

    def __len__(self) -> int:
        return len(self.alpha)

    @classmethod
    def of_affine(
        cls, alpha: Float64, beta: Float64, *, theta: Float64 | None = None, source: str = "given"
    ) -> ClickParameters:
        """Return the parameters of P(click at k) = alpha_k gamma + beta_k with any gamma, in terms of c_1.

        >>> made = ClickParameters.of_affine(np.array([0.5, 0.25]), np.array([0.2, 0.0]))
        >>> made.alpha.tolist(), made.beta.tolist()
        ([1.0, 0.5], [0.0, -0.1])
        """
        if len(alpha) == 0 or alpha[0] <= 0:
            raise DataError("alpha must be above 0 in the first position")
        slope = alpha / alpha[0]
        return cls(slope, beta - beta[0] * slope, theta, source=source, notes=(NOT_LEVEL,))

    @classmethod
    def of_trust(cls, theta: Float64, plus: Float64, minus: Float64) -> ClickParameters:
        """Return the parameters of users with trust bias.

        They observe position k with probability theta_k, and click on a relevant document there with probability
        plus_k, on an irrelevant one with probability minus_k.

        >>> made = ClickParameters.of_trust(np.array([1.0, 0.5]), np.array([0.9, 0.9]), np.array([0.4, 0.1]))
        >>> made.alpha.round(6).tolist(), made.beta.round(6).tolist()
        ([1.0, 0.8], [0.0, -0.27])
        """
        return cls.of_affine(theta * (plus - minus), theta * minus, theta=theta)

    def cut(self, depth: int) -> ClickParameters:
        """Return the parameters of positions 1 to `depth`."""
        ends = {name: getattr(self, name)[:depth] for name in ENDS}
        theta = None if self.theta is None else self.theta[:depth]
        return replace(self, alpha=self.alpha[:depth], beta=self.beta[:depth], theta=theta, **ends)

    def click_rates(self, first: Float64) -> Float64:
        """Return the click probability at every position, within 0 and 1, [documents, positions].

        Args:
            first: Click probability of each document at position 1, [documents].
        """
        return np.clip(np.asarray(first)[:, None] * self.alpha + self.beta, 0.0, 1.0)

    def plain(self) -> dict[str, Any]:
        """Return all fields as values for JSON; None where there is no number."""
        values = {name: to_plain(each) for name, each in vars(self).items()}
        unknown = {name: None for name in ENDS if np.isnan(getattr(self, name)).all()}
        return {"format": FORMAT, **values, **unknown}

    @classmethod
    def from_plain(cls, values: Any, *, file: object = None) -> ClickParameters:
        """Return the parameters from what `plain` returned; raise DataError if something is missing or wrong."""
        if not isinstance(values, Mapping) or values.get("format") != FORMAT:
            raise DataError(f'does not hold parameters ("format": "{FORMAT}")', file=file, remedy=REMEDY)
        try:
            given = msgspec.convert(values, _Saved)
            lists = {name: getattr(given, name) for name in ("alpha", "beta", "theta", *ENDS)}
            arrays = {name: np.array(each, dtype=np.float64) for name, each in lists.items() if each is not None}
            return cls(**arrays, confidence=given.confidence, source=given.source, notes=given.notes)
        except (msgspec.ValidationError, DataError, OverflowError) as error:
            raise DataError(str(error), file=file, remedy=REMEDY) from None

    def write(self, path: Path) -> None:
        """Write the parameters as JSON, in one step."""
        write_file(path, json.dumps(self.plain(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> ClickParameters:
        """Return the parameters that `write` wrote; a DataError names the file and what is wrong with it."""
        return cls.from_plain(read_json(path, remedy=REMEDY), file=path)


class _Saved(msgspec.Struct, forbid_unknown_fields=True):
    """The file of `ClickParameters`; None is an unknown number (NaN)."""

    alpha: list[float | None]
    beta: list[float | None]
    format: str = ""
    source: str = "given"
    confidence: float = 0.95
    notes: tuple[str, ...] = ()
    theta: list[float | None] | None = None
    alpha_lower: list[float | None] | None = None
    alpha_upper: list[float | None] | None = None
    beta_lower: list[float | None] | None = None
    beta_upper: list[float | None] | None = None


def read_propensities(path: Path) -> Float64:
    r"""Return the observation probability of each position, [positions].

    The file is a JSON list, a JSON object that `clickprism bias trust --out` (list `alpha`) or `bias position --out`
    (`curve`) wrote, or text with one number a line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "curve.txt"
    ...     _ = file.write_text("1.0\n0.6\n0.4\n")
    ...     read_propensities(file)
    array([1. , 0.6, 0.4])
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        given: Any = json.loads(text) if text.lstrip()[:1] in ("[", "{") else [float(line) for line in text.split()]
        if isinstance(given, dict):
            curve = given.get("curve")
            given = curve.get("values") if isinstance(curve, dict) else given.get("alpha")
        values = np.array(msgspec.convert(given, Annotated[list[float], msgspec.Meta(min_length=1)]))
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy=CURVE_REMEDY) from None
    except msgspec.ValidationError:
        raise DataError("does not have one number for each position", file=path, remedy=CURVE_REMEDY) from None
    except (ValueError, RecursionError):
        raise DataError("is neither JSON nor one number a line", file=path, remedy=CURVE_REMEDY) from None
    wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(wrong):
        problem = f"has {values[wrong[0]]:g} at position {wrong[0] + 1}; observation must be above 0"
        raise DataError(problem, file=path, remedy=CURVE_REMEDY)
    return values
