"""Search sessions from TSV or CSV text: the query, the documents that were shown, and those that were clicked.

A line is a session; the first line names the columns. `query`, `documents` (best first) and `clicks` (on those
documents, in any order) must be there; every other column, such as a device, is kept as text.
`docs/reference/datamodel.md` has the rules.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from sys import intern
from typing import Final

import numpy as np

from clickprism._util.tables import counted
from clickprism.data.clicks import load_bare
from clickprism.data.letor import OnError, PathLike
from clickprism.data.logged import Logged
from clickprism.data.tables import delimited_rows, read_text, text_array
from clickprism.errors import DataError, SettingError
from clickprism.settings import suggest
from clickprism.types import Clicks, Lists, slices

NEEDED: Final = ("query", "documents", "clicks")
"""Columns that a session file must have."""


def read_session_file(path: PathLike, *, on_error: OnError = "raise") -> Logged:
    """Read a log without the features of its documents: a session file, or simulated clicks (.npz)."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            zipped = stream.read(4) == b"PK\x03\x04"
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=file) from None
    if not zipped and file.suffix == ".npz":
        remedy = "Create it again with: clickprism experiment simulate"
        raise DataError("is not a valid .npz file", file=file, remedy=remedy)
    return Logged(load_bare(file)[0]) if zipped else read_sessions(file, on_error=on_error)


def read_sessions(path: PathLike, *, on_error: OnError = "raise") -> Logged:
    r"""Read sessions from a text file, plain, gzip or zstd: columns split by tabs if the first line has one, else CSV.

    Documents of different queries are different, whatever their ids; blanks around ids do not count. A document clicked
    several times in a session counts once. Clicks outside the list are counted and ignored; a file in which they are
    most clicks is an error, as its clicks may be flags or positions, not ids. A document that a list shows again counts
    once, at its first position, as in an ingested log. A line with a missing field or an empty list is an error.

    Args:
        path: The file.
        on_error: "raise" a `DataError` at the first broken line, or skip such lines ("quarantine").

    Returns:
        One ranked list for each session, with the other columns as text; the features have no columns. `account`
        counts the clicks outside their list, the results that a list shows again, and the lines that were skipped;
        `notes` names the first of these lines.

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
    file = Path(path)
    lines = delimited_rows(read_text(file), file=file)
    header = next(lines, (1, []))[1]
    places = _places(file, header)
    asked, shown, picked = places
    others = {place: list[str]() for place in range(len(header)) if place not in places}
    found = _Sessions()
    broken: list[str] = []
    for line, fields in lines:
        reason = f"{len(fields)} fields where the first line has {len(header)}"
        if len(fields) == len(header):
            reason = found.add(fields[asked], fields[shown], fields[picked])
        if not reason:
            for place, column in others.items():
                column.append(intern(fields[place]))
        elif on_error == "raise":
            remedy = 'Repair it, or skip such lines: --on-error quarantine, in Python on_error="quarantine"'
            raise DataError(reason, file=file, line=line, remedy=remedy)
        else:
            broken.append(f"line {line}: {reason}")
    if not found.shown:
        raise DataError("has no usable session", file=file, remedy=f"A line has {', '.join(header)}")
    columns = {
        header[place]: text_array(values, what=f"column {header[place]!r}", file=file)
        for place, values in others.items()
    }
    log, outside = found.clicks(file), found.outside
    inside = int(log.clicks.sum())
    if outside > inside:
        raise DataError(
            f"{outside:,} of {outside + inside:,} clicks are on documents that are not in the list of the session",
            file=file,
            remedy="Clicks must be document ids as in documents, not flags or positions; leave other clicks out",
        )
    account = {"sessions": log.sessions, "clicks outside the list": outside, "lines quarantined": len(broken)}
    account["results shown again in the same list"] = found.repeated
    notes = [f"Not used: {counted(len(broken), 'line')} of {file}, such as {broken[0]}."] if broken else []
    if found.repeated:
        lists = counted(found.with_repeats, "list")
        notes.append(f"In {lists} of {file} a document is shown again: it counts once, at its first position.")
    account = {name: count for name, count in account.items() if count}
    return Logged(log, account=account, columns=columns, notes=tuple(notes))


def _places(file: Path, header: list[str]) -> list[int]:
    if not header:
        raise DataError("is empty", file=file, remedy=f"The first line names the columns: {', '.join(NEEDED)}")
    split = next((each for each in ";| " if each in header[0]), None)
    if len(header) == 1 and split:
        remedy = f"Columns are split by tabs, or by commas as in CSV, not by {split!r}"
        raise DataError("has one column only", file=file, line=1, remedy=remedy)
    if len(set(header)) < len(header):
        raise DataError("names a column twice", file=file, line=1, remedy="Each column needs its own name")
    for name in NEEDED:
        if name not in header:
            remedy = f"The first line names the columns and has {', '.join(header)} ({suggest(name, header)})"
            if "document_id" in header or "position" in header:  # one row per document
                remedy = f"A session file has one row per search. Run: clickprism log ingest {file} --into mylog"
            raise DataError(f"has no column {name!r}", file=file, line=1, remedy=remedy)
    return [header.index(name) for name in NEEDED]


class _Sessions:
    """Numbers queries, and the documents of each, as they come; each different list is kept once."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, int]] = {}  # number of each document of each query
        self.lists: dict[tuple[str, str], int] = {}
        self.ids: list[list[str]] = []  # of each list, each document once
        self.positions: list[list[int]] = []  # of these documents
        self.repeats: list[int] = []  # of each list, the results that show a document again
        self.shown = array("q")  # the list of each session
        self.clicked = array("q"), array("q")  # session and place of each click
        self.outside = 0
        self.repeated = 0
        self.with_repeats = 0

    def add(self, query: str, documents: str, clicks: str) -> str:
        """Add a session, or return what is wrong with it."""
        number = self.lists.get((query, documents))
        if number is None:
            ids = self._ids(documents)
            if reason := _broken(query, ids):
                return reason
            number = self.lists[query, documents] = len(self.lists)
            first = {name: ids.index(name) + 1 for name in ids}
            self.ids.append(list(first))
            self.positions.append(list(first.values()))
            self.repeats.append(len(ids) - len(first))
            known = self.documents.setdefault(query, {})
            for name in first:
                known.setdefault(name, len(known))
        names = set(self._ids(clicks)) - {""} if clicks else set()
        hits = [place for place, name in enumerate(self.ids[number]) if name in names] if names else []
        self.outside += len(names) - len(hits)
        self.repeated += self.repeats[number]
        self.with_repeats += self.repeats[number] > 0
        self.clicked[0].extend([len(self.shown)] * len(hits))
        self.clicked[1].extend(hits)
        self.shown.append(number)
        return ""

    def _ids(self, text: str) -> list[str]:
        return [name.strip() for name in text.split(",")]

    def clicks(self, file: Path) -> Clicks:
        """Return all sessions, over lists in the order in which queries and documents came."""
        firsts = np.concatenate([[0], np.cumsum([len(known) for known in self.documents.values()])]).astype(np.int64)
        names = [name for known in self.documents.values() for name in known]
        ids = text_array(names, what="the column of document ids", file=file)
        queries = text_array(list(self.documents), what="the column of queries", file=file)
        first = dict(zip(self.documents, firsts.tolist(), strict=False))
        rows = [
            [first[query] + self.documents[query][name] for name in listed]
            for (query, _), listed in zip(self.lists, self.ids, strict=True)
        ]
        ends = np.concatenate([[0], np.cumsum([len(each) for each in rows])]).astype(np.int64)
        entries, offsets = slices(ends, np.array(self.shown, dtype=np.int64))
        session, place = (np.array(each, dtype=np.int64) for each in self.clicked)
        clicked = np.zeros(len(entries), dtype=np.int64)
        clicked[offsets[session] + place] = 1
        positions = np.array([each for listed in self.positions for each in listed], dtype=np.int32)[entries]
        lists = Lists(np.zeros((len(names), 0), np.float32), firsts, queries, ids)
        row = np.array([each for listed in rows for each in listed], dtype=np.int64)[entries]
        ones = np.ones(len(self.shown), dtype=np.int64)
        return Clicks(lists, offsets, row, positions, clicked, ones)


def _broken(query: str, ids: list[str]) -> str:
    if not query:
        return "the query is missing"
    if "" in ids:
        return "documents are missing" if len(ids) == 1 else f"document {ids.index('') + 1} of the list has no id"
    return ""
