"""The search engine that is simulated: its queries and how often they are asked, documents, rankers, users."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, final

import numpy as np

import clickprism as cp
from clickprism.click_models.trust import TrustUser
from clickprism.click_models.users import attraction
from clickprism.data.synthetic import feature_roles
from clickprism.errors import DataError
from clickprism.simulation.rankings import InitialRanker
from clickprism.types import Bool, Float32, Float64, Int64, JudgedLists, Lists, Text
from reproduce.common.kept import keep

Exploration: TypeAlias = Literal["uniform", "thompson"]
BUCKETS = ("head", "middle", "tail")
HEAD, TAIL = 600.0, 10.0  # searches a month: the paper's 60,000, a hundred times less, and its 10
MOST, LEAST = 60_000.0, 1.0  # of a head query at most, of a tail query at least
RANDOMISED = 0.05
TOLD = ("match", "query")  # roles of the embedded features that stand for text
DAYS = 28  # of a month, which is four weeks


@dataclass(frozen=True)
class World:
    """All that a log depends on.

    By Zipf's law with exponent 1, about 1 / f of all queries are asked more than f times a month. Those here are so
    many of each bucket as searches would name them, a query in proportion to how often it is asked: the logarithms of
    their frequencies are uniform. A tail query is asked 1 to 10 times a month, four times on average.

    Attributes:
        data: embedded, nfcorpus or nfcorpus_tuned.
        queries: how many are head, middle and tail.
        seed: draws who is asked how often, the rankers and all that happens.
        months: of four weeks each.
        shown: documents of a list, at most.
        rankers: versions of the production ranker, each of which gives way to the next.
        randomised: the share of searches whose first slot is filled by exploration.
        exploration: "uniform", each candidate alike; or "thompson", by what the months before leave possible.
    """

    data: str = "embedded"
    queries: tuple[int, int, int] = (100, 300, 1000)
    seed: int = 0
    months: int = 13
    shown: int = 20
    rankers: int = 3
    randomised: float = RANDOMISED
    exploration: Exploration = "uniform"

    @property
    def plain(self) -> World:
        """The same engine, explored as usual: worlds that have this in common have queries and rankers in common."""
        return replace(self, randomised=RANDOMISED, exploration="uniform")

    @property
    def split(self) -> int:
        """The first month whose first-slot clicks are predicted rather than learned from: the later half."""
        return (self.months + 1) // 2

    def frequencies(self) -> Float64:
        """Searches a month of each query, [queries], head first.

        >>> World(queries=(1, 1, 2)).frequencies().round(2).tolist()
        [6000.0, 77.46, 5.62, 1.78]
        """
        ends = ((HEAD, MOST), (TAIL, HEAD), (LEAST, TAIL))
        parts = []
        for (low, high), count in zip(ends, self.queries, strict=True):
            parts.append(high * (low / high) ** ((np.arange(count) + 0.5) / max(count, 1)))
        return np.concatenate(parts)


@final
@dataclass(frozen=True, eq=False)
class Site:
    """A search engine.

    Attributes:
        judged: the candidates of each query, with their grades.
        frequency: expected searches a month, [queries].
        production: the scores of each version of the production ranker, [rankers, documents].
        relevance: gamma: grade / highest grade, [documents].
        theta: how probably each position is seen, [positions].
        plus: how probably a relevant document is then clicked.
        minus: how probably an irrelevant one is.
    """

    judged: JudgedLists
    frequency: Float64
    production: Float64
    relevance: Float64
    theta: Float64
    plus: Float64
    minus: Float64

    @property
    def pairs(self) -> tuple[Text, Text]:
        """The query and the document of each row, each [documents]."""
        lists = self.judged.lists
        if lists.document_ids is None:
            raise DataError("the documents of a site must have ids")
        return lists.query_ids[lists.list_of], lists.document_ids

    @property
    def first_slot(self) -> Float64:
        """c_1: how probably each document is clicked in the first slot, [documents]."""
        first = self.click_if_seen(np.arange(len(self.relevance)), np.zeros(1, np.int64))
        return np.asarray(first * self.theta[0])

    def click_if_seen(self, rows: Int64, places: Int64) -> Float64:
        """How probably a document is clicked at a place, from 0, once it is seen."""
        relevance = self.relevance[rows]
        return np.asarray(self.plus[places] * relevance + self.minus[places] * (1 - relevance))

    def in_bucket(self, bucket: str) -> Bool:
        """Which queries are asked so often, [queries]; "all" for all.

        Head: 600 times a month and more; tail: fewer than 10 times.
        """
        often, seldom = self.frequency >= HEAD, self.frequency < TAIL
        return {"all": np.ones_like(often), "head": often, "middle": ~often & ~seldom, "tail": seldom}[bucket]


def site_of(world: World, folder: Path | None) -> Site:
    """The search engine of a world; `folder` holds the files of NFCorpus."""
    site: Site = keep(("site", world.plain, folder), lambda: _made(world, folder))
    return site


def _made(world: World, folder: Path | None) -> Site:
    if world.data == "embedded":
        judged, versions = _embedded(world)
    else:
        from reproduce.adr.texts import nfcorpus_lists

        judged, versions = nfcorpus_lists(world, folder)
    random = np.random.default_rng([world.seed, 0])
    user = TrustUser("hyperbolic")
    positions = np.arange(1, world.shown + 1)
    relevance = attraction(judged, noise=0, gain="linear").astype(np.float64)
    theta, (plus, minus) = user.observation(positions), user.trust(positions)
    return Site(judged, random.permutation(world.frequencies()), versions, relevance, theta, plus, minus)


def _embedded(world: World) -> tuple[JudgedLists, Float64]:
    """Generated lists with the features that a text would tell: matches, and what the query is like.

    Users care for quality, popularity and freshness too, which no learner sees. A version of the production ranker is
    linear in all features, from 1% of the labels of other queries.
    """
    settings = cp.SyntheticSettings(train_queries=600, validation_queries=0, test_queries=sum(world.queries))
    data = cp.synthetic(settings)
    versions = [
        InitialRanker().fit(data.train, seed=100 * world.seed + version)(data.test.lists.features)
        for version in range(world.rankers)
    ]
    lists = data.test.lists
    told = np.isin(feature_roles(settings), TOLD)
    ids = np.arange(lists.documents).astype(np.str_)
    named = Lists(np.ascontiguousarray(lists.features[:, told]), lists.offsets, lists.query_ids, ids)
    return JudgedLists(named, data.test.grades), np.stack(versions)


def padded(values: Float64 | Float32 | Int64, offsets: Int64, *, fill: float) -> Float64:
    """A value a document as a row a query, [queries, longest].

    >>> padded(np.array([1.0, 2.0, 3.0]), np.array([0, 2, 3]), fill=0).tolist()
    [[1.0, 2.0], [3.0, 0.0]]
    """
    lengths = np.diff(offsets)
    inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
    result = np.full(inside.shape, fill, dtype=np.float64)
    result[inside] = values
    return result
