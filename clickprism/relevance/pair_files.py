"""Tables of pairs in files: ids, clicks, features and imputations are read and checked; results are written."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file, write_errors
from clickprism.data.tables import Table, read_table
from clickprism.errors import DataError, SettingError
from clickprism.log.schema import conform
from clickprism.relevance.pairs import COUNTS, PAIR, FirstSlot, distinct_pairs, read_first_slot
from clickprism.types import Lists, Text

SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".parquet")
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""How a text starts that a spreadsheet runs as a formula."""
COMPRESSED: Final = (".gz", ".zst")
IMPUTATION: Final = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("imputation", pa.float64(), nullable=False),
    ]
)
"""Predicted relevance from 0 to 1, written by `clickprism relevance impute apply`."""


def check_imputation(path: Path) -> Path:
    """Return the path if the file has each pair once, with imputations from 0 to 1; otherwise raise `DataError`."""
    remedy = "Create it with: clickprism relevance impute apply, or as Parquet with query_id, document_id, imputation"
    if not path.is_file():
        raise DataError("does not exist", file=path, remedy=remedy)
    try:
        table = conform(pq.read_table(path), IMPUTATION, what="imputations")
    except (OSError, pa.ArrowInvalid, DataError) as error:
        raise DataError(f"does not hold imputations: {error}", file=path, remedy=remedy) from None
    values = table["imputation"].to_numpy()
    wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(wrong):
        problem = f"has an imputation that is not within 0 and 1: {values[wrong[0]]}"
        raise DataError(problem, file=path, line=int(wrong[0]) + 1)
    if table.group_by(list(PAIR)).aggregate([]).num_rows < table.num_rows:
        raise DataError("has a pair twice", file=path, remedy=remedy)
    return path


def read_pairs(path: Path) -> tuple[Text, Text]:
    """Read the query ids and document ids of a table."""
    return _ids(_read(path, PAIR))


def read_query_texts(path: Path) -> dict[str, str]:
    """Return the text of each query of a session file by its id: the columns query and query_text, if it has both."""
    if path.suffixes[-1:] == [".npz"]:
        return {}
    table = read_table(path, lambda name: "names" if name in ("query", "query_text") else "none")
    if not {"query", "query_text"} <= table.names.keys():
        return {}
    return dict(zip(table.names["query"].tolist(), table.names["query_text"].tolist(), strict=True))


def read_slot(path: Path) -> FirstSlot:
    """Read clicks on randomised first results from a table, or from the folder of an ingested log."""
    if path.is_dir():
        from clickprism.log.store import LogStore

        return read_first_slot(LogStore.open(path))
    table = _read(path, (*PAIR, *COUNTS))
    clicks, impressions = (table.numbers[name] for name in COUNTS)
    whole = (clicks == np.floor(clicks)) & (impressions == np.floor(impressions)) & (impressions < 2**53)
    wrong = np.flatnonzero(~(whole & (clicks >= 0) & (clicks <= impressions)))
    if len(wrong):
        row = int(wrong[0])
        problem = f"has {clicks[row]:g} clicks on {impressions[row]:g} impressions"
        remedy = "Give whole numbers; clicks must be from 0 to impressions"
        raise DataError(problem, file=path, line=table.line(row), remedy=remedy)
    return FirstSlot.of(*_ids(table), clicks.astype(np.int64), impressions=impressions.astype(np.int64))


def read_features(path: Path) -> Lists:
    """Read the features of pairs: a table of query_id, document_id and numbers, LETOR text, or an ingested log.

    A file that ends in .csv, .tsv, .jsonl or .parquet is a table, in which every other column is a feature. LETOR lines
    must have document ids. For an ingested log the features are those of its impressions.
    """
    if path.is_dir():
        from clickprism.log.load import logged_features

        return logged_features(path)
    suffixes = [each for each in path.suffixes if each not in COMPRESSED]
    if suffixes and suffixes[-1] in SUFFIXES:
        lists = _feature_table(path)
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


def _feature_table(path: Path) -> Lists:
    table = _read(path, PAIR, others=True)
    if not table.numbers:
        raise DataError("has no column with features", file=path, remedy="Give numbers beside the two ids")
    queries, documents = _ids(table)
    distinct, owner = np.unique(queries, return_inverse=True)
    order = np.argsort(owner, kind="stable")
    features = np.stack([values[order] for values in table.numbers.values()], axis=1).astype(np.float32)
    missing = ~np.isfinite(features)
    if missing.any():
        row, column = (int(each[0]) for each in np.nonzero(missing))
        problem, remedy = f"has no {list(table.numbers)[column]}", "Give every feature of every pair as a finite number"
        raise DataError(problem, file=path, line=table.line(int(order[row])), remedy=remedy)
    offsets = np.append(0, np.cumsum(np.bincount(owner, minlength=len(distinct)))).astype(np.int64)
    return Lists(features, offsets, distinct, documents[order])


def _read(path: Path, names: tuple[str, ...], *, others: bool = False) -> Table:
    """Read a table that has these columns; with `others`, all further ones as numbers."""
    table = read_table(path, lambda name: "names" if name in PAIR else "numbers" if others or name in names else "none")
    missing = [name for name in names if name not in table.header]
    if missing:
        remedy = f"Its columns are {', '.join(table.header)}; needed are {', '.join(names)}"
        raise DataError(f"has no column {missing[0]!r}", file=path, remedy=remedy)
    if not len(table):
        raise DataError("has no row", file=path, remedy=f"Give rows of {', '.join(names)}")
    return table


def _ids(table: Table) -> tuple[Text, Text]:
    queries, documents = (table.names[name] for name in PAIR)
    for name, column in zip(PAIR, (queries, documents), strict=True):
        if (column == "").any():
            row = table.line(int(np.argmax(column == "")))
            raise DataError(f"has a row without a {name}", file=table.file, line=row, remedy="Give both ids in each")
    return queries, documents


def check_suffix(out: Path) -> None:
    """Raise `SettingError` unless the suffix of the file is that of a table."""
    if out.suffix not in SUFFIXES:
        raise SettingError("out", str(out), f"end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")


def write_rows(out: Path, columns: Mapping[str, Any], *, spreadsheet_safe: bool = False) -> None:
    """Write columns to a CSV, TSV, JSON lines or Parquet file, by its suffix; numbers that are not finite become null.

    Args:
        out: The file.
        columns: Arrays of equal length by name, of numpy or of Arrow.
        spreadsheet_safe: In CSV and TSV files, write an apostrophe before texts that a spreadsheet would run.
    """
    with write_errors(out, remedy="Choose another --out"), atomic_file(out, parents=True) as draft:
        if out.suffix == ".parquet":
            arrays = {
                name: values if isinstance(values, pa.ChunkedArray) else pa.array(values, from_pandas=True)
                for name, values in columns.items()
            }
            pq.write_table(pa.table(arrays), draft, compression="zstd")
            return
        rows = zip(*(_plain(np.asarray(values)) for values in columns.values()), strict=True)
        with draft.open("w", encoding="utf-8", newline="") as file:
            if out.suffix == ".jsonl":
                lines = (json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in rows)
                file.writelines(f"{line}\n" for line in lines)
                return
            writer = csv.writer(file, delimiter="," if out.suffix == ".csv" else "\t", lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(map(_escaped, rows) if spreadsheet_safe else rows)


def _escaped(row: Sequence[Any]) -> list[Any]:
    """Return a row in which no text is a formula of a spreadsheet.

    >>> _escaped(["=1+1", "-3", "a", -3.0])
    ["'=1+1", "'-3", 'a', -3.0]
    """
    return [f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value for value in row]


def _plain(values: Any) -> list[Any]:
    """Return Python values, rounded; None for numbers that are not finite."""
    plain: list[Any] = values.tolist()
    if values.dtype.kind == "f":
        return [round(value, 9) if np.isfinite(value) else None for value in plain]
    return plain
