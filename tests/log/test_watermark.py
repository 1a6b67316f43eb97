"""A query with a watermark: later runs read new rows only, and each row counts once, also after an interruption."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clickprism.data.click_table import TableSettings
from clickprism.errors import SettingError
from clickprism.log.ingest.tables import Watermark, exported_events
from clickprism.log.store import WATERMARKS, LogStore

QUERY = "select * from clicks;"
MAP = ("query=q", "document=sku", "position=rank", "click=clicked", "search=visit")


def add(first: int, last: int) -> None:
    with sqlite3.connect("shop.db") as database:
        database.execute("create table if not exists clicks (id, visit, q, sku, rank, clicked)")
        rows = [(number, f"v{number}", "tv", f"d{number % 3}", 1, number % 2) for number in range(first, last)]
        database.executemany("insert into clicks values (?, ?, ?, ?, ?, ?)", rows)
    database.close()


def stored() -> int:
    return LogStore.open("log").table("events").rows()


@pytest.fixture
def ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Any]) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    words = [word for each in MAP for word in ("--map", each)]
    return lambda *more, **options: cli(
        *("log", "ingest", "sqlite:///shop.db", "--query", QUERY, "--into", "log", *words, *more), **options
    )


def test_a_later_ingest_reads_new_rows_only(ingest: Callable[..., Any]) -> None:
    add(0, 10)
    assert ingest("--watermark", "id", "--json").json["accepted"] == 10
    assert "no new rows" in ingest("--watermark", "id").stderr
    add(10, 15)
    told = ingest("--watermark", "id", "--json").json
    assert (told["rows_in"], told["accepted"], stored()) == (5, 5, 15)
    assert "shop.db" not in Path("log", WATERMARKS).read_text()  # a URL may have a password


def test_an_interrupted_run_is_repeated_with_the_same_rows(ingest: Callable[..., Any]) -> None:
    add(0, 10)
    ingest("--watermark", "id")
    add(10, 15)
    watermark = Watermark("id", QUERY, source="sqlite:///shop.db", log=Path("log"))
    table = TableSettings(map=MAP, query=QUERY)
    with (
        pytest.raises(KeyboardInterrupt),
        exported_events("sqlite:///shop.db", table, note=lambda _: None, watermark=watermark),
    ):
        raise KeyboardInterrupt
    add(15, 20)
    assert ingest("--watermark", "id", "--json").json["rows_in"] == 5
    assert stored() == 15
    assert ingest("--watermark", "id", "--json").json["rows_in"] == 5
    assert stored() == 20


def test_a_watermark_needs_a_query_and_a_column() -> None:
    with pytest.raises(SettingError, match="be given with --query"):
        Watermark("id", None, source="shop.csv", log=Path("log"))
    with pytest.raises(SettingError, match="be the name of a column"):
        Watermark("id; drop table clicks", QUERY, source="shop.csv", log=Path("log"))
