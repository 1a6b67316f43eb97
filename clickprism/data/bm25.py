"""BM25: how well the words of a document match a query. It is a baseline of text rankers, and a first stage."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism.data.texts import Texts
from clickprism.errors import SettingError
from clickprism.settings import check_fields
from clickprism.types import Float64, Int64

if TYPE_CHECKING:
    from scipy import sparse

WORD: Final = re.compile(r"\w+")
PAIRS: Final = 1 << 14  # pairs at a time


@final
@dataclass(frozen=True)
class BM25:
    """score(q, d) = sum over words w of q of idf(w) tf (k1 + 1) / (tf + k1 (1 - b + b |d| / mean |d|)).

    idf(w) = log(1 + (N - n_w + .5) / (n_w + .5)), with n_w the documents that have w (Robertson and Zaragoza 2009).
    Words are letters and digits between other characters, in lower case.

    Attributes:
        k1: How soon repetitions of a word add nothing.
        b: How much long documents are penalised.
        plurals: Whether a plural counts as its singular (Harman's S stemmer).
    """

    k1: float = 1.2
    b: float = 0.75
    plurals: bool = True

    def __post_init__(self) -> None:
        check_fields(self, k1=(0, np.finfo(np.float64).max), b=(0, 1))

    def corpus(self, documents: Texts) -> BM25Corpus:
        """Return the statistics of a corpus with which any text can be scored."""
        having: Counter[str] = Counter()
        total = 0
        for text in documents.texts:
            words = self.words(text)
            having.update(set(words))
            total += len(words)
        kept = {word: count for word, count in having.items() if count > 1}
        return BM25Corpus(self, len(documents), total / max(len(documents), 1), kept)

    def words(self, text: str) -> list[str]:
        """Return the words of a text.

        >>> BM25().words("Kidney-stones: 12 STUDIES")
        ['kidney', 'stone', '12', 'study']
        """
        found = WORD.findall(text.lower())
        return [singular(word) for word in found] if self.plurals else found


@final
@dataclass(frozen=True)
class BM25Corpus:
    """The statistics of a corpus: with them the score of a pair needs only its two texts.

    >>> texts = ["grape juice", "kidney stones and grape seeds", "walking"]
    >>> corpus = BM25().corpus(Texts.of(["a", "b", "c"], texts))
    >>> zero, one = np.array([0, 0]), np.array([0, 1])
    >>> [round(float(score), 4) for score in corpus.score_texts(["grapes"], texts, zero, one)[0]]
    [0.5235, 0.3461]
    >>> corpus.scores(["grapes", "kidney stone"], texts).toarray().round(4).tolist()
    [[0.5235, 0.3461, 0.0], [0.0, 1.4446, 0.0]]

    Attributes:
        settings: The settings of BM25.
        documents: Number of documents.
        mean_length: Mean number of words of a document.
        having: Number of documents that have a word, for words that two or more have. Any other word, also a new one,
            counts as one that a single document has, so half of the words of a corpus need not be kept.
    """

    settings: BM25
    documents: int
    mean_length: float
    having: dict[str, int]

    def __post_init__(self) -> None:
        check_fields(self, documents=(0, None), mean_length=(0, np.finfo(np.float64).max))
        if not all(1 < each <= self.documents for each in self.having.values()):
            raise SettingError("having", "...", f"be counts from 2 to {self.documents}")

    def scores(self, queries: Sequence[str], documents: Sequence[str]) -> sparse.csr_matrix[Any]:
        """Return the score of every text for each query, [queries, documents]; 0 if they share no word."""
        asked, weights, _ = self._matrices(queries, documents)
        scores: sparse.csr_matrix[Any] = (asked @ weights.T).tocsr()
        return scores

    def score_texts(
        self, queries: Sequence[str], documents: Sequence[str], rows: Int64, others: Int64
    ) -> tuple[Float64, Float64]:
        """Return the score of pairs (rows of texts), and its share of the largest score of the query, [pairs]."""
        asked, weights, idf = self._matrices(queries, documents)
        scores = np.empty(len(rows))
        for start in range(0, len(rows), PAIRS):
            chosen = slice(start, start + PAIRS)
            products = asked[rows[chosen]].multiply(weights[others[chosen]])
            scores[chosen] = np.asarray(products.sum(axis=1)).ravel()
        most = np.asarray(asked @ idf).ravel() * (self.settings.k1 + 1)
        return scores, scores / np.maximum(most[rows], 1e-12)

    def _matrices(
        self, queries: Sequence[str], documents: Sequence[str]
    ) -> tuple[sparse.csr_matrix[Any], sparse.csr_matrix[Any], Float64]:
        """Return how often each query has each of its words, what each adds to the score of each text, and its idf."""
        from scipy import sparse

        k1, b = self.settings.k1, self.settings.b
        vocabulary: dict[str, int] = {}
        asked = _counts(map(self.settings.words, queries), vocabulary, grow=True)
        texts = [self.settings.words(text) for text in documents]
        lengths = np.array([len(text) for text in texts], dtype=np.float64)
        having = np.array([self.having.get(word, 1) for word in vocabulary], dtype=np.int64)
        idf: Float64 = np.log1p(np.maximum(self.documents - having + 0.5, 0.5) / (having + 0.5))
        counts = _counts(texts, vocabulary, grow=False)
        norm = k1 * (1 - b + b * lengths / max(self.mean_length, 1e-12))
        rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        values = idf[counts.indices] * counts.data * (k1 + 1) / (counts.data + norm[rows])
        return asked, sparse.csr_matrix((values, counts.indices, counts.indptr), shape=counts.shape), idf


def singular(word: str) -> str:
    """Return the singular of a word, by Harman's S stemmer (1991): three rules, the first that fits.

    >>> [singular(word) for word in ("berries", "diseases", "grapes", "virus", "glass", "is")]
    ['berry', 'disease', 'grape', 'virus', 'glass', 'is']
    """
    if len(word) > 3 and word.endswith("ies") and not word.endswith(("eies", "aies")):
        return f"{word[:-3]}y"
    if len(word) > 3 and word.endswith("es") and not word.endswith(("aes", "ees", "oes")):
        return word[:-1]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("us", "ss")):
        return word[:-1]
    return word


def _counts(texts: Iterable[list[str]], vocabulary: dict[str, int], *, grow: bool) -> sparse.csr_matrix[Any]:
    """Return how often each text has each word, [texts, words]; new words are added to the vocabulary, or ignored."""
    from scipy import sparse

    codes: list[int] = []
    ends = [0]
    for text in texts:
        if grow:
            codes += [vocabulary.setdefault(word, len(vocabulary)) for word in text]
        else:
            codes += [vocabulary[word] for word in text if word in vocabulary]
        ends.append(len(codes))
    shape = (len(ends) - 1, len(vocabulary))
    counts = sparse.csr_matrix((np.ones(len(codes)), np.array(codes, np.int64), np.array(ends, np.int64)), shape=shape)
    counts.sum_duplicates()
    return counts
