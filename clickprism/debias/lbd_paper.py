"""LBD as published (Chen et al., NeurIPS 2022): `lbd_paper` follows the print, `lbd_code` the authors' public code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from clickprism.debias.base import LARGEST_LOG, SIMILAR, DocumentLearner, Method, at, dropped, spread, towered
from clickprism.debias.losses import score, softmax_loss
from clickprism.settings import check_fields
from clickprism.types import Batch, Clicks

TINY: Final = 1e-12  # under the root, whose slope at 0 is infinite
CODE_BATCH: Final = 256  # lists in a step of the authors' code, which its penalty depends on
CODE_KEPT: Final = 0.1  # share of the outputs that its penalty keeps in a step


@dataclass(frozen=True)
class _Preset(Method):
    """What both presets share.

    Attributes:
        penalty: lambda.
        drop: t, the share of documents whose observation is dropped (set to 1) in a step.
    """

    corrects = ("position", "document")
    needs = SIMILAR
    learns_observation = True
    takes_weights = True
    published = True
    penalty: float = 100.0
    drop: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self, penalty="[0, inf)", drop="[0, 1]")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> PublishedLearner:
        """Return a learner of which one output is the ranker."""
        return PublishedLearner(self, ranker, clicks)


@final
@dataclass(frozen=True)
class LBDPaper(_Preset):
    """Softmax cross entropy of log r(x) + g log o_k(x), and the norms of the gradients of o (Chen et al., 2022, §5).

    L(q) = - sum_i c_i log softmax_i(log r(x_i) + g_i log o_k(x_i)) + penalty * sum_i sum_k ||d o_k(x_i) / d x||_2

    with g_i = 0 with probability `drop` and else 1, drawn for every document and step; all positions k of the log are
    penalised, not only that of the document. As in appendix C.2, one network has 2 + 2n outputs: mean and variance of
    log r, and of log o at each of n positions. No equation uses a variance, and the authors' code uses 1 + n outputs of
    the 2 + 2n that it builds: so the variances have outputs and no gradient. Eq. 2 is printed without the logarithm of
    a cross entropy, which the code has. The print names no function that keeps o below 1; here log o is free.

    LBD-Lips is drop=0, LBD-Ber is penalty=0, and Unlimited has both at 0. The gradient is clipped as a whole. As
    published: `MLP(layer_norm="all")` by Adagrad, or a linear ranker by SGD, with a step of .05, batches of 256 lists
    and 10,000 steps, penalty from 1, 100 and 10,000, drop from .1, .2, .3 and .4.

    The order of relevance is right if the observation changes slowly enough with the document, which no log can show.
    """

    name = "lbd_paper"
    summary = "LBD as printed: relevance and document-dependent observation from one network."


@final
@dataclass(frozen=True)
class LBDCode(_Preset):
    """The loss of the authors' public code: as `lbd_paper` with 1 + n outputs and another penalty.

    penalty * sum_i ||d/dx_i mean over documents j and positions k of m_jk log o_k(x_j) / .1||_2^2

    with m_jk = 1 with probability .1 and else 0. The gradient of a mean falls with the batch: for B lists of n
    documents this is 1 / (B n^4) times the mean over lists of sum_i ||d/dx_i sum_k m_ik log o_k(x_i) / .1||^2. B is
    held at 256, the published batch, whatever the batch.
    """

    name = "lbd_code"
    summary = "LBD as in the authors' code: as `lbd_paper`, with a weaker penalty."


@final
class PublishedLearner(DocumentLearner):
    """One network: the last layer of the ranker is log r, `rest` has the other outputs of the same hidden units."""

    def __init__(self, settings: _Preset, ranker: nn.Module, clicks: Clicks) -> None:
        super().__init__(ranker, clicks)
        self.settings, self.positions = settings, clicks.max_position
        others = 1 + 2 * self.positions if isinstance(settings, LBDPaper) else self.positions
        self.rest = nn.Linear(towered(ranker, settings.name).width, others)

    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Return log o_k(x) before dropping, [..., positions]."""
        outputs: torch.Tensor = self.rest(towered(self.ranker, self.settings.name).trunk()(features))
        return outputs[..., : self.positions]

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the cross entropy, and the penalty if it is not 0."""
        documents = batch.features[batch.mask].detach()
        penalised = self.settings.penalty > 0
        with torch.set_grad_enabled(penalised or torch.is_grad_enabled()), sdpa_kernel(SDPBackend.MATH):
            # the other kernels of attention can be differentiated only once
            logs = self.log_observation(documents.requires_grad_(penalised))
        observed = at(logs, batch.positions[batch.mask])
        observed = observed * (torch.rand(len(observed)) >= self.settings.drop)
        logits = score(self.ranker, batch) + spread(observed, batch.mask)
        parts = {"click": softmax_loss(logits, batch.clicks, mask=batch.mask)}
        if penalised:
            with torch.enable_grad():
                slopes = (_printed if isinstance(self.settings, LBDPaper) else _coded)(logs, documents)
            by_list = spread(slopes, batch.mask).sum(-1)
            parts["penalty"] = self.settings.penalty * (batch.impressions * by_list).mean()
        return parts

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Return score + log(t + (1 - t) o): the click under the expected observation after dropping."""
        logs = self.log_observation(batch.features[batch.mask])
        observed = dropped(at(logs, batch.positions[batch.mask]), self.settings.drop)
        return score(self.ranker, batch) + spread(observed, batch.mask)

    def log_exposure(self, features: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return log o'_k(x) / o'_1(x), where o' = t + (1 - t) o, [documents]."""
        logs = dropped(self.log_observation(features), self.settings.drop)
        return at(logs, positions) - logs[:, 0]


def _printed(logs: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    """Return sum_k ||d o_k(x) / d x||_2 of each document, [documents]."""
    observed = logs.clamp_max(LARGEST_LOG).exp()
    norms = [(_gradient(each, documents).square().sum(-1) + TINY).sqrt() for each in observed.unbind(-1)]
    return torch.stack(norms).sum(0)


def _coded(logs: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    """Return ||d/dx sum_k m_k log o_k(x) / .1||^2 / (256 n^4) of each document, [documents]."""
    kept = (torch.rand(logs.shape) < CODE_KEPT) / CODE_KEPT
    squares = _gradient((logs * kept).sum(-1), documents).square().sum(-1)
    return squares / (CODE_BATCH * logs.shape[-1] ** 4)


def _gradient(values: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    """Return the gradient of each document's value with respect to its features, [documents, features]."""
    (gradient,) = torch.autograd.grad(values.sum(), documents, create_graph=True)
    return gradient
