"""The attention ranker of InfoRank: which features matter together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final, Literal, final

import torch
from torch import nn
from torch.nn import functional

from clickprism.errors import SettingError
from clickprism.settings import check_fields

MOST_CODES: Final = 2**24  # whole numbers up to here are exact in float32
MOST_TOKENS: Final = 64
CHUNK: Final = 256
DECAY: Final = 0.9  # decay of the moving averages of batch normalisation (InfoRank, appendix B.3)


@final
@dataclass(frozen=True)
class Attention:
    """Multi-head attention over the features of a document, pooled, and a network on top (InfoRank, Eqs. 8-11).

    beta_ij = (x_i W_T) . (x_j W_S),  alpha_ij = softmax_j(beta_ij / temperature),  u_i = sum_j alpha_ij x_j W_C

    in every head, with x_i the token of feature i (`Tokens`). Then, by `form`:

    "residual": omega_i = norm(x_i + W_q [u_i of all heads] + b_q)
                p = elu(1/N sum_i w_i tanh(W_p omega_i + b_p) + V x + b)
    "paper":    omega_i = sigmoid(W_q mean over heads of u_i + b_q)
                p = 1/N sum_i w tanh(W_p omega_i + b_p)

    The paper's pooling weights all features alike, which loses the information which feature contributed what; the
    default has weights w_i for each feature, and connections around the attention for the tokens and for the features
    themselves. docs/research/attention.md has the effect of each change, and the cost.

    Attributes:
        form: "residual", with connections around the attention and weights for each feature, or "paper", the printed
            equations.
        heads: H; each adds about half of the cost of a step.
        width: Width of a token; the heads of "residual" share it, those of "paper" have it each.
        units: Hidden units of the small network of each continuous feature.
        temperature: Of the softmax; None for the square root of a head's width.
        pooled: Width of p; None for 64, and for the 1 of the paper's text in its form.
        hidden: Units of the hidden layers on top.
        norm: Normalisation before each layer on top: "layer", or "batch" as in the paper's appendix B.3.
        context: Number of tokens beside those of the features, for inputs that a method adds, such as the position; a
            method that has such inputs sets it. Only for the form "paper".
        tokens: Largest number of tokens: with more features, neighbouring ones share a token; None for 64.
        categorical: The columns that hold codes, whole numbers from 0 on; all others are continuous.
        categories: Number of codes of each of these; other values of the column count as one unknown code.

    >>> network = Attention(categorical=(1,), categories=(3,)).build(4)
    >>> network(torch.tensor([[0.5, 2.0, -1.0, 0.1], [0.5, 99.0, -1.0, 0.1]])).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "attention"
    form: Literal["residual", "paper"] = "residual"
    heads: int = 1
    width: int = 16
    units: int = 8
    temperature: float | None = None
    pooled: int | None = None
    hidden: tuple[int, ...] = (32,)
    norm: Literal["layer", "batch"] = "layer"
    context: int = 0
    tokens: int | None = None
    categorical: tuple[int, ...] = ()
    categories: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        counts = ("heads", "width", "units", "pooled", "tokens", "hidden")
        check_fields(self, **dict.fromkeys(counts, "[1, inf)"), temperature="(0, inf)", categories=f"[1, {MOST_CODES}]")
        if self.context < 0 or (self.context and self.form != "paper"):
            raise SettingError("context", self.context, "be 0, or above it in the form paper")
        if self.form == "residual" and self.width % self.heads:
            raise SettingError("width", self.width, f"be a multiple of the {self.heads} heads")
        if not self.hidden:
            raise SettingError("hidden", self.hidden, "name at least one layer")
        if len(set(self.categorical)) < len(self.categorical) or min(self.categorical, default=0) < 0:
            raise SettingError("categorical", self.categorical, "name columns from 0 on, each once")
        if len(self.categories) != len(self.categorical):
            raise SettingError("categories", self.categories, f"have a size for each of {self.categorical}")

    def build(self, features: int) -> nn.Module:
        """Return a new network that maps [..., features] to scores [...]."""
        if features < 1:
            raise SettingError("features", features, "be at least 1: attention compares features")
        if max(self.categorical, default=0) >= features:
            raise SettingError(
                "categorical", self.categorical, f"name columns of the data, which has 0 to {features - 1}"
            )
        return AttentionNetwork(self, features)


@final
class AttentionNetwork(nn.Module):
    """Scores [...] from [..., features].

    Attributes:
        body: [..., features] to p, [..., pooled].
        layers: p to [..., 1]; the last one is linear.
    """

    def __init__(self, settings: Attention, features: int) -> None:
        super().__init__()
        self.settings, self.features, self.width = settings, features, settings.hidden[-1]
        self.body = AttentionBody(settings, features)
        self.layers = _head(settings, self.body.pooled, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[..., features] to [...]."""
        scores: torch.Tensor = self.layers(self.body(features)).squeeze(-1)
        return scores

    def trunk(self) -> nn.Sequential:
        """Return all layers but the last: [..., features] to [..., width]."""
        return nn.Sequential(self.body, *list(self.layers)[:-1])

    def last(self) -> nn.Linear:
        """Return the last layer: [..., width] to [..., 1]."""
        layer: nn.Linear = self.layers[-1]  # type: ignore[assignment]
        return layer

    def new_like(self, outputs: int) -> nn.Sequential:
        """Return a network of this shape with new weights, from torch's generator, and this number of outputs."""
        body = AttentionBody(self.settings, self.features)
        return nn.Sequential(body, *_head(self.settings, body.pooled, outputs))

    def head(self, outputs: int) -> nn.Sequential:
        """Return another network on p with separate weights: p to [..., outputs]."""
        return _head(self.settings, self.body.pooled, outputs)


@final
class AttentionBody(nn.Module):
    """Tokens, attention and pooling: [..., features] to [..., pooled].

    Attributes:
        pooled: the width of p.
        context: the tokens beside those of the features when a document is scored, [tokens, width].
    """

    def __init__(self, settings: Attention, features: int) -> None:
        super().__init__()
        self.settings, self.features = settings, features
        width, paper = settings.width, settings.form == "paper"
        self.pooled = settings.pooled or (1 if paper else 64)
        self.tokens = Tokens(
            features,
            width=width,
            units=settings.units,
            tokens=settings.tokens,
            categories=dict(zip(settings.categorical, settings.categories, strict=True)),
        )
        count = len(self.tokens.groups)
        self.context = nn.Parameter(torch.randn(settings.context, width)) if settings.context else None
        self._head_width = width if paper else width // settings.heads
        self.project = nn.Linear(width, 3 * settings.heads * self._head_width, bias=False)
        self.combine = nn.Linear(width, width)
        self.pool = nn.Linear(width, width)
        if paper:
            self.weigh = nn.Linear(width, self.pooled, bias=False)
        else:
            self.norm = nn.LayerNorm(width)
            self.weigh = nn.Linear(count * width, self.pooled)
            nn.init.normal_(self.weigh.weight)
            numbers = features - len(settings.categorical)
            self.around = nn.Linear(numbers, self.pooled, bias=False) if numbers else None

    def forward(self, features: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """Return p, [..., features] to [..., pooled]; in parts that fit into a processor's cache.

        `context`, [..., any number of tokens, width], replaces the tokens beside those of the features.
        """
        flat = features.reshape(-1, self.features)
        if context is None and self.context is not None:
            context = self.context.expand(len(flat), -1, -1)
        if torch.compiler.is_exporting() or len(flat) <= CHUNK:
            pooled = self._pooled(flat, context)
        elif context is None:
            pooled = torch.cat([self._pooled(part, None) for part in torch.split(flat, CHUNK)])
        else:
            parts = zip(torch.split(flat, CHUNK), torch.split(context, CHUNK), strict=True)
            pooled = torch.cat([self._pooled(*part) for part in parts])
        return pooled.reshape(*features.shape[:-1], self.pooled)

    def attention(self, features: torch.Tensor) -> torch.Tensor:
        """Return alpha of Eq. 9 over the tokens of the features, [documents, heads, tokens, tokens]; rows sum to 1."""
        queries, keys, _ = self._heads(self.tokens(features))
        return torch.softmax(queries @ keys.transpose(-1, -2) * self._scale(), -1)

    def _scale(self) -> float:
        return 1 / (self.settings.temperature or math.sqrt(self._head_width))

    def _heads(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return tokens times W_T, W_S and W_C of all heads, [documents, heads, tokens, width of a head] each."""
        shape = (*tokens.shape[:2], 3, self.settings.heads, self._head_width)
        projected = self.project(tokens.flatten(0, 1)).reshape(shape)
        queries, keys, values = projected.permute(2, 0, 3, 1, 4).unbind(0)
        return queries, keys, values

    def _pooled(self, features: torch.Tensor, context: torch.Tensor | None) -> torch.Tensor:
        """[documents, features] to [documents, pooled]; linear layers see matrices, for the same bits in any mode."""
        tokens = self.tokens(features)
        if context is not None:
            tokens = torch.cat([tokens, context], 1)
        documents, count, _ = tokens.shape
        queries, keys, values = self._heads(tokens)
        attended = functional.scaled_dot_product_attention(queries, keys, values, scale=self._scale())
        if self.settings.form == "paper":
            omega = torch.sigmoid(self.combine(attended.mean(1).flatten(0, 1)))
            literal: torch.Tensor = self.weigh(torch.tanh(self.pool(omega)))
            return literal.reshape(documents, count, self.pooled).mean(1)
        together = self.combine(attended.transpose(1, 2).reshape(-1, self.settings.width))
        omega = self.norm(tokens.flatten(0, 1) + together)
        said = torch.tanh(self.pool(omega)).reshape(documents, count * self.settings.width)
        pooled = functional.linear(said, self.weigh.weight / count, self.weigh.bias)
        if self.around is not None:
            pooled = pooled + self.around(self.tokens.continuous(features))
        return functional.elu(pooled)


def grouped(columns: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Return the columns in groups of `size`, in order; the last one may be smaller.

    >>> grouped([0, 1, 3, 4, 6], 2)
    [(0, 1), (3, 4), (6,)]
    """
    return [tuple(columns[start : start + size]) for start in range(0, len(columns), size)]


def sharing(numbers: int, codes: int, tokens: int) -> int:
    """Return how many features share a token: the fewest with which both kinds fit into this number of tokens.

    >>> sharing(700, 0, 64), sharing(127, 1, 64), sharing(63, 1, 64)
    (11, 3, 1)
    """
    if tokens < (numbers > 0) + (codes > 0):
        raise SettingError("tokens", tokens, "be at least 2 where some columns are categorical and some are not")
    size = max(1, math.ceil((numbers + codes) / tokens))
    while math.ceil(numbers / size) + math.ceil(codes / size) > tokens:
        size += 1
    return size


@final
class Tokens(nn.Module):
    """[documents, features] to [documents, tokens, width].

    Each continuous feature has a small network, e_n(x) = M_n elu(s_n x_n + b_n), and each categorical one a table,
    e_n(x) = E_n[x_n], with one more row for unknown codes. A token is the sum of its features' vectors and a learned
    vector: with one feature for each token, the x_n of InfoRank's Eq. 8. With more features than tokens, neighbours
    share one; continuous and categorical features never share.

    Attributes:
        groups: the columns of each token.
    """

    def __init__(
        self, features: int, *, width: int, units: int, tokens: int | None, categories: dict[int, int]
    ) -> None:
        super().__init__()
        size = sharing(features - len(categories), len(categories), tokens or MOST_TOKENS)
        self._continuous = [column for column in range(features) if column not in categories]
        self._codes, self._sizes = list(categories), list(categories.values())
        numbers = grouped(self._continuous, size)
        self.groups = numbers + grouped(self._codes, size)
        self._size, self._together = size, len(numbers)
        self.own = nn.Parameter(torch.randn(len(self.groups), 1, width) * 0.1)
        self.slope = nn.Parameter(torch.randn(len(numbers), 1, size, units))
        self.bias = nn.Parameter(torch.rand(len(numbers), 1, size, units) * 2 - 1)
        self.mix = nn.Parameter(torch.randn(len(numbers), size * units, width) / math.sqrt(size * units))
        self.table = nn.Parameter(torch.randn(sum(self._sizes) + len(self._sizes), width) / math.sqrt(size))

    def continuous(self, features: torch.Tensor) -> torch.Tensor:
        """Return the columns that are numbers, [documents, features] to [documents, fewer features]."""
        return features[:, self._continuous] if self._codes else features

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[documents, features] to [documents, tokens, width]."""
        found = []
        if self._together:
            values = self._by_token(self.continuous(features)[..., None]).transpose(0, 1)
            units = functional.elu(torch.addcmul(self.bias, values, self.slope)).flatten(2)
            found.append(torch.baddbmm(self.own[: self._together], units, self.mix).transpose(0, 1))
        if self._codes:
            vectors = functional.embedding(self._rows(features[:, self._codes]), self.table)
            found.append(self._by_token(vectors).sum(2) + self.own[self._together :, 0])
        return found[0].contiguous() if len(found) == 1 else torch.cat(found, 1)

    def _by_token(self, values: torch.Tensor) -> torch.Tensor:
        """[documents, features, n] to [documents, tokens, features of a token, n], padded with zeros."""
        documents, features, width = values.shape
        tokens = math.ceil(features / self._size)
        missing = tokens * self._size - features
        padded = functional.pad(values, (0, 0, 0, missing)) if missing else values
        return padded.reshape(documents, tokens, self._size, width)

    def _rows(self, codes: torch.Tensor) -> torch.Tensor:
        """Return the rows of the table; an unknown code has the last row of its column, [documents, columns]."""
        sizes = torch.tensor(self._sizes, device=codes.device)
        known = (codes >= 0) & (codes < sizes) & (codes == codes.floor())
        starts = torch.cumsum(sizes + 1, 0) - sizes - 1
        return torch.where(known, codes, sizes.to(codes)).long() + starts


@final
class BatchNorm(nn.Module):
    """Batch normalisation over documents, [..., width]; a single document is normalised by the moving averages."""

    mean: torch.Tensor
    variance: torch.Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """[..., width] to [..., width]."""
        flat = values.reshape(-1, values.shape[-1])
        batch = self.training and len(flat) > 1
        moving = self.mean, self.variance
        normed = functional.batch_norm(flat, *moving, self.weight, self.bias, training=batch, momentum=1 - DECAY)
        return normed.reshape(values.shape)


def _head(settings: Attention, pooled: int, outputs: int) -> nn.Sequential:
    """Return the network on p, normalised before each layer; LayerNorm of a single number would be 0 and is omitted."""
    layers: list[nn.Module] = []
    for width, following in pairwise([pooled, *settings.hidden, outputs]):
        if layers:
            layers.append(nn.ELU())
        if settings.norm == "batch":
            layers.append(BatchNorm(width))
        elif width > 1:
            layers.append(nn.LayerNorm(width))
        layers.append(nn.Linear(width, following))
    return nn.Sequential(*layers)


def attention_map(network: nn.Module, features: torch.Tensor) -> torch.Tensor:
    """Return the attention of each feature to each other, averaged over documents and heads, [features, features].

    The weight of a token is shared evenly by its features; rows sum to 1.
    """
    if not isinstance(network, AttentionNetwork):
        raise SettingError("ranker", type(network).__name__, "be attention to show it")
    groups = network.body.tokens.groups
    token, share = torch.zeros(network.features, dtype=torch.long), torch.zeros(network.features)
    for index, columns in enumerate(groups):
        token[list(columns)], share[list(columns)] = index, 1 / len(columns)
    total = torch.zeros(len(groups), len(groups), dtype=torch.float64)
    with torch.no_grad():
        for part in torch.split(features.reshape(-1, network.features), CHUNK):
            total += network.body.attention(part).double().mean(1).sum(0)
    return total[token][:, token] / max(total.sum().item() / len(groups), 1e-300) * share
