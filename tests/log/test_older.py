"""Logs that were made by older versions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from clickprism.errors import DataError
from clickprism.log.ingest import ingest
from clickprism.log.schema import TABLES
from clickprism.log.store import LogStore


@pytest.mark.parametrize(
    ("name", "column", "remedy"),
    [
        ("quarantine", "header", "Ingest your files into a new folder"),
        ("partials", "skips", "Delete .*partials: it is"),
    ],
)
def test_tables_of_older_versions_are_refused_in_words(name: str, column: str, remedy: str, tmp_path: Path) -> None:
    schema = pa.schema([each for each in TABLES[name] if each.name != column])
    store = LogStore.open(tmp_path / "log", create=True)
    store.table(name, schema=schema).commit_files({})
    words = rf"{name}: the table was made by an older version of clickprism, without the column '{column}'\. {remedy}"
    with pytest.raises(DataError, match=words):
        LogStore(tmp_path / "log").table(name)
    store.write_settings(store.settings)
    if name == "quarantine":
        (tmp_path / "a.jsonl").write_text("{}\n")
        with pytest.raises(DataError, match=words):
            ingest([tmp_path / "a.jsonl"], tmp_path / "log", max_bad_ratio=1)
