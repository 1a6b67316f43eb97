"""Features of every kind become numbers, the same ones whenever the encoding is applied."""

from __future__ import annotations

from datetime import date, datetime
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from clickprism.data.encoding import BUCKETS, Encoding, Feature
from clickprism.errors import DataError


def learned(**columns: object) -> Encoding:
    return Encoding.learn(pa.table(columns), list(columns))


def test_each_kind_of_column_has_its_encoding() -> None:
    table = pa.table(
        {
            "price": pa.array([1, 2, None], pa.int32()),
            "sale": [True, False, True],
            "since": [date(1970, 1, 2), date(1970, 1, 3), None],
            "seen": [datetime(1970, 1, 1, 12), datetime(1970, 1, 1), None],
            "brand": pa.array(["a", "a", "b"]).dictionary_encode(),
            "vector": [[1.0, 2.0], [3.0, 4.0], None],
            "text_number": ["7", "8.5", "NULL"],
        }
    )
    encoding = Encoding.learn(table, table.column_names)
    names = ["price", "price is missing", "sale", "since", "since is missing", "seen", "seen is missing", "brand=a"]
    names += ["vector[0]", "vector[1]", "vector is missing", "text_number", "text_number is missing"]
    assert list(encoding.names) == names
    nan = np.nan
    expected = [
        [1, 0, 1, 1, 0, 0.5, 0, 1, 1, 2, 0, 7, 0],
        [2, 0, 0, 2, 0, 0, 0, 1, 3, 4, 0, 8.5, 0],
        [nan, 1, 1, nan, 1, nan, 1, 0, nan, nan, 1, nan, 1],
    ]
    np.testing.assert_array_equal(encoding.apply(table), np.array(expected, np.float32))


def test_unseen_and_missing_values_differ_from_known_ones() -> None:
    encoding = learned(brand=["a", "a", "b", "b", None])
    assert encoding.names == ("brand=a", "brand=b", "brand is missing")
    assert encoding.apply(pa.table({"brand": ["b", "zzz", None, " null "]})).tolist() == [
        [0, 1, 0],
        [0, 0, 0],
        [0, 0, 1],
        [0, 0, 1],
    ]


def test_many_values_are_hashed_in_the_same_way_every_time() -> None:
    values = [f"brand {number % 90}" for number in range(360)]
    encoding = learned(brand=values)
    assert encoding.features[0].kind == "hashed"
    matrix = encoding.apply(pa.table({"brand": ["brand 3", "brand 3", "unseen"]}))
    assert matrix.shape == (3, BUCKETS)
    assert matrix.sum(axis=1).tolist() == [1, 1, 1]
    number = int.from_bytes(blake2b(b"brand 3", digest_size=8).digest(), "little")
    assert matrix[0].argmax() == matrix[1].argmax() == number % BUCKETS


def test_what_cannot_help_is_ignored_with_a_reason() -> None:
    encoding = learned(
        constant=["x"] * 200,
        rare=[1.0, *[None] * 199],
        title=[f"title {number}" for number in range(200)],
        nested=[{"a": 1}] * 200,
        ragged=[[1.0] * (1 + number % 2) for number in range(200)],
        price=list(range(200)),
    )
    assert encoding.names == ("price",)
    assert dict(encoding.ignored) == {
        "constant": "has one value only",
        "rare": "is missing in more than 95% of the documents",
        "title": "has a different value in most documents, like an id or a free text",
        "nested": "holds struct<a: int64>, which is not a number, text, date or list of numbers",
        "ragged": "holds lists of different lengths",
    }
    assert encoding.notes()[1] == (
        "Ignored 1 of 6 features, each of which is missing in more than 95% of the documents: rare."
    )


def test_numbers_can_be_categories() -> None:
    table = pa.table({"brand_id": [7, 7, 9, 9]})
    assert Encoding.learn(table, ["brand_id"], categorical=["brand_id"]).names == ("brand_id=7", "brand_id=9")


def test_an_encoding_survives_its_file(tmp_path: Path) -> None:
    encoding = learned(price=[1.0, 2.0], brand=["a", "a"], colour=["r", "r"])
    encoding.save(tmp_path / "encoding.json")
    assert Encoding.load(tmp_path / "encoding.json") == encoding
    (tmp_path / "encoding.json").write_text('{"format": "clickprism encoding 1", "features": [3]}')
    with pytest.raises(DataError, match="Train the ranker again"):
        Encoding.load(tmp_path / "encoding.json")


def test_a_column_that_is_missing_at_scoring_is_named() -> None:
    with pytest.raises(DataError, match=r"has no column 'price', which the ranker was trained with\. It has cost"):
        learned(price=[1.0, 2.0]).apply(pa.table({"cost": [1.0]}))


def test_infinite_values_are_missing() -> None:
    encoding = learned(price=[1.0, 2.0, float("inf")])
    assert np.isnan(encoding.apply(pa.table({"price": [float("-inf")]}))[0, 0])


def test_values_of_json_are_encoded_as_columns_are() -> None:
    """A service gets documents one by one; it must not score them in another way."""
    table = pa.table(
        {
            "price": [1.5, None, 3.0, 2.0],
            "sale": [True, False, None, True],
            "since": [date(2026, 3, 1), date(2026, 3, 2), None, date(2026, 3, 1)],
            "brand": ["a", "b", "a", "b"],
            "size": pa.array([40, 41, None, 40]).dictionary_encode(),
            "vector": [[1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0]],
            "maker": [f"maker {number}" for number in range(4)],
        }
    )
    hashed = Feature("maker", "hashed", size=BUCKETS)
    encoding = Encoding.learn(table, table.column_names[:-1])
    encoding = Encoding((*encoding.features, hashed), {})
    rows = [
        {name: str(value) if isinstance(value, date) else value for name, value in row.items() if value is not None}
        for row in table.to_pylist()
    ]
    np.testing.assert_array_equal(encoding.encode_rows(rows), encoding.apply(table))
    written = table.set_column(2, "since", table["since"].cast(pa.string()))
    np.testing.assert_array_equal(encoding.apply(written), encoding.apply(table))
    unseen = {"price": "NULL", "brand": "zzz", "vector": [1.0]}
    assert np.isnan(encoding.encode_rows([unseen])[0, 0])
    assert encoding.encode_rows([]).shape == (0, len(encoding.names))


def test_a_name_that_the_ranker_does_not_know_is_refused() -> None:
    encoding = learned(price=[1.0, 2.0], colour=["r", "r"], brand=["a", "a"])
    assert encoding.encode_rows([{"price": 2.0, "colour": "r"}]).tolist() == [[2.0]]
    with pytest.raises(DataError, match=r"document 1 has the feature 'prise', .* nearest names are price"):
        encoding.encode_rows([{"price": 2.0}, {"prise": 2.0}])
    with pytest.raises(DataError, match=r"'price' must be a number, a text, true or false, not dict"):
        encoding.encode_rows([{"price": {"eur": 2.0}}])
