"""Texts by id: the words of queries and documents, from TSV, CSV, JSON lines or Parquet, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import lt
from pathlib import Path
from typing import Any, Final, final

import msgspec
import numpy as np

from clickprism.data.tables import broken_files, delimited_rows, expand, read_bytes, read_text, text_array
from clickprism.errors import DataError
from clickprism.types import Bool, Int64, Text, check

IDS: Final = ("id", "_id", "query_id", "document_id", "doc_id", "docid", "qid", "pid", "docno")
TEXTS: Final = ("title", "query", "user_query", "text", "body", "abstract", "contents")
LONGEST: Final = 1000  # characters of an id
PARQUET: Final = b"PAR1"


@final
@dataclass(frozen=True, eq=False)
class Texts:
    """The text of each id, the ids in order; names and texts of the same length.

    >>> texts = Texts.of(["b", "a"], ["grape juice", "kidney stones"])
    >>> texts.ids.tolist(), texts.texts
    (['a', 'b'], ['kidney stones', 'grape juice'])
    >>> texts.rows(["b", "b"]).tolist(), texts.of_ids(["b"])
    ([1, 1], ['grape juice'])
    """

    names: list[str]
    texts: list[str]

    def __post_init__(self) -> None:
        check(len(self.names) == len(self.texts), f"{len(self.names)} ids but {len(self.texts)} texts")
        check(all(map(lt, self.names, self.names[1:])), "ids must be in order, each once")

    @classmethod
    def of(cls, ids: Sequence[str], texts: Sequence[str]) -> Texts:
        """Return texts that are given in any order; each id once."""
        check(len(ids) == len(texts), f"{len(ids)} ids but {len(texts)} texts")
        names = [str(each) for each in ids]
        order = sorted(range(len(names)), key=names.__getitem__)
        check(len(set(names)) == len(names), "an id is given twice")
        return cls([names[row] for row in order], [texts[row] for row in order])

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Texts({len(self)} texts, {sum(map(len, self.texts)):,} characters)"

    @cached_property
    def ids(self) -> Text:
        """Return the ids as a vector, in which each takes as much memory as the longest."""
        return text_array(self.names, what="the column of ids")

    def has(self, ids: Sequence[str] | Text) -> Bool:
        """Return which of these ids have a text, [ids]."""
        return self._places(ids) >= 0

    def rows(self, ids: Sequence[str] | Text, *, what: str = "id") -> Int64:
        """Return the row of each of these ids, [ids]; an id without a text is an error that calls it a `what`."""
        rows = self._places(ids)
        missing = int((rows < 0).sum())
        if missing:
            first = str(ids[int(np.argmin(rows))])
            problem = f"{missing:,} of {len(rows):,} rows name a {what} without a text, first {first!r}"
            raise DataError(problem, remedy="Give the text of every id, or omit those rows")
        return rows

    def of_ids(self, ids: Sequence[str] | Text, *, what: str = "id") -> list[str]:
        """Return the text of each of these ids."""
        return [self.texts[row] for row in self.rows(ids, what=what).tolist()]

    def _places(self, ids: Sequence[str] | Text) -> Int64:
        names = ids.tolist() if isinstance(ids, np.ndarray) else ids
        known = self._known
        return np.fromiter((known.get(name, -1) for name in names), np.int64, len(names))

    @cached_property
    def _known(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}


def read_texts(path: Path | str) -> Texts:
    """Read texts by id.

    The first bytes of the file say what it is: Parquet, JSON lines (one object a line), TSV or CSV; gzip and zstd are
    decompressed. The ids are in the first column that is one of `IDS`; the text is the columns of `TEXTS`, joined by a
    space, so that the title of a document precedes its text. A TSV or CSV whose first line names no id column has no
    header: the id first, then the text. The same id twice with the same text counts once; with another it is an error.
    """
    file = Path(path)
    found: dict[str, str] = {}
    for line, row in _rows(file):
        identity = next((each for each in IDS if each in row), None)
        columns = [each for each in TEXTS if each in row]
        if identity is None or not columns:
            what, names = ("ids", IDS) if identity is None else ("texts", TEXTS)
            remedy = f"It has {', '.join(row)}; rename one to {names[0]}"
            raise DataError(f"has no column for the {what}", file=file, line=line, remedy=remedy)
        name, words = row[identity], [row[each] for each in columns if row[each] is not None]
        if not isinstance(name, str | int) or isinstance(name, bool):
            remedy = "Ids are texts or whole numbers"
            raise DataError(f"has the {identity} {name!r}", file=file, line=line, remedy=remedy)
        if wrong := [each for each in words if not isinstance(each, str)]:
            remedy = "Write texts as JSON strings"
            raise DataError(f"has a text that is not a string ({wrong[0]!r})", file=file, line=line, remedy=remedy)
        name, text = str(name).strip(), " ".join(each for each in words if each).strip()
        if not name:
            raise DataError("has no id", file=file, line=line, remedy="Give each text an id")
        if len(name) > LONGEST:
            raise DataError(f"has an id of {len(name):,} characters", file=file, line=line, remedy="Shorten it")
        if found.setdefault(name, text) != text:
            remedy = "Give each text a different id"
            raise DataError(f"gives the id {name!r} another text than before", file=file, line=line, remedy=remedy)
    return Texts.of(list(found), list(found.values()))


def _rows(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the number and the values of each row of a file."""
    if read_bytes(file).startswith(PARQUET):
        import pyarrow.parquet as pq

        with broken_files(file):
            yield from enumerate(pq.read_table(file).to_pylist(), start=1)
        return
    text = read_text(file)
    start = text[:4096].lstrip()
    if not start:
        raise DataError("is empty", file=file, remedy="One text a line: the id, a tab, the text")
    if start.startswith("["):
        raise DataError("is one JSON array", file=file, line=1, remedy="Write one object a line (JSON lines)")
    if start.startswith("{"):
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        for number, line in enumerate(text.split("\n"), start=1):
            try:
                if line.strip():
                    yield number, decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                problem, remedy = f"is not one JSON object ({error})", "Write one object a line"
                raise DataError(problem, file=file, line=number, remedy=remedy) from None
        return
    first = text.lstrip("\r\n").partition("\n")[0]
    if "\t" not in first and "," not in first:
        raise DataError("has one column only", file=file, line=1, remedy="Separate id and text by a tab or a comma")
    rows = delimited_rows(text, file=file)
    number, names = next(rows)
    headed = any(each in IDS for each in names)
    if not headed:  # what follows the second field is part of the text
        yield number, {"id": names[0], "text": " ".join(names[1:])}
    for number, fields in rows:
        due = len(names) if headed else 2
        if len(fields) < due or (headed and len(fields) > due):
            remedy = "Look for a stray line break or a missing tab" if "\t" in first else "Quote texts that have commas"
            raise DataError(f"has {len(fields)} fields, expected {due}", file=file, line=number, remedy=remedy)
        yield (
            number,
            dict(zip(names, fields, strict=True)) if headed else {"id": fields[0], "text": " ".join(fields[1:])},
        )


def read_qrel(path: Path | str) -> dict[tuple[str, str], int]:
    """Return the grade of each judged (query, document) of a file in the TREC format.

    Each line has query id, 0, document id and grade, separated by blanks.
    """
    file = Path(path)
    found: dict[tuple[str, str], int] = {}
    lines = expand(read_bytes(file), file=file).decode("utf-8", "replace").split("\n")
    for number, row in enumerate(map(str.split, lines), start=1):
        if row and (len(row) != 4 or not row[3].lstrip("-").isdecimal()):
            remedy = "Each line is: query id, 0, document id, grade"
            raise DataError("is not a judgement", file=file, line=number, remedy=remedy)
        if row:
            found[row[0], row[2]] = int(row[3])
    return found
