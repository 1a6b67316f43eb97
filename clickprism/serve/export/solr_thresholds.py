"""Thresholds for Solr, which adds 0.000001 to each and rounds the sum to float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.errors import DataError
from clickprism.types import Float32

SLACK: Final = np.float32(1e-6)
TINY: Final = 1.1e-35
SAFE: Final = 64.0  # from here on 0.000001 is below half a step of float32: the sum is the threshold itself
LARGEST: Final = float(np.finfo(np.float32).max)


@final
@dataclass(frozen=True)
class Cuts:
    """How the thresholds of a feature are written.

    Attributes:
        shift: the feature is multiplied by 2**shift first.
        written: for each threshold, what Solr has to read.
        zero: values closer to 0 than this may fall on the other side of a threshold.
    """

    shift: int
    written: dict[float, float]
    zero: float = 0.0

    def text(self, threshold: float) -> str:
        """What Solr reads for a threshold; one beyond all numbers, which tells missing values from others, is infinite.

        >>> Cuts(0, {0.5: 0.499999}).text(0.5), Cuts(0, {}).text(LARGEST)
        ('0.499999', 'Infinity')
        """
        if abs(threshold) >= LARGEST:
            return "Infinity" if threshold > 0 else "-Infinity"
        return str(self.written[threshold])


def cuts_of(thresholds: Float32) -> Cuts:
    """Thresholds [n] as Solr has to read them, such that fl(written + 0.000001) is the threshold, scaled if need be.

    LightGBM's own 1e-35 beside 0 are as good as 0 and cannot be reached: x <= 1e-35 becomes x <= 0, and x <= -1e-35 the
    nearest that there is below 0.

    >>> cuts_of(np.array([0.5], np.float32))
    Cuts(shift=0, written={0.5: 0.4999989867210388}, zero=0.0)
    >>> cuts_of(np.array([1e-7, 3.0], np.float32)).shift
    30
    """
    values = thresholds.astype(np.float64)
    tiny = np.abs(values) <= TINY
    near, exact = _reached(thresholds)
    if (exact | tiny).all():
        written, shift = near, 0
    else:
        shift = int(np.ceil(np.log2(SAFE / np.abs(values[~tiny]).min())))
        if shift < 0 or float(np.abs(values).max()) * 2.0**shift > LARGEST:
            problem = (
                f"thresholds from {values.min():.3g} to {values.max():.3g} of one feature are too far apart for solr"
            )
            raise DataError(problem, remedy="Export onnx or xgboost-json, or train with a normaliser such as standard")
        written = (values * 2.0**shift).astype(np.float32)
    zero, nothing = np.float32(-SLACK), np.nextafter(-SLACK, np.float32(-1))
    written = np.where(tiny, np.where(values >= 0, zero, nothing), written)
    closest = float(-(nothing + SLACK)) * 2.0**-shift if (tiny & (values < 0)).any() else TINY
    pairs = zip(values.tolist(), written.astype(np.float64).tolist(), strict=True)
    return Cuts(shift, dict(pairs), closest if (tiny & (values != 0)).any() else 0.0)


def _reached(thresholds: Float32) -> tuple[Float32, np.ndarray]:
    """The float32 to write for each threshold, and whether Solr's sum is just the threshold then."""
    near = (thresholds - SLACK).astype(np.float32)
    tries = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    written, exact = near, near + SLACK == thresholds
    for each in tries[1:]:
        better = ~exact & (each + SLACK == thresholds)
        written, exact = np.where(better, each, written), exact | better
    return written, exact
