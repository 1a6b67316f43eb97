"""Search sessions from TSV or CSV text: what was asked, what was shown, what was clicked.

A line is a session; the first line names the columns. `query`, `documents` (best first) and `clicks` (on those
documents, in any order) must be there; every other column, such as a device, is kept as text. `docs/datamodel.md` has
the rules.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from clickprism.data.clicks import load_bare
from clickprism.data.files import delimited_rows, read_text
from clickprism.data.letor import OnError, PathLike, Quarantined
from clickprism.data.tables import text_array
from clickprism.errors import DataError, SettingError
from clickprism.settings import suggest
from clickprism.types import Bool, Clicks, Float64, Int64, Lists, Simulation, Text, Truth, slices


@dataclass(frozen=True, eq=False)
class SessionLog:
    """A log of sessions, and an account of what was read.

    Attributes:
        clicks: one ranked list a session; the features have no columns.
        columns: the other columns, as text, one value a session.
        outside: clicks on documents that were not in the list of their session; they are left out.
        quarantined: the lines that were left out.
        truth: what a simulation knows, where the log is one.
    """

    clicks: Clicks
    columns: dict[str, Text] = field(default_factory=dict)
    outside: int = 0
    quarantined: tuple[Quarantined, ...] = ()
    truth: Truth | None = None

    def __len__(self) -> int:
        return len(self.clicks)

    def column(self, name: str) -> Text:
        """The values of a column, one a session."""
        if name not in self.columns:
            remedy = f"It has {', '.join(self.columns)}" if self.columns else "It has none besides what was shown"
            raise DataError(f"the log has no column {name!r}", remedy=remedy)
        return self.columns[name]

    def take(self, sessions: Int64 | Bool) -> SessionLog:
        """These sessions only; the account stays that of the whole file."""
        chosen = np.arange(len(self))[sessions]
        columns = {name: values[chosen] for name, values in self.columns.items()}
        truth = self.truth
        if truth is not None:
            entries, _ = slices(self.clicks.offsets, chosen)
            truth = Truth(truth.observed[entries], truth.attracted[entries])
        return SessionLog(self.clicks.take(chosen), columns, self.outside, self.quarantined, truth)

    @property
    def observation(self) -> Float64 | None:
        """The share of impressions that was seen at each position, where a simulation knows it."""
        return None if self.truth is None else Simulation(self.clicks, self.truth).observation


def read_log(path: PathLike, *, on_error: OnError = "raise") -> SessionLog:
    """Read a log for what asks only what stood where: a session file, or simulated clicks.

    The latter holds ranked lists with counts, and may hold the truth; the data set it was made on is not needed.
    """
    file = Path(path)
    try:
        with file.open("rb") as stream:
            zipped = stream.read(4) == b"PK\x03\x04"
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=file) from None
    if not zipped and file.suffix == ".npz":
        raise DataError(
            "is not a sound .npz file", file=file, remedy="Create it again with: clickprism experiment simulate"
        )
    if not zipped:
        return read_sessions(file, on_error=on_error)
    clicks, truth = load_bare(file)
    return SessionLog(clicks, truth=truth)


def read_sessions(
    path: PathLike,
    *,
    query: str = "query",
    documents: str = "documents",
    clicks: str = "clicks",
    separator: str = ",",
    on_error: OnError = "raise",
) -> SessionLog:
    r"""Read sessions from a text file, plain, gzip or zstd: columns split by tabs if the first line has one, else CSV.

    Documents of different queries are different, whatever their ids; blanks around ids do not count. A document clicked
    several times in a session counts once. Clicks outside the list are counted and left out; a file in which they are
    most clicks is an error, as its clicks may be flags or positions, not ids. A line with a missing field, an empty
    list or a document shown twice is an error.

    Args:
        path: the file.
        query: the name of the column with the query, any text.
        documents: that with the ids of what was shown, best first.
        clicks: that with the ids of what was clicked; may be empty.
        separator: what stands between ids.
        on_error: "raise" a `DataError` at the first broken line, or skip such lines and "quarantine" them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.tsv"
    ...     _ = file.write_text("query\tdocuments\tclicks\tdevice\ncat\ta,b\tb\tphone\ncat\tb,a\t\tdesk\n")
    ...     log = read_sessions(file)
    >>> log.clicks, log.clicks.lists.document_ids.tolist(), log.columns["device"].tolist()
    (Clicks(2 ranked lists, 2 sessions, 1 clicks), ['a', 'b'], ['phone', 'desk'])
    """
    if on_error not in ("raise", "quarantine"):
        raise SettingError("on_error", on_error, "be one of 'raise', 'quarantine'")
    if not separator or set(separator) & set("\t\r\n"):
        raise SettingError("separator", separator, "be text that stands between ids, such as ','")
    file = Path(path)
    lines = delimited_rows(read_text(file), file=file)
    header = next(lines, (1, []))[1]
    places = _places(file, header, (query, documents, clicks))
    others = {place: _Numbered() for place in range(len(header)) if place not in places}
    reader = _Reader(separator)
    asked, shown, picked = places
    quarantined: list[Quarantined] = []
    for line, fields in lines:
        reason = f"{len(fields)} fields where the first line has {len(header)}"
        if len(fields) == len(header):
            reason = reader.add(fields[asked], fields[shown], fields[picked])
        if not reason:
            for place, column in others.items():
                column.add(fields[place])
        elif on_error == "raise":
            remedy = 'Repair it, or skip such lines: --on-error quarantine, in Python on_error="quarantine"'
            raise DataError(reason, file=file, line=line, remedy=remedy)
        else:
            quarantined.append(Quarantined(str(file), line, 1, reason, "\t".join(fields).encode()))
    if not reader.sessions:
        raise DataError("has no sound session", file=file, remedy=f"A line has {', '.join(header)}")
    try:
        columns = {header[place]: column.text(header[place]) for place, column in others.items()}
        log, outside = reader.clicks()
    except DataError as error:
        raise DataError(str(error), file=file) from None
    inside = int(log.clicks.sum())
    if outside > inside:
        raise DataError(
            f"{outside:,} of {outside + inside:,} clicks are on nothing that was in the list of their session",
            file=file,
            remedy=f"Clicks must be document ids as in {documents}, not flags or positions; leave other clicks out",
        )
    return SessionLog(log, columns, outside, tuple(quarantined))


def _places(file: Path, header: list[str], wanted: Sequence[str]) -> list[int]:
    if not header:
        raise DataError("is empty", file=file, remedy=f"The first line names the columns: {', '.join(wanted)}")
    split = next((each for each in ";| " if each in header[0]), None)
    if len(header) == 1 and split:
        remedy = f"Columns are split by tabs, or by commas as in CSV, not by {split!r}"
        raise DataError("has one column only", file=file, line=1, remedy=remedy)
    if len(set(header)) < len(header):
        raise DataError("names a column twice", file=file, line=1, remedy="Each column needs its own name")
    for name in wanted:
        if name not in header:
            remedy = f"The first line names the columns and has {', '.join(header)} ({suggest(name, header)})"
            if "document_id" in header or "position" in header:  # one row per document
                remedy = f"A session file has one row per search. Run: clickprism log ingest {file} --into mylog"
            raise DataError(f"has no column {name!r}", file=file, line=1, remedy=remedy)
    return [header.index(name) for name in wanted]


class _Numbered:
    """Values that come again and again, each kept once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.values = array("q")

    def add(self, value: str) -> None:
        self.values.append(self.numbers.setdefault(value, len(self.numbers)))

    def text(self, name: str) -> Text:
        """The values in the order in which they came."""
        chosen: Text = text_array(list(self.numbers), np.array(self.values), what=f"column {name!r}")
        return chosen


class _Reader:
    """Numbers queries, and the documents of each, as they come; lists that come again are looked up whole."""

    def __init__(self, separator: str) -> None:
        self.separator = separator
        self.queries: dict[str, int] = {}
        self.documents: list[dict[str, int]] = []  # of each query
        self.lists: dict[tuple[str, str], int] = {}
        self.asked = array("q")  # the query of each list
        self.rows = array("q")  # of all lists, one after the other, counted from the first of the query
        self.ends = array("q", [0])
        self.patterns: dict[tuple[int, str], int] = {}
        self.shown = array("q")  # the list of each pattern
        self.entries = 0
        self.clicked = array("q")
        self.outside = array("q")
        self.sessions = array("q")

    def add(self, query: str, documents: str, clicks: str) -> str:
        """Take one session; what is wrong with it, if anything."""
        number = self.lists.get((query, documents))
        if number is None:
            ids = self._ids(documents)
            reason = _broken(query, ids)
            if reason:
                return reason
            number = self.lists[query, documents] = len(self.lists)
            self._list(query, ids)
        pattern = self.patterns.get((number, clicks))
        if pattern is None:
            pattern = self.patterns[number, clicks] = len(self.patterns)
            self._click(number, self._ids(documents), set(self._ids(clicks)))
        self.sessions.append(pattern)
        return ""

    def _ids(self, text: str) -> list[str]:
        ids = text.split(self.separator)
        return [name.strip() for name in ids] if " " in text else ids

    def _list(self, query: str, ids: list[str]) -> None:
        asked = self.queries.setdefault(query, len(self.queries))
        if asked == len(self.documents):
            self.documents.append({})
        known = self.documents[asked]
        self.asked.append(asked)
        self.rows.extend([known.setdefault(name, len(known)) for name in ids])
        self.ends.append(len(self.rows))

    def _click(self, number: int, ids: list[str], names: set[str]) -> None:
        names.discard("")
        hit = [place for place, name in enumerate(ids, start=self.entries) if name in names]
        self.clicked.extend(hit)
        self.outside.append(len(names) - len(hit))
        self.shown.append(number)
        self.entries += len(ids)

    def clicks(self) -> tuple[Clicks, int]:
        """All sessions, over lists in the order in which queries and documents came; and the clicks outside."""
        asked, rows, ends, shown, clicked, outside, sessions = (
            np.array(each, dtype=np.int64)
            for each in (self.asked, self.rows, self.ends, self.shown, self.clicked, self.outside, self.sessions)
        )
        first = np.concatenate([[0], np.cumsum([len(known) for known in self.documents])]).astype(np.int64)
        names = text_array([name for known in self.documents for name in known], what="the column of document ids")
        lists = Lists(
            np.zeros((len(names), 0), np.float32),
            first,
            text_array(list(self.queries), what="the column of queries"),
            names,
        )
        rows += np.repeat(first[asked], np.diff(ends))
        entries, starts = slices(ends, shown)
        hits = np.bincount(clicked, minlength=len(entries))
        chosen, offsets = slices(starts, sessions)
        positions = np.arange(1, len(chosen) + 1) - np.repeat(offsets[:-1], np.diff(offsets))
        ones = np.ones(len(sessions), dtype=np.int64)
        log = Clicks(lists, offsets, rows[entries[chosen]], positions.astype(np.int32), hits[chosen], ones)
        return log, int(outside[sessions].sum())


def _broken(query: str, ids: list[str]) -> str:
    if not query:
        return "the query is missing"
    if "" in ids:
        return "documents are missing" if len(ids) == 1 else f"document {ids.index('') + 1} of the list has no id"
    if len(set(ids)) < len(ids):
        twice = next(name for place, name in enumerate(ids) if name in ids[:place])
        return f"document {twice!r} is in the list twice"
    return ""
