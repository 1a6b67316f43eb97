"""`clickprism examine` on a simulated raw log, from events to a model in force."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from clickprism.cli_old.app import app
from clickprism.log.engine import Engine
from clickprism.log.forget import forget
from clickprism.log.ingest import ingest
from clickprism.log.store import LogStore
from clickprism.observation import examination
from clickprism.observation.examination import Examination, ExaminationModel, ExaminationSettings, newest_model
from clickprism.simulation.raw_log import write_raw_log
from clickprism.simulation.raw_settings import RawLogSettings


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["examine", *map(str, words)])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    write_raw_log(folder / "raw", settings=RawLogSettings(searches=3000, days=2, seed=5))
    ingest([folder / "raw" / "events"], folder / "log")
    return folder


def test_from_events_to_a_model_in_force(folder: Path) -> None:
    """The bar: AUC 0.90 against what the simulated users truly observed, on searches held out."""
    truth, report = folder / "raw" / "truth", folder / "report" / "page.html"
    result = run(folder / "log", "--truth", truth, "--out", report, "--json")
    found = json.loads(result.stdout)
    assert found["truth"]["auc"] >= 0.9
    assert found["held_out"]["auc"] >= 0.9
    assert found["rows"]["rows"] == sum(found["rows"][kind] for kind in ("positive", "negative", "between", "missing"))
    first = [point["value"] for point in found["by_position"] if point["page"] == 1]
    assert first == sorted(first, reverse=True)
    assert found["warning"] is None
    model = newest_model(folder / "log" / "models")
    assert model is not None
    assert model.fingerprint == found["fingerprint"]
    assert list(model.sessions) == found["days"]
    names = {path.name for path in report.parent.iterdir()}
    assert names == {"page.html", "page-position.png", "page-anchor.png", "page-calibration.png"}
    page = report.read_text(encoding="utf-8")
    assert page.count("<svg") == 3
    assert "Against true observation: AUC 0.9" in page
    again = run(folder / "log")
    assert "true observation" not in again.stdout
    assert len(list((folder / "log" / "models").iterdir())) == 2


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--days", "2024-01-02..2024-01-01"], 2, "--days must have the earlier day first"),
        (["--days", "january"], 2, "--days must be two days such as"),
        (["--days", "2020-01-01"], 3, "has no sessions from 2020-01-01 to 2020-01-01"),
        (["--out", "report.pdf"], 2, "--out must end in .html"),
        (["--negative-ms", "6000"], 2, "--negative-ms must be from 1 to positive_ms (5000), got 6000"),
        (["--positive-ms", "90000000"], 3, "lower --positive-ms, or make windows without estimates"),
        (["--engine", "oracle"], 2, "--engine must be duckdb"),
        (["--truth", "nowhere"], 3, "nowhere: has no Parquet files"),
    ],
)
def test_errors_say_what_to_do(folder: Path, words: list[str], code: int, text: str) -> None:
    assert text in run(folder / "log", *words, code=code).stderr


def test_no_log(tmp_path: Path) -> None:
    assert "is not a click log" in run(tmp_path, code=3).stderr


def forget_one(store: LogStore, engine: Engine) -> None:
    users = [user for user in store.table("sessions").read(["user_id"])["user_id"].to_pylist() if user is not None]
    forget(store, engine, [users[0]])


def test_a_user_forgotten_while_a_model_is_trained_is_not_in_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder / "log", tmp_path / "log", ignore=shutil.ignore_patterns("models"))
    store, train, trained = LogStore.open(tmp_path / "log"), examination.examine, []

    def slow(store: LogStore, engine: Engine, **asked: Any) -> Examination:
        found = train(store, engine, **asked)
        trained.append(found.model)
        if len(trained) < 2:
            forget_one(store, engine)
        return found

    monkeypatch.setattr(examination, "examine", slow)
    result = run(tmp_path / "log")
    assert "The sessions changed while the model was trained: training again" in result.stderr
    model = newest_model(store.folder / "models")
    assert model is not None
    assert [dict(each.sessions) == dict(model.sessions) for each in trained] == [False, True]
    assert len(list((store.folder / "models").glob("*.json"))) == 1

    monkeypatch.setattr(examination, "examine", lambda store, *_, **__: Trained(store))
    refused = run(tmp_path / "log", code=3)
    assert "changed each of the 3 times that a model was trained; none is saved" in refused.stderr
    assert newest_model(store.folder / "models") == model


class Trained:
    """A model of days as they are not."""

    def __init__(self, store: LogStore) -> None:
        days = store.table("sessions").days()
        self.model = ExaminationModel("", ExaminationSettings(), {day.isoformat(): "other" for day in days})


def test_a_log_without_display_times_is_refused_before_any_work(tmp_path: Path) -> None:
    row = {"search_id": "s", "query": "cat", "document_id": "a", "position": 1, "time": "2026-01-01T00:00:00Z"}
    (tmp_path / "events.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    ingest([tmp_path / "events.jsonl"], tmp_path / "log")
    refused = run(tmp_path / "log", code=3).stderr
    assert "no row of the sessions of this log has a display time" in refused
    assert LogStore.open(tmp_path / "log").table("sessions").days() == []
    made = CliRunner().invoke(app, ["sessions", str(tmp_path / "log")])
    assert made.exit_code == 0, made.output
    assert "examine" not in made.stderr
    assert f"windows {tmp_path / 'log'} --examination none" in made.stderr


def test_a_small_log_is_warned_of(tmp_path: Path) -> None:
    write_raw_log(tmp_path / "raw", settings=RawLogSettings(searches=150, days=1, robots=0, seed=5))
    ingest([tmp_path / "raw" / "events"], tmp_path / "log")
    result = run(tmp_path / "log", "--json")
    assert "Little to judge by: " in result.stderr
    assert json.loads(result.stdout)["warning"] in result.stderr
