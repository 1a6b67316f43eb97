"""Train on every kind of log: a frame (CSV, Parquet), an ingested log, a simulated log; a session file is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from clickprism.data.click_table import TableSettings
from clickprism.data.clicks import save_clicks
from clickprism.data.encoding import Encoding
from clickprism.data.synthetic import SyntheticSettings
from clickprism.errors import DataError
from clickprism.experiments.data import load_data, simulate_log
from clickprism.experiments.settings import DataSettings, ExperimentSettings, read_settings
from clickprism.experiments.train import train_ranker
from clickprism.log.ingest import ingest
from clickprism.model import Model
from clickprism.settings import plain
from clickprism.training.settings import FitSettings
from tests.shared_data import shared_data

SETTINGS = ExperimentSettings(ranker={"name": "linear"}, fit=FitSettings(epochs=2, threads=1))
QUERIES, SESSIONS, LENGTH, COLUMNS = 30, 4, 5, ("price", "age")


def rows() -> list[dict[str, object]]:
    """Return one row for each result of a small shop: users look at the first positions and click low prices."""
    rng, made = np.random.default_rng(0), []
    for session in range(QUERIES * SESSIONS):
        query = session % QUERIES
        for position, document in enumerate(rng.permutation(8)[:LENGTH].tolist(), start=1):
            price, age = document / 8, (document * 7 + query) % 5 / 5
            click = int(rng.random() < (1 - price) / position)
            made.append(
                {"search": f"s{session}", "query": f"q{query}", "document": f"d{document}", "position": position}
                | {"click": click, "price": price, "age": age}
            )
    return made


def csv(path: Path, header: str = "search,document,position,click,price,age") -> Path:
    columns = ("search", "document", "position", "click", *COLUMNS)
    lines = [",".join(str(row[name]) for name in columns) for row in rows()]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_a_table_gives_the_same_model_as_csv_parquet_and_json_lines(tmp_path: Path) -> None:
    file = csv(tmp_path / "log.csv")
    table = pyarrow.csv.read_csv(file)
    pq.write_table(table, tmp_path / "log.parquet")
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    trained = [
        train_ranker(SETTINGS, method="click", source=tmp_path / f"log.{kind}", out=tmp_path / kind)
        for kind in ("csv", "parquet", "jsonl")
    ]
    weights = [json.loads((each.model / "model.json").read_text())["files"] for each in trained]
    assert weights[0] == weights[1] == weights[2]
    assert trained[0].validation == "clicks"  # the log has no grades
    assert trained[0].value is not None
    assert Model.load(trained[0].model).features == len(COLUMNS)
    kept = read_settings(tmp_path / "csv" / "settings.toml")
    assert (kept.data.source, kept.data.train) == ("log", str(file))


def test_column_names_are_settings(tmp_path: Path) -> None:
    file = csv(tmp_path / "log.csv", "leaf,hit,spot,taken,price,age")
    columns = TableSettings(map=("search=leaf", "document=hit", "position=spot", "click=taken"))
    settings = replace(SETTINGS, data=DataSettings(table=columns))
    assert train_ranker(settings, method="dla", source=file, out=tmp_path / "run").epochs == 2
    with pytest.raises(DataError, match="has no column for the document"):
        train_ranker(SETTINGS, method="dla", source=file, out=tmp_path / "run")


def test_an_ingested_log_is_split_by_queries_and_validated_by_clicks(tmp_path: Path) -> None:
    events = []
    for row in rows():
        about = {"search_id": row["search"], "user_id": f"u{row['search']}", "document_id": row["document"]}
        shown = about | {"kind": "impression", "time": "2026-03-01T12:00:00Z", "query": row["query"]}
        features = {name: row[name] for name in COLUMNS}
        events.append(shown | {"position": row["position"], "features": features})
        if row["click"]:
            events.append(about | {"kind": "interaction", "time": "2026-03-01T12:00:09Z", "action": "click"})
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    ingest([tmp_path / "events.jsonl"], tmp_path / "log", robots=False)
    trained = train_ranker(SETTINGS, method="dla", source=tmp_path / "log", out=tmp_path / "run")
    assert (trained.validation, trained.log) == ("clicks", str(tmp_path / "log"))
    data = load_data(read_settings(tmp_path / "run" / "settings.toml").data)
    assert data.log is not None
    assert [len(part) for part in (data.dataset.train, data.dataset.validation, data.dataset.test)] == [24, 3, 3]
    clicks = sum(int(part.clicks.sum()) for part in data.log.clicks.values())
    assert clicks == sum(int(str(row["click"])) for row in rows())
    assert data.log.names == tuple(sorted(COLUMNS))


def test_a_log_without_features_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sessions.tsv").write_text("query\tdocuments\tclicks\ncat\ta,b\tb\n")
    with pytest.raises(DataError, match=r"no features to train on.*a table with one row per result"):
        train_ranker(SETTINGS, method="dla", source=tmp_path / "sessions.tsv", out=tmp_path / "run")
    ingest([tmp_path / "sessions.tsv"], tmp_path / "log")
    with pytest.raises(DataError, match="the documents of this log have no features to train on"):
        train_ranker(SETTINGS, method="dla", source=tmp_path / "log", out=tmp_path / "run")
    with pytest.raises(DataError, match="there is no such file"):
        train_ranker(SETTINGS, method="dla", source=tmp_path / "none.csv", out=tmp_path / "run")


def test_a_simulated_log_is_on_the_data_that_it_records(tmp_path: Path) -> None:
    synthetic = SyntheticSettings(train_queries=20, validation_queries=10, test_queries=10, features=6)
    settings = replace(SETTINGS, data=DataSettings(synthetic=synthetic), sessions=20)
    log = simulate_log(settings, load_data(settings.data).dataset, seed=0).simulation
    save_clicks(log.clicks, tmp_path / "clicks.npz", truth=log.truth, data=plain(settings.data))
    trained = train_ranker(SETTINGS, method="ipw", source=tmp_path / "clicks.npz", out=tmp_path / "run")
    assert trained.observation == pytest.approx(trained.truth, rel=1e-5)
    assert read_settings(tmp_path / "run" / "settings.toml").data == settings.data


def test_real_searches_of_hotels(tmp_path: Path) -> None:
    columns = TableSettings(
        map=("search=srch_id", "document=prop_id", "click=click_bool"),
        ignore=("booking_bool", "gross_bookings_usd", "date_time"),
    )
    data = DataSettings(table=columns)
    source = shared_data("expedia/searches.csv.gz")
    trained = train_ranker(replace(SETTINGS, data=data), method="dla", source=source, out=tmp_path / "run")
    assert trained.validation == "clicks"
    assert trained.observation is not None
    assert np.isfinite(trained.observation).all()
    names = Encoding.load(tmp_path / "run" / "encoding.json").names
    assert Model.load(trained.model).features == len(names)
    assert {"price_usd", "prop_starrating", "prop_location_score2 is missing"} <= set(names)
