"""Delta-CI: how much the relevance of a model depends on whether the document was observed (InfoRank, Jin et al. 2024).

It describes a model, not the data: clicks never show the relevance of documents that were not observed. See
`docs/research/independence.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final, runtime_checkable

import numpy as np

from clickprism.errors import DataError
from clickprism.types import Clicks, Float64, Int32, Int64

if TYPE_CHECKING:
    import torch

BLOCK: Final = 65_536  # documents that are scored at once


class ConditionalOdds(Protocol):
    """Log odds of P(R = 1 | O = 1, x), of P(R = 1 | O = 0, x) and of P(O = 1 | x), [documents] each."""

    @property
    def seen(self) -> torch.Tensor: ...  # noqa: D102

    @property
    def unseen(self) -> torch.Tensor: ...  # noqa: D102

    @property
    def observed(self) -> torch.Tensor: ...  # noqa: D102


@runtime_checkable
class ConditionalLearner(Protocol):
    """A learner whose relevance may depend on observation, such as InfoRank's."""

    def conditional(self, documents: torch.Tensor, positions: torch.Tensor) -> ConditionalOdds:
        """Return the log odds of documents, [documents, features], at positions (the first is 1), [documents]."""
        ...


@final
@dataclass(frozen=True, eq=False)
class Independence:
    """Delta-CI of a model over the documents that a log shows."""

    mean: float  # Mean of |P(R = 1 | O = 1, x) - P(R = 1 | O = 0, x)| over impressions (Eq. 5); NaN for an empty log
    error: float  # Standard error of the mean over queries; NaN with fewer than two
    largest: float  # Maximum over documents
    information: float  # Mean mutual information of relevance and observation, in nats (Eq. 13)
    by_position: Float64  # Mean at each position, NaN where nothing was shown, [positions]
    documents: int  # Number of documents in ranked lists

    def __str__(self) -> str:
        """Return Delta-CI in a line.

        >>> str(Independence(0.0123, 0.0004, 0.2, 0.00031, np.empty(0), 50))
        'Delta-CI 0.0123 ± 0.0004, mutual information 0.00031 nats'
        """
        error = "" if np.isnan(self.error) else f" ± {self.error:.4f}"
        return f"Delta-CI {self.mean:.4f}{error}, mutual information {self.information:.2g} nats"


def learner_independence(learner: ConditionalLearner, clicks: Clicks) -> Independence:
    """Return Delta-CI of a learner over a log: each document at the positions where it was shown, by impressions."""
    import torch

    from clickprism.debias.losses import mutual_information

    gap, information = np.empty(len(clicks.rows)), np.empty(len(clicks.rows))
    with torch.no_grad():
        for start in range(0, len(clicks.rows), BLOCK):
            part = slice(start, start + BLOCK)
            features = torch.from_numpy(np.array(clicks.lists.features[clicks.rows[part]], dtype=np.float32))
            odds = learner.conditional(features, torch.from_numpy(clicks.positions[part].astype(np.int64)))
            seen, unseen, observed = (each.double() for each in (odds.seen, odds.unseen, odds.observed))
            gap[part] = (seen.sigmoid() - unseen.sigmoid()).abs().numpy()
            information[part] = mutual_information(seen, unseen, observed).numpy()
    wrong = int(np.isnan(gap + information).sum())
    if wrong:
        raise DataError(
            f"the model gives {wrong:,} of {len(gap):,} documents a probability that is not a number",
            remedy="Training diverged: lower the learning rate",
        )
    return summarise(
        gap,
        information,
        positions=clicks.positions,
        lists=clicks.lists.list_of[clicks.rows],
        weights=clicks.list_impressions,
    )


def summarise(
    gap: Float64, information: Float64, *, positions: Int32 | Int64, lists: Int64, weights: Int64
) -> Independence:
    """Return means of Delta-CI and mutual information over documents, each [documents].

    Args:
        gap: Delta-CI of each document.
        information: Mutual information of each document.
        positions: Position of each document; the first is 1.
        lists: Query of each document. Documents of a query are alike, so the standard error is clustered by query.
        weights: Number of impressions of each document.
    """
    total = float(weights.sum())
    if not total > 0:
        none = float("nan")
        return Independence(none, none, none, none, np.empty(0), len(gap))
    mean = float(weights @ gap / total)
    shown = np.bincount(positions - 1, weights=weights)
    sums = np.bincount(np.unique(lists, return_inverse=True)[1], weights=weights * (gap - mean))
    count = len(sums)
    return Independence(
        mean=mean,
        error=float(np.sqrt(count / (count - 1) * (sums @ sums)) / total) if count > 1 else float("nan"),
        largest=float(gap[weights > 0].max()),
        information=float(weights @ information / total),
        by_position=np.bincount(positions - 1, weights=weights * gap) / np.where(shown > 0, shown, np.nan),
        documents=len(gap),
    )
