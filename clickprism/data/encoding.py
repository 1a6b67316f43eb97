"""Features of every kind as one matrix of numbers: learned from a table once, stored, and applied to other tables.

| a column of | becomes |
|---|---|
| numbers, true and false, dates | one column; dates are days since 1970 (UTC). A missing value is nan |
| texts, categories | a column of 0 and 1 for each frequent value; an unseen value is 0 in all of them |
| texts with many values | `BUCKETS` columns; a hash of the value chooses one |
| lists of numbers (embeddings) | a column for each number |

For a ranker that embeds categories (`codes`), texts become one column of whole numbers: 0 for a missing or unseen
value, else from 1.

If values of a column are missing, another column of 0 and 1 says where. Columns that cannot help are ignored, each with
a reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, final

import msgspec
import numpy as np

from clickprism._util.files import read_json, write_file
from clickprism.errors import DataError
from clickprism.types import Bool, Float32, Float64, Int64

if TYPE_CHECKING:
    import pyarrow as pa

Kind: TypeAlias = Literal["number", "date", "category", "code", "hashed", "vector"]

FORMAT: Final = "clickprism encoding 1"
MOST_VALUES: Final = 50  # maximum values of a categorical column; a column with more is hashed
BUCKETS: Final = 64
LEAST_COUNT: Final = 2  # documents with a value, for the value to be known
MOST_MISSING: Final = 0.95
ABSENT: Final = f"is missing in more than {MOST_MISSING:.0%} of the documents"
CONSTANT: Final = "has one value only"
MISSING_MATTERS: Final = 0.01  # share of missing values from which a column says where
IDENTITY: Final = 0.5  # number of values over number of documents, from which a text is an id
LONGEST_VECTOR: Final = 2048
MISSING_TEXTS: Final = ("", "null", "nan", "none", "na", "n/a", "\\n")
LARGEST: Final = float(np.finfo(np.float32).max)


@final
@dataclass(frozen=True)
class Feature:
    """How one column of a table becomes columns of the matrix.

    Attributes:
        name: Name of the column.
        kind: What it holds.
        values: Known values of a category.
        size: Number of columns, without the one that says where values are missing.
        missing: Whether there is that column.
    """

    name: str
    kind: Kind
    values: tuple[str, ...] = ()
    size: int = 1
    missing: bool = False

    @property
    def names(self) -> list[str]:
        """Return the name of each of its columns."""
        names = {
            "number": [self.name],
            "date": [self.name],
            "category": [f"{self.name}={value}" for value in self.values],
            "code": [self.name],
            "hashed": [f"{self.name}#{number}" for number in range(self.size)],
            "vector": [f"{self.name}[{number}]" for number in range(self.size)],
        }[self.kind]
        return [*names, *([f"{self.name} is missing"] if self.missing else [])]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {value: number for number, value in enumerate(self.values)}

    def encode(self, column: pa.ChunkedArray) -> Float32:
        """Return the columns of these values, [rows, columns]."""
        result = np.zeros((len(column), len(self.names)), dtype=np.float32)
        if self.kind in ("number", "date"):
            result[:, 0] = days_of(column) if self.kind == "date" else numbers_of(column)
            absent = np.isnan(result[:, 0])
        elif self.kind == "vector":
            result[:, : self.size], absent = _vectors(column, self.size)
        else:
            codes, texts = _texts(column)
            place = np.array([self._place(text) for text in texts] or [-1], dtype=np.int64)[np.maximum(codes, 0)]
            absent, rows = codes < 0, np.arange(len(codes))
            known = ~absent & (place >= 0)
            if self.kind == "code":
                result[known, 0] = place[known] + 1
            else:
                result[rows[known], place[known]] = 1
        if self.missing:
            result[:, -1] = absent
        return result

    def encode_value(self, value: Any) -> list[float]:
        """Return the columns of one value of JSON, as `encode` does of a column."""
        if isinstance(value, Mapping) or (
            isinstance(value, list | tuple) != (self.kind == "vector") and value is not None
        ):
            wanted = f"a list of {self.size} numbers" if self.kind == "vector" else "a number, a text, true or false"
            raise DataError(f"the feature {self.name!r} must be {wanted}, not {type(value).__name__}")
        result = [0.0] * (self.size + self.missing)
        if isinstance(value, str) and value.strip().lower() in MISSING_TEXTS:
            value = None
        if self.kind in ("number", "date"):
            result[0] = day_of(value) if self.kind == "date" and isinstance(value, str) else _float(value)
            value = None if np.isnan(result[0]) else value
        elif self.kind == "vector":
            value = value if value is not None and len(value) == self.size else None
            result[: self.size] = [np.nan] * self.size if value is None else map(_float, value)
        elif value is not None and (place := self._place(_as_text(value))) >= 0:
            result[0 if self.kind == "code" else place] = place + 1.0 if self.kind == "code" else 1.0
        if self.missing and value is None:
            result[-1] = 1.0
        return result

    def _place(self, text: str) -> int:
        if self.kind in ("category", "code"):
            return self._numbers.get(text, -1)
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") % self.size


@final
@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become features, in order; `Encoding.learn` makes one.

    Attributes:
        features: The columns that are used.
        ignored: Reason why a column is not used, by its name.

    >>> import pyarrow as pa
    >>> table = pa.table({"price": [1.0, None, 3.0], "brand": ["a", "b", "a"], "shop": ["x", "x", "x"]})
    >>> encoding = Encoding.learn(table, ["price", "brand", "shop"])
    >>> encoding.names, dict(encoding.ignored)
    (('price', 'price is missing', 'brand=a'), {'shop': 'has one value only'})
    >>> encoding.apply(pa.table({"price": [2.0], "brand": ["c"]})).tolist()
    [[2.0, 0.0, 0.0]]
    """

    features: tuple[Feature, ...]
    ignored: Mapping[str, str]

    @classmethod
    def learn(
        cls, table: pa.Table, columns: Sequence[str], *, categorical: Sequence[str] = (), codes: bool = False
    ) -> Encoding:
        """Choose an encoding for each column of a table with one row for each document.

        `categorical` are columns of numbers that are names of categories, such as brand_id. With `codes` each category
        becomes one column of codes, for a ranker that embeds them.
        """
        found = {name: _chosen(name, table[name], categories=name in categorical, codes=codes) for name in columns}
        features = tuple(each for each in found.values() if isinstance(each, Feature))
        return cls(features, {name: each for name, each in found.items() if isinstance(each, str)})

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name of each column of the matrix."""
        return tuple(name for feature in self.features for name in feature.names)

    @property
    def flags(self) -> tuple[int, ...]:
        """Return the columns of the matrix that are no quantities, and are not normalised: codes, and 0 and 1."""
        flags: list[bool] = []
        for feature in self.features:
            quantity = feature.kind in ("number", "date", "vector")
            flags += [not quantity] * (len(feature.names) - feature.missing) + [True] * feature.missing
        return tuple(place for place, flag in enumerate(flags) if flag)

    @property
    def codes(self) -> dict[str, int]:
        """Return the number of codes of each column of codes, by its name; one of them is for unseen values."""
        return {feature.name: len(feature.values) + 1 for feature in self.features if feature.kind == "code"}

    def for_ranker(self) -> dict[str, tuple[int, ...]]:
        """Return the settings of a ranker that embeds categories: its columns of codes, and how many codes each has."""
        places = tuple(self.names.index(name) for name in self.codes)
        return {"categorical": places, "categories": tuple(self.codes.values())}

    def apply(self, table: pa.Table) -> Float32:
        """Return the matrix of a table, [rows, columns]; columns that are not used may be missing in it."""
        lacking = [feature.name for feature in self.features if feature.name not in table.column_names]
        if lacking:
            raise DataError(
                f"has no column {', '.join(map(repr, lacking))}, which the ranker was trained with",
                remedy=f"It has {', '.join(table.column_names)}",
            )
        blocks = [feature.encode(table[feature.name]) for feature in self.features]
        return np.hstack([np.zeros((len(table), 0), dtype=np.float32), *blocks])

    def encode_rows(self, documents: Sequence[Mapping[str, Any]]) -> Float32:
        """Return the matrix of documents whose features are values of JSON by name, as `apply` does; needs no Arrow.

        A feature that a document does not name is missing, and a category that was not seen in training is 0 in all
        of its columns. Names of columns that were ignored in training are accepted. Any other name is an error.

        >>> brand = Feature("brand", "category", ("acme", "bolt"), 2, missing=True)
        >>> Encoding((brand,), {}).encode_rows([{"brand": "bolt"}, {}])
        array([[0., 1., 0.],
               [0., 0., 1.]], dtype=float32)
        """
        rows = np.empty((len(documents), len(self.names)), dtype=np.float32)
        for number, document in enumerate(documents):
            if not document.keys() <= self._known:
                self._refuse(document, number)
            row: list[float] = []
            for feature in self.features:
                row += feature.encode_value(document.get(feature.name))
            rows[number] = row
        return rows

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset([feature.name for feature in self.features] + list(self.ignored))

    def _refuse(self, document: Mapping[str, Any], number: int) -> NoReturn:
        name = next(name for name in document if name not in self._known)
        used = [feature.name for feature in self.features]
        nearest = get_close_matches(str(name), used, 5, 0.0)
        raise DataError(
            f"document {number} has the feature {name!r}, which the ranker was not trained with",
            remedy=f"The nearest names are {', '.join(nearest)}" if nearest else "The ranker has no features",
        )

    def notes(self) -> list[str]:
        """Return which columns were ignored and why, one sentence for each reason."""
        reasons: dict[str, list[str]] = {}
        for name, reason in self.ignored.items():
            reasons.setdefault(reason, []).append(name)
        total = len(self.features) + len(self.ignored)
        return [
            f"Ignored {len(names)} of {total} features, each of which {reason}: {', '.join(names)}."
            for reason, names in reasons.items()
        ]

    def plain(self) -> dict[str, Any]:
        """Return values for JSON, from which `of_plain` makes the same encoding."""
        return {"format": FORMAT, "features": [asdict(each) for each in self.features], "ignored": dict(self.ignored)}

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> Encoding:
        """Return the encoding that `plain` described."""
        if values.get("format") != FORMAT:
            problem = f"is not an encoding of features of this version ({FORMAT!r})"
            raise DataError(problem, remedy="Train the ranker again")
        try:
            features = msgspec.convert(values.get("features"), tuple[Feature, ...])
            return cls(features, msgspec.convert(values.get("ignored"), dict[str, str]))
        except msgspec.ValidationError as error:
            raise DataError(f"is not an encoding of features ({error})", remedy="Train the ranker again") from None

    def save(self, path: Path) -> None:
        """Write the encoding as JSON."""
        write_file(path, json.dumps(self.plain(), ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Encoding:
        """Read what `save` wrote."""
        return cls.of_plain(read_json(path, remedy="Train the ranker again"))


def _chosen(name: str, column: pa.ChunkedArray, *, categories: bool, codes: bool) -> Feature | str:
    """Return the encoding of a column, or why it is ignored."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind, categories = kind.value_type, True
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _chosen_vector(name, column)
    if not (_is_text(kind) or is_numeric(kind)):
        return f"holds {kind}, which is not a number, text, date or list of numbers"
    texts = _texts(column)[1] if _is_text(kind) else ["0"]
    if categories or not texts or not all(map(_is_number, texts)):
        return _chosen_category(name, column, as_codes=codes)
    values = numbers_of(column)
    absent = float(np.isnan(values).mean()) if len(values) else 1.0
    if absent > MOST_MISSING:
        return ABSENT
    if absent == 0 and values.min() == values.max():
        return CONSTANT
    dates = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return Feature(name, "date" if dates else "number", missing=absent >= MISSING_MATTERS)


def _chosen_category(name: str, column: pa.ChunkedArray, *, as_codes: bool) -> Feature | str:
    codes, texts = _texts(column)
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    share = 1 - float(counts.sum()) / max(len(codes), 1)
    if share > MOST_MISSING:
        return ABSENT
    if len(texts) < 2 and share == 0:
        return CONSTANT
    order = sorted(range(len(texts)), key=lambda code: (-counts[code], texts[code]))
    values = tuple(texts[code] for code in order if counts[code] >= LEAST_COUNT)
    if not values or (len(texts) > MOST_VALUES and len(texts) > IDENTITY * counts.sum()):
        return "has a different value in most documents, like an id or a free text"
    if as_codes:
        return Feature(name, "code", values)
    if len(values) > MOST_VALUES:
        return Feature(name, "hashed", size=BUCKETS, missing=share >= MISSING_MATTERS)
    return Feature(name, "category", values, len(values), missing=share >= MISSING_MATTERS)


def _chosen_vector(name: str, column: pa.ChunkedArray) -> Feature | str:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_numeric(column.type.value_type):
        return f"holds {column.type}, which is not a list of numbers"
    if pa.types.is_fixed_size_list(column.type):
        sizes = {column.type.list_size}
    else:
        sizes = set(pc.unique(pc.list_value_length(column)).to_pylist()) - {None}
    if len(sizes) != 1:
        return "holds lists of different lengths"
    size = sizes.pop()
    if not 1 <= size <= LONGEST_VECTOR:
        return f"holds lists of {size:,} numbers; {LONGEST_VECTOR:,} is the most"
    _, absent = _vectors(column, size)
    return Feature(name, "vector", size=size, missing=float(absent.mean()) >= MISSING_MATTERS)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether a type holds numbers, or what can be read as numbers: true and false, dates and times."""
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_temporal)
    return any(test(kind) for test in tests) and not pa.types.is_interval(kind)


def _is_number(text: str) -> bool:
    try:
        return abs(float(text)) <= LARGEST and "_" not in text
    except ValueError:
        return False


def numbers_of(column: pa.ChunkedArray) -> Float64:
    """Return a column as numbers: dates as days since 1970, true as 1; nan where missing, infinite or not a number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _decoded(column)
    kind = column.type
    if _is_text(kind):
        codes, texts = _texts(column)
        values = np.array([float(text) if _is_number(text) else np.nan for text in texts] or [np.nan])
        return np.where(codes < 0, np.nan, values[np.maximum(codes, 0)])
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        column = pc.divide(column.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.float64()), 86_400e6)
    elif pa.types.is_temporal(kind):  # a duration or a time of the day
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(np.abs(values) <= LARGEST, values, np.nan)


def days_of(column: pa.ChunkedArray) -> Float64:
    """Return dates and times as days since 1970 (UTC); nan if one cannot be read.

    Numbers are days if they are small, else seconds, milliseconds, microseconds or nanoseconds since 1970.

    >>> import pyarrow as pa
    >>> days_of(pa.chunked_array([["2026-03-01", "2026-03-01T13:00:00+01:00", "x"]])).tolist()
    [20513.0, 20513.5, nan]
    """
    import pyarrow as pa

    if _is_text(column.type):
        codes, texts = _texts(column)
        days = np.array([day_of(text) for text in texts] or [np.nan])
        return np.where(codes < 0, np.nan, days[np.maximum(codes, 0)])
    values = numbers_of(column)
    if pa.types.is_temporal(column.type):
        return values
    largest = np.nanmax(np.abs(values), initial=0.0)
    units = (1e5, 1.0), (1e11, 86_400.0), (1e14, 86_400e3), (1e17, 86_400e6), (np.inf, 86_400e9)
    return values / next(unit for limit, unit in units if largest < limit)


def day_of(text: str) -> float:
    """Return the days since 1970 of a time such as 2026-03-01T10:00, in UTC if it has no zone; nan if not a time."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return np.nan
    return (time.replace(tzinfo=UTC) if time.tzinfo is None else time).timestamp() / 86_400


def _float(value: Any) -> float:
    """Return a value of JSON as a number; nan if it is not a number."""
    if isinstance(value, str):
        return float(value) if _is_number(value) else np.nan
    return float(value) if isinstance(value, int | float) and abs(value) <= LARGEST else np.nan


def _as_text(value: Any) -> str:
    """Return a value of JSON as `texts_of` writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def texts_of(column: pa.ChunkedArray) -> tuple[Int64, list[str]]:
    """Return the code of each value of a column as text, -1 where it is missing, and the text of each code."""
    import pyarrow as pa

    column = _decoded(column)
    kind = column.type
    if pa.types.is_floating(kind):  # ids in a column with missing values: 3.0 is "3"
        whole = column.cast(pa.int64(), safe=False)
        column = whole if column.equals(whole.cast(kind)) else column
    encoded = pa.concat_arrays(column.cast(pa.large_string()).chunks or [pa.array([], pa.large_string())])
    encoded = encoded.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_pylist()


def _decoded(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    """Return a column without Arrow's dictionary encoding."""
    import pyarrow as pa

    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    if not pa.types.is_dictionary(column.type):
        return column
    kind = column.type.value_type
    kind = pa.large_string() if _is_text(kind) else kind
    return pa.chunked_array([chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks], kind)


def _texts(column: pa.ChunkedArray) -> tuple[Int64, list[str]]:
    """Return codes and texts of categories; texts that say that there is no value are missing."""
    codes, texts = texts_of(column)
    known = [text.strip().lower() not in MISSING_TEXTS for text in texts]
    number = np.cumsum([0, *known])[:-1]
    place = np.where(known, number, -1) if texts else np.array([-1])
    return np.where(codes < 0, -1, place[np.maximum(codes, 0)]), [
        text for text, keep in zip(texts, known, strict=True) if keep
    ]


def _vectors(column: pa.ChunkedArray, size: int) -> tuple[Float32, Bool]:
    """Return lists of numbers as a matrix, nan where a list is missing or has another length; and where that is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy()
    right = np.asarray(lengths == size)
    result = np.full((len(column), size), np.nan, dtype=np.float32)
    flat = numbers_of(pc.list_flatten(column.filter(pa.array(right))))
    result[right] = flat.reshape(-1, size)
    return result, ~right
