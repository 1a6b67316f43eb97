"""The table of estimates: a row a pair, as a Parquet file."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file
from clickprism.errors import DataError
from clickprism.log.schema import conform
from clickprism.relevance.estimates import Estimates
from clickprism.types import Bool, Int64

IMPUTATION: Final = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("imputation", pa.float64(), nullable=False),
    ]
)
"""A relevance that no click of the pair speaks for, from 0 to 1: what `clickprism relevance impute apply` writes."""

ESTIMATES: Final = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("estimate", pa.float64()),
        pa.field("lower", pa.float64(), nullable=False),
        pa.field("upper", pa.float64(), nullable=False),
        pa.field("variance", pa.float64()),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("imputed_only", pa.bool_(), nullable=False),
        pa.field("impressions", pa.int64(), nullable=False),
        pa.field("clicked", pa.int64(), nullable=False),
        pa.field("imputation", pa.float64()),
    ]
)
"""`estimate` is null where nothing is known; see `Estimates` for what the columns up to `imputed_only` mean."""

_BATCH: Final = 65_536
_PAIR: Final = ["query_id", "document_id"]


def estimate_columns(made: Estimates) -> dict[str, pa.Array]:
    """The columns from `estimate` to `imputed_only`; what is not a number is null."""
    return {
        "estimate": pa.array(made.values, from_pandas=True),
        "lower": pa.array(made.lower),
        "upper": pa.array(made.upper),
        "variance": pa.array(made.variance, from_pandas=True),
        "weight": pa.array(made.weight),
        "imputed_only": pa.array(made.imputed_only),
    }


def join_files(files: Sequence[Path], path: Path, schema: pa.Schema) -> int:
    """Write the rows of Parquet files to one file, a batch at a time; return the number of rows."""
    with atomic_file(path, parents=True) as draft:
        if len(files) == 1 and pq.read_schema(files[0]).equals(schema):
            shutil.copyfile(files[0], draft)
            return int(pq.read_metadata(draft).num_rows)
        rows = 0
        with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
            for file in files:
                with pq.ParquetFile(file) as opened:
                    for batch in opened.iter_batches(_BATCH):
                        writer.write_table(conform(pa.Table.from_batches([batch]), schema, what=str(path)))
                        rows += batch.num_rows
        return rows


def check_imputation(path: Path) -> Path:
    """The file, if it is an imputation: each pair once, numbers from 0 to 1."""
    remedy = "Create it with: clickprism relevance impute apply, or as Parquet with query_id, document_id, imputation"
    if not path.is_file():
        raise DataError("does not exist", file=path, remedy=remedy)
    try:
        table = pq.read_table(path, columns=IMPUTATION.names).cast(
            pa.schema([field.with_nullable(True) for field in IMPUTATION])
        )
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy=remedy) from None
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise DataError(f"does not hold imputations: {error}", file=path, remedy=remedy) from None
    for name in IMPUTATION.names:
        if table[name].null_count:
            raise DataError(f"has a row without {name}", file=path, remedy=remedy)
    values = table["imputation"].to_numpy()
    if not ((values >= 0) & (values <= 1)).all():
        row = int(np.flatnonzero(~((values >= 0) & (values <= 1)))[0])
        raise DataError(f"has an imputation that is not within 0 and 1: {values[row]}", file=path, line=row + 1)
    if table.group_by(_PAIR).aggregate([]).num_rows < table.num_rows:
        raise DataError("has a pair twice", file=path, remedy=remedy)
    return path


def count_written(out: Path) -> tuple[int, int]:
    """How many rows of estimates are imputed only, and how many have no imputation."""
    only = without = 0
    with pq.ParquetFile(out) as opened:
        for batch in opened.iter_batches(columns=["imputed_only", "imputation"]):
            only += pc.sum(batch.column("imputed_only")).as_py() or 0
            without += batch.column("imputation").null_count
    return only, without


def read_estimates(path: Path) -> tuple[pa.Table, Int64, Estimates]:
    """Return the pairs of a file of estimates, sorted by their ids whatever the order of the file.

    Returns:
        the columns query_id and document_id; which query each pair is of, from 0, [pairs]; the estimates.
    """
    if not path.is_file():
        raise DataError("is a folder" if path.is_dir() else "does not exist", file=path, remedy=_REMEDY)
    try:
        table = conform(pq.read_table(path), ESTIMATES, what="estimates").sort_by([(n, "ascending") for n in _PAIR])
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy=_REMEDY) from None
    except (pa.ArrowInvalid, DataError) as error:
        raise DataError(f"does not hold estimates: {error}", file=path, remedy=_REMEDY) from None
    numbers = [table[name].to_numpy().astype(np.float64) for name in ESTIMATES.names[2:7]]
    value, lower, upper, variance, weight = numbers
    made = Estimates(value, lower, upper, variance, weight, table["imputed_only"].to_numpy().astype(np.bool_))
    sound = (lower >= -1e-9) & (upper <= 1 + 1e-9) & (lower <= upper) & (weight >= 0)
    if not sound.all():
        raise DataError("has an interval that is none, within 0 and 1", file=path, remedy=_REMEDY)
    queries, documents = (_changes(table[name]) for name in _PAIR)
    if not (queries | documents)[1:].all():
        raise DataError("has a pair twice", file=path, remedy=_REMEDY)
    return table.select(_PAIR), np.cumsum(queries) - 1, made


def _changes(column: pa.ChunkedArray) -> Bool:
    """Whether each value is the first or another than the one before."""
    other = pc.not_equal(column.slice(1), column.slice(0, max(len(column) - 1, 0)))
    return np.append(np.ones(min(len(column), 1), np.bool_), other.to_numpy().astype(np.bool_))


_REMEDY: Final = "Create it with: clickprism relevance estimate LOG --out FILE.parquet"
