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
from torch.nn.attention import SDPBackend, sdpa_kernel

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
    by_hand: bool = True,
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
        by_hand: walk the layers by hand in all forms but "autograd". If not, autograd computes the same for any layers
            that treat documents one by one: the forms that draw take one pass back, "chain" one for every output.
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
    rows = Walk(chain, x, count=count) if by_hand and form != "autograd" else _Graph(chain, x, count)
    penalty, z = _penalty(rows, count, form=form, power=power, slope=slope, generator=generator), rows.z
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


def _penalty(
    rows: Walk | _Graph,
    count: int,
    *,
    form: Form,
    power: int,
    slope: Callable[[Tensor], Tensor] | None,
    generator: torch.Generator | None,
) -> Tensor:
    """The penalty of the first `count` documents."""
    outputs = rows.z.shape[1]
    slopes = None if slope is None else slope(rows.z[:count])
    if form in {"chain", "autograd"}:
        return _mean(rows.squares(), slopes, power)
    if form == "projection":
        signs = torch.randint(2, (count, outputs), generator=generator).to(rows.z).mul_(2).sub_(1)
        return rows.squares(signs if slopes is None else signs * slopes).mean() / outputs
    drawn = torch.randperm(count, generator=generator).add_(torch.randint(outputs, (), generator=generator))
    drawn.remainder_(outputs)
    slopes = None if slopes is None else slopes.gather(1, drawn[:, None]).squeeze(1)
    return _mean(rows.squares(drawn), slopes, power)


def _mean(squares: Tensor, slopes: Tensor | None, power: int) -> Tensor:
    """The mean of (squares slopes^2)^(power / 2); both broadcast."""
    if slopes is not None:
        squares = squares * slopes.square()
    return (squares if power == 2 else (squares + TINY).sqrt()).mean()


class _Graph:
    """What `Walk` does, by autograd: `z` and `squares` are as there."""

    def __init__(self, chain: nn.Sequential, features: Tensor, count: int) -> None:
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # the others can be differentiated once only
            self._x = features.clone().requires_grad_()
            self.z: Tensor = chain(self._x)
            self._outputs = self.z[:count]

    def squares(self, drawn: Tensor | None = None) -> Tensor:
        """The squared norms of rows of dz/dx, [count] or, of all rows, [count, outputs]."""
        if drawn is None:
            return torch.stack([self._squares(column) for column in self._outputs.unbind(-1)], -1)
        if drawn.is_floating_point():
            return self._squares(self._outputs, drawn)
        return self._squares(self._outputs.gather(1, drawn[:, None]))

    def _squares(self, outputs: Tensor, factors: Tensor | None = None) -> Tensor:
        factors = torch.ones_like(outputs) if factors is None else factors
        with torch.enable_grad():
            (rows,) = torch.autograd.grad(outputs, self._x, factors, create_graph=True)
        return rows[: len(outputs)].square().sum(-1)
