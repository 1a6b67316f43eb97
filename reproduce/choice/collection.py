"""Build a judged collection with long lists of candidates from the texts of NFCorpus.

A list has the 140 best documents of several retrieval functions, with features of their words. The engine of
`judged_world` shows only a few of them, so that a ranker meets documents unlike those in its log. The lists are
computed once and then read from a cache folder; nothing of them belongs in the repository.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.preprocessing import normalize

from clickprism._util.files import atomic_file
from clickprism.data.bm25 import BM25
from clickprism.errors import DataError
from clickprism.types import Float64, Int64, JudgedLists, Lists
from reproduce.common.nfcorpus import Part, nfcorpus

SOURCE: Final = Path(__file__).parents[2].parent / "shared/data/nfcorpus"
CACHE: Final = "nfcorpus_candidates_1.npz"  # raise the number when the lists or features change
QUERIES: Final = 110
CANDIDATES: Final = 140  # of a query
RELEVANT: Final = 10  # of them, at least
POOLED: Final = ("bm25", "title_bm25", "characters_cosine", "lsi_cosine")
FOLDS: Final = 5
TITLE_END: Final = " abstract "  # the word between the title and the abstract of a document

FEATURES: Final = (
    *("bm25", "bm25_short", "bm25_saturated", "bm25_unnormalised", "title_bm25", "title_bm25_unnormalised"),
    *("dirichlet_500", "dirichlet_2000", "mercer_1", "mercer_7", "title_dirichlet"),
    *("cosine", "title_cosine", "characters_cosine", "title_characters_cosine", "lsi_cosine", "title_lsi_cosine"),
    *("coverage", "title_coverage", "idf_coverage", "tfidf_sum", "tfidf_max", "tfidf_min", "tfidf_mean"),
    *("tf_sum", "log_tf_sum", "tf_share", "title_tf_sum", "length", "title_length", "distinct_words"),
    *("document_idf", "query_length", "query_idf"),
)


def collection(folder: Path | None = None, *, source: Path = SOURCE) -> list[tuple[JudgedLists, JudgedLists]]:
    """Return the training and the test part of five folds by query.

    A fold trains on three fifths of the queries and tests on another fifth, as the folds of LETOR do.

    Args:
        folder: Where the lists are cached; by default in the folder for temporary files.
        source: The folder with the files of NFCorpus.
    """
    file = (Path(tempfile.gettempdir()) / "clickprism" if folder is None else folder) / CACHE
    if not file.is_file():
        judged = _judged_lists(source)
        ids = judged.lists.document_ids
        with atomic_file(file, parents=True) as draft, draft.open("wb") as stream:
            np.savez(
                stream,
                features=judged.lists.features,
                offsets=judged.lists.offsets,
                query_ids=judged.lists.query_ids,
                document_ids=np.zeros(0, np.str_) if ids is None else ids,
                grades=judged.grades,
            )
    with np.load(file) as arrays:
        lists = Lists(*(arrays[name] for name in ("features", "offsets", "query_ids", "document_ids")))
        judged = JudgedLists(lists, arrays["grades"])
    part = np.random.default_rng(0).permutation(len(judged)) % FOLDS
    return [
        (judged.take(np.isin((part - fold) % FOLDS, (0, 1, 2))), judged.take((part - fold) % FOLDS == FOLDS - 1))
        for fold in range(FOLDS)
    ]


def _judged_lists(source: Path) -> JudgedLists:
    """Choose the queries and their candidates, and compute all features."""
    parts: tuple[Part, ...] = ("train", "validation", "test")
    collections = [nfcorpus(source, part) for part in parts]
    documents = collections[0].documents
    queries = {
        name: text for each in collections for name, text in zip(each.queries.names, each.queries.texts, strict=True)
    }
    grades_of: dict[str, dict[int, int]] = {}  # grade by row of the document, for each query
    for each in collections:
        judged = each.judgements
        known = documents.has(judged.document_ids)  # the files lack the texts of some judged documents
        rows = documents.rows(judged.document_ids[known])
        columns = (judged.query_ids[known].tolist(), rows.tolist(), judged.grades[known].tolist())
        for name, row, grade in zip(*columns, strict=True):
            grades_of.setdefault(name, {})[row] = grade
    text = _Field.of(documents.texts)
    title = _Field.of([each.partition(TITLE_END)[0] for each in documents.texts])
    names: list[str] = []
    candidates, features, grades = [], [], []
    for name in np.random.default_rng(0).permutation(sorted(grades_of)).tolist():
        graded = grades_of[name]
        if len(names) == QUERIES or len(graded) < RELEVANT:
            continue
        if not (text.knows(queries[name]) and title.knows(queries[name])):
            continue
        matrix = _features(text, title, queries[name])
        pool = _pool(matrix)
        in_pool = np.array([graded.get(row, 0) for row in pool.tolist()], dtype=np.int32)
        if (in_pool > 0).sum() >= RELEVANT:
            names.append(name)
            candidates.append(pool)
            features.append(matrix[pool])
            grades.append(in_pool)
    if len(names) < QUERIES:
        raise DataError(f"only {len(names)} queries have {RELEVANT} relevant candidates, not {QUERIES}", file=source)
    offsets = np.arange(QUERIES + 1, dtype=np.int64) * CANDIDATES
    ids = documents.ids[np.concatenate(candidates)]
    lists = Lists(np.concatenate(features).astype(np.float32), offsets, np.array(names), ids)
    return JudgedLists(lists, np.concatenate(grades))


def _pool(features: Float64) -> Int64:
    """Return the rows of the candidates of a query: those that one of the functions of `POOLED` ranks highest.

    Judged documents outside of the pool are not added. They would be the only candidates that no function ranks high,
    and a ranker would learn that a poor match is relevant (Minka and Robertson 2008 on the documents of OHSUMED).
    """
    scores = features[:, [FEATURES.index(name) for name in POOLED]]
    order = np.argsort(-scores, axis=0, kind="stable")
    rank = np.argsort(order, axis=0, kind="stable")
    best = np.lexsort((rank.sum(axis=1), rank.min(axis=1)))
    return np.sort(best[:CANDIDATES])


def _features(text: _Field, title: _Field, query: str) -> Float64:
    """Return the features of all documents for a query, in the order of `FEATURES`, [documents, features]."""
    in_text, in_title = text.match(query), title.match(query)
    tf, weighted = in_text.tf, in_text.tf * in_text.idf
    columns = [
        *(in_text.bm25(k1, b) for k1, b in ((1.2, 0.75), (0.9, 0.4), (3.0, 0.75), (1.2, 0.0))),
        *(in_title.bm25(1.2, b) for b in (0.75, 0.0)),
        *(in_text.dirichlet(mu) for mu in (500.0, 2000.0)),
        *(in_text.jelinek_mercer(share) for share in (0.1, 0.7)),
        in_title.dirichlet(50.0),
        *(each.cosine for each in (in_text, in_title)),
        *(each.characters for each in (in_text, in_title)),
        *(each.lsi for each in (in_text, in_title)),
        *((each.tf > 0).mean(axis=1) for each in (in_text, in_title)),
        (tf > 0) @ in_text.idf / in_text.idf.sum(),
        *(weighted.sum(axis=1), weighted.max(axis=1), weighted.min(axis=1), weighted.mean(axis=1)),
        *(tf.sum(axis=1), np.log1p(tf).sum(axis=1), tf.sum(axis=1) / in_text.lengths, in_title.tf.sum(axis=1)),
        *(in_text.lengths, in_title.lengths, text.distinct, text.mean_idf),
        *(np.full(len(tf), value) for value in (float(tf.shape[1]), float(in_text.idf.sum()))),
    ]
    return np.stack(columns, axis=1)


@final
@dataclass(frozen=True, eq=False)
class _Match:
    """The words of a query in one field of all documents.

    Attributes:
        tf: How often each document has each word, [documents, words].
        idf: Inverse document frequency of each word, [words].
        share: Share of each word among all words of the field, [words].
        lengths: Words of each document, at least 1, [documents].
        mean_length: Mean over all documents.
        cosine: Similarity of weighted words, [documents].
        characters: Similarity of weighted sequences of characters, [documents].
        lsi: Similarity in the space of latent semantic indexing, [documents].
    """

    tf: Float64
    idf: Float64
    share: Float64
    lengths: Float64
    mean_length: float
    cosine: Float64
    characters: Float64
    lsi: Float64

    def bm25(self, k1: float, b: float) -> Float64:
        norm = k1 * (1 - b + b * self.lengths[:, None] / self.mean_length)
        return np.asarray((self.tf * (k1 + 1) / (self.tf + norm)) @ self.idf, dtype=np.float64)

    def dirichlet(self, mu: float) -> Float64:
        """Return the log-likelihood of the query with Dirichlet smoothing (Zhai and Lafferty 2004)."""
        likelihood = (self.tf + mu * self.share) / (self.lengths[:, None] + mu)
        return np.asarray(np.log(likelihood).sum(axis=1), dtype=np.float64)

    def jelinek_mercer(self, smoothing: float) -> Float64:
        """Return the log-likelihood of the query with Jelinek-Mercer smoothing (Zhai and Lafferty 2004)."""
        likelihood = (1 - smoothing) * self.tf / self.lengths[:, None] + smoothing * self.share
        return np.asarray(np.log(likelihood).sum(axis=1), dtype=np.float64)


@final
@dataclass(frozen=True, eq=False)
class _Field:
    """One field of all documents, ready to be matched with queries."""

    words: CountVectorizer
    counts: sparse.csr_matrix[Any]
    idf: Float64
    weights: sparse.csr_matrix[Any]
    character_words: TfidfVectorizer
    characters: sparse.csr_matrix[Any]
    svd: TruncatedSVD
    latent: Float64

    @staticmethod
    def of(texts: list[str]) -> _Field:
        """Count words and sequences of characters, and fit the latent space."""
        words = CountVectorizer(tokenizer=BM25().words, token_pattern=None, dtype=np.float64)
        counts = words.fit_transform(texts)
        having = np.bincount(counts.indices, minlength=counts.shape[1])
        idf = np.log1p((len(texts) - having + 0.5) / (having + 0.5))
        weights = normalize(counts.log1p().multiply(idf)).tocsr()
        characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), min_df=2, sublinear_tf=True)
        svd = TruncatedSVD(100, random_state=0)
        latent = normalize(svd.fit_transform(weights))
        return _Field(words, counts, idf, weights, characters, characters.fit_transform(texts), svd, latent)

    @property
    def distinct(self) -> Float64:
        """Return the number of different words of each document, [documents]."""
        return np.diff(self.counts.indptr).astype(np.float64)

    @property
    def mean_idf(self) -> Float64:
        """Return the mean inverse document frequency of the words of each document, [documents]."""
        return np.asarray(
            self.counts @ self.idf / np.maximum(np.asarray(self.counts.sum(axis=1)).ravel(), 1), dtype=np.float64
        )

    def knows(self, query: str) -> bool:
        """Return whether any document has a word of this query."""
        return bool(self.words.transform([query]).nnz > 0)

    def match(self, query: str) -> _Match:
        """Compare a query with all documents."""
        asked = self.words.transform([query])
        words, lengths = asked.indices, np.asarray(self.counts.sum(axis=1)).ravel()
        weighted = normalize(asked.log1p().multiply(self.idf)).tocsr()
        return _Match(
            self.counts[:, words].toarray(),
            self.idf[words],
            np.asarray(self.counts[:, words].sum(axis=0)).ravel() / lengths.sum(),
            np.maximum(lengths, 1.0),
            float(lengths.mean()),
            (self.weights @ weighted.T).toarray()[:, 0],
            (self.characters @ self.character_words.transform([query]).T).toarray()[:, 0],
            self.latent @ normalize(self.svd.transform(weighted))[0],
        )
