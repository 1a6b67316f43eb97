"""Small tables of results as files that other tools read: CSV, TSV, JSON lines, Parquet; whole or not at all."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from clickprism._util.files import atomic_file, write_errors
from clickprism.errors import SettingError

SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".parquet")


def check_suffix(out: Path) -> None:
    """Refuse a name that does not tell the format."""
    if out.suffix not in SUFFIXES:
        raise SettingError("out", str(out), f"end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")


def write_rows(out: Path, columns: Mapping[str, Any]) -> None:
    """Write columns of equal length; numbers that are none become empty, or null.

    Args:
        out: its suffix tells the format.
        columns: arrays by name, of numpy or of Arrow.
    """
    with write_errors(out, remedy="Choose another --out"), atomic_file(out, parents=True) as draft:
        if out.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            given = {
                name: values if isinstance(values, pa.ChunkedArray) else pa.array(values, from_pandas=True)
                for name, values in columns.items()
            }
            pq.write_table(pa.table(given), draft, compression="zstd")
        else:
            _write_lines(draft, columns, out.suffix)


def _write_lines(draft: Path, columns: Mapping[str, Any], suffix: str) -> None:
    names = list(columns)
    rows = zip(*(_plain(np.asarray(values)) for values in columns.values()), strict=True)
    with draft.open("w", encoding="utf-8", newline="") as file:
        if suffix == ".jsonl":
            file.writelines(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
            return
        writer = csv.writer(file, delimiter="," if suffix == ".csv" else "\t", lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)


def _plain(values: Any) -> list[Any]:
    """Python's own values; None for what is not a finite number."""
    plain: list[Any] = values.tolist()
    if values.dtype.kind == "f":
        return [round(value, 9) if np.isfinite(value) else None for value in plain]
    return plain
