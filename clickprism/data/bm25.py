"""BM25: what words alone say about a document, the baseline of every text ranker and a first stage for one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism.data.texts import Texts
from clickprism.errors import SettingError
from clickprism.types import Float64, Int64

if TYPE_CHECKING:
    from scipy import sparse

WORD: Final = re.compile(r"\w+")
BLOCK: Final = 256  # queries at a time
PAIRS: Final = 1 << 14  # pairs at a time


@final
@dataclass(frozen=True)
class BM25:
    """score(q, d) = sum over words w of q of idf(w) tf (k1 + 1) / (tf + k1 (1 - b + b |d| / mean |d|)).

    idf(w) = log(1 + (N - n_w + .5) / (n_w + .5)), with n_w the documents that have w (Robertson and Zaragoza 2009).
    Words are what lies between characters that are neither letters nor digits, in lower case.

    Attributes:
        k1: how soon more of the same word adds nothing.
        b: how much long documents are held down.
        plurals: whether a plural counts as its singular (Harman's S stemmer).
    """

    k1: float = 1.2
    b: float = 0.75
    plurals: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.k1 < float("inf"):
            raise SettingError("k1", self.k1, "be 0 or more")
        if not 0 <= self.b <= 1:
            raise SettingError("b", self.b, "be from 0 to 1")

    def index(self, documents: Texts) -> BM25Index:
        """What a word is worth in each document, once for all queries."""
        from scipy import sparse

        words: dict[str, int] = {}
        counts = _counts((self.words(text) for text in documents.texts), words, grow=True)
        lengths = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
        having = np.bincount(counts.indices, minlength=len(words))
        idf = np.log1p((len(documents) - having + 0.5) / (having + 0.5))
        rows = np.repeat(np.arange(len(documents)), np.diff(counts.indptr))
        norm = self.k1 * (1 - self.b + self.b * lengths / max(float(lengths.mean()) if len(lengths) else 0.0, 1e-12))
        worth = idf[counts.indices] * counts.data * (self.k1 + 1) / (counts.data + norm[rows])
        weights = sparse.csr_matrix((worth, counts.indices, counts.indptr), shape=counts.shape)
        return BM25Index(self, documents, words, weights.T.tocsr())

    def words(self, text: str) -> list[str]:
        """The words of a text.

        >>> BM25().words("Kidney-stones: 12 STUDIES")
        ['kidney', 'stone', '12', 'study']
        """
        found = WORD.findall(text.lower())
        return [singular(word) for word in found] if self.plurals else found


@final
@dataclass(frozen=True, eq=False)
class BM25Index:
    """Documents ready to be searched.

    >>> documents = Texts.of(["a", "b", "c"], ["grape juice", "kidney stones and grape seeds", "walking"])
    >>> index = BM25().index(documents)
    >>> index.top(["grapes", "kidney stone"], 2)[0].tolist()
    [[0, 1], [1, -1]]
    """

    settings: BM25
    documents: Texts
    words: dict[str, int]
    weights: sparse.csr_matrix[Any]

    def scores(self, queries: Sequence[str]) -> sparse.csr_matrix[Any]:
        """The score of every document for each query, [queries, documents]; 0 where no word is shared."""
        counts = _counts((self.settings.words(text) for text in queries), self.words, grow=False)
        scores: sparse.csr_matrix[Any] = (counts @ self.weights).tocsr()
        return scores

    def score_pairs(self, queries: Sequence[str], rows: Int64, documents: Int64) -> Float64:
        """The score of pairs, by the row of the query here and of the document in the index, [pairs]."""
        counts = _counts((self.settings.words(text) for text in queries), self.words, grow=False)
        columns = self.weights.T.tocsr()
        scores = np.empty(len(rows))
        for start in range(0, len(rows), PAIRS):
            chosen = slice(start, start + PAIRS)
            products = counts[rows[chosen]].multiply(columns[documents[chosen]])
            scores[chosen] = np.asarray(products.sum(axis=1)).ravel()
        return scores

    def top(self, queries: Sequence[str], most: int) -> tuple[Int64, Float64]:
        """The rows of the best documents of each query and their scores, best first, [queries, most].

        Row -1 and score 0 where fewer documents share a word with the query; equal scores stand by row.
        """
        rows = np.full((len(queries), most), -1, dtype=np.int64)
        values = np.zeros((len(queries), most))
        for start in range(0, len(queries), BLOCK):
            scores = self.scores(queries[start : start + BLOCK])
            scores.sort_indices()
            owner = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
            order = np.lexsort((scores.indices, -scores.data, owner))
            place = np.arange(len(order)) - scores.indptr[owner]
            kept = (place < most) & (scores.data[order] > 0)
            rows[start + owner[kept], place[kept]] = scores.indices[order][kept]
            values[start + owner[kept], place[kept]] = scores.data[order][kept]
        return rows, values


def singular(word: str) -> str:
    """The singular of a word, by Harman's S stemmer (1991): three rules, the first that fits.

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


def _counts(texts: Iterable[list[str]], words: dict[str, int], *, grow: bool) -> sparse.csr_matrix[Any]:
    """How often each text has each word, [texts, words]; words that are new are learned or left out."""
    from scipy import sparse

    codes: list[int] = []
    ends = [0]
    for text in texts:
        if grow:
            codes.extend(words.setdefault(word, len(words)) for word in text)
        else:
            codes.extend(words[word] for word in text if word in words)
        ends.append(len(codes))
    shape = (len(ends) - 1, len(words))
    counts = sparse.csr_matrix((np.ones(len(codes)), np.array(codes, np.int64), np.array(ends, np.int64)), shape=shape)
    counts.sum_duplicates()
    return counts
