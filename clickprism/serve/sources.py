"""What can be published: tables of pairs, each with a list of numbers, as DuckDB reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism._util.files import sha256
from clickprism.errors import DataError
from clickprism.types import Float32

if TYPE_CHECKING:
    from clickprism.log.snapshots import Snapshot

_PAIR: Final = ("query_id", "document_id")
_READERS: Final = {
    ".parquet": "read_parquet(?)",
    ".csv": "read_csv(?, header = true, types = {'query_id': 'VARCHAR', 'document_id': 'VARCHAR'})",
    ".jsonl": "read_json(?, format = 'newline_delimited')",
}
_NUMBERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN", "U")


@final
@dataclass(frozen=True, eq=False)
class Source:
    """A table of pairs.

    Attributes:
        name: how errors call it.
        sql: gives query_id, document_id and x, a list of numbers.
        parameters: of the SQL.
        fields: the names of the numbers in x.
        empty: what a pair holds that is not there, [fields].
        as_of: nothing later is in it.
        fingerprint: of all its rows.
    """

    name: str
    sql: str
    parameters: tuple[Any, ...]
    fields: tuple[str, ...]
    empty: Float32
    as_of: datetime
    fingerprint: str


def snapshot_source(snapshot: Snapshot) -> Source:
    """The click vectors of a snapshot of a log."""
    from clickprism.relevance.click_vectors import empty_vector

    if not snapshot.rows():
        raise DataError(
            "the snapshot of the log has no pairs",
            remedy="Include more pairs: clickprism log features LOG --min-users 0",
        )
    return Source(
        name="the snapshot",
        sql="SELECT query_id, document_id, x::FLOAT[] AS x FROM read_parquet(?)",
        parameters=(list(snapshot.files),),
        fields=snapshot.fields,
        empty=empty_vector(snapshot),
        as_of=snapshot.as_of,
        fingerprint=snapshot.fingerprint,
    )


def table_source(connection: Any, path: Path, *, rename: Mapping[str, str] | None = None) -> Source:
    """A file with query_id, document_id and a number in every other column; a missing one is NaN.

    Args:
        connection: of DuckDB.
        path: Parquet, CSV or JSON lines.
        rename: other names for some columns.
    """
    if not path.is_file():
        raise DataError("does not exist", file=path)
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise DataError("is none of .parquet, .csv and .jsonl", file=path, remedy="Save it as one of them")
    found = connection.execute(f"DESCRIBE SELECT * FROM {reader}", [str(path)]).fetchall()  # noqa: S608
    kinds = {name: kind for name, kind, *_ in found}
    missing = [name for name in _PAIR if name not in kinds]
    if missing:
        raise DataError(f"has no column {missing[0]!r}", file=path, remedy="Name the columns query_id and document_id")
    columns = [name for name in kinds if name not in _PAIR]
    texts = [name for name in columns if not kinds[name].startswith(_NUMBERS)]
    if texts or not columns:
        what = f"has the column {texts[0]!r} of {kinds[texts[0]]}" if texts else "has no columns of numbers"
        raise DataError(what, file=path, remedy="Every column but query_id and document_id must hold numbers")
    listed = ", ".join('"{}"::FLOAT'.format(name.replace('"', '""')) for name in columns)
    keys = ", ".join(f"{name}::VARCHAR AS {name}" for name in _PAIR)
    return Source(
        name=str(path),
        sql=f"SELECT {keys}, [{listed}] AS x FROM {reader}",  # noqa: S608
        parameters=(str(path),),
        fields=tuple((rename or {}).get(name, name) for name in columns),
        empty=np.full(len(columns), np.nan, np.float32),
        as_of=datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(tzinfo=None),
        fingerprint=sha256(path),
    )
