"""A model of a log with a known curve, so that expected values of counterfactual evaluation are arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from clickprism.log_model.model import LogModel
from clickprism.log_model.results import Curve, GoodnessOfFit, Identified, Linkage, Relevance
from clickprism.types import Clicks, Float64, Int64


@dataclass(frozen=True, eq=False)
class KnownModel:
    """What counterfactual evaluation reads of a `LogModel`."""

    curve: Curve
    linkage: Linkage
    fit_quality: GoodnessOfFit
    relevance: Relevance
    values: Float64

    def rates(self, rows: Int64, positions: Int64) -> Float64:
        """Return relevance times observation."""
        return np.asarray(self.values[rows] * self.curve.values[positions - 1])

    def draws(self, count: int, seed: int) -> Float64:
        """Return the same curve every time: it is known."""
        del seed
        return np.tile(self.curve.values, (count, 1))


def known_model(
    log: Clicks,
    curve: Sequence[float],
    *,
    strength: float = 0.0,
    groups: Sequence[int] | None = None,
    identified: Identified = "documents",
    fits: bool = True,
) -> LogModel:
    """Return a model with relevance (clicks + strength mean) / (exposure + strength), the mean if never shown.

    Args:
        log: The log.
        curve: Observation at each position.
        strength: Prior strength.
        groups: Groups of linked positions; all are linked if None.
        identified: How positions outside of the first group are identified.
        fits: Whether the model fits.
    """
    given, size = np.array(curve, dtype=np.float64), log.lists.documents
    clicked = np.bincount(log.rows, weights=log.clicks, minlength=size)
    weights = log.list_impressions * given[log.positions - 1]
    exposure = np.bincount(log.rows, weights=weights, minlength=size).astype(np.float64)
    mean = clicked.sum() / exposure.sum()
    values = (clicked + strength * mean) / np.maximum(exposure + strength, 1e-9)
    values[exposure == 0] = mean
    rows = np.flatnonzero(exposure > 0).astype(np.int64)
    nothing = np.zeros(len(rows))
    group = np.zeros(len(given), dtype=np.int64) if groups is None else np.array(groups)
    known: Identified = "documents"
    how = tuple(known if number == 0 else identified for number in group.tolist())
    model = KnownModel(
        Curve("known", given, given, given),
        Linkage(how, np.ones(len(given)), group, 0, size, None, ""),
        GoodnessOfFit(np.ones((1, 1)), np.zeros((1, 1)), ("all",), 1.0 if fits else 1e-9, 0.0, fits),
        Relevance(
            rows,
            values[rows],
            values[rows],
            nothing,
            nothing,
            np.full(len(rows), mean),
            exposure[rows],
            exposure[rows] / (exposure[rows] + strength),
            np.full(len(rows), "clicks"),
            nothing,
            nothing,
        ),
        values,
    )
    return cast(LogModel, model)
