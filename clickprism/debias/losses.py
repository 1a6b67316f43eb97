"""Losses that methods share: listwise softmax, pointwise likelihood of click counts, mutual information.

A pointwise method models the probability of a click, P(click) = theta_k s(f(x)) with s the sigmoid, so sessions without
a click count too. The likelihood is linear in clicks and impressions, so merged lists are exact. Probabilities are
computed in log space.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import nn
from torch.nn.functional import logsigmoid

from clickprism.types import Batch, Clicks

LARGEST: Final = 13.8  # log odds of 1 - 1e-6, the limit of a probability
SMALL: Final = 0.03  # below it the series of (1 + t) log(1 + t) - t is exact in float32


def score(ranker: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the ranker's scores, 0 where masked, [lists, places]; padded places are not computed."""
    if bool(batch.mask.all()):
        result: torch.Tensor = ranker(batch.features)
        return result
    scores = batch.features.new_zeros(batch.mask.shape)
    return scores.masked_scatter(batch.mask, ranker(batch.features[batch.mask]))


def log_softmax(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the log of the softmax over the places that are not masked, 0 where masked, [lists, places]."""
    hidden = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return torch.log_softmax(hidden, dim=-1).masked_fill(~mask, 0.0)


def softmax_loss(logits: torch.Tensor, clicks: torch.Tensor, *, mask: torch.Tensor) -> torch.Tensor:
    """Return the softmax cross entropy: the mean over lists of - sum_i c_i log softmax_i(logits).

    Its minimum over all functions of the document has softmax_i proportional to the expected c_i, so the logits become
    the log of what `clicks` is unbiased for, up to a constant for each list.

    Args:
        logits: [lists, places].
        clicks: Non-negative weights, such as click counts over propensities, [lists, places].
        mask: True where there is a document, [lists, places].

    >>> logits = torch.tensor([[0.0, 0.0, 9.0]])
    >>> softmax_loss(logits, torch.tensor([[1.0, 0.0, 0.0]]), mask=torch.tensor([[True, True, False]])).item()
    0.6931471824645996
    """
    return -(clicks * log_softmax(logits, mask)).sum(-1).mean()


def log_click(
    score: torch.Tensor, log_seen: torch.Tensor, log_unseen: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logs of theta s(f) and of 1 - theta s(f) = (1 - s) + s (1 - theta), from log theta, log(1 - theta).

    >>> half = torch.tensor(0.5).log()
    >>> [round(float(each.exp()), 6) for each in log_click(torch.tensor(0.0), half, half)]
    [0.25, 0.75]
    """
    relevant, irrelevant = log_both(score)
    return relevant + log_seen, torch.logaddexp(irrelevant, relevant + log_unseen)


def log_both(odds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log s(odds) and log(1 - s(odds))."""
    return logsigmoid(odds), logsigmoid(-odds)


def count_loss(batch: Batch, clicked: torch.Tensor, skipped: torch.Tensor) -> torch.Tensor:
    """Return the mean over sessions of - sum_i (c_i log p_i + (n - c_i) log(1 - p_i)).

    Args:
        batch: The counts c and n.
        clicked: log p, [lists, places].
        skipped: log(1 - p), [lists, places].
    """
    terms = batch.clicks * clicked + skips(batch) * skipped
    return -terms.masked_fill(~batch.mask, 0.0).sum(-1).mean()


def skips(batch: Batch) -> torch.Tensor:
    """Return impressions without a click, n - c, [lists, places]; at masked places, those of the list."""
    return (batch.impressions[:, None] - batch.clicks).clamp_min(0.0)


def by_position(batch: Batch, values: torch.Tensor, positions: int) -> torch.Tensor:
    """Return the sums of values [lists, places] at each position, [positions]."""
    places, kept = (batch.positions[batch.mask] - 1), values[batch.mask]
    return torch.zeros(positions, dtype=kept.dtype).index_add_(0, places, kept)


def shown_at(batch: Batch, positions: int) -> torch.Tensor:
    """Return the impressions at each position, [positions]."""
    return by_position(batch, batch.impressions[:, None].expand(batch.mask.shape), positions)


def start_odds(clicks: Clicks, observed: float) -> float:
    """Return the log odds of the mean relevance if this share of impressions were observed, from which f starts.

    Scores of new networks are about 0, a relevance of one half; without it the first epochs would learn a constant.
    """
    rate = clicks.clicks.sum() / max(float(clicks.list_impressions.sum()), 1.0) / observed
    rate = min(max(float(rate), 1e-4), 1 - 1e-2)
    return math.log(rate / (1 - rate))


def mutual_information(seen: torch.Tensor, unseen: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    """Return I(R; O | x) of binary R and O, in nats, of any shape (InfoRank, Eqs. 14 and 15).

    I = sum over o, r of P(o) P(r | o) log(P(r | o) / P(r)),  P(r) = sum over o of P(o) P(r | o)

    It is computed as the sum of P(o) P(r) phi(P(r | o) / P(r) - 1) with phi(t) = (1 + t) log(1 + t) - t. No term is
    negative, so rounding cannot make the sum negative; it is exactly 0 where relevance does not depend on o.

    Args:
        seen: Log odds of P(R = 1 | O = 1, x).
        unseen: Log odds of P(R = 1 | O = 0, x).
        observed: Log odds of P(O = 1 | x).

    >>> odds = torch.tensor([2.0, 0.5])
    >>> mutual_information(odds, odds, torch.tensor([1.0, -3.0])).tolist()
    [0.0, 0.0]
    >>> ends = torch.tensor([50.0, -50.0, 0.0])
    >>> round(mutual_information(ends[0], ends[1], ends[2]).item(), 4)  # one bit, log 2
    0.6931
    """
    seen, unseen, observed = (each.clamp(-LARGEST, LARGEST) for each in (seen, unseen, observed))
    known, unknown = log_both(observed)
    total: torch.Tensor = torch.zeros(())
    for sign in (1.0, -1.0):
        one, other = logsigmoid(sign * seen), logsigmoid(sign * unseen)
        mean = torch.logaddexp(known + one, unknown + other)
        apart = torch.exp(one - mean) - torch.exp(other - mean)  # (P(r | 1) - P(r | 0)) / P(r)
        apart = torch.where(seen == unseen, torch.zeros_like(apart), apart)
        terms = known.exp() * _excess(unknown.exp() * apart) + unknown.exp() * _excess(-known.exp() * apart)
        total = total + mean.exp() * terms
    return total


def _excess(ratio: torch.Tensor) -> torch.Tensor:
    """Return (1 + t) log(1 + t) - t for t >= -1: by its series where t is small, at least 0 everywhere."""
    small = ratio.abs() < SMALL
    near = torch.where(small, ratio, torch.zeros_like(ratio))
    far = torch.where(small, torch.ones_like(ratio), ratio.clamp_min(-1 + 1e-6))
    series = near * near * (0.5 + near * (-1 / 6 + near * (1 / 12 - near / 20)))
    return torch.where(small, series, (1 + far) * torch.log1p(far) - far)
