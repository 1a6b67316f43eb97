"""Rows as `schema.ROW` has them, from texts: one query over a chunk, that also says what is wrong with each row."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from clickprism.errors import DataError
from clickprism.log.readers.chunk import Bad, Chunk, bad_table
from clickprism.log.readers.plan import IGNORED, Plan
from clickprism.log.readers.statement import PARTED, statement
from clickprism.log.schema import ROW

BATCH: Final = 8192  # rows that DuckDB gives to a thread at a time

_connections: dict[int, Any] = {}


def rows(
    table: pa.Table,
    plan: Plan,
    *,
    raw: Callable[[Sequence[int]], Sequence[bytes]],
    bad: Sequence[Bad] = (),
    read: int = 0,
    nul: bool = False,
    header: str | None = None,
) -> Chunk:
    """The rows of a chunk, good and bad.

    Args:
        table: the columns that the places are in, and `line`.
        plan: of the source.
        raw: gives the bytes of rows by their indices.
        bad: lines found broken before.
        read: bytes of the file.
        nul: whether values may hold NUL.
        header: of a CSV file.
    """
    file = plan.reading.file
    made = _run(statement(plan, nul=nul), table, file) if len(table) else None
    if made is None:
        return Chunk(ROW.empty_table(), bad_table(bad), 0, read, header)
    problem, ignored = made["problem"], 0
    good = made.drop_columns(["problem"])
    if problem.null_count < len(problem):
        good = good.filter(pc.is_null(problem))
        wrong = pc.indices_nonzero(pc.is_valid(problem)).to_pylist()
        said = [[*text.split(PARTED, 2), "", ""] for text in problem.drop_null().to_pylist()]
        ignored = sum(code == IGNORED for code, *_ in said)
        chosen = [each for each in zip(wrong, said, strict=True) if each[1][0] not in (IGNORED, "blank")]
        lines = table["line"].take(pa.array([index for index, _ in chosen], pa.int64())).to_pylist()
        texts = raw([index for index, _ in chosen])
        found = [
            Bad(line, code, field or None, text, value or None)
            for line, (_, (code, field, value, *_)), text in zip(lines, chosen, texts, strict=True)
        ]
        _refuse_positions(found, file)
        bad = [*bad, *found]
    return Chunk(good.cast(ROW), bad_table(bad), ignored, read, header)


def _run(sql: str, table: pa.Table, file: Path) -> pa.Table:
    batches = pa.Table.from_batches(table.combine_chunks().to_batches(max_chunksize=BATCH), table.schema)
    try:
        cursor = _connection().cursor()
        try:
            cursor.register("input", batches)
            return cursor.sql(sql).to_arrow_table()
        finally:
            cursor.close()
    except duckdb.Error as error:
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            _connections.pop(os.getpid(), None)  # it is of no use any more
        text = str(error).splitlines()[0]
        raise DataError(
            f"cannot be read as it should: {text}", file=file, remedy="Check the mapping and the file"
        ) from None


def _connection() -> Any:
    """One DuckDB for each process, since threads do not survive a fork."""
    if os.getpid() not in _connections:
        made = duckdb.connect(":memory:", config={"memory_limit": "2GB", "temp_directory": ""})
        made.execute("SET GLOBAL TimeZone = 'UTC'")  # of its cursors too
        _connections[os.getpid()] = made
    return _connections[os.getpid()]


def _refuse_positions(wrong: Sequence[Bad], file: Path) -> None:
    for row in wrong:
        if row.code == "ordinal-base":
            raise DataError(
                f"{row.field} may count positions from 0 or from 1",
                file=file,
                line=row.line,
                remedy="Give --ordinal-base 0 if the first document has 0, else --ordinal-base 1",
            )
