"""Pairs of a query and a document: ids, clicks on randomised first results, and tables of pairs in files."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism._util.files import atomic_file, write_errors
from clickprism.data.tables import Table, read_table
from clickprism.data.vocabulary import Names
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.types import Bool, Int64, Lists, Text, check

if TYPE_CHECKING:
    from clickprism.data.tables import Kind
    from clickprism.log.store import LogStore

PAIR: Final = ("query_id", "document_id")
COUNTS: Final = ("clicks", "impressions")
SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".parquet")
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""How a text starts that a spreadsheet runs as a formula."""
COMPRESSED: Final = (".gz", ".zst")


def distinct_pairs(query_ids: Text, document_ids: Text) -> tuple[Int64, Int64]:
    """Return the first row of each distinct pair, ordered by ids, and the distinct pair of each row.

    >>> first, pair = distinct_pairs(np.array(["b", "a", "b"]), np.array(["x", "x", "x"]))
    >>> first.tolist(), pair.tolist()
    ([1, 0], [1, 0, 1])
    """
    check(len(query_ids) == len(document_ids), f"{len(query_ids)} query ids but {len(document_ids)} document ids")
    if len(query_ids) == 0:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    query, document = (np.unique(ids, return_inverse=True)[1].astype(np.int64) for ids in (query_ids, document_ids))
    _, first, pair = np.unique(query * (document.max() + 1) + document, return_index=True, return_inverse=True)
    return first.astype(np.int64), pair.astype(np.int64)


def find_pairs(known: tuple[Text, Text], wanted: tuple[Text, Text]) -> Int64:
    """Return the row of each wanted pair among the known ones, which are distinct; -1 if it is missing, [wanted].

    >>> known = np.array(["q", "q"]), np.array(["a", "b"])
    >>> find_pairs(known, (np.array(["q", "r", "q"]), np.array(["b", "a", "a"]))).tolist()
    [1, -1, 0]
    """
    both = [np.concatenate([old, new]) for old, new in zip(known, wanted, strict=True)]
    first, pair = distinct_pairs(both[0], both[1])
    rows = first[pair[len(known[0]) :]]
    return np.where(rows < len(known[0]), rows, -1)


@final
@dataclass(frozen=True, eq=False)
class FirstSlot:
    """Clicks on randomised first results: they measure c_1 without position bias. Each pair occurs once.

    Attributes:
        query_ids: Query id of each pair.
        document_ids: Document id of each pair.
        clicks: Number of clicked impressions, [pairs].
        impressions: Number of impressions as randomised first result, [pairs].
        since: Time of the first impression or earlier (UTC); None if unknown. Models that predict these clicks must not
            have seen them: see `ClickVectors.before`.
    """

    query_ids: Text
    document_ids: Text
    clicks: Int64
    impressions: Int64
    since: datetime | None = None

    def __post_init__(self) -> None:
        pairs = len(self.impressions)
        for name in ("query_ids", "document_ids", "clicks"):
            check(len(getattr(self, name)) == pairs, f"{pairs} impressions but {len(getattr(self, name))} {name}")
        for name in COUNTS:
            kind = getattr(self, name).dtype
            check(bool(np.issubdtype(kind, np.integer)), f"{name} must be whole numbers, got {kind}")
        valid = (self.clicks >= 0) & (self.clicks <= self.impressions) & (self.impressions >= 1)
        check(bool(valid.all()), "each pair must have at least one impression, and at most one click per impression")
        first, _ = distinct_pairs(self.query_ids, self.document_ids)
        check(len(first) == pairs, "a pair occurs twice: use FirstSlot.of to add up its rows")

    @classmethod
    def of(
        cls,
        query_ids: Text,
        document_ids: Text,
        clicks: Int64 | Bool,
        *,
        impressions: Int64 | None = None,
        since: datetime | None = None,
    ) -> FirstSlot:
        """Add up the rows of each pair, which are single impressions or counts. The result is ordered by ids.

        >>> slot = FirstSlot.of(np.array(["q", "q", "q"]), np.array(["b", "a", "b"]), np.array([True, False, False]))
        >>> slot.document_ids.tolist(), slot.clicks.tolist(), slot.impressions.tolist()
        (['a', 'b'], [0, 1], [1, 2])
        """
        first, pair = distinct_pairs(query_ids, document_ids)
        shown = np.ones(len(pair), np.int64) if impressions is None else impressions
        sums = []
        for values in (np.asarray(clicks).astype(np.int64), shown.astype(np.int64)):
            check(len(values) == len(pair), f"{len(pair)} pairs but {len(values)} counts")
            sums.append(np.zeros(len(first), np.int64))
            np.add.at(sums[-1], pair, values)
        kept = sums[1] > 0
        return cls(query_ids[first][kept], document_ids[first][kept], sums[0][kept], sums[1][kept], since)

    def __len__(self) -> int:
        return len(self.impressions)

    def __repr__(self) -> str:
        return f"FirstSlot({len(self)} pairs, {self.impressions.sum()} impressions, {self.clicks.sum()} clicks)"

    @property
    def rate(self) -> float:
        """Return the click rate; nan without impressions."""
        return float(self.clicks.sum() / self.impressions.sum()) if len(self) else float("nan")

    def take(self, pairs: Int64 | Bool) -> FirstSlot:
        """Return some pairs, in this order."""
        return FirstSlot(
            self.query_ids[pairs], self.document_ids[pairs], self.clicks[pairs], self.impressions[pairs], self.since
        )


def read_first_slot(
    store: LogStore, *, since: datetime | None = None, until: datetime | None = None, randomised: bool = True
) -> FirstSlot:
    """Read the clicks on randomised first results of an ingested log.

    Args:
        store: The log; `update_sessions` updates its sessions.
        since: Read impressions from this time on (UTC, without a zone).
        until: Read impressions before this time.
        randomised: Read randomised first results only. False reads every first result, as the engine ranked them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from clickprism.log.schema import SESSIONS, conform

    columns = (*PAIR, "position", "time", "clicked", "randomised", "filter")
    schema = pa.schema([SESSIONS.field(name) for name in columns])
    days = [day for day in store.table("sessions").days() if since is None or day >= since.date()]
    parts: list[Any] = []
    for file in store.table("sessions").files([day for day in days if until is None or day <= until.date()]):
        rows = conform(pq.ParquetFile(file).read(columns=schema.names), schema, what="sessions")
        kept = pc.and_(pc.is_null(rows["filter"]), pc.equal(rows["position"], 1))
        if randomised:
            kept = pc.and_(kept, rows["randomised"])
        if since is not None:
            kept = pc.and_(kept, pc.greater_equal(rows["time"], pa.scalar(since, schema.field("time").type)))
        if until is not None:
            kept = pc.and_(kept, pc.less(rows["time"], pa.scalar(until, schema.field("time").type)))
        parts.append(rows.filter(kept).group_by(PAIR).aggregate([("clicked", "sum"), ("clicked", "count")]))
    table = pa.concat_tables(parts) if parts else None
    if table is None or not table.num_rows:
        remedy = "Randomise the first result of a share of the searches, and mark those rows as randomised"
        if not randomised:
            remedy = "Add events with: clickprism log ingest FILE --into LOG"
        problem = "has no randomised first result" if randomised else "has no search with a first result"
        raise UnsupportedError(problem, file=store.folder, remedy=remedy)
    ids = [np.array(table[name].to_pylist(), dtype=np.str_) for name in PAIR]
    clicks, impressions = (table[name].to_numpy().astype(np.int64) for name in ("clicked_sum", "clicked_count"))
    return FirstSlot.of(ids[0], ids[1], clicks, impressions=impressions, since=since)


def read_pairs(path: Path) -> tuple[Text, Text]:
    """Read the query ids and document ids of a table."""
    return _ids(_read(path, PAIR))


def read_slot(path: Path) -> FirstSlot:
    """Read clicks on randomised first results from a table, or from the folder of an ingested log."""
    if path.is_dir():
        from clickprism.log.store import LogStore

        return read_first_slot(LogStore.open(path))
    table = _read(path, (*PAIR, *COUNTS))
    clicks, impressions = (_counts(table, name) for name in COUNTS)
    wrong = np.flatnonzero((clicks > impressions) | (clicks < 0))
    if len(wrong):
        row = int(wrong[0])
        problem = f"has {clicks[row]} clicks on {impressions[row]} impressions"
        remedy = "Clicks must be from 0 to impressions"
        raise DataError(problem, file=path, line=int(table.lines[row]), remedy=remedy)
    query_ids, document_ids = _ids(table)
    return FirstSlot.of(query_ids, document_ids, clicks, impressions=impressions)


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
    table = read_table(path, lambda name: "names" if name in PAIR else "numbers")
    _check(table, PAIR)
    names = [name for name in table.header if name in table.columns and name not in PAIR]
    if not names:
        raise DataError("has no column with features", file=path, remedy="Give numbers beside the two ids")
    queries, documents = _ids(table)
    distinct, owner = np.unique(queries, return_inverse=True)
    order = np.argsort(owner, kind="stable")
    features = np.empty((len(order), len(names)), dtype=np.float32)
    for column, name in enumerate(names):
        features[:, column] = np.asarray(table.columns[name])[order]
    missing = ~np.isfinite(features)
    if missing.any():
        row, column = (int(each[0]) for each in np.nonzero(missing))
        remedy = "Give every feature of every pair as a finite number"
        raise DataError(f"has no {names[column]}", file=path, line=int(table.lines[order[row]]), remedy=remedy)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(distinct)))]).astype(np.int64)
    return Lists(features, offsets, distinct, documents[order])


def _read(path: Path, names: tuple[str, ...]) -> Table:
    """Read a table that has these columns."""
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
        raise DataError(first.reason, file=path, line=first.line, remedy="Correct or remove the row")
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
        raise DataError(problem, file=table.file, line=int(table.lines[row]), remedy="Counts must be whole numbers")
    counts: Int64 = values.astype(np.int64)
    return counts


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
            import pyarrow as pa
            import pyarrow.parquet as pq

            arrays = {
                name: values if isinstance(values, pa.ChunkedArray) else pa.array(values, from_pandas=True)
                for name, values in columns.items()
            }
            pq.write_table(pa.table(arrays), draft, compression="zstd")
            return
        names = list(columns)
        rows = zip(*(_plain(np.asarray(values)) for values in columns.values()), strict=True)
        with draft.open("w", encoding="utf-8", newline="") as file:
            if out.suffix == ".jsonl":
                file.writelines(
                    json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows
                )
                return
            writer = csv.writer(file, delimiter="," if out.suffix == ".csv" else "\t", lineterminator="\n")
            writer.writerow(names)
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
