"""Outputs of a chain of layers, squared norms of rows of its Jacobian, and the gradient of both, by hand.

Autograd would keep a graph of the backward pass and differentiate that: a pass for every row, and small networks drown
in its bookkeeping. Here the layers are walked up (outputs), down (rows of the Jacobian, from the activations that the
first walk left), up again (the gradient with respect to those rows) and down (that of all parameters).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clickprism.debias.steps import LinearStep, Step, is_idle, step_of
from clickprism.errors import SettingError


class Walk:
    """Outputs z of all documents, and squared norms of rows of dz/dx of some; both can be differentiated once.

    Attributes:
        z: [documents, outputs].

    >>> chain = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 2, bias=False))
    >>> for layer, weight in ((chain[0], [[3.0, 4.0]]), (chain[2], [[1.0], [2.0]])):
    ...     _ = layer.weight.data.copy_(torch.tensor(weight))
    >>> walk = Walk(chain, torch.tensor([[1.0, 1.0], [-1.0, -1.0]]), count=2)
    >>> walk.z.tolist(), walk.squares().tolist()
    ([[7.0, 14.0], [0.0, 0.0]], [[25.0, 100.0], [0.0, 0.0]])
    """

    def __init__(self, chain: nn.Sequential, features: Tensor, *, count: int) -> None:
        """Walk up.

        Args:
            chain: linear layers, LayerNorm, Dropout, ELU, ReLU, GELU, Tanh; the last one linear.
            features: data, [documents, features].
            count: so many documents, the first ones, at least 1, have rows.
        """
        self._layers = _Layers(chain, features, count)
        parameters = [parameter for step in self._layers.all for parameter in step.parameters]
        self.z: Tensor = _Outputs.apply(self._layers, *parameters)  # type: ignore[no-untyped-call]

    def squares(self, drawn: Tensor | None = None) -> Tensor:
        """The squared norms of rows of dz/dx, [count] or, of all rows, [count, outputs].

        Args:
            drawn: which rows. None: all of them. [count] of integers: one a document, the gradient of this output.
                [count, outputs]: one a document, the gradient of the sum of the outputs with these factors, which are
                differentiated too and may depend on z.
        """
        squares: Tensor = _Squares.apply(self._layers, self.z, drawn)  # type: ignore[no-untyped-call]
        return squares


class _Layers:
    """The layers with what the walks through them leave behind, which is no part of any graph.

    Attributes:
        last: the last layer, at which the rows of the Jacobian begin.
    """

    def __init__(self, chain: nn.Sequential, features: Tensor, count: int) -> None:
        layers, last = list(chain)[:-1], last_layer(chain)
        self.features, self.count = features, count
        self.layers = [step_of(layer, count) for layer in layers if not is_idle(layer)]
        self.last = LinearStep(last, count)
        self.all: list[Step] = [*self.layers, self.last]
        self.all[0].is_first = True
        self.reset()

    def outputs(self) -> Tensor:
        """Up: features to z."""
        x = self.features
        for step in self.all:
            x = step.forward(x)
        return x

    def down(self, g: Tensor) -> tuple[_Path, Tensor]:
        """Rows g at the input of the last layer, [count, width], down to the features, and their squares there."""
        if not self.layers:
            return _Path([g], g), torch.linalg.vecdot(g, g)
        rows = [g]
        for step in self.layers[:0:-1]:
            rows.append(step.pull(rows[-1]))
        below, squares = self.layers[0].squares(rows[-1])
        return _Path(rows, below), squares

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


class _Outputs(torch.autograd.Function):
    """Features to z. Going back, it is the last: it returns the gradients that `_Squares` has left as well."""

    @staticmethod
    def forward(ctx: Any, layers: _Layers, *parameters: Tensor) -> Tensor:
        ctx.layers = layers
        ctx.save_for_backward(*parameters)  # for its checks: not changed meanwhile, not twice
        return layers.outputs()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, bar: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors
        gradients = ctx.layers.backward(bar)
        ctx.layers.reset()
        return None, *gradients


class _Squares(torch.autograd.Function):
    """Squared norms of rows; as z is given, its turn to go back comes before that of `_Outputs`."""

    @staticmethod
    def forward(ctx: Any, layers: _Layers, z: Tensor, drawn: Tensor | None) -> Tensor:
        weight = layers.last.weight
        if drawn is None:
            rows = [row.expand(layers.count, -1) for row in weight]
        else:
            rows = [drawn @ weight if drawn.is_floating_point() else weight.index_select(0, drawn)]
        if isinstance(first := layers.all[0], LinearStep) and first is not layers.last:
            first.choose(len(rows) * layers.count)
        ctx.paths, squares = zip(*(layers.down(row) for row in rows), strict=True)
        ctx.layers, ctx.drawn, ctx.shape = layers, drawn, z.shape
        return squares[0] if drawn is not None else torch.stack(squares, -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, bar: Tensor) -> tuple[None, Tensor, Tensor | None]:
        layers, drawn = ctx.layers, ctx.drawn
        layers.reset()
        bars = bar[None] if drawn is not None else bar.unbind(-1)
        heads = [layers.up(path, each) for path, each in zip(ctx.paths, bars, strict=True)]
        bar_drawn = None
        if drawn is None:
            gradient = torch.stack([head.sum(0) for head in heads])
        elif drawn.is_floating_point():
            gradient = drawn.T @ heads[0]
            bar_drawn = heads[0] @ layers.last.weight.T
        else:
            gradient = torch.zeros_like(layers.last.weight).index_add_(0, drawn, heads[0])
        layers.last.gradients[0] = gradient
        return None, bar.new_zeros(ctx.shape), bar_drawn


@dataclass
class _Path:
    """Rows of the Jacobian on their way down: at the output of each layer, from the last to the first, and below."""

    rows: list[Tensor]
    below: Tensor


def last_layer(chain: nn.Sequential) -> nn.Linear:
    """The last layer of a chain, which must be linear."""
    last = chain[-1]
    if not isinstance(last, nn.Linear):
        raise SettingError("form", "chain", f"be autograd for a chain that ends in {last}")
    return last
