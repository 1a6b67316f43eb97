"""Identities of rows: the compiled hash against a plain one, rows that must differ, rows that must not."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickprism.log.identity import identify
from clickprism.log.schema import ROW

MASK = 2**64 - 1
NULL = b"\xff" * 8 + bytes(8)


def rotate(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & MASK


def final(half: int) -> int:
    half = (half ^ half >> 33) * 0xFF51AFD7ED558CCD & MASK
    half = (half ^ half >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return half ^ half >> 33


def murmur(data: bytes, seed: int = 0) -> bytes:
    """MurmurHash3_x64_128 of Appleby, by the book."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    one = two = seed
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = struct.unpack_from("<QQ", data, at)
        one ^= rotate(k1 * c1 & MASK, 31) * c2 & MASK
        one = ((rotate(one, 27) + two) * 5 + 0x52DCE729) & MASK
        two ^= rotate(k2 * c2 & MASK, 33) * c1 & MASK
        two = ((rotate(two, 31) + one) * 5 + 0x38495AB5) & MASK
    k1, k2 = struct.unpack("<QQ", data[whole:].ljust(16, b"\0"))
    two ^= rotate(k2 * c2 & MASK, 33) * c1 & MASK
    one ^= rotate(k1 * c1 & MASK, 31) * c2 & MASK
    one, two = one ^ len(data), two ^ len(data)
    one = one + two & MASK
    two = one + two & MASK
    one, two = final(one), final(two)
    one = one + two & MASK
    return struct.pack("<QQ", one, one + two & MASK)


def encoded(value: Any) -> bytes:
    if value is None:
        return NULL
    if isinstance(value, str):
        text = struct.pack("<Q", len(value.encode())) + value.encode()
        return text + bytes(-len(text) % 16)
    if isinstance(value, list):
        return encoded(len(value)) + b"".join(map(encoded, value))
    if isinstance(value, datetime):
        value = round(value.replace(tzinfo=UTC).timestamp() * 1000) * 1000
    return struct.pack("<QQ", 8, int(value) & MASK)


def expected(row: dict[str, Any]) -> dict[str, bytes]:
    content = murmur(b"".join(encoded(row[field.name]) for field in ROW if field.name != "line"))
    named = encoded(row["kind"]) + encoded(row["event_id"])
    return {"key": content if row["event_id"] is None else murmur(named, 1), "content": content}


@pytest.mark.parametrize(
    ("text", "digest"),
    [("hello", "029bbd41b3a7d8cb191dae486a901e5b"), ("", "0" * 32)],
)
def test_the_plain_hash_is_the_published_one(text: str, digest: str) -> None:
    assert murmur(text.encode()).hex() == digest


TEXT = st.none() | st.text(max_size=40)
ROWS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["impression", "ranking"]),
        "event_id": TEXT,
        "time": st.integers(0, 10**12).map(lambda ms: datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None)),
        "search_id": st.text(max_size=9),
        "query_id": TEXT,
        "query": TEXT,
        "position": st.none() | st.integers(1, 99),
        "documents": st.none() | st.lists(TEXT, max_size=4),
        "click": st.none() | st.booleans(),
        "dwell_ms": st.none() | st.integers(0, 2**62),
        "line": st.integers(1, 9),
    }
)


@settings(max_examples=30)
@given(st.lists(ROWS, max_size=12), st.integers(0, 5))
def test_the_compiled_hash_is_the_plain_one(rows: list[dict[str, Any]], cut: int) -> None:
    table = pa.Table.from_pylist(rows, schema=ROW)
    parted = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    assert identify(parted).to_pylist() == [expected(row) for row in table.to_pylist()]


SHORT = st.none() | st.text(max_size=3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(SHORT, SHORT, st.none() | st.lists(SHORT, max_size=3)), max_size=6))
def test_different_rows_have_different_content(
    values: list[tuple[str | None, str | None, list[str | None] | None]],
) -> None:
    base = {"kind": "ranking", "time": 0, "search_id": "s"}
    rows = [
        base | {"query_id": first, "query": second, "documents": third, "line": line}
        for line, (first, second, third) in enumerate(values)
    ]
    found = identify(pa.Table.from_pylist(rows, schema=ROW))
    assert len(set(found["content"].to_pylist())) == len({repr(each) for each in values})


def test_an_event_id_names_an_event_of_its_kind() -> None:
    base = {"time": 0, "search_id": "s", "line": 1}
    ids = [("impression", "e"), ("ranking", "e"), ("impression", "f"), ("impression", None)]
    rows = [base | {"kind": kind, "event_id": name, "query": query} for kind, name in ids for query in ("a", "b")]
    keys = identify(pa.Table.from_pylist(rows, schema=ROW))["key"].to_pylist()
    assert [keys[i] == keys[i + 1] for i in range(0, 8, 2)] == [True, True, True, False]
    assert len(set(keys)) == 5
