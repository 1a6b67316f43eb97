"""NFCorpus: queries of a nutrition site, medical abstracts, grades 1 to 3 (Boteva et al., ECIR 2016).

The folder holds `docs.tsv.gz`, `{train,dev,test}.queries.tsv.gz` and `{train,dev,test}.qrel.gz`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, final, get_args

import numpy as np

from clickprism.data.files import PADDING, expand, read_padded
from clickprism.data.texts import Texts, read_texts
from clickprism.errors import DataError, SettingError
from clickprism.types import Int32, Text, check

Part: TypeAlias = Literal["train", "validation", "test"]
FILES: Final = {"train": "train", "validation": "dev", "test": "test"}


@final
@dataclass(frozen=True, eq=False)
class Judgements:
    """What was judged: the grade of each (query, document), 1 or more; all other pairs count as 0.

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
        """The grade of each of these pairs, 0 where it was not judged, [pairs]."""
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
    """The queries of a part, all documents (the parts share them), and what was judged for these queries."""
    if part not in get_args(Part):
        raise SettingError("part", part, f"be one of {', '.join(get_args(Part))}")
    folder, name = Path(folder), FILES[part]
    queries, documents = read_texts(folder / f"{name}.queries.tsv.gz"), read_texts(folder / "docs.tsv.gz")
    return Collection(queries, documents, read_qrel(folder / f"{name}.qrel.gz"))


def read_qrel(path: Path | str) -> Judgements:
    """Judgements in the TREC format: query id, 0, document id, grade a line, parted by white space."""
    file = Path(path)
    fields = expand(read_padded(file), file=file)[:-PADDING].tobytes().decode("utf-8", "replace").split("\n")
    rows = [line.split() for line in fields]
    for number, row in enumerate(rows, start=1):
        if row and (len(row) != 4 or not row[3].lstrip("-").isdecimal()):
            remedy = "Each line is: query id, 0, document id, grade"
            raise DataError("is not a judgement", file=file, line=number, remedy=remedy)
    rows = [row for row in rows if row]
    grades = np.array([int(row[3]) for row in rows], dtype=np.int32)
    queries, documents = (np.array([row[place] for row in rows], dtype=np.str_) for place in (0, 2))
    return Judgements(queries, documents, grades)
