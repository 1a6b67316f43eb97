"""What can be wrong with the rows of an impression log, one by one and request by request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickprism.data.roles import NAMED, ImpressionSettings
from clickprism.data.tables import Broken, Table
from clickprism.data.vocabulary import Column, Names
from clickprism.types import Bool, Float64, Int64

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
