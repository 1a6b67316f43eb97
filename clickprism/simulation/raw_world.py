"""The search engine behind a simulated raw log: its queries and documents, and rankers that heed past clicks."""

from __future__ import annotations

from typing import Final, final

import numpy as np

from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.types import Float32, Float64, Int64, JudgedLists, Lists
from clickprism.users.base import attraction

GRADE_SHARES: Final = (0.50, 0.27, 0.16, 0.05, 0.02)
VIEWS: Final = 4  # features of a document: its relevance through noise
MOST_QUERIES: Final = 200_000  # unless the settings ask for more
WORDS: Final = (
    *("red", "blue", "green", "black", "small", "large", "cheap", "new", "used"),
    *("best", "summer", "winter", "garden", "kitchen", "office", "travel", "running", "wooden"),
    *("leather", "cotton", "wool", "steel", "glass", "paper", "solar", "electric", "manual"),
    *("folding", "portable", "wireless", "waterproof", "vintage", "modern", "classic", "organic", "shoes"),
    *("shirt", "jacket", "table", "chair", "lamp", "desk", "phone", "camera", "laptop"),
    *("bicycle", "tent", "knife", "bottle", "mug", "watch", "ring", "book", "guide"),
    *("map", "recipe", "ticket", "hotel", "flight", "train", "insurance", "loan", "café"),
    *("crème", "naïve", "smörgåsbord", "東京", "дом"),
)


@final
class World:
    """Queries with their documents, grades and rankers; all of it follows from the seed.

    Attributes:
        judged: a list a query; the same document stands in several lists, under the same id.
        attraction: the probability of a click on each document once it is seen and not trusted, [rows].
        texts: the words of each query.
        shares: the running sum of how often each query is asked, [queries].
        clicks: of people on each document of each query so far, [rows].
    """

    def __init__(self, settings: RawLogSettings) -> None:
        random = np.random.default_rng([settings.seed, 0])
        queries = settings.queries or min(max(20, settings.searches // 6), MOST_QUERIES)
        lengths = random.integers(settings.min_documents, settings.max_documents + 1, queries)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = int(offsets[-1])
        documents = _documents(lengths, catalogue=4 * queries + 8 * settings.max_documents, random=random)
        quality = random.standard_normal(documents.max() + 1, dtype=np.float32)[documents]
        relevance = np.float32(0.5) * quality + random.standard_normal(rows, dtype=np.float32)
        grades = np.searchsorted(np.quantile(relevance, np.cumsum(GRADE_SHARES)[:-1]), relevance).astype(np.int32)
        views = relevance[:, None] + random.standard_normal((rows, VIEWS), dtype=np.float32)
        names = np.char.add("q", np.arange(1, queries + 1).astype(np.str_))
        lists = Lists(views, offsets, names, (documents + 100_000).astype(np.str_))
        self.settings = settings
        self.judged = JudgedLists(lists, grades)
        self.attraction: Float32 = attraction(self.judged, max_grade=len(GRADE_SHARES) - 1)
        self.documents: Int64 = documents + 100_000
        self.texts = _texts(queries, random)
        weights = np.arange(1, queries + 1, dtype=np.float64) ** -settings.exponent
        self.shares = np.cumsum(random.permutation(weights / weights.sum()))
        blur = np.linspace(1.6, 0.8, settings.rankers, dtype=np.float32)[:, None]
        self._scores: Float32 = relevance + blur * random.standard_normal((settings.rankers, rows), dtype=np.float32)
        self.clicks = np.zeros(rows, dtype=np.int64)

    def versions(self, day: int) -> Float64:
        """The share of searches that each ranker serves on this day, [rankers]: one gives way to the next.

        >>> World(RawLogSettings(searches=100, days=5, rankers=3)).versions(1).tolist()
        [0.5, 0.5, 0.0]
        """
        last = self.settings.rankers - 1
        now = last * day / max(self.settings.days - 1, 1)
        shares: Float64 = np.maximum(1 - np.abs(np.arange(last + 1) - now), 0.0)
        return shares

    def rank(self, queries: Int64, rankers: Int64) -> tuple[Int64, Int64]:
        """The first `length` rows of each search, best first, padded [searches, length], and how many there are."""
        pairs, which = np.unique(queries * self.settings.rankers + rankers, return_inverse=True)
        query, ranker = np.divmod(pairs, self.settings.rankers)
        offsets = self.judged.lists.offsets
        found = (offsets[query + 1] - offsets[query])[:, None]
        places = np.arange(self.settings.max_documents)
        rows = np.minimum(offsets[query][:, None] + places, len(self.documents) - 1)
        scores = self._scores[ranker[:, None], rows] + self.settings.feedback * np.log1p(self.clicks[rows])
        order = np.argsort(np.where(places < found, -scores, np.inf), axis=1, kind="stable")[:, : self.settings.length]
        ranked = np.take_along_axis(rows, order, axis=1)
        return ranked[which], np.minimum(found[:, 0], ranked.shape[1])[which]


def _documents(lengths: Int64, *, catalogue: int, random: np.random.Generator) -> Int64:
    """A document of the catalogue for each row, each once in a list: a walk from a random place, in random steps."""
    steps = random.integers(1, 5, int(lengths.sum()))
    walked = np.cumsum(steps)
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    start = random.integers(0, catalogue, len(lengths)) - walked[first]
    return np.asarray((walked + np.repeat(start, lengths)) % catalogue, dtype=np.int64)


def _texts(queries: int, random: np.random.Generator) -> list[str]:
    """One to four words a query; some have a comma or quotes, as people type them."""
    drawn = random.integers(0, len(WORDS), (queries, 4))
    counts = random.choice([1, 2, 2, 3, 3, 4], queries)
    odd = random.random(queries)
    texts = [" ".join(WORDS[word] for word in row[:count]) for row, count in zip(drawn.tolist(), counts, strict=True)]
    for index in np.flatnonzero(odd < 0.02).tolist():
        texts[index] = f'"{texts[index]}"' if odd[index] < 0.01 else f"{texts[index]}, {WORDS[drawn[index, 0]]}"
    return texts
