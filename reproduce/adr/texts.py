"""NFCorpus as a search engine: what its queries find by words, what was judged, and how words alone would rank it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from clickprism.data.bm25 import BM25
from clickprism.data.nfcorpus import Collection, nfcorpus
from clickprism.data.texts import Texts
from clickprism.errors import DataError, SettingError
from clickprism.types import Float32, Float64, Int64, JudgedLists, Lists
from reproduce.adr.worlds import World
from reproduce.common.kept import keep

FOUND, JUDGED = 20, 3  # candidates of a query: so many that BM25 finds, and at most so many judged ones
NOISE: Final = (0.9, 0.6, 0.3)  # of the versions of the production ranker, in standard deviations of BM25 in a list
MATCHES: Final = ((1.2, 0.75), (0.9, 0.4), (2.0, 1.0), (0.0, 0.0))  # k1 and b of BM25 as features


def collection(folder: Path | None) -> Collection:
    """The training queries of NFCorpus, whose grades stand for what users find relevant."""
    if folder is None:
        raise SettingError("folder", None, "say where the files of nfcorpus are")
    read: Collection = keep(("nfcorpus", folder), lambda: nfcorpus(folder, "train"))
    return read


def texts_of(lists: Lists, folder: Path | None) -> tuple[list[str], list[str]]:
    """The text of the query and of the document of each row."""
    found = collection(folder)
    queries = found.queries.of_ids(lists.query_ids[lists.list_of])
    return queries, found.documents.of_ids(lists.query_ids[:0] if lists.document_ids is None else lists.document_ids)


def nfcorpus_lists(world: World, folder: Path | None) -> tuple[JudgedLists, Float64]:
    """Candidates with grades, and the scores of each version of the production ranker: BM25 through noise."""
    found = collection(folder)
    random = np.random.default_rng([world.seed, 3])
    queries, documents, grades = _candidates(found, sum(world.queries), random)
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in documents])]).astype(np.int64)
    rows = np.concatenate(documents)
    texts = [found.queries.texts[query] for query in queries]
    features = _features(found.documents, texts, rows, offsets)
    ids = found.queries.ids[queries], found.documents.ids[rows]
    judged = JudgedLists(Lists(features, offsets, *ids), np.concatenate(grades).astype(np.int32))
    bm25 = _within(features[:, 0], offsets)
    noise = np.interp(np.linspace(0, 1, world.rankers), np.linspace(0, 1, len(NOISE)), NOISE)
    return judged, bm25 + noise[:, None] * random.standard_normal((world.rankers, len(bm25)))


def _candidates(
    found: Collection, count: int, random: np.random.Generator
) -> tuple[list[int], list[Int64], list[Int64]]:
    """So many queries with something relevant, the rows of their candidates, and the grades."""
    best, _ = BM25().index(found.documents).top(found.queries.texts, FOUND)
    judged, known = found.judgements, found.documents.has(found.judgements.document_ids)
    places = {id_: place for place, id_ in enumerate(found.queries.ids.tolist())}
    by_query: list[dict[int, int]] = [{} for _ in places]
    rows = found.documents.rows(judged.document_ids[known])
    pairs = zip(judged.query_ids[known].tolist(), rows.tolist(), judged.grades[known].tolist(), strict=True)
    for query, row, grade in pairs:
        if query in places:
            by_query[places[query]][row] = grade
    taken: list[int] = []
    documents: list[Int64] = []
    grades: list[Int64] = []
    for query in random.permutation(len(places)).tolist():
        if len(taken) == count:
            break
        graded = by_query[query]
        words = [int(row) for row in best[query] if row >= 0]
        others = [row for row in graded if row not in words]
        chosen = [*words, *random.permutation(others)[:JUDGED].tolist()] if others else words
        values = [graded.get(int(row), 0) for row in chosen]
        if len(chosen) >= FOUND and max(values) > 0:
            taken.append(query)
            documents.append(np.array(chosen, dtype=np.int64))
            grades.append(np.array(values, dtype=np.int64))
    if len(taken) < count:
        raise DataError(f"has {len(taken)} queries with enough candidates, {count} are needed", remedy="Take fewer")
    return taken, documents, grades


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
