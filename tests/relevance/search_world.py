"""A small world of searches by counts: head, middle and tail queries, trust bias, windows, a randomised first slot.

Nothing is drawn search by search: a query has one ranking a day, and how often each place of it was clicked is a
binomial. So a world of half a million searches takes a moment, and what relevance can be learned is known exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, final

import numpy as np

from clickprism.click_models.trust import TrustUser
from clickprism.errors import SettingError
from clickprism.relevance.click_vectors import ClickVectors
from clickprism.relevance.pairs import FirstSlot, PairCounts
from clickprism.types import Bool, Clicks, Float32, Float64, Int64, JudgedLists, Lists, Text

GRADES: Final = (0.45, 0.25, 0.15, 0.1, 0.05)
DAYS: Final = 28
WINDOWS: Final = {"day": 1, "week": 7, "month": DAYS}
BUCKETS: Final = ("head", "middle", "tail")


@final
@dataclass(frozen=True)
class WorldSettings:
    """Of the world.

    Attributes:
        queries: how many; every other one has randomised searches, the others are for evaluation.
        documents: fewest and most a query.
        shown: documents a page.
        top: searches a month of the most frequent query; the r-th has top / r^zipf.
        zipf: the exponent.
        head: searches a month from which on a query is of the head.
        tail: searches a month below which it is of the tail.
        randomised: randomised first slots in all, as a share of the searches of a month.
        level: all click probabilities are multiplied by it.
        correlation: of the imputation with the click probability in the first slot.
        engine: that of the engine's own score with it.
        width: of the representation of a pair, of which the imputation is a direction.
        seed: of everything.
    """

    queries: int = 4000
    documents: tuple[int, int] = (10, 20)
    shown: int = 10
    top: float = 300_000.0
    zipf: float = 1.5
    head: float = 1000.0
    tail: float = 10.0
    randomised: float = 0.3
    level: float = 1.0
    correlation: float = 0.56
    engine: float = 0.3
    width: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if self.queries < 2:
            raise SettingError("queries", self.queries, "be at least 2")
        if not 1 <= self.shown <= self.documents[0] <= self.documents[1]:
            raise SettingError("documents", self.documents, f"be at least the {self.shown} that are shown")
        for name in ("level", "correlation", "engine"):
            if not 0 < getattr(self, name) <= 1:
                raise SettingError(name, getattr(self, name), "be above 0 and at most 1")


@final
@dataclass(frozen=True, eq=False)
class SearchWorld:
    """What is known of the world, and what is true in it.

    Attributes:
        judged: the documents of each query with their grades; their features are the representation of each pair.
        clicks: what was shown in the month, displayed and clicked: merged by day and by how far down users went.
        windows: the counts of each pair by window.
        vectors: the same as click vectors.
        slot: clicks in the randomised first slot, after the month, on every other query.
        imputed: an estimate of c_1 from the representation alone, [pairs].
        first: the true c_1, [pairs].
        searches: a month of each query, as it is on average, [queries].
        evaluated: the queries without randomised searches, [queries].
        bucket: 0 head, 1 middle, 2 tail, [queries].
        slope: alpha_k / alpha_1, [shown].
        intercept: beta_k - beta_1 alpha_k / alpha_1, [shown].
    """

    judged: JudgedLists
    clicks: Clicks
    windows: dict[str, PairCounts]
    vectors: ClickVectors
    slot: FirstSlot
    imputed: Float64
    first: Float64
    searches: Float64
    evaluated: Bool
    bucket: Int64
    slope: Float64
    intercept: Float64


def vectors_of_counts(
    query_ids: Text, document_ids: Text, windows: Mapping[str, PairCounts], *, as_of: datetime | None = None
) -> ClickVectors:
    """Vectors of counts by window, such as {"week": ..., "month": ...}, in total and at each position."""
    names: list[str] = []
    columns: list[Float64] = []
    for window, counts in windows.items():
        for name in ("impressions", "clicked", "examination"):
            sums = getattr(counts, name)
            if sums is not None:
                names += [f"{window}.{name}", *(f"{window}.{name}@{k + 1}" for k in range(counts.positions))]
                columns += [sums.sum(axis=1, keepdims=True, dtype=np.float64), sums]
    x = np.concatenate(columns, axis=1).astype(np.float32)
    return ClickVectors(query_ids, document_ids, x, tuple(names), np.zeros(len(names), np.float32), as_of)


def search_world(settings: WorldSettings) -> SearchWorld:
    """Draw a world.

    >>> world = search_world(WorldSettings(queries=20, top=100.0))
    >>> bool((world.windows["day"].impressions <= world.windows["month"].impressions).all())
    True
    """
    rng = np.random.default_rng(settings.seed)
    lengths = rng.integers(settings.documents[0], settings.documents[1] + 1, settings.queries)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    pairs = int(offsets[-1])
    grades = rng.choice(len(GRADES), size=pairs, p=GRADES).astype(np.int32)
    positions = np.arange(1, settings.shown + 1)
    user = TrustUser(setting="hyperbolic")
    theta, (plus, minus) = settings.level * user.observation(positions), user.trust(positions)
    relevance = grades / (len(GRADES) - 1)
    chance = theta * (plus * relevance[:, None] + minus * (1 - relevance[:, None]))
    first = chance[:, 0]
    known, features = _representation(first, settings, rng)
    searches = settings.top * np.arange(1.0, settings.queries + 1) ** -settings.zipf
    query_ids = np.array([f"q{index}" for index in range(settings.queries)])
    lists = Lists(features, offsets, query_ids, np.array([f"d{index}" for index in range(pairs)]))
    clicks, windows = _month(lists, chance, searches, settings, rng)
    owner = lists.query_ids[lists.list_of]
    document_ids = lists.document_ids if lists.document_ids is not None else owner
    evaluated = np.arange(settings.queries) % 2 == 1
    alpha, beta = theta * (plus - minus), theta * minus
    return SearchWorld(
        judged=JudgedLists(lists, grades),
        clicks=clicks,
        windows=windows,
        vectors=vectors_of_counts(owner, document_ids, windows),
        slot=_first_slot(lists, first, searches * ~evaluated, settings, rng),
        imputed=known,
        first=first,
        searches=searches,
        evaluated=evaluated,
        bucket=np.where(searches >= settings.head, 0, np.where(searches < settings.tail, 2, 1)),
        slope=alpha / alpha[0],
        intercept=beta - beta[0] * alpha / alpha[0],
    )


def _standard(values: Float64) -> Float64:
    return np.asarray((values - values.mean()) / values.std())


def _representation(first: Float64, settings: WorldSettings, rng: np.random.Generator) -> tuple[Float64, Float32]:
    """An imputation of the wanted correlation, calibrated, and a rotated space with it as one direction."""
    noise = np.sqrt(1 - settings.correlation**2) * rng.normal(size=len(first))
    score = settings.correlation * _standard(first) + noise
    known = np.clip(first.mean() + settings.correlation * first.std() * score, 0.02, 0.98)
    space = rng.normal(size=(len(first), settings.width))
    space[:, 0] = score
    rotation = np.linalg.qr(rng.normal(size=(settings.width, settings.width)))[0]
    return known, (space @ rotation).astype(np.float32)


def _month(
    lists: Lists, chance: Float64, searches: Float64, settings: WorldSettings, rng: np.random.Generator
) -> tuple[Clicks, dict[str, PairCounts]]:
    """Rankings by day, by a score of the engine that changes a little every day, and the clicks on them.

    A search scrolls down to some depth: what is below was not displayed, nor clicked. sqrt(theta_k) reach position k.
    """
    engine = settings.engine * _standard(chance[:, 0])
    engine += np.sqrt(1 - settings.engine**2) * rng.normal(size=lists.documents)
    places = np.arange(settings.shown)
    reach = np.sqrt(TrustUser(setting="hyperbolic").observation(places + 1))
    displayed = places <= places[:, None]
    sums = {name: np.zeros((2, lists.documents, settings.shown), np.int64) for name in WINDOWS}
    parts: list[tuple[Int64, Int64, Int64]] = []
    for day in range(DAYS):
        score = engine + 0.5 * rng.normal(size=lists.documents)
        top = np.lexsort((-score, lists.list_of))[lists.offsets[:-1, None] + places]
        times = rng.multinomial(rng.poisson(searches / DAYS), reach - np.append(reach[1:], 0.0))
        clicked = rng.binomial(times[:, :, None], (chance[top, places] / reach)[:, None] * displayed)
        for name, length in WINDOWS.items():
            if day >= DAYS - length:
                np.add.at(sums[name][0], (top, places), times.sum(axis=1)[:, None])
                np.add.at(sums[name][1], (top, places), clicked.sum(axis=1))
        query, depth = np.nonzero(times)
        parts.append((top[query], clicked[query, depth], np.stack([times[query, depth], depth])))
    rows, counts = (np.concatenate([part[i] for part in parts]).ravel() for i in range(2))
    shown, depth = np.concatenate([part[2] for part in parts], axis=1)
    clicks = Clicks(
        lists,
        np.arange(len(shown) + 1, dtype=np.int64) * settings.shown,
        rows,
        np.tile(np.arange(1, settings.shown + 1, dtype=np.int32), len(shown)),
        counts,
        shown,
        seen=(shown[:, None] * displayed[depth]).ravel(),
    )
    return clicks, {name: PairCounts(*each) for name, each in sums.items()}


def _first_slot(
    lists: Lists, first: Float64, searches: Float64, settings: WorldSettings, rng: np.random.Generator
) -> FirstSlot:
    """A random document of each randomised search, and whether it was clicked."""
    each = (settings.randomised * searches / lists.lengths)[lists.list_of]
    shown = rng.poisson(each)
    clicked = rng.binomial(shown, first)
    ids = lists.document_ids if lists.document_ids is not None else lists.query_ids[lists.list_of]
    return FirstSlot.of(lists.query_ids[lists.list_of], ids, clicked, impressions=shown)
