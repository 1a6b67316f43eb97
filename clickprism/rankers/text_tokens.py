"""Pairs of texts as tokens: each text is cut into tokens once, pairs are laid out and batched by length.

A pair is `[CLS] query [SEP] document [SEP]`, or whatever the tokenizer of the language model puts around two texts. The
layout is read off the tokenizer once; after that a batch is assembled from flat vectors of tokens, without a loop over
its pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from numpy.typing import NDArray

from clickprism.errors import DataError
from clickprism.types import Float32, Int32, Int64

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHUNK: Final = 4096  # texts at a time
BATCH: Final = 128  # tokens that a batch costs beside its own
SPECIAL, QUERY, DOCUMENT = 0, 1, 2


@final
@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of several texts, one after the other: text i has `ids[offsets[i] : offsets[i + 1]]`."""

    ids: Int32
    offsets: Int64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64:
        """How many tokens each text has."""
        return np.diff(self.offsets)


@final
@dataclass(frozen=True)
class Layout:
    """What stands around two texts: tokens before the query, between, and after the document, and the type of each.

    Attributes:
        before, between, after: special tokens, as (token, type).
        types: of the tokens of the query and of the document.
        padding: the token that fills up a batch.
    """

    before: tuple[tuple[int, int], ...]
    between: tuple[tuple[int, int], ...]
    after: tuple[tuple[int, int], ...]
    types: tuple[int, int]
    padding: int

    @property
    def special(self) -> int:
        """How many special tokens a pair has."""
        return len(self.before) + len(self.between) + len(self.after)

    @classmethod
    def of(cls, tokenizer: Tokenizer, padding: int) -> Layout:
        """Read off what the tokenizer does to a pair of texts."""
        probe = tokenizer.encode("a", "a")
        ids, types, owner = probe.ids, probe.type_ids, probe.sequence_ids
        if 0 not in owner or 1 not in owner:
            raise DataError("the tokenizer of the language model does not take pairs of texts")
        parts: dict[int, list[tuple[int, int]]] = {0: [], 1: [], 2: []}
        passed = 0
        for token, kind, sequence in zip(ids, types, owner, strict=True):
            passed = max(passed, 0 if sequence is None else sequence + 1)
            if sequence is None:
                parts[passed].append((token, kind))
        kinds = types[owner.index(0)], types[owner.index(1)]
        return cls(tuple(parts[0]), tuple(parts[1]), tuple(parts[2]), kinds, padding)


@final
@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs by the rows of their texts, and how many tokens each takes; `len` counts pairs.

    Attributes:
        queries, documents: the tokens of the distinct texts.
        query_rows, document_rows: which of them each pair is made of, [pairs].
        query_lengths, document_lengths: the tokens that are kept of each, [pairs].
        layout: what stands around them.
        prior: what is known of each before any click, [pairs, scores]; no scores where the network takes none.
    """

    queries: Tokens
    documents: Tokens
    query_rows: Int64
    document_rows: Int64
    query_lengths: Int64
    document_lengths: Int64
    layout: Layout
    prior: Float32

    def __len__(self) -> int:
        return len(self.query_rows)

    @property
    def lengths(self) -> Int64:
        """All tokens of each pair, special ones included, [pairs]."""
        return self.query_lengths + self.document_lengths + self.layout.special

    def take(self, pairs: Int64) -> Pairs:
        """These pairs only, in this order."""
        rows = (self.query_rows[pairs], self.document_rows[pairs])
        lengths = self.query_lengths[pairs], self.document_lengths[pairs]
        return Pairs(self.queries, self.documents, *rows, *lengths, self.layout, self.prior[pairs])


def distinct_texts(texts: Sequence[str]) -> tuple[list[str], Int64]:
    """Each text once, in the order they come, and the row of every text among them.

    >>> distinct_texts(["b", "a", "b"])
    (['b', 'a'], array([0, 1, 0]))
    """
    seen: dict[str, int] = {}
    rows = np.fromiter((seen.setdefault(text, len(seen)) for text in texts), np.int64, len(texts))
    return list(seen), rows


def tokenise(tokenizer: Tokenizer, texts: Sequence[str], *, most: int) -> Tokens:
    """The first tokens of each text, at most so many, without special ones."""
    parts: list[Int32] = []
    lengths = np.zeros(len(texts), dtype=np.int64)
    for start in range(0, len(texts), CHUNK):
        encoded = tokenizer.encode_batch(list(texts[start : start + CHUNK]), add_special_tokens=False)
        kept = [each.ids[:most] for each in encoded]
        lengths[start : start + len(kept)] = [len(each) for each in kept]
        parts += [np.array(each, dtype=np.int32) for each in kept]
    ids = np.concatenate(parts) if parts else np.empty(0, np.int32)
    return Tokens(ids, np.concatenate([[0], np.cumsum(lengths)]))


def pair_up(
    queries: Tokens,
    documents: Tokens,
    query_rows: Int64,
    document_rows: Int64,
    *,
    layout: Layout,
    most: int,
    most_query: int,
    prior: Float32 | None = None,
) -> Pairs:
    """Pairs of at most `most` tokens: the query keeps at most `most_query`, the document takes the rest."""
    of_query = np.minimum(queries.lengths[query_rows], most_query)
    of_document = np.minimum(documents.lengths[document_rows], most - layout.special - of_query)
    known = np.empty((len(query_rows), 0), np.float32) if prior is None else prior
    return Pairs(queries, documents, query_rows, document_rows, of_query, of_document, layout, known)


def assemble(pairs: Pairs) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
    """Pairs as one padded batch: tokens, types, and what each token is of, [pairs, longest]; -1 is padding."""
    layout, longest = pairs.layout, int(pairs.lengths.max(initial=0))
    place = np.arange(longest)[None, :]
    tokens = np.full((len(pairs), longest), layout.padding, dtype=np.int64)
    types = np.zeros_like(tokens)
    kinds = np.full(tokens.shape, -1, dtype=np.int8)
    start = np.zeros(len(pairs), dtype=np.int64)
    sides: list[tuple[Any, ...]] = [
        (layout.before, pairs.queries, pairs.query_rows, pairs.query_lengths, layout.types[0], QUERY),
        (layout.between, pairs.documents, pairs.document_rows, pairs.document_lengths, layout.types[1], DOCUMENT),
    ]
    for special, texts, rows, lengths, kind, name in sides:
        _put(special, start, tokens, types, kinds)
        start = start + len(special)
        inside = (place >= start[:, None]) & (place < (start + lengths)[:, None])
        source = (texts.offsets[rows] - start)[:, None] + place
        tokens[inside] = texts.ids[source[inside]]
        types[inside], kinds[inside] = kind, name
        start = start + lengths
    _put(layout.after, start, tokens, types, kinds)
    return tokens, types, kinds


def _put(
    special: tuple[tuple[int, int], ...],
    start: Int64,
    tokens: NDArray[np.int64],
    types: NDArray[np.int64],
    kinds: NDArray[np.int8],
) -> None:
    rows = np.arange(len(start))
    for step, (token, kind) in enumerate(special):
        tokens[rows, start + step], types[rows, start + step], kinds[rows, start + step] = token, kind, SPECIAL


def by_length(
    lengths: Int64, *, budget: int, most: int = 1 << 30, shuffle: np.random.Generator | None = None
) -> Iterator[Int64]:
    """Batches of pairs of like length: the longest times how many of them is at most `budget` tokens.

    Without a generator the batches are those with the fewest tokens, padding included, where a batch more costs as much
    as `BATCH` tokens. With one the pairs of like length are shuffled within steps of a few tokens, and the batches
    among themselves, so that no epoch is as the last one. A pair longer than the budget is a batch of its own.

    >>> [batch.tolist() for batch in by_length(np.array([5, 2, 2, 9, 4]), budget=10)]
    [[1, 2], [4, 0], [3]]
    """
    keys = lengths.astype(np.float64)
    if shuffle is not None:
        keys = keys + shuffle.uniform(0, np.maximum(0.15 * keys, 1))
    order = np.argsort(keys, kind="stable").astype(np.int64)
    groups = [order] if shuffle is not None else _groups(lengths, order, budget=budget, most=most)
    batches = [batch for group in groups for batch in _filled(group, lengths, budget=budget, most=most)]
    if shuffle is not None:
        shuffle.shuffle(batches)
    return iter(batches)


def _groups(lengths: Int64, order: Int64, *, budget: int, most: int) -> list[Int64]:
    """Pairs in order of length, parted where it saves the most: the shortest path over the distinct lengths.

    Lengths from i to j together cost n l_j tokens, n how many pairs they are, and `BATCH` for each batch they fill.
    """
    sizes, counts = np.unique(lengths, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(counts)])
    cost, start = np.zeros(len(sizes) + 1), np.zeros(len(sizes) + 1, dtype=np.int64)
    for last, size in enumerate(sizes.tolist(), start=1):
        pairs = ends[last] - ends[:last]
        whole = max(min(budget // max(size, 1), most), 1)
        costs = cost[:last] + pairs * size + BATCH * -(-pairs // whole)
        start[last] = int(np.argmin(costs))
        cost[last] = costs[start[last]]
    cuts, place = [], len(sizes)
    while place:
        cuts.append(order[ends[start[place]] : ends[place]])
        place = int(start[place])
    return cuts[::-1]


def _filled(order: Int64, lengths: Int64, *, budget: int, most: int) -> Iterator[Int64]:
    """Pairs in this order, cut into batches as full as the budget lets them be."""
    start, longest = 0, 0
    for end, size in enumerate(lengths[order].tolist()):
        longer = max(longest, size)
        if end > start and (longer * (end + 1 - start) > budget or end - start >= most):
            yield order[start:end]
            start, longer = end, size
        longest = longer
    if start < len(order):
        yield order[start:]
