"""Outputs of a chain of layers, squared norms of rows of its Jacobian, and the gradient of both, by hand.

Autograd would keep a graph of the backward pass and differentiate that: a pass for every row, and small networks drown
in its bookkeeping. Here the layers are walked up (outputs), down (rows of the Jacobian, from the activations that the
first walk left), up again (the gradient with respect to those rows) and down (that of all parameters).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clickprism.debias.steps import LinearStep, Step, is_idle, step_of
from clickprism.errors import SettingError


def walked(
    chain: nn.Sequential,
    features: Tensor,
    *,
    count: int,
    skip: int = 0,
    drawn: Tensor | None = None,
    slope: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Outputs z of all documents, and the squared norms of rows of dz/dx of the first `count` of them.

    Args:
        chain: linear layers, LayerNorm, Dropout, ELU, ReLU, GELU, Tanh; the last one linear.
        features: data, [documents, features].
        count: so many documents, the first ones, at least 1.
        skip: so many outputs at the front have no rows.
        drawn: which rows. None: all of them. [count] of integers: one a document, the gradient of this output.
            [count, outputs]: one a document, the gradient of the sum of all outputs with these factors.
        slope: further factors for the latter, a function of z alone, differentiated too.

    Returns:
        z [documents, outputs], squares [count] or, for all rows, [count, outputs]. They can be differentiated once.

    >>> chain = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 2, bias=False))
    >>> for layer, weight in ((chain[0], [[3.0, 4.0]]), (chain[2], [[1.0], [2.0]])):
    ...     _ = layer.weight.data.copy_(torch.tensor(weight))
    >>> walked(chain, torch.tensor([[1.0, 1.0], [-1.0, -1.0]]), count=2)[1].tolist()
    [[25.0, 100.0], [0.0, 0.0]]
    """
    outputs = last_layer(chain).out_features - skip
    walk = _Walk(chain, features, count, rows=outputs if drawn is None else 1, skip=skip)
    z, squares = _Walked.apply(walk, drawn, slope, *walk.parameters)  # type: ignore[no-untyped-call]
    return z, squares


def last_layer(chain: nn.Sequential) -> nn.Linear:
    """The last layer of a chain, which must be linear."""
    last = chain[-1]
    if not isinstance(last, nn.Linear):
        raise SettingError("form", "chain", f"be autograd for a chain that ends in {last}")
    return last


class _Walked(torch.autograd.Function):
    """z [documents, outputs] and squared norms of gradient rows, [count] or, for all outputs, [count, outputs].

    A row is the gradient of one output (`drawn`: which one, [count]), of a sum of outputs (`drawn`: their signs,
    [count, outputs], times `slope`), or there is one for each output (`drawn`: None).
    """

    @staticmethod
    def forward(
        ctx: Any, walk: _Walk, drawn: Tensor | None, slope: Callable[[Tensor], Tensor] | None, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        z = walk.outputs()
        ctx.signs, ctx.slopes = drawn, None
        if slope is not None and drawn is not None:
            with torch.enable_grad():
                ctx.at = z[: walk.count, walk.skip :].detach().requires_grad_()
                ctx.slopes = slope(ctx.at)
            drawn = drawn * ctx.slopes.detach()
        weight = walk.last.weight[walk.skip :]
        if drawn is None:
            rows = [row.expand(walk.count, -1) for row in weight]
        else:
            rows = [weight.index_select(0, drawn) if drawn.dim() == 1 else drawn @ weight]
        ctx.paths = [walk.down(row) for row in rows]
        ctx.walk, ctx.drawn = walk, drawn
        ctx.save_for_backward(*parameters)  # for its checks: not changed meanwhile, not twice
        squares = [path.squares for path in ctx.paths]
        return z, squares[0] if drawn is not None else torch.stack(squares, -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, bar_z: Tensor, bar_squares: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors
        walk, drawn = ctx.walk, ctx.drawn
        walk.reset()
        bars = bar_squares[None] if drawn is not None else bar_squares.unbind(-1)
        heads = [walk.up(path, bar) for path, bar in zip(ctx.paths, bars, strict=True)]
        weight = walk.last.weight[walk.skip :]
        gradient = torch.zeros_like(walk.last.weight)
        if drawn is None:
            gradient[walk.skip :] = torch.stack([head.sum(0) for head in heads])
        elif drawn.dim() == 1:
            gradient[walk.skip :].index_add_(0, drawn, heads[0])
        else:
            gradient[walk.skip :] = drawn.T @ heads[0]
        walk.last.gradients[0] = gradient
        if ctx.slopes is not None:
            bar_slopes = heads[0] @ weight.T * ctx.signs
            (bar_at,) = torch.autograd.grad(ctx.slopes, ctx.at, bar_slopes, retain_graph=True)
            bar_z = bar_z.clone()
            bar_z[: walk.count, walk.skip :] += bar_at
        return None, None, None, *walk.backward(bar_z)


@dataclass
class _Path:
    """Rows of the Jacobian on their way down: at the output of each layer, from the last to the first, and below."""

    rows: list[Tensor]
    below: Tensor
    squares: Tensor


class _Walk:
    """A chain of layers with what the walks through it leave behind.

    Attributes:
        count: so many documents, the first ones, are penalised.
        skip: so many outputs, the first ones, are not.
        last: the last layer, at which the rows of the Jacobian begin.
    """

    def __init__(self, chain: nn.Sequential, features: Tensor, count: int, *, rows: int, skip: int) -> None:
        layers, last = list(chain)[:-1], last_layer(chain)
        self.features, self.count, self.skip = features, count, skip
        self.layers = [step_of(layer, count) for layer in layers if not is_idle(layer)]
        self.last = LinearStep(last, count)
        self.all: list[Step] = [*self.layers, self.last]
        self.parameters = [parameter for step in self.all for parameter in step.parameters]
        self.all[0].is_first = True
        self.rows = rows

    def outputs(self) -> Tensor:
        """Up: features to z."""
        x = self.features
        for step in self.all:
            x = step.forward(x)
        if isinstance(first := self.all[0], LinearStep) and first is not self.last:
            first.choose(self.rows * self.count)
        return x

    def down(self, g: Tensor) -> _Path:
        """Rows g at the input of the last layer, [count, width], down to the features."""
        if not self.layers:
            return _Path([g], g, torch.linalg.vecdot(g, g))
        rows = [g]
        for step in self.layers[:0:-1]:
            rows.append(step.pull(rows[-1]))
        return _Path(rows, *self.layers[0].squares(rows[-1]))

    def reset(self) -> None:
        """Forget all gradients."""
        for step in self.all:
            step.extra = None
            step.gradients = [None] * len(step.parameters)

    def up(self, path: _Path, bar: Tensor) -> Tensor:
        """The gradient with respect to the rows at the last layer, given that with respect to the squares."""
        if not self.layers:
            return path.below * (2 * bar[:, None])
        rows = list(path.rows)
        above = self.layers[0].back_squares(rows[-1], path.below, bar)
        for step in self.layers[1:]:
            below = rows.pop()
            above = step.back_pull(rows[-1], below, above)
        return above

    def backward(self, bar: Tensor) -> list[Tensor | None]:
        """Down: the gradients of all parameters, in order, with those that the other walks have left."""
        for step in reversed(self.all):
            bar = step.backward(bar)
        return [gradient for step in self.all for gradient in step.gradients]
