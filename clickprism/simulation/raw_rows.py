"""From what happened to the rows of a log, as each schema has them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

import numpy as np

from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.types import Int64

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_TIME: Final = "strftime({}, '%Y-%m-%dT%H:%M:%S.%gZ')"
_CLICKED: Final = "searched + to_milliseconds(click_ms)"
_OWN: Final = """
    SELECT filtered OR clicks_filtered AS filtered, time AS happened,
    CASE WHEN named THEN 'e{seed}-' || search || '-' || position END AS event_id, {time} AS time,
    's{seed}-' || search AS search_id, 'q' || query AS query_id, text AS query, document::VARCHAR AS document_id,
    position, click, display_ms, dwell_ms, page_skipped, 'u' || "user" AS user_id, agent, ranker, randomised{features}
    FROM shown
"""
_QUERIES: Final = """
    SELECT bool_and(filtered) AS filtered, searched AS happened, to_json({{
        application: 'shop', query_id: 's{seed}-' || search, client_id: 'u' || any_value("user"),
        user_query: any_value(text), query_response_id: 'r{seed}-' || search,
        query_response_hit_ids: list(document::VARCHAR ORDER BY position), timestamp: {searched},
        query_attributes: {{ranker: any_value(ranker), user_agent: any_value(agent)}}
    }}) AS line FROM shown GROUP BY search, searched ORDER BY search
"""
_EVENTS: Final = """
    SELECT {filtered} AS filtered, {at} AS happened, to_json({{
        application: 'shop', action_name: '{action}', query_id: 's{seed}-' || search, client_id: 'u' || "user",
        session_id: 'u' || "user" || '-' || search // 4, user_query: text, timestamp: {time}, message_type: 'INFO',
        message: '{action} of ' || document, event_attributes: {{
            object: {{object_id: document, object_id_field: 'sku'}},
            position: {{ordinal: position - 1 + {base}}}, user_agent: agent, {times}
        }}
    }}) AS line FROM shown {where}
"""
_RANKINGS: Final = """
    SELECT bool_and(filtered) AS filtered, searched AS happened, to_json({{
        event: 'ranking', id: 's{seed}-' || search, timestamp: epoch_ms(searched)::VARCHAR,
        "user": 'u' || any_value("user"), session: 'u' || any_value("user") || '-' || search // 4,
        fields: [{{name: 'query', value: any_value(text)}}],
        items: list({{id: document::VARCHAR}} ORDER BY position)
    }}) AS line FROM shown GROUP BY search, searched ORDER BY search
"""
_INTERACTIONS: Final = """
    SELECT filtered OR clicks_filtered AS filtered, {at} AS happened, to_json({{
        event: 'interaction', id: 'e{seed}-' || search || '-' || position, ranking: 's{seed}-' || search,
        timestamp: epoch_ms({at})::VARCHAR, "user": 'u' || "user", session: 'u' || "user" || '-' || search // 4,
        type: 'click', item: document::VARCHAR, fields: [{{name: 'dwell_ms', value: dwell_ms}}]
    }}) AS line FROM shown WHERE click
"""


_FIELDS: Final = (
    *("event_id", "time", "search_id", "query_id", "query", "document_id", "position", "click", "display_ms"),
    *("dwell_ms", "page_skipped", "user_id", "agent", "ranker", "randomised"),
)
_JSON: Final = "SELECT filtered, happened, to_json({{{struct}}}) AS line FROM ({rows})"
_ENDED: Final = "SELECT filtered, happened, line::VARCHAR || chr(10) AS line FROM ({rows})"


def rows_of(shown: pa.Table, settings: RawLogSettings, connection: duckdb.DuckDBPyConnection) -> dict[str, pa.Table]:
    """The rows of the log by the kind of file they go into, with when it `happened` and `filtered`.

    Text is in a column `line`, each with its end; Parquet has the columns of our own schema. A robot's row is filtered
    by who sends it (`filtered`), a click also by what it is (`clicks_filtered`).

    Args:
        shown: a row for each document shown (`behaviour`), with the two columns just named.
        settings: of the log.
        connection: where the text is made, with one thread, so that rows keep their order.
    """
    connection.register("shown", shown)
    try:
        tables = {name: connection.sql(sql).to_arrow_table() for name, sql in _queries(settings).items()}
    finally:
        connection.unregister("shown")
    return {name: _as_csv(table) if settings.format == "csv" else table for name, table in tables.items()}


def _queries(settings: RawLogSettings) -> dict[str, str]:
    words = {"seed": settings.seed, "base": settings.ordinal_base, "searched": _TIME.format("searched")}
    told = ("features",) if settings.features else ()
    if settings.schema == "ubi":
        view = {"at": "time", "time": _TIME.format("time"), "filtered": "filtered", "action": "impression", "where": ""}
        view |= {"times": "display_ms: display_ms, page_skipped: page_skipped, randomised: randomised"}
        view["times"] += "".join(f", {name}: {name}" for name in told)
        click = {"at": _CLICKED, "time": _TIME.format(_CLICKED), "filtered": "filtered OR clicks_filtered"}
        click |= {"action": "click", "where": "WHERE click", "times": "dwell_ms: dwell_ms"}
        events = f"{_EVENTS.format(**words, **view)} UNION ALL {_EVENTS.format(**words, **click)}"
        return {"queries": _ENDED.format(rows=_QUERIES.format(**words)), "events": _ENDED.format(rows=events)}
    if settings.schema == "metarank":
        interactions = _INTERACTIONS.format(at=_CLICKED, **words)
        return {"events": _ENDED.format(rows=f"({_RANKINGS.format(**words)}) UNION ALL {interactions}")}
    words["features"] = "".join(f", {name}" for name in told)
    if settings.format != "jsonl":
        return {"events": _OWN.format(time="time", **words)}
    rows = _OWN.format(time=_TIME.format("time"), **words)
    struct = ", ".join(f"{name}: {name}" for name in (*_FIELDS, *told))
    return {"events": _ENDED.format(rows=_JSON.format(struct=struct, rows=rows))}


def _as_csv(table: pa.Table) -> pa.Table:
    """The rows as lines of CSV, without the header."""
    import pyarrow as pa
    from pyarrow import csv

    sink = io.BytesIO()
    rows = table.drop_columns(["filtered", "happened"])
    csv.write_csv(rows, sink, csv.WriteOptions(include_header=False))
    return table.select(["filtered", "happened"]).append_column("line", pa.array(lines_of(sink.getvalue())))


def csv_header() -> bytes:
    """The first line of a CSV file of our own schema."""
    return (",".join(_FIELDS) + "\n").encode()


def lines_of(text: bytes) -> pa.Array:
    r"""A text as an array of its lines, each with its end.

    >>> lines_of(b"a\nbc\n").to_pylist()
    ['a\n', 'bc\n']
    """
    import pyarrow as pa

    ends: Int64 = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(text))


def item_lines(documents: Int64, settings: RawLogSettings, day: int) -> list[bytes]:
    """Metarank's rows about documents, which are no part of a click log."""
    now = settings.midnight(day) // 1000
    return [
        f'{{"event":"item","id":"i{settings.seed}-{day}-{number}","timestamp":"{now + number}","item":"{document}",'
        f'"fields":[{{"name":"price","value":{number + 1}}}]}}\n'.encode()
        for number, document in enumerate(documents.tolist())
    ]
