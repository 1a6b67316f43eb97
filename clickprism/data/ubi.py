"""OpenSearch UBI (User Behavior Insights) as a table with one row for each result that was shown.

Queries and events come as JSON lines, with or without the action lines of the bulk loader, as answers of `_search`, or
as Parquet, in one file or in several. An event of a result (a click, a cart, a purchase) belongs to the impression of
the same document in the same search. Each click is counted, or its reason is named.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from clickprism.data.files import expand, read_bytes
from clickprism.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

Row: TypeAlias = dict[str, Any]
PARQUET: Final = (".parquet", ".pq")
SNIFFED: Final = 400  # rows that decide whether a file is UBI
SHOWN: Final = ("impression", "view")
CLICK: Final = "click"
OUTCOMES: Final = {"add_to_cart": "cart", "cart": "cart", "purchase": "purchase", "buy": "purchase"}
MANY: Final = 1_000_000


@final
@dataclass(eq=False)
class UbiTable:
    """Results that were shown, and what became of every row of the files.

    Attributes:
        table: Columns search, query, document, position, click, time, user, and one for each outcome.
        outcomes: Names of the outcomes.
        account: Number of rows by what they are and why they are not used.
        notes: What was assumed.
    """

    table: pa.Table
    outcomes: tuple[str, ...]
    account: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def is_ubi(files: Sequence[Path]) -> bool:
    """Return whether most of the first rows of the files are queries or events of UBI."""
    votes: Counter[bool] = Counter()
    for file in files:
        votes.update(_is_ubi(row) for row, _ in zip(_rows(file), range(SNIFFED), strict=False))
    return votes[True] > votes[False]


def _is_ubi(row: Row) -> bool:
    return "action_name" in row or ("query_id" in row and ("user_query" in row or "query_response_hit_ids" in row))


def read_ubi(files: Sequence[Path]) -> UbiTable:
    """Read queries and events of UBI.

    Args:
        files: All files of the log; the order does not matter.
    """
    found = _Found()
    for file in files:
        for row in _rows(file):
            found.add(row)
    return found.table(files)


class _Found:
    """Queries, impressions and what was done to them, as they come."""

    def __init__(self) -> None:
        self.queries: dict[str, Row] = {}
        self.shown: dict[tuple[str, str], Row] = {}
        self.done: list[tuple[str, tuple[str, str]]] = []
        self.account: Counter[str] = Counter()

    def add(self, row: Row) -> None:
        """Take one row."""
        self.account["rows"] += 1
        action, search = row.get("action_name"), row.get("query_id")
        if action is None:
            if search is None:
                self.account["rows without action_name and query_id"] += 1
            else:
                self.queries[str(search)] = row
            return
        attributes = _object(row.get("event_attributes"))
        document = _object(attributes.get("object")).get("object_id", row.get("object_id"))
        if action not in (*SHOWN, CLICK, *OUTCOMES):
            self.account[f"events of other actions ({action})"] += 1
        elif search is None or document is None or document == "":
            self.account[f"{action} without query_id or object_id"] += 1
        elif action in SHOWN:
            ordinal = _object(attributes.get("position")).get("ordinal", row.get("rank"))
            if ordinal is None:
                self.account["impression without a position"] += 1
            elif (str(search), str(document)) in self.shown:
                self.account["impression of a document that the search has already shown"] += 1
            else:
                self.shown[str(search), str(document)] = {**row, "ordinal": ordinal, **_features(attributes)}
        else:
            self.done.append((CLICK if action == CLICK else OUTCOMES[action], (str(search), str(document))))

    def table(self, files: Sequence[Path]) -> UbiTable:
        """Return what was shown as a table."""
        import pyarrow as pa

        notes = self._add_hits()
        if not self.shown:
            remedy = "Log impressions with their position, or query_response_hit_ids with each query"
            raise DataError(
                "has no impressions, so it is not known what users did not click", file=files[0], remedy=remedy
            )
        counts: dict[str, Counter[tuple[str, str]]] = {}
        for name, key in self.done:
            counts.setdefault(name, Counter())[key] += 1
        counts.setdefault(CLICK, Counter())
        for name, each in counts.items():
            self.account[f"{name} events"] = sum(each.values())
            self.account[f"{name} events counted"] = sum(key in self.shown for key in each)
            lost = sum(count for key, count in each.items() if key not in self.shown)
            again = sum(count - 1 for key, count in each.items() if key in self.shown)
            self.account[f"{name} events not counted, no impression of the document in the search"] = lost
            self.account[f"{name} events not counted, repeated on one result"] = again
            notes.append(
                f"{sum(each.values()):,} {name} events: {self.account[f'{name} events counted']:,} counted, {again:,} "
                f"repeated on one result, {lost:,} on a document without an impression in its search."
            )
        outcomes = tuple(name for name in counts if name != CLICK)
        features = dict.fromkeys(name for row in self.shown.values() for name in row if name.startswith("feature "))
        rows = []
        for key, row in self.shown.items():
            query = self.queries.get(key[0], {})
            text = query.get("user_query", row.get("user_query"))
            rows.append(
                {
                    "search": key[0],
                    "query": "" if text is None else str(text),
                    "document": key[1],
                    "position": row["ordinal"],
                    "click": counts[CLICK][key] > 0,
                    "time": _time(row.get("timestamp", query.get("timestamp"))),
                    "user": row.get("client_id", query.get("client_id")),
                    **{name: counts[name][key] > 0 for name in outcomes},
                    **{name.removeprefix("feature "): row.get(name) for name in features},
                }
            )
        if any(not row["query"] for row in rows):
            notes.append("Searches without a text are one query, the empty one.")
        return UbiTable(
            pa.Table.from_pylist(rows), outcomes, {k: v for k, v in self.account.items() if v}, tuple(notes)
        )

    def _add_hits(self) -> list[str]:
        """Take the results of a query for impressions where no impression events say what was shown."""
        with_events = {search for search, _ in self.shown}
        added = 0
        for search, row in self.queries.items():
            hits = row.get("query_response_hit_ids")
            hits = json.loads(hits) if isinstance(hits, str) and hits.startswith("[") else hits
            if search in with_events or not isinstance(hits, list):
                continue
            added += 1
            for position, document in enumerate(hits):
                self.shown.setdefault((search, str(document)), {**row, "ordinal": position})
        if not added:
            return []
        return [
            f"{added:,} searches have no impression events: all of their query_response_hit_ids count as shown, also "
            "those that were not in view."
        ]


def _rows(file: Path) -> Iterator[Row]:
    """Yield the queries and events of a file, without the lines of the bulk loader."""
    if file.name.lower().endswith(PARQUET):
        import pyarrow.parquet as pq

        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches():
                yield from batch.to_pylist()
        return
    text = expand(read_bytes(file), file=file)
    first = text.lstrip()[:1]
    if first in (b"{", b"[") and b"\n{" not in text.strip():  # one JSON value: an answer of _search, or a list
        yield from _unwrapped(_parsed(text, file, 1), bulk=False)
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield from _unwrapped(_parsed(line.removeprefix(b"\xef\xbb\xbf"), file, number))


def _parsed(text: bytes, file: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        remedy = "Repair it, or run `clickprism log ingest`, which puts such rows into quarantine"
        raise DataError(f"is not JSON ({error})", file=file, line=line, remedy=remedy) from None


def _unwrapped(value: Any, *, bulk: bool = True) -> Iterator[Row]:
    if isinstance(value, list):
        for each in value:
            yield from _unwrapped(each)
    elif isinstance(value, dict) and "hits" in value:
        yield from _unwrapped(value["hits"])
    elif isinstance(value, dict) and isinstance(value.get("_source"), dict):
        yield value["_source"]
    elif isinstance(value, dict) and not (bulk and len(value) == 1 and next(iter(value)) in ("index", "create")):
        yield value


def _object(value: Any) -> Row:
    """Return an object, also one that is written as a text; anything else is an empty one."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def _features(attributes: Row) -> Row:
    return {f"feature {name}": value for name, value in _object(attributes.get("features")).items()}


def _time(value: Any) -> str | None:
    """Return a time as text; numbers are milliseconds since 1970."""
    from datetime import UTC, datetime

    if isinstance(value, int | float):
        return datetime.fromtimestamp(value / 1000, UTC).isoformat()
    return None if value is None else str(value)
