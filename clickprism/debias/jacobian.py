"""Outputs of a chain of layers, squared norms of rows of its Jacobian, and the gradient of both, by hand.

Autograd would keep a graph of the backward pass and differentiate that: a pass for every row, and small networks drown
in its bookkeeping. Here the layers are walked up (outputs), down (rows of the Jacobian, from the activations that the
first walk left), up again (the gradient with respect to those rows) and down (that of all parameters).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from clickprism.errors import SettingError

aten = torch.ops.aten


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
    z, squares = _Walked.apply(walk, drawn, slope, *chain.parameters())  # type: ignore[no-untyped-call]
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
            bar_z = bar_z.clone()
            bar_z[: walk.count, walk.skip :] += torch.autograd.grad(ctx.slopes, ctx.at, bar_slopes, retain_graph=True)[
                0
            ]
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
        self.layers = [_step(layer, count) for layer in layers if not _is_idle(layer)]
        self.last = _Linear(last, count)
        self.all: list[_Step] = [*self.layers, self.last]
        self.all[0].is_first = True
        first = self.layers[0] if self.layers else None
        if isinstance(first, _Linear):
            first.choose(rows * count)

    def outputs(self) -> Tensor:
        """Up: features to z."""
        x = self.features
        for step in self.all:
            x = step.forward(x)
        return x

    def down(self, g: Tensor) -> _Path:
        """Rows g at the input of the last layer, [count, width], down to the features."""
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


class _Step(ABC):
    """A layer y = f(x): its value, its Jacobian's product with rows g, and the gradients of both.

    Attributes:
        parameters: as the module lists them.
        gradients: the same shapes; None before there is one.
        extra: the gradient with respect to the x of the first `count` documents that came by way of the rows.
        is_first: whether x is data.
    """

    def __init__(self, parameters: list[Tensor], count: int) -> None:
        self.parameters, self.count = parameters, count
        self.gradients: list[Tensor | None] = []
        self.extra: Tensor | None = None
        self.is_first = False

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The values y of all documents."""

    @abstractmethod
    def pull(self, g: Tensor) -> Tensor:
        """Rows g dy/dx for rows g, [count, width]."""

    @abstractmethod
    def back_pull(self, g: Tensor, below: Tensor, bar: Tensor) -> Tensor:
        """The gradient with respect to g, given that with respect to below = pull(g)."""

    @abstractmethod
    def backward(self, bar: Tensor) -> Tensor:
        """The gradient with respect to x, given that with respect to y; anything if x is data."""

    def squares(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """What is needed to go back, and the squared norms of the rows below."""
        below = self.pull(g)
        return below, torch.linalg.vecdot(below, below)

    def back_squares(self, g: Tensor, below: Tensor, bar: Tensor) -> Tensor:
        """The gradient with respect to g, given that with respect to the squares."""
        return self.back_pull(g, below, below * (2 * bar[:, None]))

    def learn(self, index: int, a: Tensor, b: Tensor) -> None:
        """Add a' b to the gradient of a matrix."""
        mine = self.gradients[index]
        self.gradients[index] = a.T @ b if mine is None else mine.addmm_(a.T, b)

    def add(self, extra: Tensor) -> None:
        """Keep a gradient with respect to x for `backward`."""
        self.extra = extra if self.extra is None else self.extra.add_(extra)

    def whole(self, bar: Tensor) -> Tensor:
        """The gradient with respect to x with what `add` kept."""
        if self.extra is not None:
            bar[: self.count] += self.extra
        return bar


class _Linear(_Step):
    """y = x W' + b. The squares of wide rows g W come from the Gram matrix: g W W' g'."""

    def __init__(self, layer: nn.Linear, count: int) -> None:
        super().__init__([parameter.detach() for parameter in layer.parameters()], count)
        self.weight, self.bias = self.parameters[0], (self.parameters[1] if len(self.parameters) > 1 else None)
        self.gram: Tensor | None = None

    def choose(self, rows: int) -> None:
        """Take the Gram matrix if that is less work for so many rows."""
        width, features = self.weight.shape
        if rows * (features - width) > width * features:
            self.gram = self.weight @ self.weight.T

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        return functional.linear(x, self.weight, self.bias)

    def pull(self, g: Tensor) -> Tensor:
        return g @ self.weight

    def back_pull(self, g: Tensor, below: Tensor, bar: Tensor) -> Tensor:
        self.learn(0, g, bar)
        return bar @ self.weight.T

    def squares(self, g: Tensor) -> tuple[Tensor, Tensor]:
        if self.gram is None:
            return super().squares(g)
        below = g @ self.gram
        return below, torch.linalg.vecdot(below, g)

    def back_squares(self, g: Tensor, below: Tensor, bar: Tensor) -> Tensor:
        if self.gram is None:
            return super().back_squares(g, below, bar)
        twice = 2 * bar[:, None]
        self.learn(0, g.T @ (g * twice), self.weight)
        return below * twice

    def backward(self, bar: Tensor) -> Tensor:
        self.learn(0, bar, self.x)
        if self.bias is not None:
            self.gradients[1] = bar.sum(0)
        return bar if self.is_first else bar @ self.weight


class _Norm(_Step):
    """LayerNorm: y = w n + b, n = (x - mean) / sd, with the symmetric dn/dx = J = (1 - 11'/width - nn'/width) / sd.

    For rows u = w g the gradient of v'J u with respect to x, which all of J depends on, is
    - (J v (n.u) + J u (n.v) + n v'J u) / (width sd).
    """

    def __init__(self, layer: nn.LayerNorm, count: int) -> None:
        super().__init__([parameter.detach() for parameter in layer.parameters()], count)
        self.eps, self.shape = layer.eps, list(layer.normalized_shape)
        self.weight, self.bias = (*self.parameters, None, None)[:2]

    def forward(self, x: Tensor) -> Tensor:
        y, mean, scale = torch.native_layer_norm(x, self.shape, self.weight, self.bias, self.eps)
        self.saved = x, mean, scale
        self.chosen = x[: self.count], mean[: self.count], scale[: self.count]
        self.normed: Tensor | None = None
        return y

    def _pull(self, g: Tensor, weight: Tensor | None) -> Tensor:
        """Rows g weight dn/dx of the chosen documents."""
        x, mean, scale = self.chosen
        result: Tensor = aten.native_layer_norm_backward(
            g, x, self.shape, mean, scale, weight, None, [True, False, False]
        )[0]
        return result

    def pull(self, g: Tensor) -> Tensor:
        return self._pull(g, self.weight)

    def back_pull(self, g: Tensor, below: Tensor, bar: Tensor) -> Tensor:
        bar_u = self._pull(bar, None)
        if self.weight is not None:
            mine, new = self.gradients[0], (bar_u * g).sum(0)
            self.gradients[0] = new if mine is None else mine.add_(new)
        if not self.is_first:
            x, mean, scale = self.chosen
            n = self.normed = (x - mean).mul_(scale) if self.normed is None else self.normed
            factor = scale / -self.shape[0]
            along = ((g if self.weight is None else g * self.weight) * n).sum(-1, keepdim=True).mul_(factor)
            extra = (bar_u * along).addcmul_(below, (bar * n).sum(-1, keepdim=True).mul_(factor))
            self.add(extra.addcmul_(n, (bar * below).sum(-1, keepdim=True).mul_(factor)))
        return bar_u if self.weight is None else bar_u.mul_(self.weight)

    def backward(self, bar: Tensor) -> Tensor:
        x, mean, scale = self.saved
        needed = [not self.is_first, self.weight is not None, self.bias is not None]
        bar_x, *new = aten.native_layer_norm_backward(bar, x, self.shape, mean, scale, self.weight, self.bias, needed)
        both = zip(self.gradients, new, strict=False)
        self.gradients = [each if mine is None else mine.add_(each) for mine, each in both]
        return bar if self.is_first else self.whole(bar_x)


class _Activation(_Step):
    """y_j = f(x_j). Torch's own kernels multiply by f': ten to fifty times as fast as `torch.where` on signs."""

    def __init__(self, layer: nn.Module, count: int) -> None:
        super().__init__([], count)
        if not (
            (isinstance(layer, nn.ELU) and layer.alpha >= 0)
            or (isinstance(layer, nn.GELU) and layer.approximate == "none")
            or isinstance(layer, nn.ReLU | nn.Tanh)
        ):
            raise SettingError("form", "chain", f"be autograd for a chain with {layer}")
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        self.saved, self.chosen = (x, y), (x[: self.count], y[: self.count])
        return y

    def _times(self, g: Tensor, at: tuple[Tensor, Tensor]) -> Tensor:
        """The product g f'(x)."""
        x, y = at
        if isinstance(self.layer, nn.ELU):
            result: Tensor = aten.elu_backward(g, self.layer.alpha, 1, 1, True, y)
        elif isinstance(self.layer, nn.ReLU):
            result = aten.threshold_backward(g, y, 0)
        else:
            result = aten.tanh_backward(g, y) if isinstance(self.layer, nn.Tanh) else aten.gelu_backward(g, x)
        return result

    def pull(self, g: Tensor) -> Tensor:
        return self._times(g, self.chosen)

    def back_pull(self, g: Tensor, below: Tensor, bar: Tensor) -> Tensor:
        x, y = self.chosen
        if isinstance(self.layer, nn.ELU):
            self.add(aten.threshold_backward(bar * below, -x, 0))
        elif isinstance(self.layer, nn.Tanh):
            self.add((bar * below).mul_(y).mul_(-2))
        elif isinstance(self.layer, nn.GELU):
            square = x.square()
            bend = (square * -0.5).exp_().mul_(2 - square).div_(math.sqrt(2 * math.pi))
            self.add(bend.mul_(bar).mul_(g))
        return self._times(bar, self.chosen)

    def backward(self, bar: Tensor) -> Tensor:
        return self.whole(self._times(bar, self.saved))


class _Dropout(_Step):
    """y = x m, with a mask m that is drawn once."""

    def __init__(self, layer: nn.Dropout, count: int) -> None:
        super().__init__([], count)
        self.share = layer.p

    def forward(self, x: Tensor) -> Tensor:
        self.mask = functional.dropout(torch.ones_like(x), self.share)
        return x * self.mask

    def pull(self, g: Tensor) -> Tensor:
        return g * self.mask[: self.count]

    def back_pull(self, g: Tensor, below: Tensor, bar: Tensor) -> Tensor:
        return bar * self.mask[: self.count]

    def backward(self, bar: Tensor) -> Tensor:
        return bar * self.mask


def _is_idle(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Dropout) and (not layer.training or layer.p == 0)


def _step(layer: nn.Module, count: int) -> _Step:
    if isinstance(layer, nn.Linear):
        return _Linear(layer, count)
    if isinstance(layer, nn.LayerNorm):
        return _Norm(layer, count)
    return _Dropout(layer, count) if isinstance(layer, nn.Dropout) else _Activation(layer, count)
