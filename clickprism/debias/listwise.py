"""What the listwise methods share: scores of a batch, and softmax cross entropy over a list."""

from __future__ import annotations

import torch
from torch import nn

from clickprism.types import Batch


def score(ranker: nn.Module, batch: Batch) -> torch.Tensor:
    """The ranker's scores, 0 where masked, [lists, places]; padded places are not computed."""
    if bool(batch.mask.all()):
        result: torch.Tensor = ranker(batch.features)
        return result
    scores = batch.features.new_zeros(batch.mask.shape)
    return scores.masked_scatter(batch.mask, ranker(batch.features[batch.mask]))


def log_softmax(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Log of the softmax over the places that are there, 0 where masked, [lists, places]."""
    hidden = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return torch.log_softmax(hidden, dim=-1).masked_fill(~mask, 0.0)


def softmax_loss(logits: torch.Tensor, clicks: torch.Tensor, *, mask: torch.Tensor) -> torch.Tensor:
    """Softmax cross entropy: the mean over lists of - sum_i c_i log softmax_i(logits).

    Its minimum over all functions of the document has softmax_i proportional to the expected c_i, so the logits become
    the log of what `clicks` is unbiased for, up to a constant a list.

    Args:
        logits: [lists, places].
        clicks: non-negative weights, such as click counts over propensities, [lists, places].
        mask: True where there is a document, [lists, places].

    >>> logits = torch.tensor([[0.0, 0.0, 9.0]])
    >>> softmax_loss(logits, torch.tensor([[1.0, 0.0, 0.0]]), mask=torch.tensor([[True, True, False]])).item()
    0.6931471824645996
    """
    return -(clicks * log_softmax(logits, mask)).sum(-1).mean()
