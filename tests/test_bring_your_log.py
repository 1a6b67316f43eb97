"""Every example of the page "bring your log" runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from clickprism.simulation.raw_log import write_raw_log
from clickprism.simulation.raw_settings import RawLogSettings
from tests.data.shop import shop_clicks, shop_table
from tests.data.test_ubi import EVENTS, QUERIES, bulk
from tests.test_documents import ROOT, run_lines

PAGE = (ROOT / "docs" / "start" / "bring_your_log.md").read_text(encoding="utf-8")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the page names."""
    monkeypatch.chdir(tmp_path)
    shop_clicks(200).to_parquet("clicks.parquet")
    shop_table(Path("clicks.csv"), Path("shop.db"))
    with duckdb.connect("shop.duckdb") as connection:
        connection.execute("create table clicks as from 'clicks.csv'")
    searches = [
        json.loads(json.dumps(row).replace('"s1"', f'"{number}-1"').replace('"s2"', f'"{number}-2"'))
        for number in range(20)
        for row in (*QUERIES, *EVENTS)
    ]
    Path("ubi.ndjson").write_text(bulk(searches))
    raw = write_raw_log(Path("raw"), RawLogSettings(searches=60, days=3, compress="none"))
    Path("events.jsonl").write_bytes(b"".join(file.read_bytes() for file in sorted((raw.folder / "events").iterdir())))
    Path("sessions.tsv").write_text("query\tdocuments\tclicks\ncat\ta,b\ta\n")


@pytest.mark.parametrize("skipped", [r"^clickprism auto .*\n", pytest.param("^$", marks=pytest.mark.long)])
@pytest.mark.usefixtures("files")
def test_every_example_of_the_page_runs_in_order(
    skipped: str, cli: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """`make test` skips the training of rankers by the command line, which other tests have."""
    names: dict[str, Any] = {}
    for language, block in re.findall(r"```(python|bash)\n(.*?)```", PAGE, flags=re.DOTALL):
        if language == "bash":
            run_lines(re.sub(skipped, "", block, flags=re.MULTILINE), cli)
        else:
            exec(block, names)  # noqa: S102 - the page's own code
    printed = capsys.readouterr().out
    assert "Clicks(200 ranked lists, 200 sessions" in printed
    assert "'click events counted': 40" in printed
    assert names["df"]["score"].notna().all()
    assert len(names["log"]) == 1


def test_the_page_is_short() -> None:
    assert len(PAGE.split()) <= 1200
    assert PAGE.split("\n\n")[1].startswith("After this guide you can ")
