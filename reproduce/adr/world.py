"""The world of the reproduction: texts, grades and traffic, and a raw log of users with position and trust bias.

Only `Truth` knows grades and users. The pipeline gets the raw log, and the texts of queries and documents.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from clickprism.data.bm25 import BM25
from clickprism.data.texts import Texts
from clickprism.errors import DataError
from clickprism.evaluation.measures import evaluate
from clickprism.log_model.results import ClickParameters
from clickprism.simulation.raw_log import RawLog, write_raw_log
from clickprism.simulation.raw_searches import Catalogue, SearchEngine
from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.types import Bool, Float64, Int64, JudgedLists, Lists, Text
from reproduce.common.nfcorpus import Collection, Judgements, best_rows, nfcorpus

CANDIDATES: Final = 14  # documents of a query, of which 10 are shown
SHOWN: Final = 10
VARIANTS: Final = 3  # queries of a topic: its text alone, and with one word more of a relevant document
BUCKETS: Final = ("head", "middle", "tail")
HEAD, TAIL = 200.0, 10.0  # searches a month; the paper has 60,000 and 10
ENGINE: Final = (0.4, 1.0)  # weight of the grade and of BM25 in the score of the engine, in deviations of a list
ERROR: Final = (0.6, (0.5, 0.4))  # what the engine gets wrong: always, and in each of its two versions
CURVE: Final = (1.0, 0.674, 0.414, 0.293, 0.208, 0.171, 0.136, 0.117, 0.084, 0.058)
"""Observation of each position, as measured on Baidu's log (AllPairs, "Unbiased Learning to Rank Meets Reality")."""
TRUST: Final = 0.5  # strength of the eye-tracking trust bias: eps- is .325 / k
MONTH: Final = 28
EXPLORED: Final = (
    80.0  # first results of a query that are randomised in a month; the paper has many queries, few of each
)
MOST_EXPLORED: Final = 0.5  # share of the searches for a query


@dataclass(frozen=True)
class Size:
    """How large a draw is.

    Attributes:
        queries: Number of queries.
        busiest: Searches a month of the most frequent query; the rarest has 1, and logarithms are uniform.
        epochs: Epochs of the cross encoders.
        tokens: Tokens of a pair.
        examined: Searches of the log of Figure 4.
        seeds: The draws.
    """

    queries: int
    busiest: float
    epochs: int
    tokens: int
    examined: int
    seeds: tuple[int, ...]


SIZES: Final = {
    "smallest": Size(30, 300.0, 1, 18, 1000, (0,)),
    "quick": Size(180, 1200.0, 3, 24, 8000, (0,)),
    "standard": Size(240, 1500.0, 4, 32, 20_000, (0, 1, 2)),
    "full": Size(600, 3000.0, 4, 48, 50_000, (0, 1, 2, 3, 4)),
}


@dataclass(frozen=True, eq=False)
class Truth:
    """What only rows named oracle, and the evaluation, may use.

    Attributes:
        judged: Candidates of each query with their grades.
        bucket: Index of each query in `BUCKETS`, [queries].
        searches: Searches a month for each query, [queries].
        parameters: Click parameters of the users.
        first: Click probability of each candidate in the first slot, [rows].
    """

    judged: JudgedLists
    bucket: Int64
    searches: Float64
    parameters: ClickParameters
    first: Float64


@dataclass(frozen=True, eq=False)
class World:
    """A simulated search engine with texts, and its raw log.

    Attributes:
        queries: Texts of the queries, by the ids of the log.
        documents: Texts of the documents.
        truth: Grades and users.
        raw: The raw log.
    """

    queries: Texts
    documents: Texts
    truth: Truth
    raw: RawLog

    @property
    def lists(self) -> Lists:
        """Return the candidates of each query."""
        return self.truth.judged.lists

    @property
    def pairs(self) -> tuple[Text, Text]:
        """Return the query and document ids of all candidates, [rows]."""
        documents = self.lists.document_ids
        if documents is None:
            raise DataError("the candidates have no ids")
        return self.lists.query_ids[self.lists.list_of], documents


def make_world(folder: Path, size: Size, *, seed: int, texts: Path | None = None) -> World:
    """Draw queries and an engine, let users search for two months, and write their raw log.

    Args:
        folder: Folder for the raw log.
        size: How large it is.
        seed: Random seed.
        texts: Folder of NFCorpus; None generates texts.
    """
    random = np.random.default_rng([seed, 31])
    found = generated_texts(size.queries // 2, seed=seed) if texts is None else nfcorpus(texts, "train")
    judged, query_texts, bm25 = _candidates(found, size.queries, random)
    lists = judged.lists
    a_month = np.exp(random.uniform(0, np.log(size.busiest), len(query_texts)))
    settings = RawLogSettings(
        searches=int(2 * a_month.sum()),
        days=2 * MONTH,
        format="parquet",
        user={"name": "pbm", "curve": list(CURVE)},
        trust=TRUST,
        length=SHOWN,
        page=SHOWN,
        rankers=len(ERROR[1]),
        feedback=0.0,
        seed=seed,
    )
    grade = _within(judged.grades.astype(np.float64), lists.offsets)
    known = ENGINE[0] * grade + ENGINE[1] * bm25
    noise = ERROR[0] * random.standard_normal(lists.documents)
    noise = noise + np.array(ERROR[1])[:, None] * random.standard_normal((len(ERROR[1]), lists.documents))
    numbers = np.array([int(name.rpartition("-")[2]) for name in _ids(lists)], dtype=np.int64)
    explored = np.minimum(MOST_EXPLORED, EXPLORED / a_month)
    scores = (known + noise).astype(np.float32)
    catalogue = Catalogue(judged, numbers, query_texts, a_month / a_month.sum(), scores, explored)
    raw = write_raw_log(folder, settings, catalogue=catalogue)
    named = Lists(lists.features, lists.offsets, lists.query_ids, numbers.astype(np.str_))
    documents = {
        str(number): found.documents.of_ids([name])[0] for number, name in zip(numbers, _ids(lists), strict=True)
    }
    bucket = np.where(a_month >= HEAD, 0, np.where(a_month >= TAIL, 1, 2))
    parameters, first = _users(SearchEngine(settings, catalogue))
    return World(
        Texts.of(lists.query_ids.tolist(), query_texts),
        Texts.of(list(documents), list(documents.values())),
        Truth(JudgedLists(named, judged.grades), bucket, a_month, parameters, first),
        raw,
    )


def _users(engine: SearchEngine) -> tuple[ClickParameters, Float64]:
    """Return the click parameters of the users, and the click probability of each row in the first slot."""
    from clickprism.click_models.trust import TrustUser

    positions, theta = np.arange(1, SHOWN + 1), np.array(CURVE)
    plus, minus = TrustUser().trust(positions)
    plus, minus = 1 - TRUST + TRUST * plus, TRUST * minus
    gamma = engine.attraction.astype(np.float64)
    return ClickParameters.of_trust(theta, plus, minus), theta[0] * (plus[0] * gamma + minus[0] * (1 - gamma))


def _candidates(found: Collection, count: int, random: np.random.Generator) -> tuple[JudgedLists, list[str], Float64]:
    """Return the candidates of each query with grades, the texts of the queries, and BM25 within each list.

    A topic is a query of the collection; its candidates are what BM25 finds. All variants of a topic have its grades.
    """
    corpus = BM25().corpus(found.documents)
    best = best_rows(corpus.scores(found.queries.texts, found.documents.texts), CANDIDATES)
    topic, place = np.nonzero(best >= 0)
    grades = np.zeros(best.shape, np.int64)
    grades[topic, place] = found.judgements.grades_of(found.queries.ids[topic], found.documents.ids[best[topic, place]])
    enough = (best >= 0).all(axis=1) & ((grades > 0).sum(axis=1) >= 2) & ((grades == 0).sum(axis=1) >= 3)
    topics = random.permutation(np.flatnonzero(enough))[: -(-count // VARIANTS)]
    if len(topics) * VARIANTS < count:
        raise DataError(f"there are {len(topics)} topics with enough candidates", remedy="Use a smaller size")
    texts = [
        text
        for topic in topics.tolist()
        for text in _variants(found.queries.texts[topic], _relevant(found, best[topic], grades[topic]))
    ]
    chosen = np.sort(random.permutation(len(texts))[:count])
    rows, of = best[topics[chosen // VARIANTS]], grades[topics[chosen // VARIANTS]]
    texts = [texts[number] for number in chosen.tolist()]
    offsets = np.arange(count + 1, dtype=np.int64) * CANDIDATES
    pairs = np.repeat(np.arange(count), CANDIDATES), rows.ravel()
    scores, _ = corpus.score_texts(texts, found.documents.texts, *pairs)
    ids = np.char.add("q", np.arange(1, count + 1).astype(np.str_)), found.documents.ids[rows.ravel()]
    lists = Lists(scores[:, None].astype(np.float32), offsets, *ids)
    return JudgedLists(lists, of.ravel().astype(np.int32)), texts, _within(scores, offsets)


def _relevant(found: Collection, rows: Int64, grades: Int64) -> list[str]:
    return [found.documents.texts[row] for row in rows[grades >= grades.max()].tolist()]


def _variants(text: str, relevant: list[str]) -> list[str]:
    """Return a query, and the same with one of the most frequent other words of its best documents."""
    own = set(text.split())
    words = Counter(word for each in relevant for word in each.split() if word not in own and len(word) > 3)
    more = [word for word, _ in words.most_common(VARIANTS + 1) if word != "abstract"]
    return [text, *(f"{text} {word}" for word in more[: VARIANTS - 1])]


def generated_texts(topics: int, *, seed: int, documents: int = 24) -> Collection:
    """Return generated texts: topics with words of their own, and documents that mix the words of two topics.

    The grade of a document is how many of the three words of the query it has.
    """
    random = np.random.default_rng([seed, 37])
    syllables = [first + vowel for first in "bdfgklmnprstv" for vowel in "aeiou"]
    words = ["".join(random.choice(syllables, 3)) for _ in range(8 * topics)]
    texts: list[str] = []
    queries: list[str] = []
    judged: list[tuple[str, str, int]] = []
    for topic in range(topics):
        own = words[8 * topic : 8 * topic + 8]
        queries.append(" ".join(own[:3]))
        for _ in range(documents):
            count = int(random.choice(4, p=(0.35, 0.3, 0.2, 0.15)))
            said = [*random.choice(own[:3], count, replace=False), *random.choice(own[3:], 4), *random.choice(words, 8)]
            said += [own[0]] * (count == 0)  # found by a word, but not relevant
            judged.append((f"topic-{topic}", f"doc-{len(texts)}", count))
            texts.append(" ".join(random.permutation(said)))
    ids = [f"doc-{number}" for number in range(len(texts))]
    query_ids, document_ids, grades = zip(*judged, strict=True)
    judgements = Judgements(np.array(query_ids), np.array(document_ids), np.array(grades, np.int32))
    return Collection(Texts.of([f"topic-{n}" for n in range(topics)], queries), Texts.of(ids, texts), judgements)


def _within(values: Float64, offsets: Int64) -> Float64:
    """Return values standardised in each list."""
    each = values.reshape(len(offsets) - 1, -1)
    deviation = np.maximum(each.std(axis=1, keepdims=True), 1e-9)
    return np.asarray((each - each.mean(axis=1, keepdims=True)) / deviation).ravel()


def _ids(lists: Lists) -> Text:
    if lists.document_ids is None:
        raise DataError("the candidates have no ids")
    return lists.document_ids


def per_query(judged: JudgedLists, scores: Float64, measure: str) -> Float64:
    """Return a measure of each query, [queries]."""
    return evaluate(judged, scores, [measure])[measure]


def by_bucket(values: Float64, bucket: Int64) -> dict[str, float]:
    """Return the mean over the queries of each bucket, and over all."""
    chosen: dict[str, Bool] = {name: bucket == number for number, name in enumerate(BUCKETS)}
    return {name: float(np.nanmean(values[rows])) for name, rows in chosen.items()} | {"all": float(np.nanmean(values))}
