"""NFCorpus as a search engine: what its queries find by words, its grades, and how words alone would rank it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from clickprism.data.bm25 import BM25
from clickprism.data.texts import Collection, Texts, nfcorpus
from clickprism.errors import DataError, SettingError
from clickprism.types import Float32, Float64, Int64, JudgedLists, Lists
from reproduce.adr.worlds import World
from reproduce.common.kept import keep

if TYPE_CHECKING:
    from clickprism.rankers.prior import Prior

FOUND, FEWEST = 25, 15  # candidates of a query: what BM25 finds, at most and at least so many
NOISE: Final = (0.9, 0.6, 0.3)  # of the versions of the production ranker, in standard deviations of BM25 in a list
MATCHES: Final = ((1.2, 0.75), (0.9, 0.4), (2.0, 1.0), (0.0, 0.0))  # k1 and b of BM25 as features


def collection(folder: Path | None) -> Collection:
    """The training queries of NFCorpus, whose grades stand for what users find relevant."""
    if folder is None:
        raise SettingError("folder", None, "say where the files of nfcorpus are")
    read: Collection = keep(("nfcorpus", folder), lambda: nfcorpus(folder, "train"))
    return read


def prior_of(folder: Path | None) -> Prior:
    """What is known of texts before any click; it remembers the texts that the language model has read."""
    from clickprism.rankers.cross_encoder_settings import CrossEncoder

    def made() -> Prior:
        built = CrossEncoder().build(collection(folder).documents).prior
        if built is None:
            raise SettingError("prior", None, "be a part of the cross-encoder")
        return built

    known: Prior = keep(("prior", folder), made)
    return known


def nfcorpus_lists(world: World, folder: Path | None) -> tuple[JudgedLists, Float64]:
    """Candidates with grades, and the scores of each version of the production ranker: BM25 through noise."""
    found = collection(folder)
    random = np.random.default_rng([world.seed, 3])
    queries, offsets, rows, grades = _candidates(found, sum(world.queries), random)
    texts = [found.queries.texts[query] for query in queries.tolist()]
    features = _features(found.documents, texts, rows, offsets)
    ids = found.queries.ids[queries], found.documents.ids[rows]
    judged = JudgedLists(Lists(features, offsets, *ids), grades.astype(np.int32))
    bm25 = _within(features[:, 0], offsets)
    noise = np.interp(np.linspace(0, 1, world.rankers), np.linspace(0, 1, len(NOISE)), NOISE)
    return judged, bm25 + noise[:, None] * random.standard_normal((world.rankers, len(bm25)))


def _candidates(found: Collection, count: int, random: np.random.Generator) -> tuple[Int64, Int64, Int64, Int64]:
    """So many queries with something relevant, the offsets and rows of their candidates, and the grades.

    Judged documents that words do not find are left out: were they added because they are relevant, BM25 would rank
    candidates worse than chance does.
    """
    best, _ = BM25().index(found.documents).top(found.queries.texts, FOUND)
    query, place = np.nonzero(best >= 0)
    rows = best[query, place]
    grades = np.zeros(best.shape, np.int64)
    grades[query, place] = found.judgements.grades_of(found.queries.ids[query], found.documents.ids[rows])
    enough = ((best >= 0).sum(axis=1) >= FEWEST) & (grades > 0).any(axis=1)
    taken = random.permutation(np.flatnonzero(enough))[:count]
    if len(taken) < count:
        problem = f"there are {len(taken)} queries with enough candidates, {count} are needed"
        raise DataError(problem, remedy="Take a smaller size: --quick, or neither that nor --full")
    inside = best[taken] >= 0
    offsets = np.concatenate([[0], np.cumsum(inside.sum(axis=1))]).astype(np.int64)
    return taken, offsets, best[taken][inside].astype(np.int64), grades[taken][inside]


def _features(documents: Texts, queries: list[str], rows: Int64, offsets: Int64) -> Float32:
    """What words say: BM25 four ways, and how long the texts are, [rows, 6]."""
    owner = np.repeat(np.arange(len(queries)), np.diff(offsets))
    columns = []
    for k1, b in MATCHES:
        scores = BM25(k1, b).index(documents).scores(queries)
        columns.append(np.asarray(scores[owner, rows]).ravel())
    columns.append(np.log1p([len(text.split()) for text in queries])[owner])
    columns.append(np.log1p([len(text.split()) for text in documents.texts])[rows])
    stacked = np.stack(columns, axis=1)
    return np.asarray((stacked - stacked.mean(axis=0)) / np.maximum(stacked.std(axis=0), 1e-9), dtype=np.float32)


def _within(values: Float32, offsets: Int64) -> Float64:
    """Standardised in each list."""
    lengths = np.diff(offsets)
    mean = np.add.reduceat(values.astype(np.float64), offsets[:-1]) / lengths
    centred = values - np.repeat(mean, lengths)
    deviation = np.sqrt(np.add.reduceat(centred**2, offsets[:-1]) / lengths)
    return np.asarray(centred / np.repeat(np.maximum(deviation, 1e-9), lengths))
