"""Pairs of texts as tokens: each text is tokenised once, pairs are assembled and batched by length.

A pair is `[CLS] query [SEP] document [SEP]`, or whatever the tokenizer of the language model puts around two texts. The
layout is read from the tokenizer once; then a batch is assembled from flat vectors of tokens, without a loop over
its pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from clickprism.errors import DataError
from clickprism.types import Float32, Int32, Int64

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHUNK: Final = 4096  # texts at a time
BATCH: Final = 128  # cost of a batch, in tokens, beside its own tokens
SPECIAL, QUERY, DOCUMENT = 0, 1, 2
Special: TypeAlias = tuple[tuple[int, int], ...]  # special tokens, as (token, type)


@final
@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of several texts: text i has `ids[offsets[i] : offsets[i + 1]]`."""

    ids: Int32
    offsets: Int64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64:
        """Return the number of tokens of each text."""
        return np.diff(self.offsets)


@final
@dataclass(frozen=True)
class Layout:
    """Special tokens around two texts.

    Attributes:
        before, between, after: Special tokens before the query, between the texts, and after the document.
        types: Types of the tokens of the query and of the document.
        padding: The token that fills up a batch.
    """

    before: Special
    between: Special
    after: Special
    types: tuple[int, int]
    padding: int

    @property
    def special(self) -> int:
        """Return the number of special tokens of a pair."""
        return len(self.before) + len(self.between) + len(self.after)

    @classmethod
    def of(cls, tokenizer: Tokenizer, padding: int) -> Layout:
        """Return the tokens that the tokenizer puts around a pair of texts."""
        probe = tokenizer.encode("a", "a")
        types, owner = probe.type_ids, probe.sequence_ids
        if 0 not in owner or 1 not in owner:
            raise DataError("the tokenizer of the language model does not take pairs of texts")
        parts: list[list[tuple[int, int]]] = [[], [], []]
        passed = 0
        for token, kind, sequence in zip(probe.ids, types, owner, strict=True):
            if sequence is None:
                parts[passed].append((token, kind))
            else:
                passed = sequence + 1
        kinds = types[owner.index(0)], types[owner.index(1)]
        before, between, after = map(tuple, parts)
        return cls(before, between, after, kinds, padding)


@final
@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs as rows of the distinct texts, and the number of tokens of each pair; `len` counts pairs.

    Attributes:
        queries, documents: The tokens of the distinct texts.
        query_rows, document_rows: Which of them each pair is made of, [pairs].
        query_lengths, document_lengths: The number of tokens that are kept of each, [pairs].
        layout: What is around them.
        prior: Scores of each pair before any click, [pairs, scores]; no scores if the network takes none.
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
        """Return the number of tokens of each pair, special ones included, [pairs]."""
        return self.query_lengths + self.document_lengths + self.layout.special

    def take(self, pairs: Int64) -> Pairs:
        """Return these pairs, in this order."""
        names = ("query_rows", "document_rows", "query_lengths", "document_lengths", "prior")
        return replace(self, **{name: getattr(self, name)[pairs] for name in names})


def distinct_texts(texts: Sequence[str]) -> tuple[list[str], Int64]:
    """Return each text once, in order of appearance, and the row of every text among them.

    >>> distinct_texts(["b", "a", "b"])
    (['b', 'a'], array([0, 1, 0]))
    """
    seen: dict[str, int] = {}
    rows = np.fromiter((seen.setdefault(text, len(seen)) for text in texts), np.int64, len(texts))
    return list(seen), rows


def tokenise(tokenizer: Tokenizer, texts: Sequence[str], *, most: int) -> Tokens:
    """Return the first tokens of each text, at most this number, without special tokens."""
    parts: list[list[int]] = []
    for start in range(0, len(texts), CHUNK):
        encoded = tokenizer.encode_batch(list(texts[start : start + CHUNK]), add_special_tokens=False)
        parts += [each.ids[:most] for each in encoded]
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return Tokens(np.fromiter((token for part in parts for token in part), np.int32, int(offsets[-1])), offsets)


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
    """Return pairs of at most `most` tokens: the query keeps at most `most_query`, the document has the rest."""
    of_query = np.minimum(queries.lengths[query_rows], most_query)
    of_document = np.minimum(documents.lengths[document_rows], most - layout.special - of_query)
    known = np.empty((len(query_rows), 0), np.float32) if prior is None else prior
    return Pairs(queries, documents, query_rows, document_rows, of_query, of_document, layout, known)


def assemble(pairs: Pairs) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
    """Return pairs as one padded batch: tokens, types, and what each token is of (-1 for padding), [pairs, longest]."""
    layout, longest = pairs.layout, int(pairs.lengths.max(initial=0))
    place = np.arange(longest)[None, :]
    tokens = np.full((len(pairs), longest), layout.padding, dtype=np.int64)
    types = np.zeros_like(tokens)
    kinds = np.full(tokens.shape, -1, dtype=np.int8)
    start, rows = np.zeros(len(pairs), dtype=np.int64), np.arange(len(pairs))

    def put(special: Special) -> Int64:
        for step, (token, kind) in enumerate(special):
            at = rows, start + step
            tokens[at], types[at], kinds[at] = token, kind, SPECIAL
        return start + len(special)

    sides: list[tuple[Any, ...]] = [
        (layout.before, pairs.queries, pairs.query_rows, pairs.query_lengths, layout.types[0], QUERY),
        (layout.between, pairs.documents, pairs.document_rows, pairs.document_lengths, layout.types[1], DOCUMENT),
    ]
    for special, texts, text_rows, lengths, kind, name in sides:
        start = put(special)
        inside = (place >= start[:, None]) & (place < (start + lengths)[:, None])
        source = (texts.offsets[text_rows] - start)[:, None] + place
        tokens[inside] = texts.ids[source[inside]]
        types[inside], kinds[inside] = kind, name
        start = start + lengths
    put(layout.after)
    return tokens, types, kinds


def by_length(
    lengths: Int64, *, budget: int, most: int = 1 << 30, shuffle: np.random.Generator | None = None
) -> Iterator[Int64]:
    """Return batches of pairs of similar length: the longest times their number is at most `budget` tokens.

    Without a generator the batches have the fewest tokens, padding included, where each batch costs `BATCH` tokens
    more. With one, pairs of similar length are shuffled, then the batches, so that epochs differ. A pair longer than
    the budget forms a batch alone.

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
    """Return pairs in order of length, split where it saves the most: the shortest path over the distinct lengths.

    n pairs with lengths from i to j together cost n l_j tokens, and `BATCH` for each batch they fill.
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
    """Yield pairs in this order, in batches as full as the budget allows."""
    start, longest = 0, 0
    for end, size in enumerate(lengths[order].tolist()):
        longer = max(longest, size)
        if end > start and (longer * (end + 1 - start) > budget or end - start >= most):
            yield order[start:end]
            start, longer = end, size
        longest = longer
    if start < len(order):
        yield order[start:]
