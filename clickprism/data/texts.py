"""Texts by id: the words of queries and documents, from TSV, CSV, JSON lines or Parquet, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import lt
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final, get_args

import msgspec
import numpy as np

from clickprism.data.files import PARQUET, decoded, delimited_rows, expand, open_parquet, read_bytes
from clickprism.data.tables import text_array
from clickprism.errors import DataError, SettingError
from clickprism.types import Bool, Int32, Int64, Text, check

IDS: Final = ("id", "_id", "query_id", "document_id", "doc_id", "docid", "qid", "pid", "docno")
TEXTS: Final = ("title", "query", "user_query", "text", "body", "abstract", "contents")
LONGEST: Final = 1000  # characters of an id

Row: TypeAlias = tuple[int, str, str]


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
        """Texts in any order; each id once."""
        check(len(ids) == len(texts), f"{len(ids)} ids but {len(texts)} texts")
        names = [str(each) for each in ids]
        order = sorted(range(len(names)), key=names.__getitem__)
        check(len(set(names)) == len(names), "an id stands twice")
        return cls([names[row] for row in order], [texts[row] for row in order])

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Texts({len(self)} texts, {sum(map(len, self.texts)):,} characters)"

    @cached_property
    def ids(self) -> Text:
        """The ids as a vector, in which each takes as much as the longest; an error where one of many is too long."""
        return text_array(self.names, what="the column of ids")

    def has(self, ids: Sequence[str] | Text) -> Bool:
        """Which of these ids have a text, [ids]."""
        return self._places(ids) >= 0

    def rows(self, ids: Sequence[str] | Text, *, what: str = "id") -> Int64:
        """The row of each of these ids, [ids]; an id without a text is an error that calls it a `what`."""
        rows = self._places(ids)
        missing = int((rows < 0).sum())
        if missing:
            first = str(ids[int(np.argmin(rows))])
            problem = f"{missing:,} of {len(rows):,} rows name a {what} without a text, first {first!r}"
            raise DataError(problem, remedy="Give the text of every id, or leave those rows out")
        return rows

    def of_ids(self, ids: Sequence[str] | Text, *, what: str = "id") -> list[str]:
        """The text of each of these ids."""
        return [self.texts[row] for row in self.rows(ids, what=what).tolist()]

    def take(self, ids: Sequence[str] | Text) -> Texts:
        """The texts of these ids only."""
        rows = np.unique(self.rows(ids)).tolist()
        return Texts([self.names[row] for row in rows], [self.texts[row] for row in rows])

    def _places(self, ids: Sequence[str] | Text) -> Int64:
        names = ids.tolist() if isinstance(ids, np.ndarray) else ids
        known = self._known
        return np.fromiter((known.get(name, -1) for name in names), np.int64, len(names))

    @cached_property
    def _known(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}


def read_texts(path: Path | str, *, id_column: str | None = None, text_columns: Sequence[str] | None = None) -> Texts:
    """Read texts by id.

    What the file is, its first bytes tell: Parquet, JSON lines (one object a line), TSV or CSV; gzip and zstd are
    undone. A TSV or CSV whose first line names no id column has no header: the id first, then the text.

    Args:
        path: the file.
        id_column: the column with the ids; by default the first there is of `IDS`.
        text_columns: the columns with the text, joined by a space; by default those there are of `TEXTS`, so that the
            title of a document precedes its text.

    Returns:
        The texts; the same id twice with the same text counts once, with another text is an error.
    """
    file = Path(path)
    raw = read_bytes(file)
    columns = _Columns(file, id_column, None if text_columns is None else tuple(text_columns))
    if raw.startswith(PARQUET):
        return _collect(file, _parquet(file, columns))
    raw = expand(raw, file=file)
    text = decoded(raw, file=file)
    start = text[:4096].lstrip()
    if not start:
        raise DataError("is empty", file=file, remedy="One text a line: the id, a tab, the text")
    if start.startswith("{"):
        return _collect(file, _json_lines(text, columns))
    if start.startswith("["):
        raise DataError("is one JSON array", file=file, line=1, remedy="Write one object a line (JSON lines)")
    return _collect(file, _delimited(text, columns))


@dataclass(frozen=True)
class _Columns:
    """Which columns hold the id and the text of a file, as far as the caller says."""

    file: Path
    identity: str | None
    texts: tuple[str, ...] | None

    def choose(self, names: Sequence[str], *, line: int | None = None) -> tuple[str, tuple[str, ...]]:
        """The columns of a file that names these."""
        identity = self.identity if self.identity is not None else next((each for each in IDS if each in names), None)
        texts = self.texts if self.texts is not None else tuple(each for each in TEXTS if each in names)
        known = ", ".join(names)
        for what, chosen in (("id", identity), *(("text", each) for each in texts)):
            if chosen is None or chosen not in names:
                wanted = f"no column {chosen!r}" if chosen is not None else f"no column for the {what}s"
                remedy = f"Name one of its columns: {known}"
                raise DataError(f"has {wanted}", file=self.file, line=line, remedy=remedy)
        if identity is None or not texts:
            raise DataError("has no column for the texts", file=self.file, line=line, remedy=f"Name one of: {known}")
        return identity, texts

    def has_header(self, fields: Sequence[str]) -> bool:
        """Whether the first line names columns."""
        return self.identity is not None or self.texts is not None or any(each in IDS for each in fields)


def _collect(file: Path, rows: Iterable[Row]) -> Texts:
    """The texts of all rows, each id once."""
    found: dict[str, str] = {}
    for line, name, text in rows:
        if not name:
            raise DataError("has no id", file=file, line=line, remedy="Give each text an id")
        if len(name) > LONGEST:
            raise DataError(f"has an id of {len(name):,} characters", file=file, line=line, remedy="Shorten it")
        if found.setdefault(name, text) != text:
            remedy = "Give each text an id of its own"
            raise DataError(f"gives the id {name!r} another text than before", file=file, line=line, remedy=remedy)
    return Texts.of(list(found), list(found.values()))


def _delimited(text: str, columns: _Columns) -> Iterator[Row]:
    file, first = columns.file, text.lstrip("\r\n").partition("\n")[0]
    tabs = "\t" in first
    if not tabs and "," not in first:
        raise DataError("has one column only", file=file, line=1, remedy="Part id and text by a tab, or by a comma")
    rows = delimited_rows(text, file=file)
    number, fields = next(rows)
    headed = columns.has_header(fields)
    if headed:
        identity, texts = columns.choose(fields, line=number)
        width, at, places = len(fields), fields.index(identity), [fields.index(each) for each in texts]
    else:
        width, at, places = 2, 0, [1]
        rows = chain([(number, fields)], rows)
    for number, fields in rows:
        if len(fields) != width and (headed or len(fields) < width):
            remedy = "Look for a stray line break or a missing tab" if tabs else "Quote texts that have commas"
            raise DataError(f"has {len(fields)} fields where {width} are due", file=file, line=number, remedy=remedy)
        words = [fields[place] for place in places] if headed else fields[1:]
        yield number, fields[at].strip(), " ".join(each for each in words if each).strip()


def _json_lines(text: str, columns: _Columns) -> Iterator[Row]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            remedy = "Write one object a line"
            problem = f"is not one JSON object ({error})"
            raise DataError(problem, file=columns.file, line=number, remedy=remedy) from None
        yield _row(number, record, columns)


def _parquet(file: Path, columns: _Columns) -> Iterator[Row]:
    done = 0
    with open_parquet(file) as opened:
        identity, texts = columns.choose(opened.schema_arrow.names)
        for batch in opened.iter_batches(batch_size=1 << 14, columns=[identity, *texts]):
            for number, record in enumerate(batch.to_pylist(), start=done + 1):
                yield _row(number, record, columns)
            done += len(batch)


def _row(number: int, record: dict[str, Any], columns: _Columns) -> Row:
    """A row of an object with named, typed values: an id may be a whole number, a text is a text or missing."""
    identity, texts = columns.choose(list(record), line=number)
    name = record[identity]
    if not isinstance(name, str | int) or isinstance(name, bool):
        remedy = "Ids are texts or whole numbers"
        raise DataError(f"has the {identity} {name!r}", file=columns.file, line=number, remedy=remedy)
    words = [record[each] for each in texts if record[each] is not None]
    for each in words:
        if not isinstance(each, str):
            problem = f"has a text that is none ({each!r})"
            raise DataError(problem, file=columns.file, line=number, remedy="Write texts as JSON strings")
    return number, str(name).strip(), " ".join(each for each in words if each).strip()


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
    fields = expand(read_bytes(file), file=file).decode("utf-8", "replace").split("\n")
    rows = [line.split() for line in fields]
    for number, row in enumerate(rows, start=1):
        if row and (len(row) != 4 or not row[3].lstrip("-").isdecimal()):
            remedy = "Each line is: query id, 0, document id, grade"
            raise DataError("is not a judgement", file=file, line=number, remedy=remedy)
    rows = [row for row in rows if row]
    grades = np.array([int(row[3]) for row in rows], dtype=np.int32)
    queries, documents = (np.array([row[place] for row in rows], dtype=np.str_) for place in (0, 2))
    return Judgements(queries, documents, grades)
