"""Judged lists as LETOR text, for people to look at and other tools to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from clickprism._util.files import atomic_file, write_errors
from clickprism.errors import DataError
from clickprism.types import JudgedLists, Text

BLOCK = 4096
MAX_ID = 200
_ID = re.compile(r"[^\s#]+")


def write_letor(judged: JudgedLists, path: Path | str) -> None:
    """Write judged lists as text that `read_letor` reads back value for value; whole or not at all.

    Every feature is written, from 1, with nine digits, which are enough for float32. A missing value is `nan`, which
    wants `missing="nan"` on reading.
    """
    path = Path(path)
    lists = judged.lists
    _check_ids("query id", lists.query_ids, empty=False)
    if lists.document_ids is not None:
        _check_ids("document id", lists.document_ids, empty=True)
    with write_errors(path), atomic_file(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(_blocks(judged))


def _blocks(judged: JudgedLists) -> Iterator[str]:
    lists = judged.lists
    values = " ".join(f"{column}:%.9g" for column in range(1, lists.features.shape[1] + 1))
    names = lists.query_ids[lists.list_of]
    for start in range(0, lists.documents, BLOCK):
        rows = slice(start, start + BLOCK)
        heads = zip(judged.grades[rows].tolist(), names[rows].tolist(), strict=True)
        bodies = map(values.__mod__, map(tuple, lists.features[rows].tolist()))
        ids = [""] * len(names[rows]) if lists.document_ids is None else lists.document_ids[rows].tolist()
        yield "".join(
            f"{grade} qid:{name} {body} # docid = {document}\n" if document else f"{grade} qid:{name} {body}\n"
            for (grade, name), body, document in zip(heads, bodies, ids, strict=True)
        )


def _check_ids(what: str, ids: Text, *, empty: bool) -> None:
    for name in np.unique(ids).tolist():
        if not (_ID.fullmatch(name) and len(name.encode()) <= MAX_ID) and not (empty and name == ""):
            raise DataError(f"the {what} {name!r} cannot stand in LETOR text", remedy="Use ids without blanks and #")
