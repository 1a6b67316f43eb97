"""An A/B test that may be looked at after every observation: confidence sequences.

An interval at 95 % is right 95 times of 100 at *one* time. Who looks every day and stops when 0 is outside is wrong far
more often. A confidence sequence is right at all times together, so the test may stop whenever it likes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.types import Bool, Float64


@final
@dataclass(frozen=True, eq=False)
class ConfidenceSequence:
    """The mean after each observation, with ends between which the truth lies at all times together.

    Attributes:
        means: of the observations so far, [observations].
        low: lower ends; minus infinity before the first look.
        high: upper ends.
    """

    means: Float64
    low: Float64
    high: Float64

    def __len__(self) -> int:
        return len(self.means)

    @property
    def decided(self) -> int | None:
        """After how many observations 0 was outside for the first time; None if it never was."""
        outside = np.flatnonzero((self.low > 0) | (self.high < 0))
        return int(outside[0]) + 1 if len(outside) else None


def confidence_sequence(
    values: Float64, *, confidence: float = 0.95, tightest: int = 5_000, first_look: int = 100
) -> ConfidenceSequence:
    """A confidence sequence of the mean of independent observations, such as differences of pairs.

    mean_t +- sd_t sqrt(2 (t r + 1) / (t^2 r) log(sqrt(t r + 1) / (1 - confidence)))

    with r such that it is tightest at observation `tightest`: Robbins' normal mixture with the deviation estimated as
    it goes, valid as observations grow in number, whatever their distribution (Waudby-Smith et al. 2024, Theorem 2.2).

    Args:
        values: in the order in which they came, [observations].
        confidence: that the truth is never outside.
        tightest: where the interval is closest to the usual one, whose width it exceeds by half there.
        first_look: before it nothing is said: the deviation is not known yet.

    >>> sequence = confidence_sequence(np.tile([0.0, 1.0], 500))
    >>> round(float(sequence.low[-1]), 3), round(float(sequence.high[-1]), 3), sequence.decided
    (0.447, 0.553, 100)
    """
    if not 0 < confidence < 1:
        raise SettingError("confidence", confidence, "be between 0 and 1")
    for name, least, count in (("tightest", 1, tightest), ("first_look", 2, first_look)):
        if count < least:
            raise SettingError(name, count, f"be at least {least}")
    observed = np.asarray(values, dtype=np.float64)
    if observed.ndim != 1 or not np.isfinite(observed).all():
        raise DataError("a confidence sequence needs a vector of finite numbers")
    times = np.arange(1, len(observed) + 1)
    means = np.cumsum(observed) / times
    deviation = np.sqrt(np.maximum(np.cumsum(observed**2) / times - means**2, 0.0))
    alpha = 1 - confidence
    r = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / tightest
    reach = deviation * np.sqrt(2 * (times * r + 1) / (times**2 * r) * np.log(np.sqrt(times * r + 1) / alpha))
    reach[: first_look - 1] = np.inf
    return ConfidenceSequence(means, means - reach, means + reach)


def arm_differences(values: Float64, treated: Bool) -> Float64:
    """One number a search whose mean is the difference of the two arms: for `confidence_sequence`.

    m_1 - m_0 + z (y - m_1) / p - (1 - z) (y - m_0) / (1 - p),  p = 1/2

    with m_1 and m_0 the means of the arms over the searches before: the difference whatever these are, and with hardly
    more variance than the arms have.

    Args:
        values: what came of each search, in order, [searches].
        treated: whether a fair coin sent it to the new arm, [searches].

    >>> arm_differences(np.array([1.0, 0.0, 1.0, 0.0]), np.array([True, False, True, False])).tolist()
    [2.0, 1.0, 1.0, 1.0]
    """
    if values.shape != treated.shape:
        raise DataError(f"{values.shape} values, but {treated.shape} arms")
    before = []
    for arm in (~treated, treated):
        sums, counts = np.cumsum(np.where(arm, values, 0.0)), np.cumsum(arm)
        means = np.divide(sums, counts, out=np.zeros(len(values)), where=counts > 0)
        before.append(np.concatenate([[0.0], means[:-1]]))
    old, new = before
    return np.asarray(new - old + np.where(treated, 2 * (values - new), -2 * (values - old)))
