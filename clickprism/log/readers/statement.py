"""The query that reads a chunk: the texts of the fields, their values, and the first thing wrong with each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import pyarrow as pa

from clickprism.log.readers.places import literal, select
from clickprism.log.readers.plan import IGNORED, LISTS, TEXTS, Plan
from clickprism.log.schema import ROW

Case: TypeAlias = tuple[str, str, str]
"""When it is so (SQL), the row is bad for this reason (a code), in this field (ours)."""

PARTED: Final = "\x1f"
SHOWN: Final = 80  # letters of a value that is wrong
FLAGS: Final = ("click", "page_skipped", "randomised")
DURATIONS: Final = ("display_ms", "dwell_ms")
HUGE: Final = 2**63
UNITS: Final = {
    "s": (10**11, "{} * 1000000"),
    "ms": (10**14, "{} * 1000"),
    "us": (10**17, "{}"),
    "ns": (10**20, "cast(trunc({}) as hugeint) // 1000"),
}
"""Of each unit: numbers from here on are of the next one, and what makes it microseconds, exactly."""


def statement(plan: Plan, *, nul: bool) -> str:
    """The query over `input`: the columns of `schema.ROW`, and `problem`, null for a good row.

    A problem is a code, a field and the start of its value, with `PARTED` between them; of a line that is none, a code.

    Three queries in one: the innermost takes the fields out as texts (`t_<field>`, of lists also `l_<field>`), the
    middle one reads them as values (`v_<field>`), the outer one judges.
    """
    texts, values = ["line", "fault"], []
    for name, field in plan.fields.items():
        texts.append(f"nullif({field.sql}, '') t_{name}")
        texts += [f"{field.nested} n_{name}"] if field.nested != "false" else []
        texts += [f"{field.listed} l_{name}"] if field.listed else []
        if (value := _value(plan, name)) is not None:
            values.append(f"{value} v_{name}")
    query_id, query = plan.text("query_id"), plan.text("query")
    values.append(f"case when {query_id} is null then md5({query}) else {query_id} end query_key")
    inner = select(["*", *values, f"{plan.kind} kind"], f"({select(texts, plan.reading.places.table())})")
    cases = " ".join(
        f"when {when} then {literal(f'{code}{PARTED}{plan.name(name)}{PARTED}')}{_shown(plan, code, name)}"
        for when, code, name in _cases(plan, nul)
    )
    problem = f"case when fault is not null then fault {cases} end problem"
    return select([*(f"{_output(plan, field)} {field.name}" for field in ROW), problem], f"({inner})")


def _shown(plan: Plan, code: str, name: str) -> str:
    """The SQL that goes on with the start of the value of a field that is wrong."""
    if name not in plan.fields or code in (IGNORED, "missing"):
        return ""
    value = f"coalesce(cast(l_{name} as varchar), t_{name})" if name in LISTS else f"t_{name}"
    if name in LISTS and code == "position-range":
        value = f"len(l_{name}) || ' documents'"
    return f" || coalesce(left({value}, {SHOWN}), '')"


def _value(plan: Plan, name: str) -> str | None:
    """The SQL of a value that is not a text; null where the text cannot be read as one."""
    text = f"t_{name}"
    if name in DURATIONS:
        return f"try_cast({text} as bigint)"
    if name == "position":
        whole = f"try_cast({text} as double) = try_cast({text} as bigint)"
        return f"case when {whole} then try_cast({text} as bigint) end"
    if name in FLAGS:
        return (
            f"case {text} {_WORDS} else case lower({text}) {_WORDS} when '1.0' then true when '0.0' then false end end"
        )
    return _time(plan.reading.settings.unit) if name == "time" else None


_WORDS: Final = "when 'true' then true when 'false' then false when '1' then true when '0' then false"


def _time(unit: str) -> str:
    """The SQL of a time: ISO 8601 if its fifth character is a dash, else a number of units since 1970."""
    iso = "substr(t_time, 5, 1) = '-'"
    other = "replace(upper(t_time), ',', '.')"
    moment = f"coalesce(try_cast(t_time as timestamptz), try_cast({other} as timestamptz))"
    moment = f"make_timestamp(epoch_us({moment}))"
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
        return f"cast(null as {_sql_type(field.type)})"
    if name in LISTS:
        return (
            f"case when kind = 'ranking' then {f'coalesce(l_{name}, [])' if name == 'documents' else f'l_{name}'} end"
        )
    if name == "position":
        least, most = _position_range(plan)
        return f"case when v_position between {least} and {most} then cast(v_position + {plan.shift} as int) end"
    return f"t_{name}" if name in TEXTS or name == "features" else f"v_{name}"


def _position_range(plan: Plan) -> tuple[int, int]:
    return 1 - plan.shift, plan.reading.settings.max_position - plan.shift


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return "varchar[]"
    names = {pa.string(): "varchar", pa.int32(): "int", pa.int64(): "bigint", pa.bool_(): "boolean"}
    return names.get(kind, "timestamp")


def _cases(plan: Plan, nul: bool) -> Iterator[Case]:
    """All that can be wrong with a row, in the order in which it is looked for."""
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


def _cases_of(plan: Plan, name: str) -> Iterator[Case]:
    """All that can be wrong with one field that is there."""
    settings, given = plan.reading.settings, f"t_{name} is not null"
    if name == "position" and not plan.based:
        yield given, "ordinal-base", name
    if name in DURATIONS:  # numbers that no 64 bits hold
        yield f"v_{name} is null and try_cast(t_{name} as double) between -1e300 and -{HUGE}", "negative", name
        yield f"v_{name} is null and try_cast(t_{name} as double) between {HUGE} and 1e300", "duration-range", name
    if name in (*FLAGS, *DURATIONS, "position"):
        yield f"{given} and v_{name} is null", "wrong-type", name
    if name in DURATIONS:
        yield f"v_{name} < 0", "negative", name
        yield f"v_{name} > {settings.max_duration_ms}", "duration-range", name
    if name == "position":
        least, most = _position_range(plan)
        yield f"v_position not between {least} and {most}", "position-range", name
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
