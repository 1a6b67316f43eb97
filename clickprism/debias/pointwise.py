"""What the pointwise methods share: the likelihood of click counts, in log space, and where its score starts.

A pointwise method models the chance of a click, not its share in a list: P(click) = theta_k s(f(x)), s the sigmoid.
Sessions without a click count there as well as others. The likelihood is linear in clicks and impressions, so merged
lists are exact.
"""

from __future__ import annotations

import math

import torch

from clickprism.types import Batch, Clicks


def log_click(
    score: torch.Tensor, log_seen: torch.Tensor, log_unseen: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log of theta s(f) and of 1 - theta s(f), without a subtraction: 1 - theta s = (1 - s) + s (1 - theta).

    Args:
        score: f, of any shape.
        log_seen: log theta, of the same shape.
        log_unseen: log(1 - theta), of the same shape.

    >>> half = torch.tensor(0.5).log()
    >>> [round(float(each.exp()), 6) for each in log_click(torch.tensor(0.0), half, half)]
    [0.25, 0.75]
    """
    relevant, irrelevant = log_both(score)
    return relevant + log_seen, torch.logaddexp(irrelevant, relevant + log_unseen)


def log_both(odds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log s(odds) and log(1 - s(odds))."""
    return torch.nn.functional.logsigmoid(odds), torch.nn.functional.logsigmoid(-odds)


def count_loss(batch: Batch, clicked: torch.Tensor, skipped: torch.Tensor) -> torch.Tensor:
    """Cross entropy of counts: the mean over sessions of - sum_i (c_i log p_i + (n - c_i) log(1 - p_i)).

    Args:
        batch: the counts c and n.
        clicked: log p, [lists, places].
        skipped: log(1 - p), [lists, places].
    """
    terms = batch.clicks * clicked + skips(batch) * skipped
    return -terms.masked_fill(~batch.mask, 0.0).sum(-1).mean()


def skips(batch: Batch) -> torch.Tensor:
    """Impressions without a click, n - c, [lists, places]; those of masked places are the list's."""
    return (batch.impressions[:, None] - batch.clicks).clamp_min(0.0)


def by_position(batch: Batch, values: torch.Tensor, positions: int) -> torch.Tensor:
    """Sums of values [lists, places] at each position, [positions]."""
    places, kept = (batch.positions[batch.mask] - 1), values[batch.mask]
    return torch.zeros(positions, dtype=kept.dtype).index_add_(0, places, kept)


def shown_at(batch: Batch, positions: int) -> torch.Tensor:
    """Impressions at each position, [positions]."""
    return by_position(batch, batch.impressions[:, None].expand(batch.mask.shape), positions)


def start_odds(clicks: Clicks, seen: float) -> float:
    """The log odds of the mean relevance if the share `seen` of all impressions were seen: what f starts from.

    Networks start with scores about 0, a relevance of one half; with the mean click rate of a usual log the first
    epochs would go into a constant.
    """
    rate = clicks.clicks.sum() / max(float(clicks.list_impressions.sum()), 1.0) / seen
    rate = min(max(float(rate), 1e-4), 1 - 1e-2)
    return math.log(rate / (1 - rate))
