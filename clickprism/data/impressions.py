"""Impression logs of recommenders: a row is one item that one request showed, where, and whether it was clicked.

Rows come as CSV, TSV, JSON lines or Parquet. Some columns have a role (request, user, item, position, clicked, ...);
all others are features, of the context, the user or the item, numbers or names. `docs/datamodel.md` has the columns,
`docs/recommendation.md` the way from such a file to a ranker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from clickprism.data.letor import OnError, PathLike, Quarantined
from clickprism.data.roles import NAMED, ImpressionSettings, features_of, kinds, roles_of
from clickprism.data.tables import Broken, Table, read_table
from clickprism.data.vocabulary import Column, Names, Vocabulary, take
from clickprism.errors import DataError, SettingError
from clickprism.types import Bool, Clicks, Float32, Float64, Int32, Int64, JudgedLists, Lists, Text


@final
@dataclass(frozen=True, eq=False)
class Account:
    """What was read from an impression log, and what was not.

    Attributes:
        file: the log.
        columns: the column of each role.
        rows: how many rows it has, those left out included.
        duplicates: rows that said again, word for word, what a row before had said; they count once.
        gaps: requests in which a position between the first and the last is missing.
        unknown: in how many documents the name is not in the vocabulary, by column.
        quarantined: rows that were left out; where a request is broken, all of its rows.
    """

    file: Path
    columns: Mapping[str, str]
    rows: int
    duplicates: int
    gaps: int
    unknown: Mapping[str, int]
    quarantined: tuple[Quarantined, ...] = ()


@final
@dataclass(frozen=True, eq=False)
class ImpressionLog:
    """What an impression log holds.

    Attributes:
        clicks: one ranked list a request, with `seen` and `weights` where the log has them.
        vocabulary: what each feature is, and the code of each name.
        grades: one a document, from the column of relevance; None where there is none.
        users: the user of each request; None where the log has none.
        account: of what was read.
    """

    clicks: Clicks
    vocabulary: Vocabulary
    grades: Int32 | None
    users: Text | None
    account: Account

    @property
    def lists(self) -> Lists:
        """The documents: one row for each list and item."""
        return self.clicks.lists

    @property
    def judged(self) -> JudgedLists:
        """The lists with their grades; without a column of relevance, grade 1 for what was ever clicked.

        Clicks as grades are biased as clicks are: good to see that a ranker learned, not to say which is better.
        """
        if self.grades is not None:
            return JudgedLists(self.lists, self.grades)
        clicked = np.bincount(self.clicks.rows, weights=self.clicks.clicks, minlength=self.lists.documents)
        return JudgedLists(self.lists, (clicked > 0).astype(np.int32))


def read_impressions(
    path: PathLike,
    *,
    settings: ImpressionSettings | None = None,
    vocabulary: Vocabulary | None = None,
    on_error: OnError = "raise",
) -> ImpressionLog:
    r"""Read an impression log: CSV, TSV or JSON lines, plain, gzip or zstd, or Parquet.

    The documents of a list stand in the order of their item ids, so that their order says nothing about the log.

    Args:
        path: the file.
        settings: which column is what.
        vocabulary: that of the training data, for data held out; by default one is learned here.
        on_error: "raise" a `DataError` at the first broken row, or leave it out and "quarantine" it, with all rows of
            its request, as a list with holes is another list.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.csv"
    ...     rows = ["request,item,position,clicked,topic,age", "r1,b,1,0,war,3", "r1,a,2,1,film,9", "r2,b,1,1,war,4"]
    ...     _ = file.write_text("\n".join(rows))
    ...     log = read_impressions(file)
    >>> log.clicks, log.lists.document_ids.tolist(), log.vocabulary.columns["topic"]
    (Clicks(2 ranked lists, 2 sessions, 2 clicks), ['a', 'b', 'b'], ('war', 'film'))
    >>> log.lists.features.tolist(), log.vocabulary.for_ranker()
    ([[2.0, 9.0], [1.0, 3.0], [1.0, 4.0]], {'categorical': (0,), 'categories': (3,)})
    """
    if on_error not in ("raise", "quarantine"):
        raise SettingError("on_error", on_error, "be one of 'raise', 'quarantine'")
    settings = ImpressionSettings() if settings is None else settings
    table = read_table(path, kinds(settings, vocabulary))
    if not len(table) and not table.broken:
        raise DataError("has no rows", file=table.file, remedy="Below the line that names the columns comes a row each")
    if not len(table):
        reason = f"has no sound row; the first: {table.broken[0].reason}"
        raise DataError(reason, file=table.file, line=table.broken[0].line, remedy="Repair it, or export it again")
    roles = roles_of(table, settings)
    entries = entries_of(table, roles, settings)
    broken = sorted([*table.broken, *problems(table, entries)], key=lambda each: each.line)
    rows = np.flatnonzero(sound_rows(entries, broken))
    if broken and on_error == "raise":
        remedy = "Repair it, or skip such requests: --on-error quarantine (in train: --data.on-error quarantine)"
        remedy = remedy if len(rows) else "No request of the log is sound"
        raise DataError(broken[0].reason, file=table.file, line=broken[0].line, remedy=remedy)
    if not len(rows):
        reason = f"has no sound row; the first: {broken[0].reason}"
        remedy = f"Its columns are {', '.join(table.header)}"
        raise DataError(reason, file=table.file, line=broken[0].line, remedy=remedy)
    columns = features_of(table, roles, settings, vocabulary)
    documents = _Documents(table, entries, columns, rows, by=settings.lists)
    taken = {name: take(column, documents.first) for name, column in columns.items()}
    if vocabulary is None:
        vocabulary = Vocabulary.learn(taken, least_count=settings.least_count)
    try:
        lists = documents.lists(vocabulary.encode(taken))
        clicks, first = _clicks(lists, entries, rows, documents.of)
        users = None if entries.user is None else entries.user.take(first).texts("users")
    except DataError as error:
        raise DataError(str(error), file=table.file) from None
    return ImpressionLog(
        clicks=clicks,
        vocabulary=vocabulary,
        grades=entries["relevance"][documents.first].astype(np.int32) if "relevance" in entries else None,
        users=users,
        account=Account(
            file=table.file,
            columns=roles,
            rows=len(table) + sum(each.row is None for each in broken),
            duplicates=int(entries.repeated.sum()),
            gaps=_gaps(clicks),
            unknown=vocabulary.unknown(lists.features),
            quarantined=_quarantine(table, entries, broken),
        ),
    )


class _Documents:
    """The rows of the matrix of features: one for each list and item, in the order of lists and then of item ids.

    Attributes:
        first: the first row of the table that shows each document, [documents].
        of: the document of each of the sound rows.
    """

    def __init__(self, table: Table, entries: Entries, columns: dict[str, Column], rows: Int64, *, by: str) -> None:
        self.owners = entries.user if by == "user" and entries.user is not None else entries.request
        self.items = entries.item
        owner, self.codes = _dense(self.owners.codes[rows])
        size = len(self.items.values)
        rank = np.empty(size, dtype=np.int64)
        rank[sorted(range(size), key=self.items.values.__getitem__)] = np.arange(size)
        key, first, self.of = np.unique(
            owner * size + rank[self.items.codes[rows]], return_index=True, return_inverse=True
        )
        self.first = rows[first]
        lengths = np.bincount(key // size, minlength=len(self.codes))
        self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._check_same(table, columns, rows)
        if "relevance" in entries:
            self._check_same(table, {entries.names["relevance"]: entries["relevance"]}, rows)

    def lists(self, features: Float32) -> Lists:
        """The documents with these features."""
        items, owners = self.items.take(self.first), Names(self.codes, self.owners.values)
        features = features if features.shape[1] else np.zeros((len(items), 0), np.float32)
        return Lists(features, self.offsets, owners.texts("lists"), items.texts("items"))

    def _check_same(self, table: Table, columns: Mapping[str, Column], rows: Int64) -> None:
        for name, column in columns.items():
            values = plain(column)
            differs = np.flatnonzero(~equal(values[rows], values[self.first[self.of]]))
            if len(differs):
                row, before = int(rows[differs[0]]), int(self.first[self.of[differs[0]]])
                item, line = shown_id(self.items, row), table.lines[before]
                raise DataError(
                    f"column {name!r} of item {item} is not what it was for the same user in line {line}",
                    file=table.file,
                    line=int(table.lines[row]),
                    remedy="Make each request a list of its own (impressions.lists=request), or ignore the column",
                )


def _clicks(lists: Lists, entries: Entries, rows: Int64, documents: Int64) -> tuple[Clicks, Int64]:
    """One ranked list a request, in the order in which requests came; and the first row of each."""
    request, requests = _dense(entries.request.codes[rows])
    order = np.lexsort((entries["position"][rows], request))
    shown = rows[order]
    clicks = Clicks(
        lists,
        np.concatenate([[0], np.cumsum(np.bincount(request))]).astype(np.int64),
        documents[order].astype(np.int64),
        entries["position"][shown].astype(np.int32),
        entries["clicked"][shown].astype(np.int64),
        np.ones(len(requests), dtype=np.int64),
        entries["weight"][shown] if "weight" in entries else None,
        entries["seen"][shown].astype(np.int64) if "seen" in entries else None,
    )
    return clicks, shown[clicks.offsets[:-1]]


def _gaps(clicks: Clicks) -> int:
    """How many ranked lists miss a position between their first and their last."""
    first, last = clicks.positions[clicks.offsets[:-1]], clicks.positions[clicks.offsets[1:] - 1]
    return int((last - first + 1 > np.diff(clicks.offsets)).sum())


def _dense(codes: Int64) -> tuple[Int64, Int64]:
    """Codes numbered anew from 0 in the order of first appearance, and the old code of each new one."""
    old, first, new = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[new].astype(np.int64), old[order]


def _quarantine(table: Table, entries: Entries, broken: list[Broken]) -> tuple[Quarantined, ...]:
    """The rows that are left out: what is broken, and what stands in the same request."""
    reasons = {each.line: each.reason for each in reversed(broken)}
    blamed = {int(entries.request.codes[each.row]): each.line for each in reversed(broken) if each.row is not None}
    if blamed:
        for row in np.flatnonzero(np.isin(entries.request.codes, list(blamed))).tolist():
            line = blamed[int(entries.request.codes[row])]
            reasons.setdefault(int(table.lines[row]), f"of the same request as line {line}, which is broken")
    return tuple(Quarantined(str(table.file), line, 1, reason, b"") for line, reason in sorted(reasons.items()))


DEEPEST = 1_000_000
HIGHEST_GRADE = 1000
FROM_0 = "from 0 with --first-position 0, in `train` --data.impressions.first-position 0"
FLAGS = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0}


@dataclass(frozen=True, eq=False)
class Entries:
    """The columns with a role, row by row as in the file.

    Attributes:
        request: of each row.
        item: of each row.
        user: of each row; None where the log has none, as for all below.
        numbers: position (from 1), clicked and, where the log has them, seen, relevance and weight; NaN where wrong.
        repeated: rows that say again, word for word, what a row before has said.
        names: the column of each role.
    """

    request: Names
    item: Names
    user: Names | None
    numbers: Mapping[str, Float64]
    repeated: Bool
    names: Mapping[str, str]

    def __getitem__(self, role: str) -> Float64:
        return self.numbers[role]

    def __contains__(self, role: str) -> bool:
        return role in self.numbers


def entries_of(table: Table, roles: Mapping[str, str], settings: ImpressionSettings) -> Entries:
    """The columns of a table by role."""
    named = {role: column for role, name in roles.items() if isinstance(column := table.columns[name], Names)}
    numbers = {role: column for role, name in roles.items() if not isinstance(column := table.columns[name], Names)}
    numbers |= {role: _flags(named[role]) for role in ("clicked", "seen") if role in named}
    numbers["position"] = numbers["position"] + (1 - settings.first_position)
    request, item = named["request"], named["item"]
    return Entries(request, item, named.get("user"), numbers, _repeated(table, request.codes, item.codes), roles)


def _flags(column: Names) -> Float64:
    values: Float64 = np.array([FLAGS.get(value.strip().lower(), np.nan) for value in column.values])[column.codes]
    return values


def _repeated(table: Table, request: Int64, item: Int64) -> Bool:
    order = np.lexsort((item, request))
    same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
    for column in table.columns.values():
        values = plain(column)[order]
        same &= equal(values[1:], values[:-1])
    repeated = np.zeros(len(order), dtype=np.bool_)
    repeated[order[1:]] = same
    return repeated


def plain(column: Column) -> NDArray[Any]:
    """What to compare of a column: codes or numbers."""
    return column.codes if isinstance(column, Names) else column


def equal(one: NDArray[Any], other: NDArray[Any]) -> Bool:
    """Where values are the same, missing ones too."""
    same: Bool = one == other
    return same | ((one != one) & (other != other)) if one.dtype.kind == "f" else same  # noqa: PLR0124


def problems(table: Table, entries: Entries) -> Iterator[Broken]:
    """What is wrong with rows one by one, and then with requests."""
    names = entries.names
    for role, column in zip(NAMED, (entries.request, entries.user, entries.item), strict=True):
        if column is not None:
            empty = np.array([not value.strip() for value in column.values])[column.codes]
            for row in np.flatnonzero(empty).tolist():
                yield Broken(int(table.lines[row]), f"column {names[role]!r} is empty", row)
    placed = _whole(entries["position"], 1, DEEPEST)
    rules = {"position": (placed, f"a whole number up to {DEEPEST:,}, from 1 ({FROM_0})")}
    for role in ("clicked", "seen"):
        if role in entries:
            rules[role] = np.isin(entries[role], (0, 1)), "0 or 1"
    if "relevance" in entries:
        rules["relevance"] = _whole(entries["relevance"], 0, HIGHEST_GRADE), f"a whole number to {HIGHEST_GRADE}"
    if "weight" in entries:
        rules["weight"] = entries["weight"] >= 0, "a number that is not negative"
    for role, (fine, must) in rules.items():
        for row in np.flatnonzero(~fine).tolist():
            value = _shown(table.columns[names[role]], row)
            yield Broken(int(table.lines[row]), f"column {names[role]!r} must be {must}, got {value}", row)
    if "seen" in entries:
        for row in np.flatnonzero((entries["clicked"] == 1) & (entries["seen"] == 0)).tolist():
            reason = f"column {names['clicked']!r} is 1 where {names['seen']!r} is 0: what was clicked was seen"
            yield Broken(int(table.lines[row]), reason, row)
    yield from _request_problems(table, entries, placed)


def _request_problems(table: Table, entries: Entries, placed: Bool) -> Iterator[Broken]:
    request, position = entries.request, entries["position"]
    kept = np.flatnonzero(~entries.repeated)
    for row, before in _clashes(request.codes, position, kept[placed[kept]]):
        yield _clash(table, request, f"position {position[row]:.0f}", row, before)
    for row, before in _clashes(request.codes, entries.item.codes, kept):
        yield _clash(table, request, f"item {shown_id(entries.item, row)}", row, before)
    if entries.user is not None:
        yield from _other_users(table, request, entries.user)


def _whole(values: Float64, low: int, high: int) -> Bool:
    result: Bool = (values >= low) & (values <= high) & (values == np.floor(values))
    return result


def _clashes(request: Int64, key: NDArray[Any], rows: Int64) -> Iterator[tuple[int, int]]:
    """Rows of a request with the same key as a row before, and that row."""
    order = rows[np.lexsort((rows, key[rows], request[rows]))]
    again = (np.diff(request[order]) == 0) & (np.diff(key[order]) == 0)
    return ((int(order[place + 1]), int(order[place])) for place in np.flatnonzero(again).tolist())


def _clash(table: Table, request: Names, what: str, row: int, before: int) -> Broken:
    reason = f"{what} of request {shown_id(request, row)} is taken by line {table.lines[before]}"
    return Broken(int(table.lines[row]), reason, row)


def _other_users(table: Table, request: Names, user: Names) -> Iterator[Broken]:
    first = np.zeros(len(request.values), dtype=np.int64)
    first[request.codes[::-1]] = np.arange(len(request) - 1, -1, -1)
    other = first[request.codes]
    for row in np.flatnonzero(user.codes != user.codes[other]).tolist():
        reason = f"request {shown_id(request, row)} is of another user in line {table.lines[other[row]]}"
        yield Broken(int(table.lines[row]), reason, row)


def shown_id(column: Names, row: int) -> str:
    """The name in a row, as an error shows it."""
    text = repr(column.values[column.codes[row]])
    return text if len(text) <= 60 else f"{text[:57]}..."


def _shown(column: Column, row: int) -> str:
    if isinstance(column, Names):
        return shown_id(column, row)
    return "nothing" if np.isnan(column[row]) else f"{column[row]:.15g}"


def sound_rows(entries: Entries, broken: list[Broken]) -> Bool:
    """Rows of requests in which nothing is broken, each once."""
    bad = np.zeros(len(entries.request.values), dtype=np.bool_)
    rows = np.array([each.row for each in broken if each.row is not None], dtype=np.int64)
    bad[entries.request.codes[rows]] = True
    sound: Bool = ~bad[entries.request.codes] & ~entries.repeated
    return sound
