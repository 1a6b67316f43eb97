"""Conditional mutual information of relevance and observation: what InfoRank holds down, alone for any two towers."""

from __future__ import annotations

from typing import Final

import torch
from torch.nn.functional import logsigmoid

LARGEST: Final = 13.8  # log odds of 1 - 1e-6: beyond it a probability says nothing more
SMALL: Final = 0.03  # below it the series of (1 + t) log(1 + t) - t is exact in float32


def mutual_information(seen: torch.Tensor, unseen: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    """I(R; O | x) of binary R and O, in nats, of any shape (InfoRank, Eqs. 14 and 15).

    I = sum over o, r of P(o) P(r | o) log(P(r | o) / P(r)),  P(r) = sum over o of P(o) P(r | o)

    It is computed as the sum of P(o) P(r) phi(P(r | o) / P(r) - 1) with phi(t) = (1 + t) log(1 + t) - t. No term is
    ever negative, so that rounding cannot make the sum so; it is 0 exactly where relevance is the same seen and unseen.

    Args:
        seen: log odds of P(R = 1 | O = 1, x).
        unseen: log odds of P(R = 1 | O = 0, x).
        observed: log odds of P(O = 1 | x).

    >>> odds = torch.tensor([2.0, 0.5])
    >>> mutual_information(odds, odds, torch.tensor([1.0, -3.0])).tolist()
    [0.0, 0.0]
    >>> ends = torch.tensor([50.0, -50.0, 0.0])
    >>> round(mutual_information(ends[0], ends[1], ends[2]).item(), 4)  # one bit, log 2
    0.6931
    """
    seen, unseen, observed = (each.clamp(-LARGEST, LARGEST) for each in (seen, unseen, observed))
    known, unknown = logsigmoid(observed), logsigmoid(-observed)
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
    """(1 + t) log(1 + t) - t for t >= -1: by its series where t is small, at least 0 everywhere."""
    small = ratio.abs() < SMALL
    near = torch.where(small, ratio, torch.zeros_like(ratio))
    far = torch.where(small, torch.ones_like(ratio), ratio.clamp_min(-1 + 1e-6))
    series = near * near * (0.5 + near * (-1 / 6 + near * (1 / 12 - near / 20)))
    return torch.where(small, series, (1 + far) * torch.log1p(far) - far)
