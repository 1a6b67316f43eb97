"""Impression logs that are broken: what is said, where, and what it may cost."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from clickprism.data import tables, vocabulary
from clickprism.data.impressions import read_impressions
from clickprism.data.letor import OnError
from clickprism.data.roles import ImpressionSettings
from clickprism.data.vocabulary import Names
from clickprism.errors import DataError, SettingError
from tests.data.test_impressions import CSV, HEADER, json_lines, write


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("r1,u1,a,2,", "r1,u1,a,1,", 3, "position 1 of request 'r1' is taken by line 2"),
        ("r1,u1,a,2,", "r1,u1,b,2,", 3, "item 'b' of request 'r1' is taken by line 2"),
        ("r1,u1,a,2,", "r1,u2,a,2,", 3, "request 'r1' is of another user in line 2"),
        ("b,1,0,1", "b,0,0,1", 2, "column 'position' must be a whole number up to 1,000,000, from 1"),
        ("b,1,0,1", "b,1.5,0,1", 2, "column 'position' must be a whole number .* got 1.5"),
        ("b,1,0,1", "b,,0,1", 2, "column 'position' must be a whole number .* got nothing"),
        ("b,1,0,1", "b,first,0,1", 2, "column 'position' must hold a number within 3.4e38, got 'first'"),
        ("b,1,0,1", "b,1,2,1", 2, "column 'clicked' must be 0 or 1, got '2'"),
        ("b,1,0,1", "b,1,1,0", 2, "column 'clicked' is 1 where 'seen' is 0: what was clicked was seen"),
        ("r1,u1,b", "r1,u1,", 2, "column 'item_id' is empty"),
        ("r1,u1,b", ",u1,b", 2, "column 'request_id' is empty"),
        (",war,3", ",war", 2, "7 fields where the first line has 8"),
    ],
)
def test_broken_rows_are_named_or_left_out_with_their_request(
    old: str, new: str, line: int, problem: str, tmp_path: Path
) -> None:
    file = write(tmp_path, CSV.replace(old, new, 1))
    with pytest.raises(DataError, match=rf"log.csv:{line}: {problem}") as caught:
        read_impressions(file)
    assert "quarantine" in str(caught.value)
    log = read_impressions(file, on_error="quarantine")
    assert "r2" in log.lists.query_ids
    assert log.account.rows == 5
    assert line in [each.line for each in log.account.quarantined]
    if "fields" not in problem and "'request_id' is empty" not in problem:
        assert "r1" not in log.lists.query_ids
        assert sorted(each.line for each in log.account.quarantined) == [2, 3]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", r"log.csv: is empty"),
        (" \n\n", r"log.csv: is empty"),
        (HEADER + "\n", r"log.csv: has no rows"),
        ("a;b;c\n1;2;3\n", r"log.csv:1: has one column only. .* not by ';'"),
        (CSV.replace("clicked", "bought"), r"log.csv:1: has no column for the clicked \(clicked, click,"),
        (
            CSV.replace("seen", "session_id"),
            r"log.csv:1: has request_id and session_id for the request. Choose one",
        ),
        (CSV.replace("seen", "age"), r"log.csv:1: names the column 'age' twice"),
        (CSV.replace("war,3", "war,old"), r"log.csv:3: column 'age' has '9.5' and text before"),
        (CSV.replace("film,9.5", "film,old"), r"log.csv:3: column 'age' has 'old' and a number before. .*--ignore age"),
        (CSV.replace("war", "7"), r"log.csv:3: column 'topic' has 'film' and a number before"),
        (CSV.encode("utf-16"), r"log.csv:1: is not UTF-8"),
        (CSV.replace("film", "f\xe9").encode("latin-1"), r"log.csv:3: is not UTF-8 text"),
        (CSV.replace("film", "f\0"), r"log.csv:3: has a NUL character"),
        (CSV.replace("film", '"fi'), r"log.csv:\d: is not CSV"),
        (CSV.replace("film", '"fi"lm'), r"log.csv:3: is not CSV"),
        (CSV.replace("film", "f" * 1001), r"log.csv:3: column 'topic' has a value of 1,001 characters"),
        ("[" + json_lines().replace("\n", ",\n") + "]", r"log.csv:1: is one JSON array"),
        (json_lines().replace('"war"', "7"), r"log.csv:2: column 'topic' has 'film' and a number before"),
        (json_lines().replace('"war"', '["war"]'), r"log.csv:1: column 'topic' must hold text, .* got \['war'\]"),
        (json_lines() + "\n[1]", r"log.csv:6: is not one JSON object"),
        ("\n".join([HEADER, "r1,u1,b,9,1,0,war,3"]), r"clicked' is 1 where"),
    ],
)
def test_files_that_cannot_be_read_are_refused(text: str | bytes, problem: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=problem):
        read_impressions(write(tmp_path, text))


@pytest.mark.parametrize("value", ["1e39", "inf", "1_000", "0x10"])
def test_numbers_beyond_float32_are_no_numbers(value: str, tmp_path: Path) -> None:
    file = write(tmp_path, CSV.replace("film,9.5", f"film,{value}"))
    with pytest.raises(DataError, match=rf"log.csv:3: column 'age' .*{re.escape(value)}"):
        read_impressions(file, settings=ImpressionSettings(numeric=("age",)))


def test_a_file_without_a_valid_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"log.csv:2: has no sound row; the first: column 'clicked' must be 0 or 1"):
        read_impressions(write(tmp_path, f"{HEADER}\nr,u,i,1,x,1,war,3\n"), on_error="quarantine")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"clicked": "bought"}, r"has no column 'bought' for the clicked"),
        ({"categorical": ("tpic",)}, r"has no column 'tpic', named in categorical. .*did you mean 'topic'"),
    ],
)
def test_missing_columns_are_named(settings: dict[str, str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=problem):
        read_impressions(write(tmp_path, CSV), settings=ImpressionSettings(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [{"lists": "item"}, {"first_position": 2}, {"least_count": 0}, {"categorical": ("a",), "ignore": ("a",)}],
)
def test_settings_are_checked(settings: dict[str, object]) -> None:
    with pytest.raises(SettingError):
        ImpressionSettings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("quoted", [False, True], ids=["compiled", "csv module"])
def test_a_wide_header_takes_no_memory_for_short_lines(quoted: bool, tmp_path: Path) -> None:
    """10,000 columns are read in no time, one more is an error; short lines take no room of a row."""
    names = [f"c{number}" for number in range(10_000)]
    header = ",".join([f'"{names[0]}"' if quoted else names[0], *names[1:]])
    file = write(tmp_path, f"{header}\na,b\n{'1,' * 9_999}1\n" + "a\n" * 20_000)
    tracemalloc.start()
    table = tables.read_table(file, lambda name: "numbers" if name == "c9999" else "none")
    assert tracemalloc.get_traced_memory()[1] < 1 << 26
    tracemalloc.stop()
    np.testing.assert_array_equal(table.columns["c9999"], [1])
    assert (table.lines.tolist(), len(table.broken)) == ([3], 20_001)
    assert [(each.line, each.reason[:8]) for each in table.broken[:2]] == [(2, "2 fields"), (4, "1 fields")]
    file = write(tmp_path, f"{header},more\n")
    with pytest.raises(DataError, match=r"log.csv:1: has more than 10,000 columns. Leave columns out"):
        tables.read_table(file, lambda _: "none")


def test_rows_with_different_keys_are_read_in_small_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing costs little in chunks of few rows, and reads the same; too much of it is an error."""
    lines = [json.dumps({f"k{row}": row, f"n{row}": "x", "all": row}) for row in range(40)]
    file = write(tmp_path, "\n".join(lines))
    whole = tables.read_table(file, lambda _: "either")
    monkeypatch.setattr(tables, "CHUNK_CELLS", 100)
    table = tables.read_table(file, lambda _: "either")
    assert table.header == whole.header
    assert table.lines.tolist() == list(range(1, 41))
    for name, column in table.columns.items():
        if isinstance(column, Names):
            other = whole.columns[name]
            assert isinstance(other, Names)
            assert column.texts("rows").tolist() == other.texts("rows").tolist()
            assert column.texts("rows").tolist() == ["x" if name == f"n{row}" else "" for row in range(40)]
        else:
            wanted = [row if name in ("all", f"k{row}") else np.nan for row in range(40)]
            np.testing.assert_array_equal(column, wanted)
            np.testing.assert_array_equal(whole.columns[name], wanted)
    monkeypatch.setattr(tables, "MOST_COLUMNS", 50)
    with pytest.raises(DataError, match=r"log.csv:25: has more than 50 columns. .* is a value, not the name"):
        tables.read_table(file, lambda _: "either")
    monkeypatch.setattr(tables, "MOST_COLUMNS", 81)
    monkeypatch.setattr(tables, "MOST_CELLS", 40 * 80)
    with pytest.raises(DataError, match=r"log.csv: has 81 columns of 40 rows or more, over 3,200 values"):
        tables.read_table(file, lambda _: "either")
    assert len(tables.read_table(file, lambda name: "none" if name == "k0" else "either")) == 40


def test_faults_beside_missing_values_are_of_their_own_row(tmp_path: Path) -> None:
    rows = [{"a": 1}, {}, {"a": None}, {"a": "x"}, {"a": 2, "t": []}, {"t": "y"}]
    file = write(tmp_path, "\n".join(map(json.dumps, rows)))
    table = tables.read_table(file, lambda name: "numbers" if name == "a" else "names")
    assert [(each.line, each.row, each.reason[:10]) for each in table.broken] == [
        (4, 3, "column 'a'"),
        (5, 4, "column 't'"),
    ]
    np.testing.assert_array_equal(table.columns["a"], [1, np.nan, np.nan, np.nan, 2, np.nan])


def test_long_ids_are_refused_before_they_take_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "LARGEST", 1 << 20)
    column = Names(np.arange(100), ["x" * 100_000, *map(str, range(1, 101))])
    tracemalloc.start()
    with pytest.raises(DataError, match=r"ids of users are too large: 100 of them, the longest of 100,000 characters"):
        column.texts("users")
    assert tracemalloc.get_traced_memory()[1] < 1 << 18
    tracemalloc.stop()
    assert column.take(slice(1, None)).texts("users").tolist() == list(map(str, range(1, 100)))


@pytest.mark.parametrize("on_error", ["raise", "quarantine"])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"request": 1\n{"item"\n', r"log.csv:1: has no sound row; the first: is not one JSON object"),
        (
            '"request","item","position","clicked"\n\n"r","a""b"\n',
            r"log.csv:3: has no sound row; the first: 2 fields where the first line has 4",
        ),
        ("request,item,position,clicked\nr,a\n", r"log.csv:2: has no sound row; the first: 2 fields where"),
    ],
)
def test_a_file_of_broken_rows_alone_is_refused(text: str, problem: str, on_error: OnError, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=problem):
        read_impressions(write(tmp_path, text), on_error=on_error)


@pytest.mark.parametrize("column", ["item_id", "topic", "request_id"])
def test_names_have_no_nul(column: str, tmp_path: Path) -> None:
    """A vector of text loses what ends in NUL: two items would be one."""
    records = [json.loads(line) for line in json_lines().splitlines()]
    records[1][column] += "\0"
    file = write(tmp_path, "\n".join(map(json.dumps, records)))
    with pytest.raises(DataError, match=rf"log.csv:2: column '{column}' has '.*x00', with a NUL character"):
        read_impressions(file)
