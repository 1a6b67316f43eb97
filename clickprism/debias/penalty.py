"""The gradient penalty of LBD: how fast the observation may change with the features, at little more than its own cost.

The paper's code leaves it to double backward, a pass through the network for every position. Here are closed forms that
walk the layers by hand (`jacobian`) and unbiased samples of them, which cost about as much as the outputs alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from clickprism.debias.jacobian import Walk
from clickprism.errors import SettingError

Form: TypeAlias = Literal["autograd", "chain", "output", "projection"]
FORMS: Final[tuple[str, ...]] = get_args(Form)
TINY: Final = 1e-12  # under the root of power 1, whose slope at 0 would be infinite


def penalised(
    chain: nn.Sequential,
    features: Tensor,
    *,
    form: Form = "output",
    power: Literal[1, 2] = 2,
    slope: Callable[[Tensor], Tensor] | None = None,
    share: float = 1.0,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """The outputs of a chain and the mean norm of their gradients with respect to the features (Chen et al., 2022).

    penalty = mean over documents i and outputs k of || d phi_k(z_k(x_i)) / d x ||^power

    with z the chain's outputs and phi what is penalised: z itself, or a function of each output whose derivative is
    `slope`. The paper sums || d o_k / d x || over positions: power 1 with o's slope. That norm is smoothed at 0 to
    sqrt(s + 1e-12). The forms:

    autograd: the reference, a backward pass that keeps its graph for every output.
    chain: exact, all outputs walked back together by hand; for wide features by the Gram matrix of the first layer.
    output: unbiased, one output a document, drawn uniformly and, over the documents, as evenly as can be.
    projection: unbiased for power 2, the outputs added up with random signs: E |v.J|^2 = |J|^2.

    A single linear layer costs nothing in any form: its gradient is the same for all documents, so it is exact.
    Dropout is drawn once: the outputs and the penalty see the same units.

    Args:
        chain: layers [documents, features] to [documents, outputs]: linear ones, LayerNorm, Dropout, ELU, ReLU, GELU
            and Tanh, the last one linear. "autograd" takes any layers that treat documents one by one.
        features: data, to which no gradient flows, [documents, features].
        form: how the penalty is computed.
        power: of the norm; 1 is the paper's.
        slope: d phi / d z of the outputs z, [documents, outputs], which may depend on other parameters too; None for 1
            everywhere, phi = z.
        share: of the documents that are penalised, drawn without replacement; unbiased for the mean over all.
        generator: of the draws; torch's own by default.

    Returns:
        z [documents, outputs], and the penalty, a scalar; 0 without documents.

    >>> chain = nn.Sequential(nn.Linear(2, 1))
    >>> _ = chain[0].weight.data.copy_(torch.tensor([[3.0, 4.0]]))
    >>> z, penalty = penalised(chain, torch.zeros(5, 2))
    >>> z.shape, penalty.item()
    (torch.Size([5, 1]), 25.0)
    >>> penalised(chain, torch.zeros(5, 2), power=1)[1].item()
    5.0
    """
    check(form=form, power=power, share=share)
    features = features.detach()
    documents = len(features)
    if documents == 0:
        empty: Tensor = chain(features)
        return empty, empty.sum()
    if len(chain) == 1 and isinstance(chain[0], nn.Linear):
        z: Tensor = chain(features)
        squares = chain[0].weight.square().sum(-1)
        return z, _mean(squares, None if slope is None else slope(z), power)
    count = math.ceil(share * documents)
    order = None if count == documents else torch.randperm(documents, generator=generator)
    x = features if order is None else features.index_select(0, order)
    if form == "autograd":
        z, squares = _by_autograd(chain, x, count)
        penalty = _mean(squares, None if slope is None else slope(z[:count]), power)
    else:
        z, penalty = _by_walk(chain, x, count, form=form, power=power, slope=slope, generator=generator)
    return z if order is None else torch.empty_like(z).index_copy(0, order, z), penalty


def check(*, form: str, power: int, share: float) -> None:
    """Raise SettingError unless the settings of a penalty work together."""
    if form not in FORMS:
        raise SettingError("form", form, f"be one of {', '.join(FORMS)}")
    if power not in (1, 2):
        raise SettingError("power", power, "be 1 or 2")
    if form == "projection" and power == 1:
        raise SettingError("power", power, "be 2 for the form projection, whose norm is right in square only")
    if not 0 < share <= 1:
        raise SettingError("share", share, "be above 0 and at most 1")


def _by_walk(
    chain: nn.Sequential,
    features: Tensor,
    count: int,
    *,
    form: Form,
    power: int,
    slope: Callable[[Tensor], Tensor] | None,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """The outputs of all documents and the penalty of the first `count` of them, without autograd."""
    walk = Walk(chain, features, count=count)
    outputs = walk.z.shape[1]
    slopes = None if slope is None else slope(walk.z[:count])
    if form == "chain":
        return walk.z, _mean(walk.squares(), slopes, power)
    if form == "projection":
        signs = torch.randint(2, (count, outputs), generator=generator).to(features).mul_(2).sub_(1)
        return walk.z, walk.squares(signs if slopes is None else signs * slopes).mean() / outputs
    drawn = torch.randperm(count, generator=generator).add_(torch.randint(outputs, (), generator=generator))
    drawn.remainder_(outputs)
    slopes = None if slopes is None else slopes.gather(1, drawn[:, None]).squeeze(1)
    return walk.z, _mean(walk.squares(drawn), slopes, power)


def _mean(squares: Tensor, slopes: Tensor | None, power: int) -> Tensor:
    """The mean of (squares slopes^2)^(power / 2); both broadcast."""
    if slopes is not None:
        squares = squares * slopes.square()
    return (squares if power == 2 else (squares + TINY).sqrt()).mean()


def _by_autograd(chain: nn.Sequential, features: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The outputs of all documents and |dz / dx|^2 of the first `count`, [count, outputs]."""
    with torch.enable_grad():
        x = features.clone().requires_grad_()
        z: Tensor = chain(x)
        columns = z[:count].unbind(-1)
        rows = [torch.autograd.grad(column.sum(), x, create_graph=True)[0][:count] for column in columns]
    return z, torch.stack([row.square().sum(-1) for row in rows], -1)
