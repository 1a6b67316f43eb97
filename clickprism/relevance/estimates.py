"""Estimates of relevance, one row per pair, and the Parquet files that hold them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file
from clickprism.errors import DataError
from clickprism.log.schema import conform
from clickprism.relevance.pairs import PAIR
from clickprism.types import Bool, Float64, Int32, Int64, Text, check

SOURCES: Final = ("clicks", "position", "features", "imputation")
"""What an estimate may come from; "position" is where the logged ranker showed the document."""

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
        pa.field("query", pa.string()),
    ]
)
"""`estimate` and `source` are null if nothing is known; `query` is the text of the query, null if it is not known.
`Estimates` describes the columns `lower` to `imputed_only` and `source`."""
SUPPRESSED: Final = b"clickprism.suppressed"  # key of the number of pairs that too few users saw, in the metadata
BY_PAIR: Final = [(name, "ascending") for name in PAIR]
_BATCH: Final = 65_536
_REMEDY: Final = "Create it with: clickprism relevance estimate LOG --out FILE.parquet"


def source_of(weight: Float64) -> Int32:
    """Return the source of estimates that use clicks if there are any, and an imputation otherwise, [pairs]."""
    return np.where(weight > 0, SOURCES.index("clicks"), SOURCES.index("imputation")).astype(np.int32)


@final
@dataclass(frozen=True, eq=False)
class Estimates:
    """Relevance of each pair as c_1, its click probability at position 1; all [pairs]."""

    values: Float64  # The estimates; nan if nothing is known
    lower: Float64  # Lower ends of the intervals; 0 if nothing is known
    upper: Float64  # Upper ends; 1 if nothing is known
    # Variance of the estimate, computed at the middle of its interval, since at the estimate itself it would be 0 for
    # every pair without clicks; nan if nothing is known
    variance: Float64
    weight: Float64  # Number of impressions at position 1 that the clicks of the pair are equivalent to; 0 without any
    imputed_only: Bool  # Whether the estimate does not use clicks of the pair
    # What most of the estimate comes from, as an index of `SOURCES`; by default "clicks" if the weight is above 0, else
    # "imputation"
    source: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))

    def __post_init__(self) -> None:
        if not len(self.source):
            object.__setattr__(self, "source", source_of(self.weight))
        for each in fields(self):
            shape = getattr(self, each.name).shape
            check(shape == (len(self),), f"{each.name} must have one value per pair, [{len(self)}], got {list(shape)}")

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Estimates({len(self)} pairs, {int(self.imputed_only.sum())} without clicks)"

    def select(self, pairs: Int64 | Bool | slice) -> Estimates:
        """Return the estimates of some pairs, in this order."""
        return Estimates(*(getattr(self, each.name)[pairs] for each in fields(self)))

    @property
    def source_names(self) -> Text:
        """Return the names of the sources, [pairs]."""
        return np.array(SOURCES)[self.source]


def estimate_rows(
    pairs: pa.Table | pa.RecordBatch, estimates: Estimates, impressions: Float64 | Int64, clicked: Float64 | Int64
) -> list[pa.Array]:
    """Return the columns of `ESTIMATES`; nan becomes null. The pairs may have columns `imputation` and `query`."""
    given = {name: pairs.column(name) for name in (*PAIR, "imputation", "query") if name in pairs.schema.names}
    numbers = {name: getattr(estimates, name) for name in ("lower", "upper", "variance", "weight", "imputed_only")}
    numbers |= {"estimate": estimates.values, "impressions": impressions.astype(np.int64)}
    numbers |= {"clicked": clicked.astype(np.int64)}
    columns = {each.name: pa.nulls(len(estimates), each.type) for each in ESTIMATES} | given
    columns |= {name: pa.array(values, from_pandas=True) for name, values in numbers.items()}
    known = pa.array(estimates.source, mask=np.isnan(estimates.values))
    columns["source"] = pa.DictionaryArray.from_arrays(known, list(SOURCES)).cast(pa.string())
    return [columns[name] for name in ESTIMATES.names]


def write_estimates(table: pa.Table, out: Path, *, suppressed: int = 0) -> None:
    """Write a table of estimates, ordered by pair; `suppressed` is the number of pairs that too few users saw."""
    schema = ESTIMATES.with_metadata({SUPPRESSED: str(suppressed).encode()})
    texts = [each.name for each in ESTIMATES if each.type == pa.string()]
    with atomic_file(out, parents=True) as draft:
        pq.write_table(table.sort_by(BY_PAIR).cast(schema), draft, compression="zstd", use_dictionary=texts)


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


def count_suppressed(path: Path) -> int:
    """Return the number of pairs that are not in a file of estimates, since too few users saw them."""
    return int((pq.read_schema(path).metadata or {}).get(SUPPRESSED, b"0"))


def read_estimates(path: Path) -> tuple[pa.Table, Int64, Estimates]:
    """Read a file of estimates, sorted by query and document.

    Returns:
        The columns query_id, document_id, impressions, query; the query of each pair as a number from 0, [pairs]; the
        estimates.
    """
    if not path.is_file():
        raise DataError("is a folder" if path.is_dir() else "does not exist", file=path, remedy=_REMEDY)
    try:
        table = conform(pq.read_table(path), ESTIMATES, what="estimates").sort_by(BY_PAIR)
    except (OSError, pa.ArrowInvalid, DataError) as error:
        problem = f"does not hold estimates ({str(error).rstrip('.')})"
        raise DataError(problem, file=path, remedy=_REMEDY) from None
    numbers = [table[name].to_numpy().astype(np.float64) for name in ESTIMATES.names[2:7]]
    values, lower, upper, variance, weight = numbers
    imputed_only = table["imputed_only"].to_numpy().astype(np.bool_)
    known = pc.index_in(table["source"].combine_chunks(), value_set=pa.array(SOURCES))
    source = pc.coalesce(known, pa.array(source_of(weight))).to_numpy(zero_copy_only=False).astype(np.int32)
    estimates = Estimates(values, lower, upper, variance, weight, imputed_only, source)
    if not ((lower >= -1e-9) & (upper <= 1 + 1e-9) & (lower <= upper) & (weight >= 0)).all():
        raise DataError("has an interval that is not within 0 and 1", file=path, remedy=_REMEDY)
    queries, documents = (_changes(table[name]) for name in PAIR)
    if not (queries | documents)[1:].all():
        raise DataError("has a pair twice", file=path, remedy=_REMEDY)
    return table.select([*PAIR, "impressions", "query"]), np.cumsum(queries) - 1, estimates


def _changes(column: pa.ChunkedArray) -> Bool:
    """Return whether each value is the first one or differs from the value before."""
    other = pc.not_equal(column.slice(1), column.slice(0, max(len(column) - 1, 0)))
    return np.append(np.ones(min(len(column), 1), np.bool_), other.to_numpy().astype(np.bool_))
