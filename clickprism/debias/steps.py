"""The layers that a Jacobian can be walked through by hand, each with its value, its pull-back, and their gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from clickprism.errors import SettingError

aten = torch.ops.aten


class Step(ABC):
    """A layer y = f(x): its value, its Jacobian's product with rows g, and the gradients of both.

    Attributes:
        parameters: those it has, weight before bias.
        gradients: the same shapes; None before there is one.
        extra: the gradient with respect to the x of the first `count` documents that came by way of the rows.
        is_first: whether x is data.
    """

    def __init__(self, parameters: list[Tensor | None], count: int) -> None:
        self.parameters = [parameter for parameter in parameters if parameter is not None]
        self.count = count
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


class LinearStep(Step):
    """y = x W' + b. The squares of wide rows g W come from the Gram matrix: g W W' g'."""

    def __init__(self, layer: nn.Linear, count: int) -> None:
        super().__init__([layer.weight, layer.bias], count)
        self.weight, self.bias = layer.weight, layer.bias
        self.gram: Tensor | None = None

    def choose(self, rows: int) -> None:
        """Take the Gram matrix if that is less work for so many rows."""
        width, features = self.weight.shape
        if rows * (features - width) > width * features:
            self.gram = self.weight @ self.weight.T

    def forward(self, x: Tensor) -> Tensor:
        """The values x W' + b."""
        self.x = x
        return functional.linear(x, self.weight, self.bias)

    def pull(self, g: Tensor) -> Tensor:
        """The rows g W."""
        return g @ self.weight

    def back_pull(self, g: Tensor, below: Tensor, bar: Tensor) -> Tensor:
        """The gradient bar W', and g' bar for W."""
        self.learn(0, g, bar)
        return bar @ self.weight.T

    def squares(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """The squares |g W|^2, or g (W W') g' for the same."""
        if self.gram is None:
            return super().squares(g)
        below = g @ self.gram
        return below, torch.linalg.vecdot(below, g)

    def back_squares(self, g: Tensor, below: Tensor, bar: Tensor) -> Tensor:
        """The gradient 2 bar g W W'; through the Gram matrix without a further product."""
        if self.gram is None:
            return super().back_squares(g, below, bar)
        twice = 2 * bar[:, None]
        self.learn(0, g.T @ (g * twice), self.weight)
        return below * twice

    def backward(self, bar: Tensor) -> Tensor:
        """The gradient bar W, and bar' x for W."""
        self.learn(0, bar, self.x)
        if self.bias is not None:
            self.gradients[1] = bar.sum(0)
        return bar if self.is_first else bar @ self.weight


class NormStep(Step):
    """LayerNorm: y = w n + b, n = (x - mean) / sd, with the symmetric dn/dx = J = (1 - 11'/width - nn'/width) / sd.

    For rows u = w g the gradient of v'J u with respect to x, which all of J depends on, is
    - (J v (n.u) + J u (n.v) + n v'J u) / (width sd).
    """

    def __init__(self, layer: nn.LayerNorm, count: int) -> None:
        super().__init__([layer.weight, layer.bias], count)
        self.weight: Tensor | None = layer.weight
        self.bias: Tensor | None = layer.bias
        self.eps, self.shape = layer.eps, list(layer.normalized_shape)

    def forward(self, x: Tensor) -> Tensor:
        """The values w n + b."""
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
        """The rows (g w) J."""
        return self._pull(g, self.weight)

    def back_pull(self, g: Tensor, below: Tensor, bar: Tensor) -> Tensor:
        """The gradient (bar J) w; what x gets is in the description of the class."""
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
        """The gradient (bar w) J."""
        x, mean, scale = self.saved
        needed = [not self.is_first, self.weight is not None, self.bias is not None]
        bar_x, *new = aten.native_layer_norm_backward(bar, x, self.shape, mean, scale, self.weight, self.bias, needed)
        both = zip(self.gradients, new, strict=False)
        self.gradients = [each if mine is None else mine.add_(each) for mine, each in both]
        return bar if self.is_first else self.whole(bar_x)


class ActivationStep(Step):
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
        """The values f(x)."""
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
        """The rows g f'(x)."""
        return self._times(g, self.chosen)

    def back_pull(self, g: Tensor, below: Tensor, bar: Tensor) -> Tensor:
        """The gradient bar f'(x), and bar g f''(x) for x."""
        x, y = self.chosen
        if isinstance(self.layer, nn.ELU):
            self.add(aten.threshold_backward(bar * below, -y, 0))
        elif isinstance(self.layer, nn.Tanh):
            self.add((bar * below).mul_(y).mul_(-2))
        elif isinstance(self.layer, nn.GELU):
            square = x.square()
            bend = (square * -0.5).exp_().mul_(2 - square).div_(math.sqrt(2 * math.pi))
            self.add(bend.mul_(bar).mul_(g))
        return self._times(bar, self.chosen)

    def backward(self, bar: Tensor) -> Tensor:
        """The gradient bar f'(x)."""
        return self.whole(self._times(bar, self.saved))


class DropoutStep(Step):
    """y = x m, with a mask m that is drawn once."""

    def __init__(self, layer: nn.Dropout, count: int) -> None:
        super().__init__([], count)
        self.share = layer.p

    def forward(self, x: Tensor) -> Tensor:
        """The values x m."""
        self.mask = functional.dropout(torch.ones_like(x), self.share)
        return x * self.mask

    def pull(self, g: Tensor) -> Tensor:
        """The rows g m."""
        return g * self.mask[: self.count]

    def back_pull(self, g: Tensor, below: Tensor, bar: Tensor) -> Tensor:
        """The gradient bar m."""
        return bar * self.mask[: self.count]

    def backward(self, bar: Tensor) -> Tensor:
        """The gradient bar m."""
        return bar * self.mask


def is_idle(layer: nn.Module) -> bool:
    """Whether a layer passes on what it gets: dropout when it is off."""
    return isinstance(layer, nn.Dropout) and (not layer.training or layer.p == 0)


def step_of(layer: nn.Module, count: int) -> Step:
    """The step of a layer of any kind that is known."""
    if isinstance(layer, nn.Linear):
        return LinearStep(layer, count)
    if isinstance(layer, nn.LayerNorm):
        return NormStep(layer, count)
    return DropoutStep(layer, count) if isinstance(layer, nn.Dropout) else ActivationStep(layer, count)
