"""Tables of impressions become the same log, whatever library they come from; every row is used or counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import clickprism as cp
from clickprism.data.click_table import Columns, TableSettings, read_click_table
from clickprism.data.encoding import days_of
from clickprism.data.logged import ONLY_CLICKS, log_fingerprint
from clickprism.errors import DataError, SettingError
from tests.data.shop import shop_clicks

LIBRARIES: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "duckdb": duckdb.from_df,
    "dictionary of arrays": lambda frame: {name: frame[name].to_numpy() for name in frame.columns},
}
ROLES = {"query": "q", "document": "sku", "position": "rank", "click": "clicked"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_gives_the_same_log(library: str) -> None:
    frame = shop_clicks(50)
    log = cp.read_log(LIBRARIES[library](frame), **ROLES, features="all others")  # type: ignore[arg-type]
    same = cp.read_log(frame, **ROLES, features="all others")  # type: ignore[arg-type]
    assert log_fingerprint(log) == log_fingerprint(same)
    assert (log.clicks.sessions, int(log.clicks.clicks.sum())) == (50, int(frame["clicked"].sum()))
    assert log.feature_names[:2] == ("quality", "brand=dune")  # the most frequent
    assert log.feature_names[-2:] == ("stock", "stock is missing")


def rows(**columns: Any) -> dict[str, Any]:
    size = len(next(iter(columns.values())))
    return {"query": ["cat"] * size, "document": list("abcdefgh"[:size]), "click": [0] * size, **columns}


def positions(log: Any) -> list[list[int]]:
    starts, stops = log.clicks.offsets[:-1], log.clicks.offsets[1:]
    return [log.clicks.positions[start:stop].tolist() for start, stop in zip(starts, stops, strict=True)]


def test_observations_grades_and_weights_are_read() -> None:
    given = rows(search=[1, 1, 2, 2], position=[1, 2, 1, 2], document=["007", "8", "007", "8"], click=[1, 0, 0, 1])
    log = cp.read_log({**given, "in_view": [1, 1, 1, 0], "grade": [2, None, 1, 0], "w": [0.5, 1, 1, 1]}, weight="w")
    assert log.clicks.seen is not None
    assert log.clicks.weights is not None
    assert log.grades is not None
    assert (log.clicks.seen.tolist(), log.clicks.weights.tolist()) == ([1, 1, 1], [0.5, 1, 1])
    assert log.grades.tolist() == [1, 0]  # the last of each document
    assert log.account["rows not used, clicked, though the row says that it was not seen"] == 1
    with pytest.raises(DataError, match=r"column 'grade' has 0\.5 in row 1, which is not a grade"):
        cp.read_log({**given, "grade": [0.5, 0, 0, 0]})


def test_ids_in_files_are_texts_and_json_lines_are_tables(tmp_path: Path) -> None:
    lines = ["search_id,doc_id,position,clicked,price", "01,007,1,0,1.5", "01,8,2,1,2.5", "1,007,1,0,2"]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    log = cp.read_log(str(tmp_path / "log.csv"), features="all others")
    assert log.clicks.lists.query_ids.tolist() == ["01", "1"]
    assert log.clicks.lists.document_ids is not None
    assert log.clicks.lists.document_ids.tolist() == ["007", "8", "007"]
    names, *cells = (line.split(",") for line in lines)
    texts = [dict(zip(names, [*row[:2], int(row[2]), int(row[3]), float(row[4])], strict=True)) for row in cells]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, texts)))
    same = cp.read_log(str(tmp_path / "log.jsonl"), features="all others")
    assert log_fingerprint(same) == log_fingerprint(log)


def test_categories_as_codes() -> None:
    names = [*"aabbc"]
    given = rows(search=[1] * 5, position=range(1, 6), topic=names, size=[1, 2, 3, 4, None])
    log = read_click_table(pa.table(given), Columns.of({"features": "all others", "codes": True}))
    assert log.encoding is not None
    assert log.encoding.for_ranker() == {"categorical": (0,), "categories": (3,)}
    assert log.encoding.flags == (0, 2)
    assert log.clicks.lists.features[:, 0].tolist() == [1, 1, 2, 2, 0]
    assert log.encoding.encode_rows([{"topic": "b", "size": 1}, {"topic": "zzz"}])[:, 0].tolist() == [2, 0]


def test_without_a_search_a_list_ends_where_positions_start_again() -> None:
    log = cp.read_log(rows(position=[1, 2, 3, 1, 2, 5], document=list("abcabc")))
    assert positions(log) == [[1, 2, 3], [1, 2, 5]]
    assert any("This makes 2 lists" in note for note in log.notes)


def test_without_a_search_a_list_ends_where_the_query_or_the_user_changes() -> None:
    log = cp.read_log(rows(position=[1, 2, 3, 4], query=["cat", "cat", "dog", "dog"], user=["u", "u", "v", "w"]))
    assert positions(log) == [[1, 2], [3], [4]]


def test_rows_of_a_search_in_any_order_are_one_list() -> None:
    assert positions(cp.read_log(rows(position=[3, 1, 2]))) == [[1, 2, 3]]
    log = cp.read_log(rows(position=[2, 2, 1, 1], search=["s", "t", "t", "s"], document=list("abcd")))
    assert positions(log) == [[1, 2], [1, 2]]
    assert log.clicks.rows.tolist() == [3, 0, 2, 1]


def test_without_a_position_rows_are_in_the_order_shown() -> None:
    log = cp.read_log(rows(search=["s", "s", "t"]))
    assert positions(log) == [[1, 2], [1]]
    assert any("No column has the position" in note for note in log.notes)


def test_positions_from_0_and_positions_of_pages_are_counted_on() -> None:
    assert positions(cp.read_log(rows(position=[0, 1, 2]))) == [[1, 2, 3]]
    log = cp.read_log(rows(position=[1, 2, 1, 2], page=[1, 1, 2, 2]))
    assert positions(log) == [[1, 2, 3, 4]]


def test_repeated_impressions_are_kept_without_event_ids() -> None:
    log = cp.read_log(rows(position=[1, 1, 1], document=["a"] * 3, click=[1, 0, 1]))
    assert (log.clicks.sessions, int(log.clicks.clicks.sum())) == (3, 2)


def test_every_row_is_used_or_counted_with_its_reason() -> None:
    table = {
        "search": ["s"] * 9,
        "query": ["cat"] * 8 + [None],
        "document": ["a", "b", None, "c", "d", "e", "a", "a", "f"],
        "position": [1, 2, 3, "x", 2, 6, 1, 7, 8],
        "click": [0, 1, 0, 0, 0, "perhaps", 1, 0, 0],
    }
    log = cp.read_log(table)
    assert log.account == {
        "rows": 9,
        "rows joined, the same document at the same position of a search": 1,
        "rows not used, the document is missing": 1,
        "rows not used, the query is missing": 1,
        "rows not used, the click is neither 1 nor 0, true nor false": 1,
        "rows not used, the position is not a whole number from 0 to 10,000": 1,
        "rows not used, the list has the document at an earlier row": 1,
    }
    assert (len(log.clicks.rows), int(log.clicks.clicks.sum())) == (3, 2)  # the joined row was clicked


def test_a_position_that_a_search_has_twice_starts_another_list() -> None:
    log = cp.read_log(rows(position=[1, 2, 1, 2, 3], search=["s"] * 5))
    assert positions(log) == [[1, 2, 3], [1, 2]]
    assert any("1 searches have several documents at one position" in note for note in log.notes)


def test_candidates_that_were_not_shown_have_features_and_no_impressions() -> None:
    log = cp.read_log(rows(position=[1, 2, None], shown=[True, True, False], price=[1.0, 2.0, 3.0]), features=["price"])
    assert log.candidates.tolist() == [2]
    assert log.clicks.lists.features[:, 0].tolist() == [1, 2, 3]
    assert int(log.clicks.list_impressions.sum()) == 2


def test_features_of_a_pair_are_those_of_its_last_impression() -> None:
    table = rows(
        position=[1, 1, 1], document=["a"] * 3, price=[1, 2, 3], time=["2026-03-02", "2026-03-03", "2026-03-01"]
    )
    log = cp.read_log({**table, "document": ["a", "a", "a"]} | {"colour": ["r", "g", "b"]}, features=["price"])
    assert log.encoding is not None
    assert dict(log.encoding.ignored) == {"price": "has one value only"}  # one document: 2, of the latest day
    assert log.days is not None
    assert log.days.tolist() == [1, 2, 0]


def test_queries_that_differ_in_blanks_and_capitals_are_one() -> None:
    log = cp.read_log(rows(position=[1, 1, 1], query=["soundbar", "Soundbar ", "sound  bar"]))
    assert log.clicks.lists.query_ids.tolist() == ["soundbar", "sound bar"]


def test_randomised_lists_are_marked_and_others_are_not() -> None:
    log = cp.read_log(rows(position=[1, 2, 1, 2], search=["s", "s", "t", "t"], random_bool=[1, 1, 0, 0]))
    assert log.randomised is not None
    assert log.randomised.tolist() == [True, True, False, False]


def test_rankers_are_named() -> None:
    log = cp.read_log(rows(position=[1, 1], ranker=["v1", None]))
    assert log.policy is not None
    assert [log.policies[number] for number in log.policy] == ["v1", "not named"]


def test_outcomes_are_summed_over_clicks() -> None:
    log = cp.read_log(
        rows(position=[1, 1, 1], document=["a", "a", "b"], click=[1, 1, 0], booked=["true", "false", "true"]),
        outcomes={"booking": "booked"},
    )
    assert log.outcomes is not None
    assert log.outcomes.rows.tolist() == [0, 0]
    assert log.outcomes.values["booking"].tolist() == [1, 0]
    assert log.account["booking without a click, not counted"] == 1


def test_an_outcome_is_found_by_the_usual_names_of_its_column() -> None:
    log = cp.read_log(rows(position=[1, 1], click=[1, 1], booking_bool=[1, 0]), outcomes=["booking"])
    assert log.outcomes is not None
    assert log.outcomes.values["booking"].tolist() == [1, 0]


def test_a_column_with_a_role_is_no_feature_even_if_it_is_named_as_one() -> None:
    frame = shop_clicks(50).assign(random_bool=1, cart=0)
    features = ["quality", "random_bool", "rank", "cart"]
    log = cp.read_log(frame, **ROLES, randomised="random_bool", outcomes=["cart"], features=features)  # type: ignore[arg-type]
    assert log.randomised is not None
    assert log.randomised.all()
    assert log.feature_names == ("quality",)
    assert log.encoding is not None
    assert dict(log.encoding.ignored) == {
        "random_bool": "is the column of the role randomised",
        "rank": "is the column of the role position",
        "cart": "is the column of the role cart",
    }


def test_a_column_that_is_the_click_or_an_id_is_no_feature() -> None:
    frame = shop_clicks(100)
    frame["was_clicked"], frame["row_id"] = frame["clicked"].astype(int), np.arange(len(frame))
    frame["q"] = [f"query {number}" for number in range(len(frame))]
    log = cp.read_log(frame, **ROLES, features="all others")  # type: ignore[arg-type]
    assert log.encoding is not None
    assert dict(log.encoding.ignored) == {
        "was_clicked": "is almost always equal to the click",
        "row_id": "looks like an id by its name and values",
    }


def test_without_a_query_each_search_is_one() -> None:
    log = cp.read_log({"search": ["s", "t"], "document": ["a", "a"], "position": [1, 1], "click": [1, 0]})
    assert log.clicks.lists.query_ids.tolist() == ["s", "t"]
    assert "No column has the query" in log.notes[0]


def test_a_name_that_is_not_there_lists_the_five_nearest_once() -> None:
    with pytest.raises(DataError) as caught:
        cp.read_log(rows(position=[1], sku=["a"], price=[1], brand=["x"]), document="skuu", features=["prise"])
    problem, _, nearest = str(caught.value).partition(". The nearest names are ")
    assert problem == "has no column 'skuu' for the document (and 1 more)"
    assert len(nearest.split(", ")) == 5
    assert nearest.startswith("sku, ")


def test_a_missing_role_says_how_to_name_it() -> None:
    with pytest.raises(DataError, match=r"has no column for the click .* --map click="):
        cp.read_log({"query": ["a"], "document": ["b"]})
    with pytest.raises(SettingError, match="documents must be a known argument"):
        cp.read_log(rows(position=[1]), documents="x")  # type: ignore[call-arg]


def test_a_table_of_clicks_alone_says_what_it_cannot_show() -> None:
    clicks = shop_clicks(30).query("clicked == 1")
    log = cp.read_log(clicks, query="q", document="sku", position="rank", click="clicked")
    assert ONLY_CLICKS in log.notes
    with pytest.raises(DataError, match="A table of clicks alone is not enough"):
        cp.read_log(clicks.drop(columns="clicked"), query="q", document="sku", position="rank")


def test_a_misspelled_role_is_not_only_an_outcome_without_a_column() -> None:
    with pytest.raises(DataError, match=r"for the outcome documnt\..* Did you mean the role document\?"):
        read_click_table(pa.table({"sku": ["a"], "click": [1]}), TableSettings(map=("documnt=id",)).columns())
    table = pa.table({"q": ["cat"], "sku": ["a"], "click": [1]})
    log = read_click_table(table, TableSettings(map=("qury=q",)).columns())
    assert log.notes[0] == "The column 'q' counts as the outcome 'qury'. Did you mean the role query?"


def test_a_log_that_was_read_comes_back_and_refuses_columns() -> None:
    log = cp.read_log(rows(position=[1]))
    assert cp.read_log(log) is log
    with pytest.raises(SettingError, match="be omitted: a log that was read has its columns"):
        cp.read_log(log, query="q")


def test_times_of_all_kinds_are_days() -> None:
    day = 20_515.0
    assert np.floor(days_of(pa.chunked_array([[day]]))).tolist() == [day]
    for unit in (86_400, 86_400_000, 86_400_000_000, 86_400_000_000_000):
        assert np.floor(days_of(pa.chunked_array([[int(day) * unit + unit // 2]]))).tolist() == [day]
    stamps = pa.chunked_array([pa.array(pd.to_datetime(["2026-03-03 23:59"]))])
    assert np.floor(days_of(stamps)).tolist() == [day]
