"""`clickprism examine` on a simulated raw log, from events to a model in force."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from clickprism.cli.app import app
from clickprism.experiment.raw_log import write_raw_log
from clickprism.experiment.raw_settings import RawLogSettings
from clickprism.log.ingest import ingest
from clickprism.observation.examination import newest_model


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
