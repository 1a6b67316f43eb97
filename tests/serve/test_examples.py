"""Examples for the page: sums of a log by hand, and files that are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.serve.bundle.examples import Example, Examples, Shown, examples_of, read_examples
from clickprism.serve.page.view import find, suggestions, view_of
from clickprism.types import Clicks, Lists


def log() -> Clicks:
    """Query a twice, in two orders, and query b once; the third document of a was never shown."""
    lists = Lists(np.zeros((5, 1), np.float32), np.array([0, 3, 5]), np.array(["a", "b"]), np.array(list("xyzuv")))
    return Clicks(
        lists,
        np.array([0, 2, 4, 6]),
        np.array([0, 1, 1, 0, 4, 3]),
        np.array([1, 2, 1, 2, 1, 2], np.int32),
        np.array([6, 1, 4, 1, 5, 0]),
        np.array([30, 10, 20]),
    )


def test_sums_by_hand() -> None:
    scores = np.array([0.1, 0.9, 9.0, 0.5, 0.4])
    made = examples_of(log(), scores, -scores, observation=np.array([1.0, 0.5]), source="us")
    assert [query.id for query in made.queries] == ["a", "b"]
    x, y = made.queries[0].documents
    assert (x.id, x.impressions, x.clicks, x.position) == ("x", 40, 7, (30 + 2 * 10) / 40)
    assert (y.id, y.impressions, y.clicks, y.position) == ("y", 40, 5, (10 + 2 * 30) / 40)
    assert (x.observation, y.observation) == ((30 + 0.5 * 10) / 40, (10 + 0.5 * 30) / 40)
    assert (x.debiased, x.naive, x.click_rate) == (0.1, -0.1, 7 / 40)
    assert [each.id for each in made.queries[1].documents] == ["v", "u"]
    assert read_examples(made.bytes()) == made
    assert len(examples_of(log(), scores, most=1).queries) == 1


def test_without_an_observation_model_all_positions_are_observed_equally() -> None:
    made = examples_of(log(), np.zeros(5))
    assert made.observation == []
    assert {each.observation for query in made.queries for each in query.documents} == {1.0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "unknown field `version`"),
        ({"queries": [{"id": 3, "documents": []}]}, "is not a file of examples"),
        ({"queries": [{"id": "q", "documents": [], "code": "x"}]}, "unknown field"),
        ({"observation": [-1.0]}, "is not a file of examples"),
    ],
)
def test_files_that_are_refused(change: dict[str, object], words: str) -> None:
    content = {"queries": [], **change}
    with pytest.raises(DataError, match=words):
        read_examples(json.dumps(content).encode())
    with pytest.raises(DataError, match="is not a file of examples"):
        read_examples(b"\x80\x04]")


def test_ranks_and_moves() -> None:
    documents = [Shown(name, 1.0 + i, 10, i, 0.5, debiased=float(i), naive=0.0) for i, name in enumerate("abc")]
    view = view_of(Example("q", documents))
    assert [row.debiased for row in view.rows] == [3, 2, 1]
    assert [row.moved for row in view.rows] == [-2, 0, 2]
    assert [row.naive for row in view.rows] == [1, 2, 3]
    assert [row.id for row in view.debiased] == ["c", "b", "a"]
    assert view.notices[0] == (
        "c moves up from position 3 to 1. It was clicked in 2 of 10 impressions, "
        "at positions observed 50% as often as position 1: relevance 40.0%."
    )
    assert "It was not clicked in 10 impressions" in view.notices[1]
    assert view_of(Example("q", [])).notices == ["The log has no document of this query."]


def test_queries_are_found_by_text_id_or_beginning() -> None:
    known = Examples([Example("1", [], "red shoes"), Example("2", [], "red hats"), Example("3", [])])
    assert [found.id for found in (find(known, text) for text in ("RED shoes", "2", "red h")) if found] == [
        "1",
        "2",
        "2",
    ]
    assert find(known, "red") is None
    assert find(known, " ") is None
    assert [each.id for each in suggestions(known, "red shoos")] == ["1", "2"]
    assert [each.id for each in suggestions(known, "zzz")] == ["1", "2", "3"]
