"""NFCorpus, texts of medicine with judgements (Boteva et al. 2016), as public collections of texts have its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, final, get_args

import numpy as np

from clickprism.data.texts import Texts, read_qrel, read_texts
from clickprism.errors import SettingError
from clickprism.types import Int32, Int64, Text, check

if TYPE_CHECKING:
    from scipy import sparse

Part: TypeAlias = Literal["train", "validation", "test"]
FILES: Final = {"train": "train", "validation": "dev", "test": "test"}


@final
@dataclass(frozen=True, eq=False)
class Judgements:
    """The grade of each judged (query, document), 1 or more; all other pairs count as 0.

    >>> judged = Judgements(np.array(["q", "q"]), np.array(["a", "b"]), np.array([3, 1], np.int32))
    >>> judged.grades_of(np.array(["q", "q", "p"]), np.array(["b", "c", "a"])).tolist()
    [1, 0, 0]
    """

    query_ids: Text
    document_ids: Text
    grades: Int32

    def __post_init__(self) -> None:
        lengths = {len(self.query_ids), len(self.document_ids), len(self.grades)}
        check(len(lengths) == 1, "each judgement has a query, a document and a grade")

    def __len__(self) -> int:
        return len(self.grades)

    def grades_of(self, query_ids: Text, document_ids: Text) -> Int32:
        """Return the grade of each of these pairs, 0 if it was not judged, [pairs]."""
        judged = zip(self.query_ids.tolist(), self.document_ids.tolist(), strict=True)
        table = dict(zip(judged, self.grades.tolist(), strict=True))
        pairs = zip(query_ids.tolist(), document_ids.tolist(), strict=True)
        return np.fromiter((table.get(pair, 0) for pair in pairs), np.int32, len(query_ids))


class Collection(NamedTuple):
    """Texts with judgements."""

    queries: Texts
    documents: Texts
    judgements: Judgements


def nfcorpus(folder: Path | str, part: Part = "train") -> Collection:
    """Return the queries of a part, all documents (the parts share them), and the judgements of these queries."""
    if part not in get_args(Part):
        raise SettingError("part", part, f"be one of {', '.join(get_args(Part))}")
    folder, name = Path(folder), FILES[part]
    queries, documents = read_texts(folder / f"{name}.queries.tsv.gz"), read_texts(folder / "docs.tsv.gz")
    found = read_qrel(folder / f"{name}.qrel.gz")
    query_ids, document_ids = (np.array([pair[place] for pair in found], dtype=np.str_) for place in (0, 1))
    grades = np.array(list(found.values()), dtype=np.int32)
    return Collection(queries, documents, Judgements(query_ids, document_ids, grades))


def best_rows(scores: sparse.csr_matrix[Any], most: int) -> Int64:
    """Return the rows of the best documents of each query, best first, -1 where fewer score, [queries, most].

    Args:
        scores: BM25 of every document for each query, [queries, documents].
        most: Number of documents. Equal scores are in the order of rows.
    """
    rows = np.full((scores.shape[0], most), -1, dtype=np.int64)
    for query in range(len(rows)):
        found = scores[query].tocoo()
        order = np.lexsort((found.col, -found.data))[:most]
        rows[query, : len(order)] = found.col[order]
    return rows
