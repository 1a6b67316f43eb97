"""How the imputation and the approximated affine estimate are blended by a trade-off zeta in (-1, 1) (§6.2.2).

With i the imputed and a the approximated affine estimate, both without a gradient, and mean(i) that of training:

| form | estimate | loss |
|---|---|---|
| `logit` | s(logit a + zeta (logit i - mean logit i)) | cross entropy |
| `likelihood` | zeta (i - mean i) + a, cut to [.01, .99] | cross entropy |
| `convex` | (1 - z) a + z i, z = (1 + zeta) / 2 | cross entropy |
| `reward` | zeta i + a | Eq. 5: - (2c - 1) log of it, cut at .01 from below |

Zeta itself is tanh(begin(n) + MLP(x)). Evidence says most of it: with n impressions of the pair and k that an
imputation is worth, k / (k + n) is where it starts, and the network learns what is different. With k = 0 it is the
paper's tanh(MLP(x)).

Eq. 5 as printed takes the log of a negative number as soon as zeta i < - a; cut, it stays defined, but is no proper
score: what minimises it is 0 where the click rate is below one half and as much as possible where it is above.
"""

from __future__ import annotations

from typing import Final

import torch

from clickprism.relevance.approximate_settings import Form
from clickprism.relevance.descent import cross_entropy

LOW: Final = 0.01
SEEN: Final = 1e-3
TINY: Final = 1e-6


def logit(share: torch.Tensor) -> torch.Tensor:
    """Log odds, of shares that are held away from 0 and 1."""
    return torch.logit(share, eps=TINY)


def begin(shown: torch.Tensor, *, k: float, form: Form) -> torch.Tensor:
    """Where the trade-off starts, before tanh: the imputation counts for k / (k + n) after n impressions, [pairs].

    >>> torch.tanh(begin(torch.tensor([0.0, 5.0, 15.0]), k=5.0, form="logit")).round(decimals=3).tolist()
    [1.0, 0.5, 0.25]
    """
    if k == 0:
        return torch.zeros_like(shown)
    worth = k / shown.clamp_min(SEEN)
    return (torch.log(worth) if form == "convex" else torch.log1p(2 * worth)) / 2


def blend(zeta: torch.Tensor, imputed: torch.Tensor, affine: torch.Tensor, *, form: Form, mean: float) -> torch.Tensor:
    """The estimate of each pair; that of `reward` is not cut, and may leave (0, 1).

    Args:
        zeta: the trade-off, [pairs].
        imputed: in (0, 1), [pairs].
        affine: in (0, 1), [pairs].
        form: which blend.
        mean: of the imputed in training; for `logit` of their log odds.

    >>> half = torch.tensor([0.5])
    >>> blend(half, torch.tensor([0.4]), half, form="likelihood", mean=0.2).item()
    0.6000000238418579
    """
    if form == "logit":
        return torch.sigmoid(logit(affine) + zeta * (logit(imputed) - mean))
    if form == "likelihood":
        return (zeta * (imputed - mean) + affine).clamp(LOW, 1 - LOW)
    if form == "convex":
        return affine + (1 + zeta) / 2 * (imputed - affine)
    return zeta * imputed + affine


def blend_mean(form: Form, imputed: torch.Tensor) -> float:
    """What `blend` takes from the imputed: their mean, or that of their log odds."""
    return float((logit(imputed) if form == "logit" else imputed).double().mean())


def blend_loss(
    zeta: torch.Tensor,
    imputed: torch.Tensor,
    affine: torch.Tensor,
    counts: tuple[torch.Tensor, torch.Tensor],
    *,
    form: Form,
    mean: float,
) -> torch.Tensor:
    """The loss of each pair, summed over its impressions, [pairs]; finite whatever the arguments.

    Args:
        zeta: as for `blend`.
        imputed: as for `blend`.
        affine: as for `blend`.
        counts: clicks and skips, each [pairs].
        form: which loss.
        mean: as for `blend`.
    """
    clicks, skips = counts
    if form == "logit":
        return cross_entropy(logit(affine) + zeta * (logit(imputed) - mean), clicks, skips)
    share = blend(zeta, imputed, affine, form=form, mean=mean)
    if form == "reward":
        return -(clicks - skips) * torch.log(share.clamp_min(LOW))
    share = share.clamp(TINY, 1 - TINY)
    return -(clicks * torch.log(share) + skips * torch.log1p(-share))
