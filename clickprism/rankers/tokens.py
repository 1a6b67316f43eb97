"""Features as tokens: vectors of one width, whatever a feature was, for attention to compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

import torch
from torch import nn
from torch.nn import functional

from clickprism.errors import SettingError

MOST_TOKENS: Final = 64


def grouped(columns: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """The columns in groups of `size`, in order; the last one may be smaller.

    >>> grouped([0, 1, 3, 4, 6], 2)
    [(0, 1), (3, 4), (6,)]
    """
    return [tuple(columns[start : start + size]) for start in range(0, len(columns), size)]


def sharing(numbers: int, codes: int, tokens: int) -> int:
    """How many features share a token: the fewest with which both kinds fit into so many tokens.

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

    A continuous feature goes through a small network of its own, e_n(x) = M_n elu(s_n x_n + b_n); a categorical one
    through a table, e_n(x) = E_n[x_n], with one more row for every code that it does not know. A token is the sum of
    its features' vectors and a vector of its own: with a feature a token, the x_n of InfoRank's Eq. 8. Where there are
    more features than tokens, as many neighbours as needed share one; continuous and categorical ones never do.

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
        """The columns that are numbers, [documents, features] to [documents, fewer features]."""
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
        """[documents, features, n] to [documents, tokens, features of a token, n], zeros where the last has fewer."""
        documents, features, width = values.shape
        tokens = math.ceil(features / self._size)
        missing = tokens * self._size - features
        padded = functional.pad(values, (0, 0, 0, missing)) if missing else values
        return padded.reshape(documents, tokens, self._size, width)

    def _rows(self, codes: torch.Tensor) -> torch.Tensor:
        """The rows of the table; what is no code of its column gets the column's last one, [documents, columns]."""
        sizes = torch.tensor(self._sizes, device=codes.device)
        known = (codes >= 0) & (codes < sizes) & (codes == codes.floor())
        starts = torch.cumsum(sizes + 1, 0) - sizes - 1
        return torch.where(known, codes, sizes.to(codes)).long() + starts
