"""Embedded data: judged lists shaped like a web search engine's, generated from a seed.

Documents have hidden properties (how well title, body, anchors and meaning match; quality, popularity, freshness), and
so have queries (difficulty, intent, generosity). Relevance is a nonlinear function of them, features are noisy views of
them. `docs/reference/synthetic.md` gives the equations and what rankers reach on this data.

The coefficients never depend on the number of queries, and queries are made in blocks with a seed each: asking for more
queries leaves those that were there before as they were, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias, final

import numpy as np

from clickprism.errors import SettingError
from clickprism.settings import check_fields
from clickprism.types import Dataset, Float32, Float64, Int64, JudgedLists, Lists

Role: TypeAlias = Literal["match", "count", "document", "flag", "query", "redundant", "useless"]

_SHARES: dict[Role, float] = {  # of the features that are not useless
    "match": 0.36,
    "count": 0.14,
    "document": 0.18,
    "flag": 0.08,
    "query": 0.12,
    "redundant": 0.12,
}
_STREAMS = {"train": 0, "validation": 1, "test": 2, "reference": 3, "world": 4, "items": 5}
_BLOCK = 256  # queries that are made together
_GRADE_BLOCKS, _SCALE_BLOCKS = 32, 4  # of the reference sample, for the thresholds of grades and the scale of features
_MATCHES, _HIDDEN = 4, 7  # title, body, anchors, meaning; then quality, popularity, freshness
_LINEAR = (0.9, 0.7, 0.5, 0.8, 0.6, 0.5, 0.3)
_NONLINEAR = (1.2, 1.4, 0.9, 0.55, 0.8)


@final
@dataclass(frozen=True, kw_only=True)
class SyntheticSettings:
    """Settings of the generated data; with the defaults, rankers of different quality are clearly separated.

    Attributes:
        train_queries: Number of lists in the training part.
        validation_queries: Number of lists in the validation part.
        test_queries: Number of lists in the test part.
        min_documents: Number of documents in the shortest list.
        max_documents: Number of documents in the longest list; lengths are uniformly distributed.
        features: Number of features.
        noise: Standard deviation of the part of relevance that no feature explains; the signal has 1.
        useless: Share of the features that carry no information.
        correlation: Correlation between the hidden matches, and between the hidden properties of documents.
        query_effects: How much queries differ in difficulty, number of relevant documents and scale of features.
        nonlinearity: Share of the nonlinear part in relevance, from 0 (linear) to 1.
        grade_shares: Share of documents of each grade, grade 0 first.
        items: Number of items that appear in many lists. An item has the same document features everywhere, but matches
            each query differently; `document_ids` name the items. With 0 every document is new.
        item_exponent: Exponent of item frequency: the item of rank r is found with probability about r^-exponent.
        seed: Random seed of the generated data.
    """

    train_queries: int = 3000
    validation_queries: int = 300
    test_queries: int = 1000
    min_documents: int = 14
    max_documents: int = 28
    features: int = 64
    noise: float = 0.75
    useless: float = 0.2
    correlation: float = 0.4
    query_effects: float = 0.7
    nonlinearity: float = 0.5
    grade_shares: tuple[float, ...] = (0.50, 0.27, 0.16, 0.05, 0.02)
    items: int = 0
    item_exponent: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        least = dict.fromkeys(("train_queries", "validation_queries", "test_queries", "items", "seed"), (0, None))
        sizes = {"min_documents": (1, None), "max_documents": (self.min_documents, None), "features": (1, None)}
        effects = dict.fromkeys(("noise", "query_effects", "item_exponent"), (0, 10))
        check_fields(self, **least, **sizes, **effects, useless=(0, 1), nonlinearity=(0, 1), correlation=(0, 0.999))
        if 0 < self.items < self.max_documents:
            raise SettingError("items", self.items, "be 0, or at least max_documents, as an item is once in a list")
        shares = self.grade_shares
        if len(shares) < 2 or not (min(shares) >= 0 and abs(sum(shares) - 1) < 1e-6):
            raise SettingError("grade_shares", shares, "be the shares of two grades or more, and add up to 1")


def synthetic(settings: SyntheticSettings | None = None) -> Dataset:
    """Generate the three parts of a data set from one world; features have about mean 0 and deviation 1.

    >>> data = synthetic(SyntheticSettings(train_queries=3, validation_queries=1, test_queries=2, features=8))
    >>> len(data.train), len(data.test), data.train.lists.features.shape[1]
    (3, 2, 8)
    """
    settings = SyntheticSettings() if settings is None else settings
    world = _World(settings)
    return Dataset(
        "synthetic",
        world.part("train", settings.train_queries),
        world.part("validation", settings.validation_queries),
        world.part("test", settings.test_queries),
    )


def feature_roles(settings: SyntheticSettings) -> tuple[Role, ...]:
    """Return the role of each feature of `synthetic(settings)`, in the order of the columns.

    >>> feature_roles(SyntheticSettings(features=5, useless=0.2))
    ('match', 'match', 'document', 'flag', 'useless')
    """
    counts = _role_counts(settings)
    return tuple(role for role, count in counts.items() for _ in range(count))


def _role_counts(settings: SyntheticSettings) -> dict[Role, int]:
    useless = round(settings.useless * settings.features)
    ends = np.ceil(np.cumsum([0, *_SHARES.values()]) * (settings.features - useless) - 1e-9).astype(int)
    return dict(zip(_SHARES, np.diff(ends).tolist(), strict=True)) | {"useless": useless}


def _vary(values: tuple[float, ...], random: np.random.Generator) -> Float32:
    """Return each value times a random factor from .8 to 1.2, as a column."""
    return (np.array(values) * random.uniform(0.8, 1.2, len(values))).astype(np.float32)[:, None]


@dataclass(frozen=True, eq=False)
class _Block:
    """The hidden truth about some queries, that grades come from and features view.

    Attributes:
        key: seed, part and number, that all its draws derive from.
        lengths: documents of each query.
        query: difficulty, intent and generosity of each query, [3, queries].
        hidden: properties of each document, standard normal, [hidden, documents].
        noise: The part of relevance that no feature predicts, [documents].
        items: which item each document is, [documents]; None where none is met twice.
    """

    key: tuple[int, int, int]
    lengths: Int64
    query: Float32
    hidden: Float32
    noise: Float32
    items: Int64 | None = None

    def spread(self, of_queries: Float32) -> Float32:
        """Return values of queries, repeated for each document of the query, [..., queries] to [..., documents]."""
        return np.repeat(of_queries, self.lengths, axis=-1)


@final
class _Catalogue:
    """Items that many queries find: their hidden properties, the noise of the features that view them, their shares.

    Attributes:
        hidden: quality, popularity and freshness, standard normal, [3, items].
        views: the noise of each feature that depends on the document only, [such features, items].
        shares: how probably the next item found is this one, [items].
    """

    def __init__(self, settings: SyntheticSettings, views: int) -> None:
        random = np.random.default_rng([settings.seed, _STREAMS["items"]])
        own, common = np.sqrt(1 - settings.correlation), np.sqrt(settings.correlation)
        hidden = own * random.standard_normal((_HIDDEN - _MATCHES, settings.items))
        self.hidden = (hidden + common * random.standard_normal(settings.items)).astype(np.float32)
        self.views = random.standard_normal((views, settings.items), dtype=np.float32)
        weights = np.arange(1, settings.items + 1, dtype=np.float64) ** -settings.item_exponent
        self.shares = random.permutation(weights / weights.sum())
        self.edges = np.cumsum(self.shares)

    def find(self, lengths: Int64, random: np.random.Generator) -> Int64:
        """Return items, different within each list, drawn with probability proportional to `shares`, [documents]."""
        return np.concatenate([self._list(length, random) for length in lengths.tolist()])

    def _list(self, length: int, random: np.random.Generator) -> Int64:
        """Draw with replacement first and keep what is new; what is still wanting, by exponential clocks."""
        drawn = np.minimum(np.searchsorted(self.edges, random.random(2 * length), side="right"), len(self.edges) - 1)
        _, first = np.unique(drawn, return_index=True)
        found = drawn[np.sort(first)][:length]
        if len(found) == length:
            return found
        left = np.setdiff1d(np.arange(len(self.shares)), found)
        clocks = random.standard_exponential(len(left)) / np.maximum(self.shares[left], np.finfo(np.float64).tiny)
        return np.concatenate([found, left[np.argsort(clocks, kind="stable")[: length - len(found)]]])


@final
class _World:
    """The coefficients that a seed draws, and the scales that a reference sample fixes for all parts alike."""

    def __init__(self, settings: SyntheticSettings) -> None:
        self.settings = settings
        counts = _role_counts(settings)
        ends = np.cumsum([0, *counts.values()]).tolist()
        self.rows = {role: slice(*pair) for role, pair in zip(counts, pairwise(ends), strict=True)}
        random = np.random.default_rng([settings.seed, _STREAMS["world"]])
        self.linear, self.nonlinear = _vary(_LINEAR, random), _vary(_NONLINEAR, random)
        self.first, self.second = self._seen_properties(random)
        self.second_weight = random.uniform(0, 0.5, (settings.features, 1)).astype(np.float32)
        self.view_noise = random.uniform(0.4, 1.4, (settings.features, 1)).astype(np.float32)
        self.levels = random.uniform(0.2, 1.5, (counts["flag"], 1)).astype(np.float32)
        self.query_loadings = random.standard_normal((counts["query"], 3), dtype=np.float32)
        self.sources = random.integers(0, max(self.rows["flag"].stop, 1), (2, counts["redundant"]))
        self.catalogue = _Catalogue(settings, int(self.of_item.sum())) if settings.items else None
        self._fit_scales()

    def _seen_properties(self, random: np.random.Generator) -> tuple[Int64, Int64]:
        """The hidden property that each feature views, and a second of the same kind that shines through."""
        column = np.arange(self.settings.features)
        of_document = np.zeros(len(column), dtype=np.bool_)
        of_document[self.rows["document"]] = True
        of_document[self.rows["flag"]] = column[self.rows["flag"]] % 2 == 0
        self.of_item = of_document
        start = np.where(of_document, _MATCHES, 0)
        kinds = np.where(of_document, _HIDDEN - _MATCHES, _MATCHES)
        return start + column % kinds, start + (column + random.integers(1, kinds)) % kinds

    def _fit_scales(self) -> None:
        blocks = [self._block("reference", index) for index in range(_GRADE_BLOCKS)]
        signals = np.concatenate([self._signals(block) for block in blocks], axis=1)
        share = self.settings.nonlinearity
        weights = np.array([[1 - share], [share]]) / signals.std(axis=1, keepdims=True)
        self.weights = weights / (weights * signals).sum(axis=0).std()
        relevance = np.concatenate([self._relevance(block) for block in blocks])
        self.thresholds = np.quantile(relevance, np.minimum(np.cumsum(self.settings.grade_shares)[:-1], 1))
        views = np.concatenate([self._views(block) for block in blocks[:_SCALE_BLOCKS]], axis=1)
        self.mean = views.mean(axis=1, keepdims=True)
        self.deviation = np.maximum(views.std(axis=1, keepdims=True), np.float32(1e-6))

    def part(self, name: str, queries: int) -> JudgedLists:
        """The first `queries` lists of a part."""
        blocks = [self._block(name, index) for index in range(-(-queries // _BLOCK))]
        lengths = np.concatenate([np.zeros(0, np.int64), *(block.lengths for block in blocks)])[:queries]
        offsets = np.zeros(queries + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        features = np.empty((offsets[-1], self.settings.features), dtype=np.float32)
        grades = np.empty(offsets[-1], dtype=np.int32)
        for index, block in enumerate(blocks):
            rows = slice(int(offsets[index * _BLOCK]), int(offsets[min((index + 1) * _BLOCK, queries)]))
            count = rows.stop - rows.start
            views = (self._views(block) - self.mean) / self.deviation
            features[rows] = views[:, :count].T
            grades[rows] = np.searchsorted(self.thresholds, self._relevance(block)[:count])
        query_ids = np.char.add(f"{name}-", np.arange(1, queries + 1).astype(np.str_))
        document_ids = None
        if self.catalogue is not None:
            found = [np.zeros(0, np.int64), *(block.items for block in blocks if block.items is not None)]
            document_ids = np.char.add("item-", (np.concatenate(found)[: offsets[-1]] + 1).astype(np.str_))
        return JudgedLists(Lists(features, offsets, query_ids, document_ids), grades)

    def _block(self, stream: str, index: int) -> _Block:
        settings = self.settings
        key = (settings.seed, _STREAMS[stream], index)
        random = np.random.default_rng([*key, 0])
        lengths = random.integers(settings.min_documents, settings.max_documents + 1, _BLOCK)
        query = random.standard_normal((3, _BLOCK), dtype=np.float32)
        query[2] = np.log(random.standard_exponential(_BLOCK)) + np.euler_gamma
        documents = int(lengths.sum())
        hidden = random.standard_normal((_HIDDEN, documents), dtype=np.float32)
        hidden *= np.float32(np.sqrt(1 - settings.correlation))
        common = random.standard_normal((2, documents), dtype=np.float32) * np.float32(np.sqrt(settings.correlation))
        hidden[:_MATCHES] += common[0]
        hidden[_MATCHES:] += common[1]
        noise, items = random.standard_normal(documents, dtype=np.float32), None
        if self.catalogue is not None:
            items = self.catalogue.find(lengths, random)
            hidden[_MATCHES:] = self.catalogue.hidden[:, items]
        return _Block(key, lengths, query, hidden, noise, items)

    def _signals(self, block: _Block) -> Float32:
        """The linear and the nonlinear part of relevance, [2, documents]."""
        title, body, anchors, meaning, quality, popularity, freshness = block.hidden
        match = block.hidden[:_MATCHES].mean(axis=0)
        terms = (
            np.tanh(2 * match) * quality,
            ((title > 0.3) & (body > 0)).astype(np.float32),
            np.tanh(2 * anchors) * np.tanh(2 * freshness),
            block.spread(block.query[1]) * (popularity - meaning),
            -np.maximum(body - 0.5, 0),
        )
        return np.stack([(self.linear * block.hidden).sum(axis=0), (self.nonlinear * np.stack(terms)).sum(axis=0)])

    def _relevance(self, block: _Block) -> Float64:
        difficulty, _, generosity = block.spread(block.query)
        effects = self.settings.query_effects
        noise = self.settings.noise * np.exp(0.4 * effects * difficulty) * block.noise
        return np.asarray((self.weights * self._signals(block)).sum(axis=0) + noise + effects * generosity)

    def _views(self, block: _Block) -> Float32:
        """The features before they are standardised, [features, documents]."""
        effects = np.float32(self.settings.query_effects)
        random = np.random.default_rng([*block.key, 1])
        views = random.standard_normal((self.settings.features, block.hidden.shape[1]), dtype=np.float32)
        if self.catalogue is not None and block.items is not None:
            views[self.of_item] = self.catalogue.views[:, block.items]
        informative = slice(0, self.rows["flag"].stop)
        views[informative] *= self.view_noise[informative]
        views[informative] += block.hidden[self.first[informative]]
        views[informative] += self.second_weight[informative] * block.hidden[self.second[informative]]
        text = slice(0, self.rows["count"].stop)
        views[text] *= block.spread(np.exp(0.3 * effects * random.standard_normal(_BLOCK, dtype=np.float32)))
        views[text] += block.spread(0.6 * effects * random.standard_normal((text.stop, _BLOCK), dtype=np.float32))
        match, count, document, flag, query, redundant, useless = (views[rows] for rows in self.rows.values())
        match[1::3] = np.tanh(match[1::3])
        match[2::3] = np.maximum(match[2::3], 0)
        count[:] = np.log(1 + np.floor(np.exp(np.minimum(1.2 * count + 1, 12))))
        document[1::2] = np.exp(0.5 * document[1::2])
        flag[:] = flag > self.levels
        own = 0.7 * random.standard_normal((len(query), _BLOCK), dtype=np.float32)
        query[:] = block.spread(np.einsum("fk,kq->fq", self.query_loadings, block.query) + own)
        redundant *= 0.1
        redundant += 0.6 * views[self.sources[0]] + 0.4 * views[self.sources[1]]
        useless[1::2] = np.exp(0.5 * useless[1::2])
        return views
