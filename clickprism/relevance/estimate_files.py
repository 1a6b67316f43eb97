"""Parquet files of estimates and of imputations: their columns, and how they are written, checked and read."""

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
from clickprism.relevance.estimates import SOURCES, Estimates, source_of
from clickprism.types import Bool, Int64

IMPUTATION: Final = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("imputation", pa.float64(), nullable=False),
    ]
)
"""Predicted relevance from 0 to 1, written by `clickprism relevance impute apply`."""

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
        pa.field("source", pa.string()),
    ]
)
"""`estimate` is null if nothing is known. `Estimates` describes the columns `lower` to `imputed_only` and `source`."""

PAIR: Final = ["query_id", "document_id"]
SUPPRESSED: Final = b"clickprism.suppressed"  # key of the number of pairs that too few users saw, in the metadata
_BATCH: Final = 65_536
_REMEDY: Final = "Create it with: clickprism relevance estimate LOG --out FILE.parquet"


def estimate_columns(estimates: Estimates) -> dict[str, pa.Array]:
    """Return the columns that `Estimates` holds; nan becomes null."""
    return {
        "estimate": pa.array(estimates.values, from_pandas=True),
        "lower": pa.array(estimates.lower),
        "upper": pa.array(estimates.upper),
        "variance": pa.array(estimates.variance, from_pandas=True),
        "weight": pa.array(estimates.weight),
        "imputed_only": pa.array(estimates.imputed_only),
        "source": pa.DictionaryArray.from_arrays(estimates.source, list(SOURCES)).cast(pa.string()),
    }


def join_files(files: Sequence[Path], path: Path, schema: pa.Schema) -> int:
    """Write the rows of Parquet files to one file, a batch at a time; return the number of rows."""
    with atomic_file(path, parents=True) as draft:
        if len(files) == 1 and pq.read_schema(files[0]).equals(schema, check_metadata=True):
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
    """Return the path if the file has each pair once, with imputations from 0 to 1; otherwise raise `DataError`."""
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
    wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(wrong):
        problem = f"has an imputation that is not within 0 and 1: {values[wrong[0]]}"
        raise DataError(problem, file=path, line=int(wrong[0]) + 1)
    if table.group_by(PAIR).aggregate([]).num_rows < table.num_rows:
        raise DataError("has a pair twice", file=path, remedy=remedy)
    return path


def with_suppressed(suppressed: int) -> pa.Schema:
    """Return `ESTIMATES` with the number of pairs that are not in the file, since too few users saw them."""
    return ESTIMATES.with_metadata({SUPPRESSED: str(suppressed).encode()})


def count_suppressed(path: Path) -> int:
    """Return the number of pairs that are not in a file of estimates, since too few users saw them."""
    return int((pq.read_schema(path).metadata or {}).get(SUPPRESSED, b"0"))


def count_written(out: Path) -> tuple[int, int, dict[str, int]]:
    """Return how many rows of a file of estimates use no clicks, how many have no imputation, and rows by source."""
    imputed_only = without = 0
    sources = dict.fromkeys(SOURCES, 0)
    with pq.ParquetFile(out) as opened:
        for batch in opened.iter_batches(columns=["imputed_only", "imputation", "source"]):
            imputed_only += pc.sum(batch.column("imputed_only")).as_py() or 0
            without += batch.column("imputation").null_count
            for each in batch.column("source").value_counts().to_pylist():
                sources[each["values"]] += each["counts"]
    return imputed_only, without, {name: count for name, count in sources.items() if count}


def read_estimates(path: Path) -> tuple[pa.Table, Int64, Estimates]:
    """Read a file of estimates, sorted by query and document.

    Files of earlier versions have no column `source`; it is then derived from the weight.

    Returns:
        The columns query_id, document_id, impressions; the query of each pair as a number from 0, [pairs]; the
        estimates.
    """
    if not path.is_file():
        raise DataError("is a folder" if path.is_dir() else "does not exist", file=path, remedy=_REMEDY)
    try:
        table = pq.read_table(path)
        if "source" not in table.column_names:
            table = table.append_column("source", pa.nulls(table.num_rows, pa.string()))
        table = conform(table, ESTIMATES, what="estimates").sort_by([(name, "ascending") for name in PAIR])
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy=_REMEDY) from None
    except (pa.ArrowInvalid, DataError) as error:
        raise DataError(f"does not hold estimates: {error}", file=path, remedy=_REMEDY) from None
    numbers = [table[name].to_numpy().astype(np.float64) for name in ESTIMATES.names[2:7]]
    values, lower, upper, variance, weight = numbers
    known = pc.index_in(table["source"].combine_chunks(), value_set=pa.array(SOURCES))
    source = pc.coalesce(known, pa.array(source_of(weight))).to_numpy(zero_copy_only=False)
    imputed_only = table["imputed_only"].to_numpy().astype(np.bool_)
    estimates = Estimates(values, lower, upper, variance, weight, imputed_only, source.astype(np.int32))
    valid = (lower >= -1e-9) & (upper <= 1 + 1e-9) & (lower <= upper) & (weight >= 0)
    if not valid.all():
        raise DataError("has an interval that is not within 0 and 1", file=path, remedy=_REMEDY)
    queries, documents = (_changes(table[name]) for name in PAIR)
    if not (queries | documents)[1:].all():
        raise DataError("has a pair twice", file=path, remedy=_REMEDY)
    return table.select([*PAIR, "impressions"]), np.cumsum(queries) - 1, estimates


def _changes(column: pa.ChunkedArray) -> Bool:
    """Return whether each value is the first one or differs from the value before."""
    other = pc.not_equal(column.slice(1), column.slice(0, max(len(column) - 1, 0)))
    return np.append(np.ones(min(len(column), 1), np.bool_), other.to_numpy().astype(np.bool_))
