"""Tables of pairs, by the ids of their query and their document: alone, with first-slot clicks, with features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from clickprism.data.tables import Table, read_table
from clickprism.data.vocabulary import Names
from clickprism.errors import DataError
from clickprism.relevance.pairs import distinct_pairs
from clickprism.relevance.randomised import FirstSlot, read_first_slot
from clickprism.types import Int64, Lists, Text

if TYPE_CHECKING:
    from clickprism.data.columns import Kind

PAIR: Final = ("query_id", "document_id")
COUNTS: Final = ("clicks", "impressions")
TABLES: Final = (".csv", ".tsv", ".jsonl", ".parquet")
PACKED: Final = (".gz", ".zst")


def read_pairs(path: Path) -> tuple[Text, Text]:
    """The query ids and the document ids of a table, row by row."""
    return _ids(_read(path, PAIR))


def read_slot(path: Path) -> FirstSlot:
    """First-slot clicks: of a table, whose rows of the same pair are added up, or of an ingested log."""
    if path.is_dir():
        from clickprism.log.store import LogStore

        return read_first_slot(LogStore.open(path))
    table = _read(path, (*PAIR, *COUNTS))
    clicks, impressions = (_counts(table, name) for name in COUNTS)
    wrong = np.flatnonzero((clicks > impressions) | (clicks < 0))
    if len(wrong):
        row = int(wrong[0])
        problem = f"has {clicks[row]} clicks on {impressions[row]} impressions"
        remedy = "Clicks are from 0 to impressions"
        raise DataError(problem, file=path, line=int(table.lines[row]), remedy=remedy)
    query_ids, document_ids = _ids(table)
    return FirstSlot.of(query_ids, document_ids, clicks, impressions=impressions)


def read_features(path: Path) -> Lists:
    """The features of pairs: a table of query_id, document_id and numbers, or else LETOR lines with document ids.

    A name that ends in .csv, .tsv, .jsonl or .parquet is that of a table, whose other columns are all features. Of a
    folder of an ingested log they are those that its impressions carry.
    """
    if path.is_dir():
        from clickprism.log.logged_features import logged_features

        return logged_features(path)
    suffixes = [each for each in path.suffixes if each not in PACKED]
    if suffixes and suffixes[-1] in TABLES:
        lists = _of_table(path)
    else:
        from clickprism.data.letor import read_letor

        lists = read_letor(path).lists
    if lists.document_ids is None or (lists.document_ids == "").any():
        raise DataError("has rows without a document id", file=path, remedy="End each line with: # docid = ID")
    first, _ = distinct_pairs(lists.query_ids[lists.list_of], lists.document_ids)
    if len(first) < lists.documents:
        problem = f"has {lists.documents:,} rows for {len(first):,} pairs"
        raise DataError(problem, file=path, remedy="Give each pair of a query and a document once")
    return lists


def _of_table(path: Path) -> Lists:
    table = read_table(path, lambda name: "names" if name in PAIR else "numbers")
    _check(table, PAIR)
    names = [name for name in table.header if name in table.columns and name not in PAIR]
    if not names:
        raise DataError("has no column with features", file=path, remedy="Give numbers beside the two ids")
    queries, documents = _ids(table)
    distinct, owner = np.unique(queries, return_inverse=True)
    order = np.argsort(owner, kind="stable")
    features = np.empty((len(order), len(names)), dtype=np.float32)
    for place, name in enumerate(names):
        features[:, place] = np.asarray(table.columns[name])[order]
    missing = ~np.isfinite(features)
    if missing.any():
        row, place = (int(each[0]) for each in np.nonzero(missing))
        remedy = "Give every feature of every pair as a finite number"
        raise DataError(f"has no {names[place]}", file=path, line=int(table.lines[order[row]]), remedy=remedy)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(distinct)))]).astype(np.int64)
    return Lists(features, offsets, distinct, documents[order])


def _read(path: Path, names: tuple[str, ...]) -> Table:
    """A table that has these columns, and no row that is broken."""
    kinds: dict[str, Kind] = {name: "names" if name in PAIR else "numbers" for name in names}
    table = read_table(path, lambda name: kinds.get(name, "none"))
    _check(table, names)
    return table


def _check(table: Table, names: tuple[str, ...]) -> None:
    path = table.file
    missing = [name for name in names if name not in table.columns]
    if missing:
        remedy = f"Its columns are {', '.join(table.header)}; needed are {', '.join(names)}"
        raise DataError(f"has no column {missing[0]!r}", file=path, remedy=remedy)
    if table.broken:
        first = table.broken[0]
        raise DataError(first.reason, file=path, line=first.line, remedy="Correct the row, or leave it out")
    if not len(table):
        raise DataError("has no row", file=path, remedy=f"Give rows of {', '.join(names)}")


def _ids(table: Table) -> tuple[Text, Text]:
    columns: list[Any] = [table.columns[name] for name in PAIR]
    for name, column in zip(PAIR, columns, strict=True):
        if not isinstance(column, Names) or "" in column.values:
            raise DataError(f"has a row without a {name}", file=table.file, remedy="Give both ids in every row")
    return columns[0].texts("queries"), columns[1].texts("documents")


def _counts(table: Table, name: str) -> Int64:
    values: Any = table.columns[name]
    wrong = np.flatnonzero(~(np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2**53)))
    if len(wrong):
        row = int(wrong[0])
        problem = f"has {name} {values[row]:g}"
        raise DataError(problem, file=table.file, line=int(table.lines[row]), remedy="Counts are whole numbers")
    counts: Int64 = values.astype(np.int64)
    return counts
