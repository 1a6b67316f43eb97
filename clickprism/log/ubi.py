"""OpenSearch UBI (User Behavior Insights) as a table with one row for each result that was shown.

Queries and events come as JSON lines, with or without the action lines of the bulk loader, as answers of `_search`, or
as Parquet, in one file or in several. An event of a result (a click, a cart, a purchase) belongs to the impression of
the same document in the same search. Each click is counted, or its reason is named.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from clickprism.data.tables import read_text
from clickprism.errors import DataError
from clickprism.log.read.formats import blocks, parquet_columns

Row: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str]
PARQUET: Final = (".parquet", ".pq")
SNIFFED: Final = 1 << 18  # bytes that decide whether a file is UBI
MARKS: Final = re.compile('"(action_name|query_response_hit_ids|user_query)"')
"""Names of fields that queries and events of UBI have, and other rows have not."""
BULK: Final = re.compile(r'\s*\{\s*"(index|create)"\s*:\s*\{')
SHOWN: Final = ("impression", "view")
CLICK: Final = "click"
OUTCOMES: Final = {"add_to_cart": "cart", "cart": "cart", "purchase": "purchase", "buy": "purchase", CLICK: CLICK}


class UbiTable(NamedTuple):
    """Results that were shown, and what became of every row of the files.

    Attributes:
        table: Columns search, query, document, position, click, time, user, features, and one for each outcome.
        outcomes: Names of the outcomes.
        account: Number of rows by what they are and why they are not used.
        notes: What was assumed.
    """

    table: pa.Table
    outcomes: tuple[str, ...]
    account: dict[str, int]
    notes: tuple[str, ...]


def is_ubi(files: Sequence[Path]) -> bool:
    """Return whether most of the first rows of the files are queries or events of UBI; broken rows are no error."""
    votes = [MARKS.search(row) is not None for file in files for row in _first_rows(file)]
    return 2 * sum(votes) > len(votes)


def _first_rows(file: Path) -> list[str]:
    """Return the first rows of a file as text, without the lines of the bulk loader."""
    if file.name.lower().endswith(PARQUET):
        return [json.dumps(parquet_columns(file).names)]
    text = next(iter(blocks(file, SNIFFED))).data.decode("utf-8", "replace").lstrip("\ufeff")
    lines = [line for line in text.splitlines() if line.strip() and not BULK.match(line)]
    return [text] if lines and lines[0].strip() in ("{", "[") else lines


def read_ubi(files: Sequence[Path]) -> UbiTable:
    """Read queries and events of UBI from all files of a log, in any order."""
    account, queries, shown = Counter[str](), dict[str, Row](), dict[Key, Row]()
    done: dict[str, Counter[Key]] = {CLICK: Counter()}
    for row in (row for file in files for row in _rows(file)):
        account["rows"] += 1
        action, search = row.get("action_name"), row.get("query_id")
        if action is None and search is not None:
            queries[str(search)] = row
            continue
        attributes = _object(row.get("event_attributes"))
        document = _object(attributes.get("object")).get("object_id", row.get("object_id"))
        key = str(search), str(document)
        if action is None:
            account["rows without action_name and query_id"] += 1
        elif action not in (*SHOWN, *OUTCOMES):
            account[f"events of other actions ({action})"] += 1
        elif search is None or document is None or document == "":
            account[f"{action} without query_id or object_id"] += 1
        elif action not in SHOWN:
            done.setdefault(OUTCOMES[action], Counter())[key] += 1
        else:
            ordinal = _object(attributes.get("position")).get("ordinal", row.get("rank"))
            if ordinal is None:
                account["impression without a position"] += 1
            elif key in shown:
                account["impression of a document that the search has already shown"] += 1
            else:
                shown[key] = {**row, "ordinal": ordinal, "logged": _object(attributes.get("features"))}
    notes = _add_hits(queries, shown)
    if not shown:
        remedy = "Log impressions with their position, or query_response_hit_ids with each query"
        raise DataError(
            "has no impressions, so documents that users saw and did not click are not known",
            file=files[0],
            remedy=remedy,
        )
    notes += _count(done, shown, account)
    rows = [_result(key, row, queries.get(key[0], {}), done) for key, row in shown.items()]
    names = dict.fromkeys(name for row in rows for name in row)  # a feature may be missing in the first rows
    if any(not row["query"] for row in rows):
        notes.append("Searches without a text are one query, the empty one.")
    table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
    used = {name: count for name, count in account.items() if count}
    return UbiTable(table, tuple(name for name in done if name != CLICK), used, tuple(notes))


def _count(done: dict[str, Counter[Key]], shown: dict[Key, Row], account: Counter[str]) -> list[str]:
    """Add to the account how many events are counted, and why others are not; return a sentence for each kind."""
    notes = []
    for name, counts in sorted(done.items(), key=lambda each: each[0] != CLICK):
        counted, total = sum(key in shown for key in counts), counts.total()
        repeated = sum(count - 1 for key, count in counts.items() if key in shown)
        lost = total - counted - repeated
        account[f"{name} events"] = total
        account[f"{name} events counted"] = counted
        account[f"{name} events not counted, repeated on one result"] = repeated
        account[f"{name} events not counted, no impression of the document in the search"] = lost
        why = f"{repeated:,} repeated on one result, {lost:,} on a document without an impression in its search"
        notes.append(f"{total:,} {name} events: {counted:,} counted, {why}.")
    return notes


def _result(key: Key, row: Row, query: Row, done: dict[str, Counter[Key]]) -> Row:
    text, time = query.get("user_query", row.get("user_query")), row.get("timestamp", query.get("timestamp"))
    if isinstance(time, int | float):  # milliseconds since 1970
        time = datetime.fromtimestamp(time / 1000, UTC).isoformat()
    return {
        "search": key[0],
        "query": "" if text is None else str(text),
        "document": key[1],
        "position": row["ordinal"],
        "time": None if time is None else str(time),
        "user": row.get("client_id", query.get("client_id")),
        **{name: counts[key] > 0 for name, counts in done.items()},
        **row["logged"],
    }


def _add_hits(queries: dict[str, Row], shown: dict[Key, Row]) -> list[str]:
    """Add the results of queries to what was shown where no impression events say it; return a note about it."""
    with_events, added = {search for search, _ in shown}, 0
    for search, row in queries.items():
        hits = row.get("query_response_hit_ids")
        hits = json.loads(hits) if isinstance(hits, str) and hits.startswith("[") else hits
        if search in with_events or not isinstance(hits, list):
            continue
        added += 1
        for position, document in enumerate(hits):
            shown.setdefault((search, str(document)), {**row, "ordinal": position, "logged": {}})
    note = f"{added:,} searches have no impression events: all query_response_hit_ids count as shown, also "
    return [f"{note}those that were not in view."] if added else []


def _rows(file: Path) -> Iterator[Row]:
    """Yield the queries and events of a file, without the lines of the bulk loader."""
    if file.name.lower().endswith(PARQUET):
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches():
                yield from batch.to_pylist()
        return
    text = read_text(file)
    if text.lstrip()[:1] in ("{", "[") and "\n{" not in text.strip():  # one value: an answer of _search, or a list
        yield from _unwrapped(_parsed(text, file, 1), bulk=False)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield from _unwrapped(_parsed(line, file, number))


def _parsed(text: str, file: Path, line: int) -> Any:
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
