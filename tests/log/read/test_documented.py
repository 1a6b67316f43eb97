"""docs/reference/datamodel.md names every column, every reason and every field of the sources."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from clickprism.log.read import REASONS, SourceSettings
from clickprism.log.read.inputs import FORMATS
from clickprism.log.read.rows import ALIASES, SOURCES, UBI
from clickprism.log.schema import BINS, TABLES
from clickprism.log.settings import ColumnMapping
from clickprism.settings import build

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "datamodel.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Click logs\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_documented(table: str) -> None:
    row = next(
        (line for line in SECTION.splitlines() if line.startswith("|") and f"`{table}`" in line.split("|")[1]), SECTION
    )
    for name in TABLES[table].names:
        assert name in BINS or f"`{name}`" in row, name


def test_every_name_that_is_read_is_documented() -> None:
    paths = [path for ways in UBI.values() for path in ((ways,) if isinstance(ways, str) else ways)]
    names = [*REASONS, *SOURCES, *FORMATS, *(name for ways in ALIASES.values() for name in ways)]
    names += [
        path
        for path in paths
        if path.rpartition(".")[2] not in ("display_ms", "dwell_ms", "page_skipped", "randomised")
    ]
    for name in names:
        assert f"`{name}`" in SECTION or (name.endswith(".user_agent") and "`user_agent`, also in" in SECTION), name


def test_every_setting_of_the_source_is_documented() -> None:
    table = SECTION.partition("### Settings of the source")[2].partition("###")[0]
    for each in fields(SourceSettings):
        assert f"`{each.name}`" in table, each.name


def test_the_mapping_of_the_page_is_one() -> None:
    import tomllib

    (text,) = re.findall(r"```toml\n(header.*?)```", SECTION, flags=re.DOTALL)
    mapping = build(ColumnMapping, tomllib.loads(text))
    assert mapping.columns["document_id"] == "sku"
    assert mapping.times.unit == "ms"
