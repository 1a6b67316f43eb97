"""Tables in memory, of any library: read as Arrow, and columns given back in the library's own type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from clickprism.errors import DataError
from clickprism.types import Float64

if TYPE_CHECKING:
    import pyarrow as pa


def is_frame(source: object) -> bool:
    """Return whether a value is a table in memory: of pandas, polars, pyarrow or DuckDB, or a dictionary of arrays."""
    return isinstance(source, Mapping) or hasattr(source, "__arrow_c_stream__")


def to_arrow(source: Any) -> pa.Table:
    """Return a table in memory as an Arrow table.

    Args:
        source: A DataFrame of pandas or polars, a table or reader of pyarrow, a relation of DuckDB, any other value
            with the Arrow C stream interface, or a dictionary of arrays, one for each column. A matrix is a column of
            vectors.

    >>> to_arrow({"q": np.array(["a", "b"]), "vector": np.zeros((2, 3))}).schema.names
    ['q', 'vector']
    """
    import pyarrow as pa

    if _library(source) == "pandas":
        source = {str(name): source[name] for name in source.columns}
    if not isinstance(source, Mapping):
        table = pa.table(source)
        for place, field in enumerate(table.schema):  # most functions of Arrow do not take views
            if pa.types.is_string_view(field.type):
                table = table.set_column(place, field.name, table[place].cast(pa.large_string()))
        return table
    columns = {str(name): _column(name, values) for name, values in source.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"columns have different lengths: {lengths}", remedy="Give one value for each row")
    return pa.table(columns)


def in_the_type_of(source: Any, values: Float64, name: str) -> Any:
    """Return one value per row as a column of the library of a frame: a pandas Series with its index, and so on."""
    library = _library(source)
    if library == "pandas":
        import pandas as pd

        return pd.Series(values, index=source.index, name=name)
    if library == "polars":
        import polars as pl

        return pl.Series(name, values)
    if library == "pyarrow":
        import pyarrow as pa

        return pa.chunked_array([values])
    return values


def _library(source: object) -> str:
    return type(source).__module__.partition(".")[0]


def _column(name: object, values: Any) -> pa.Array:
    import pyarrow as pa

    array = values if hasattr(values, "dtype") else np.asarray(values, dtype=object if _ragged(values) else None)
    if isinstance(array, np.ndarray) and array.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])
    if isinstance(array, np.ndarray) and array.ndim != 1:
        raise DataError(f"column {name!r} has {array.ndim} dimensions", remedy="Give a vector, or a matrix of vectors")
    try:
        return pa.array(array, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):  # values of several types
        return pa.array([None if _absent(value) else str(value) for value in array], pa.string())


def _ragged(values: Any) -> bool:
    return any(isinstance(value, list | tuple | np.ndarray) or value is None for value in values)


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))
