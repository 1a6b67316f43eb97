"""Commands take tables, databases and UBI events as they are."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from tests.data.shop import shop_clicks
from tests.shared_data import shared_data

MAP = ("--map", "query=q", "--map", "document=sku", "--map", "click=clicked")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    frame = shop_clicks(300)
    frame["bought"] = frame["clicked"] & (frame["brand"] == "acme")
    frame.to_csv(tmp_path / "clicks.csv", index=False)
    return tmp_path / "clicks.csv"


def test_auto_trains_a_ranker_from_a_csv_and_says_what_it_ignored(table: Path, cli: Callable[..., Any]) -> None:
    done = cli("auto", table.name, *MAP, "--out", "out")
    assert "Ignored 1 of 4 features, each of which has a value only where the document was clicked" in done.stderr
    told = " ".join(done.stdout.split())
    assert "so it is known too late: bought." in told
    assert json.loads(Path("out/auto.json").read_text())["log"]["features"] == 8
    assert cli("model", "verify", "out/bundle").stdout


def test_auto_optimises_another_outcome(table: Path, cli: Callable[..., Any]) -> None:
    done = cli("auto", table.name, *MAP, "--map", "purchase=bought", "--outcome", "click + 3*purchase", "--out", "out")
    told = " ".join(done.stdout.split())
    assert "It ranks by click + 3*purchase, not by clicks alone" in told
    assert "The outcome is click + 3*purchase" in told
    assert "towards a value that is predicted by the features" in told


def test_an_unknown_outcome_names_the_nearest(table: Path, cli: Callable[..., Any]) -> None:
    done = cli("auto", table.name, *MAP, "--outcome", "boughtt", "--out", "out", code=1)
    assert "has no column 'boughtt' for the outcome boughtt" in done.stderr
    assert "The nearest names are bought, " in done.stderr


@pytest.mark.usefixtures("table")
def test_diagnose_and_bias_read_a_query(cli: Callable[..., Any]) -> None:
    engine = sqlalchemy.create_engine("sqlite:///shop.db")
    shop_clicks(100).to_sql("clicks", engine, index=False)
    engine.dispose()
    source = ("sqlite:///shop.db", "--query", "select * from clicks", *MAP)
    assert cli("diagnose", *source, "--only", "coverage", "--json").json["sessions"] == 100
    assert "100 sessions" in cli("bias", "position", *source, "--resamples", "0").stderr


def test_ingest_guesses_columns_and_shows_five_rows(table: Path, cli: Callable[..., Any]) -> None:
    shown = cli("log", "ingest", table.name, "--guess", "--map", "query=q").stdout
    for line in ("document    sku", "position    rank", "click       clicked", "time        not found"):
        assert line in shown
    assert shown.count("sku-") == 5
    assert "clickprism auto clicks.csv --map query=q --map document=sku" in shown
    Path("odd.csv").write_text("Rang,geklickt?\n1,0\n")
    shown = cli("log", "ingest", "odd.csv", "--guess").stdout
    assert "first rows" not in shown
    assert "clickprism auto odd.csv --map document=COLUMN --map click=COLUMN --out" in shown


def test_a_table_is_ingested_once_and_read_back(table: Path, cli: Callable[..., Any]) -> None:
    first = cli("log", "ingest", table.name, *MAP, "--into", "mylog", "--json").json
    assert (first["accepted"], first["quarantined"]) == (3000, {})
    assert cli("log", "ingest", table.name, *MAP, "--into", "mylog", "--json").json["accepted"] == 0
    found = cli("diagnose", "mylog", "--only", "coverage", "--json").json
    assert found["sessions"] == 300


def test_options_of_tables_are_refused_for_other_logs(table: Path, cli: Callable[..., Any]) -> None:
    Path("sessions.tsv").write_text("query\tdocuments\tclicks\ncat\ta,b\ta\n")
    done = cli("diagnose", "sessions.tsv", "--map", "query=q", code=2)
    assert "--map must be omitted: sessions.tsv is not a table" in done.stderr
    done = cli("relevance", "estimate", table.name, *MAP, "--days", "2026-01-01", "--out", "e.parquet", code=2)
    assert "--days must be omitted: it needs an ingested log" in done.stderr


@pytest.mark.usefixtures("table")
def test_ubi_events_become_a_judgment_list_with_texts_in_two_commands(cli: Callable[..., Any]) -> None:
    source = shared_data("ubi-chorus/ubi_queries_events.ndjson.gz")
    done = cli("relevance", "estimate", source, "--out", "estimates.parquet")
    assert "287 click events: 186 counted, 81 repeated on one result, 20 without an impression of" in done.stderr
    cli("relevance", "judgments", "estimates.parquet", "--out", "judgments.csv")
    with Path("judgments.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {"ps4", "portable charger"} <= {row["query"] for row in rows}
    assert sum(int(row["impressions"]) for row in rows) == 2356


def test_session_files_are_estimated_as_they_are(table: Path, cli: Callable[..., Any]) -> None:
    lines = [f"q{n % 5}\t{'a,b' if n % 2 else 'b,a'}\t{'a' if n % 3 else ''}" for n in range(300)]
    (table.parent / "sessions.tsv").write_text("\n".join(["query\tdocuments\tclicks", *lines]))
    done = cli("relevance", "estimate", "sessions.tsv", "--out", "e.parquet", "--json")
    assert done.json["pairs"] == 10
    assert "Pairs that few users saw are included: --min-users needs an ingested log" in done.stderr


def test_a_threshold_of_users_is_refused_where_it_would_not_be_applied(table: Path, cli: Callable[..., Any]) -> None:
    words = ("relevance", "estimate", table.name, *MAP, "--out", "e.parquet", "--min-users")
    assert "--min-users must be omitted: it needs an ingested log" in cli(*words, 5, code=2).stderr
    assert "few users" not in cli(*words, 0).stderr


@pytest.mark.long
@pytest.mark.usefixtures("table")
def test_the_searches_of_expedia_become_a_ranker_for_bookings(cli: Callable[..., Any]) -> None:
    source = shared_data("expedia/searches.csv.gz")
    maps = ("--map", "booking=booking_bool", "--outcome", "booking")
    done = cli("auto", source, *maps, "--out", "out")
    told = " ".join(done.stdout.split())
    assert "The outcome is booking: 0.608 for the average click." in told
    log = json.loads(Path("out/auto.json").read_text())["log"]
    assert (log["sessions"], log["clicks"], log["randomised"]) == (209, 227, 1851)
    assert log["account"]["lines not used, another number of fields"] == 1
