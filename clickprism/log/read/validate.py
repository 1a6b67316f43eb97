"""One query types and checks the rows of all files of a source: good rows, and bad rows with their reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clickprism.errors import DataError
from clickprism.log.read.formats import Bad, Rows
from clickprism.log.read.sources import IGNORED, LISTS, SOURCES, TEXTS, Plan, Reading, select
from clickprism.log.schema import BAD, ROW, literal
from clickprism.log.settings import SourceSettings

REASONS: Final = {
    "not-utf8": "the bytes are not UTF-8",
    "nul-byte": "there is a NUL in the text",
    "too-long": "the line is longer than max_line_bytes",
    "truncated": "the file ends in the middle",
    "corrupt": "the file is corrupt from here on",
    "unreadable": "this part of the Parquet file cannot be read",
    "not-json": "the line is not JSON",
    "not-object": "the line is JSON, but not an object",
    "field-count": "the line has not as many fields as the header",
    "stray-quote": "a quote is neither around a field nor doubled",
    "stray-return": "a carriage return stands in the middle",
    "unknown-kind": "the row does not say what kind of event it is",
    "missing": "a required field is missing or empty",
    "wrong-type": "a field is of the wrong type",
    "time-unreadable": "the time cannot be read",
    "time-early": "the time lies before the earliest allowed",
    "time-late": "the time lies too far in the future",
    "position-range": "the position is below 1 or beyond max_position, or the list is longer",
    "negative": "a duration is negative",
    "duration-range": "a duration is longer than max_duration_hours",
}
"""Reasons for which a row is quarantined: a stable code, and its explanation."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of an input file.

    Attributes:
        good: rows as `schema.ROW` has them.
        bad: broken rows as `schema.BAD` has them.
        ignored: rows of events that a click log does not use, such as Metarank's item and user events.
        header: the first line of a CSV file, empty if it has none; None for other files.
    """

    good: pa.Table
    bad: pa.Table
    ignored: int = 0
    header: str | None = None


def shown(text: str, most: int = 60) -> str:
    r"""Return the start of a text for a terminal: in one line, without control characters.

    >>> print(shown("a\x1b[31m\tb"), shown("long", most=2))
    a\x1b[31m\tb lo...
    """
    start = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text[:most])
    return start + "..." if len(text) > most else start


def bad_table(rows: Sequence[Bad]) -> pa.Table:
    """Return broken rows in the order of their lines."""
    rows = sorted(rows, key=lambda row: row.line)
    values = [(row.line, f"{row.code}: {REASONS[row.code]}", row.field, row.value, row.raw) for row in rows]
    columns = zip(*values, strict=True) if rows else [()] * len(BAD)
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, BAD, strict=True)], schema=BAD
    )


PARTED: Final = "\x1f"
SHOWN: Final = 80  # number of letters of a wrong value that are kept
FLAGS: Final = ("click", "page_skipped", "randomised")
DURATIONS: Final = ("display_ms", "dwell_ms")
HUGE: Final = 2**63
UNITS: Final = {
    "s": (10**11, "{} * 1000000"),
    "ms": (10**14, "{} * 1000"),
    "us": (10**17, "{}"),
    "ns": (10**20, "cast(trunc({}) as hugeint) // 1000"),
}
"""By unit: the least number that is of the next one, and the exact conversion to microseconds."""
SQL_TYPES: Final = {
    pa.string(): "varchar",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    pa.timestamp("us"): "timestamp",
    pa.list_(pa.string()): "varchar[]",
}
_WORDS: Final = "when 'true' then true when 'false' then false when '1' then true when '0' then false"
_FLAG: Final = f"case {{0}} {_WORDS} else case lower({{0}}) {_WORDS} when '1.0' then true when '0.0' then false end end"
_POSITION: Final = (
    "case when try_cast({0} as double) = try_cast({0} as bigint) then try_cast({0} as bigint) end"  # 3.0 is 3
)
VALUES: Final = (
    dict.fromkeys(FLAGS, _FLAG) | dict.fromkeys(DURATIONS, "try_cast({0} as bigint)") | {"position": _POSITION}
)
"""SQL of the values that are not texts, over their text; null where it cannot be converted."""


def statement(plan: Plan, *, nul: bool) -> str:
    """Return the query over `input` for the columns of `schema.ROW`, and `problem`, null for a good row.

    A problem is a code, a field and the start of its value, separated by `PARTED`; of a broken line, a code.

    Three queries in one: the innermost extracts the fields as texts (`t_<field>`, of lists also `l_<field>`), the
    middle one reads them as values (`v_<field>`), the outer one checks them.
    """
    texts, values = ["line", "fault"], []
    for name, field in plan.fields.items():
        texts.append(f"nullif({field.sql}, '') t_{name}")
        texts += [f"{field.nested} n_{name}"] if field.nested != "false" else []
        texts += [f"{field.listed} l_{name}"] if field.listed else []
        if name in VALUES:
            values.append(f"{VALUES[name].format(f't_{name}')} v_{name}")
    if "time" in plan.fields:
        values.append(f"{_time(plan.reading.settings.unit)} v_time")
    query_id, query = plan.text("query_id"), plan.text("query")
    values.append(f"case when {query_id} is null then md5({query}) else {query_id} end query_key")
    inner = select(["*", *values, f"{plan.kind} kind"], f"({select(texts, plan.reading.table())})")
    cases = []
    for when, code, name in _cases(plan, nul):
        value = f"coalesce(cast(l_{name} as varchar), t_{name})" if name in LISTS else f"t_{name}"
        if name in LISTS and code == "position-range":
            value = f"len(l_{name}) || ' documents'"
        shows = name in plan.fields and code not in (IGNORED, "missing")
        start = f" || coalesce(left({value}, {SHOWN}), '')" if shows else ""
        cases.append(f"when {when} then {literal(f'{code}{PARTED}{plan.name(name)}{PARTED}')}{start}")
    problem = f"case when fault is not null then fault {' '.join(cases)} end problem"
    return select([*(f"{_output(plan, field)} {field.name}" for field in ROW), problem], f"({inner})")


def _time(unit: str) -> str:
    """Return the SQL of a time: ISO 8601 if its fifth character is a dash, else a number of units since 1970."""
    iso = "substr(t_time, 5, 1) = '-'"
    other = "replace(upper(t_time), ',', '.')"
    moment = f"coalesce(try_cast(t_time as timestamptz), try_cast({other} as timestamptz))"
    quick = "try_cast(case when ends_with(t_time, 'Z') then t_time end as timestamp)"  # a third of the time
    moment = f"coalesce({quick}, make_timestamp(epoch_us({moment})))"
    if unit == "iso":
        return f"case when {iso} then {moment} end"
    units = UNITS if unit == "auto" else {unit: UNITS[unit]}
    whole = _micros("try_cast(t_time as bigint)", "{}", units)  # by far the fastest, if it is one
    other = _micros("try_cast(t_time as decimal(38, 9))", "cast({} as decimal(29, 9))", units)
    is_whole = "length(t_time) < 19 and t_time = cast(try_cast(t_time as bigint) as varchar)"
    number = f"case when {is_whole} then {whole} else {other} end"
    return f"case when {iso} then {moment} else make_timestamp({number}) end"


def _micros(number: str, narrow: str, units: Mapping[str, tuple[int, str]]) -> str:
    cases = [
        f"when abs({number}) < {most} then cast(trunc({scale.format(narrow.format(number))}) as bigint)"
        for most, scale in units.values()
    ]
    return " ".join(["case", *cases, "end"])


def _output(plan: Plan, field: pa.Field) -> str:
    name = field.name
    if name in ("kind", "line"):
        return str(name)
    if name == "query_id":
        return "query_key"
    if name not in plan.fields:
        return f"cast(null as {SQL_TYPES[field.type]})"
    if name in LISTS:
        value = f"coalesce(l_{name}, [])" if name == "documents" else f"l_{name}"
        return f"case when kind = 'ranking' then {value} end"
    if name == "position":
        return f"case when v_position {_in_range(plan)} then cast(v_position + {plan.shift} as int) end"
    return f"t_{name}" if name in TEXTS or name == "features" else f"v_{name}"


def _in_range(plan: Plan) -> str:
    return f"between {1 - plan.shift} and {plan.reading.settings.max_position - plan.shift}"


def _cases(plan: Plan, nul: bool) -> Iterator[tuple[str, str, str]]:
    """Yield conditions (SQL) with the reason and our field for which a row is bad; the first that holds is reported."""
    yield "kind is null", "unknown-kind", "kind"
    yield f"kind = '{IGNORED}'", IGNORED, "kind"
    yield from ((f"n_{name}", "wrong-type", name) for name, field in plan.fields.items() if field.nested != "false")
    for name in dict.fromkeys(name for names in plan.required.values() for name in names):
        kinds = ", ".join(f"'{kind}'" for kind, names in plan.required.items() if name in names)
        value = "query_key" if name == "query_id" else plan.text(name)
        yield f"{value} is null and kind in ({kinds})", "missing", name
    for name in plan.fields:
        yield from _cases_of(plan, name)
        if nul and name in TEXTS:
            yield f"contains(t_{name}, chr(0))", "nul-byte", name
        if nul and name in LISTS:
            yield f"contains(array_to_string(l_{name}, ' '), chr(0))", "nul-byte", name


def _cases_of(plan: Plan, name: str) -> Iterator[tuple[str, str, str]]:
    settings, given = plan.reading.settings, f"t_{name} is not null"
    if name == "position" and not plan.based:
        yield given, "ordinal-base", name
    if name in DURATIONS:  # numbers that no 64 bits hold
        yield f"v_{name} is null and try_cast(t_{name} as double) between -1e300 and -{HUGE}", "negative", name
        yield f"v_{name} is null and try_cast(t_{name} as double) between {HUGE} and 1e300", "duration-range", name
    if name in VALUES:
        yield f"{given} and v_{name} is null", "wrong-type", name
    if name in DURATIONS:
        yield f"v_{name} < 0", "negative", name
        yield f"v_{name} > {settings.max_duration_ms}", "duration-range", name
    if name == "position":
        yield f"v_position not {_in_range(plan)}", "position-range", name
    if name == "time":
        yield "v_time is null", "time-unreadable", name
        yield f"v_time < timestamp {literal(settings.earliest)}", "time-early", name
        yield f"v_time > timestamp '{settings.last_time.isoformat(sep=' ')}'", "time-late", name
    if name == "documents":
        yield f"kind = 'ranking' and len(l_documents) > {settings.max_position}", "position-range", name
    if name in LISTS:
        holes = f"len(list_filter(l_{name}, lambda x: x is null or x = '')) > 0"
        broken = f"{given} and (l_{name} is null or {holes})"
        yield f"case when kind = 'ranking' then {broken} else false end", "wrong-type", name
    if name == "features":
        yield f"{given} and (not starts_with(ltrim(t_{name}), '{{') or not json_valid(t_{name}))", "wrong-type", name


BATCH: Final = 8192  # rows that DuckDB gives to a thread at a time


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a file that are still JSON texts, whose fields they have, and how they are read."""

    rows: Rows
    path: Path
    schema: str
    settings: SourceSettings

    @property
    def key(self) -> object:
        """What must be equal for rows to be read by one query; search ids of yandex contain the file."""
        return self.schema, repr(self.settings), self.path if self.schema == "yandex" else None


def type_rows(parts: Sequence[Part], connection: duckdb.DuckDBPyConnection) -> list[Chunk]:
    """Return the good and the bad rows of each part; equal parts share one query, to plan it once."""
    chunks: dict[int, Chunk] = {}
    alike: dict[object, list[int]] = {}
    for place, part in enumerate(parts):
        alike.setdefault(part.key, []).append(place)
    for places in alike.values():
        chunks |= zip(places, _type_alike([parts[place] for place in places], connection), strict=True)
    return [chunks[place] for place in range(len(parts))]


def _type_alike(parts: Sequence[Part], connection: duckdb.DuckDBPyConnection) -> Iterator[Chunk]:
    texts = pa.concat_arrays([part.rows.texts for part in parts])
    data = texts.buffers()[2].to_pybytes() if len(texts) else b""
    plan = SOURCES[parts[0].schema](Reading(parts[0].settings, parts[0].path, data))
    table = pa.table({"text": texts, "line": pa.array(np.concatenate([part.rows.numbers for part in parts]))})
    typed = _run(statement(plan, nul=b"\\u0000" in data), table, parts[0].path, connection)
    problem, rows = typed["problem"].combine_chunks(), typed.drop_columns(["problem"])
    is_good = pc.is_null(problem).to_numpy(zero_copy_only=False)
    good = rows.filter(pa.array(is_good)).cast(ROW)
    bounds = np.cumsum([0, *(len(part.rows.texts) for part in parts)])
    for part, (start, end) in zip(parts, pairwise(bounds.tolist()), strict=True):
        first, last = (int(np.count_nonzero(is_good[:bound])) for bound in (start, end))
        bad, ignored = list(part.rows.bad), 0
        for place in np.flatnonzero(~is_good[start:end]).tolist():
            code, name, value = [*problem[start + place].as_py().split(PARTED, 2), "", ""][:3]
            line = int(part.rows.numbers[place])
            if code == "ordinal-base":
                remedy = "Give --ordinal-base 0 if the first document has 0, else --ordinal-base 1"
                counts = f"{name} may count positions from 0 or from 1"
                raise DataError(counts, file=part.path, line=line, remedy=remedy)
            if code == IGNORED:
                ignored += 1
            elif code != "blank":
                bad.append(Bad(line, code, name or None, part.rows.raw_row(place), value or None))
        yield Chunk(good.slice(first, last - first), bad_table(bad), ignored, part.rows.header)


def _run(sql: str, table: pa.Table, file: Path, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    batches = pa.Table.from_batches(table.combine_chunks().to_batches(max_chunksize=BATCH), table.schema)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET TimeZone = 'UTC'")
            cursor.register("input", batches)
            return cursor.sql(sql).to_arrow_table()
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        problem = f"cannot be read as it should: {str(error).splitlines()[0]}"
        raise DataError(problem, file=file, remedy="Check the mapping and the file") from None
