"""How far a model's relevance depends on its observation: Delta-CI and mutual information, as figures for reports.

They describe a model, not the world: clicks never show the relevance of what was not seen (`docs/independence.md`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from clickprism.errors import DataError, SettingError
from clickprism.observation.independence import delta_ci, mutual_information
from clickprism.types import Clicks, Float64, Int32, Int64

if TYPE_CHECKING:
    import torch

BLOCK: Final = 65_536


class ConditionalOdds(Protocol):
    """What such a learner says of documents: log odds of relevance if seen and if not, and of being seen."""

    @property
    def seen(self) -> torch.Tensor:
        """Of P(R = 1 | O = 1, x), [documents]."""
        ...

    @property
    def unseen(self) -> torch.Tensor:
        """Of P(R = 1 | O = 0, x), [documents]."""
        ...

    @property
    def observed(self) -> torch.Tensor:
        """Of P(O = 1 | x), [documents]."""
        ...


@runtime_checkable
class ConditionalLearner(Protocol):
    """A learner whose relevance may depend on observation, such as InfoRank's."""

    def conditional(self, documents: torch.Tensor, positions: torch.Tensor) -> ConditionalOdds:
        """Its log odds of documents, [documents, features], where they stood, from 1, [documents]."""
        ...


@final
@dataclass(frozen=True, eq=False)
class Independence:
    """Delta-CI of a model (Eq. 5 of InfoRank), over documents.

    Attributes:
        mean: over documents, each as often as it counts; NaN where there are none.
        error: the standard error of the mean, over lists where they were given, else over documents; NaN below two.
        largest: of all documents.
        information: the mean mutual information of relevance and observation, in nats (Eq. 13).
        by_position: the mean at each position, position 1 first, NaN where nothing was shown; None without positions.
        documents: how many there are, each counted once.
    """

    mean: float
    error: float
    largest: float
    information: float
    by_position: Float64 | None
    documents: int


def independence(
    r1: ArrayLike,
    r0: ArrayLike,
    o: ArrayLike,
    *,
    positions: Int32 | Int64 | None = None,
    lists: Int64 | None = None,
    weights: Int64 | Float64 | None = None,
    logits: bool = False,
) -> Independence:
    """Delta-CI and mutual information of what a model says of each document.

    Args:
        r1: P(R = 1 | O = 1, x), [documents].
        r0: P(R = 1 | O = 0, x), [documents].
        o: P(O = 1 | x), [documents].
        positions: where each stood, from 1, [documents].
        lists: the list of each; documents of a list are alike, so it is lists that the standard error is taken over.
        weights: how often each counts, such as its impressions; once by default.
        logits: r1, r0 and o are log odds.

    >>> found = independence([0.9, 0.4], [0.5, 0.4], [0.5, 0.5], positions=np.array([1, 2]))
    >>> found.mean, found.largest, found.by_position.tolist()
    (0.2, 0.4, [0.4, 0.0])
    """
    gap, information = delta_ci(r1, r0, logits=logits), mutual_information(r1, r0, o, logits=logits)
    if gap.ndim != 1 or information.shape != gap.shape:
        raise DataError(f"one value a document is needed, got shapes {gap.shape} and {information.shape}")
    size = len(gap)
    for name, given in (("positions", positions), ("lists", lists), ("weights", weights)):
        if given is not None and given.shape != (size,):
            raise DataError(f"{size} documents need as many {name}, got an array of shape {given.shape}")
    weight = np.ones(size) if weights is None else np.asarray(weights, dtype=np.float64)
    total = float(weight.sum())
    if not total > 0:
        none = float("nan")
        return Independence(none, none, none, none, None if positions is None else np.empty(0), size)
    mean = float(weight @ gap / total)
    curve = None
    if positions is not None:
        shown = np.bincount(positions - 1, weights=weight)
        curve = np.bincount(positions - 1, weights=weight * gap) / np.where(shown > 0, shown, np.nan)
    owner = np.arange(size) if lists is None else np.unique(lists, return_inverse=True)[1]
    return Independence(
        mean=mean,
        error=_error(weight * (gap - mean), owner, total),
        largest=float(gap[weight > 0].max()),
        information=float(weight @ information / total),
        by_position=curve,
        documents=size,
    )


def learner_independence(learner: object, clicks: Clicks) -> Independence:
    """Delta-CI of a learner on what a log shows, each document at the position where it stood, by impressions.

    The learner has `conditional`; see `ConditionalLearner`.
    """
    import torch

    if not isinstance(learner, ConditionalLearner):
        kind = type(learner).__name__
        raise SettingError("learner", kind, "say its relevance given observation (`conditional`), as inforank's does")
    odds = np.empty((3, len(clicks.rows)))
    with torch.no_grad():
        for start in range(0, len(clicks.rows), BLOCK):
            part = slice(start, start + BLOCK)
            features = torch.from_numpy(np.array(clicks.lists.features[clicks.rows[part]], dtype=np.float32))
            said = learner.conditional(features, torch.from_numpy(clicks.positions[part].astype(np.int64)))
            for values, tensor in zip(odds, (said.seen, said.unseen, said.observed), strict=True):
                values[part] = tensor.double().numpy()
    return independence(
        *odds,
        positions=clicks.positions,
        lists=clicks.lists.list_of[clicks.rows],
        weights=clicks.list_impressions,
        logits=True,
    )


def _error(residuals: Float64, owner: Int64, total: float) -> float:
    """The standard error of a weighted mean from its residuals, summed by cluster first, with G / (G - 1)."""
    sums = np.bincount(owner, weights=residuals)
    clusters = len(sums)
    return float(np.sqrt(clusters / (clusters - 1) * (sums @ sums)) / total) if clusters > 1 else float("nan")
