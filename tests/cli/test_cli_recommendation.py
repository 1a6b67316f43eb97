"""From an impression log to a ranker, and Adressa's folder, by commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from clickprism.cli_old.app import app
from clickprism.data.vocabulary import Vocabulary
from clickprism.model import Model
from tests.conftest import run_command

QUICK = ["--epochs", "2", "--set", "fit.threads=1"]


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


def read(*words: object) -> Any:
    return json.loads(run(*words, "--json").stdout)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Films are liked and wars are not; what stands low is seen less."""
    rng = np.random.default_rng(0)
    rows = ["request_id,user_id,item_id,position,clicked,seen,topic,age"]
    for request in range(120):
        for position, item in enumerate(rng.permutation(30)[:5].tolist(), start=1):
            seen = rng.random() < 1 / position
            clicked = seen and rng.random() < (0.9 if item % 2 else 0.1)
            topic, age = ("film", item / 10) if item % 2 else ("war", "")
            rows.append(f"r{request},u{request % 9},i{item},{position},{clicked:d},{seen:d},{topic},{age}")
    (tmp_path / "log.csv").write_text("\n".join(rows))
    return tmp_path / "log.csv"


def test_from_a_log_to_a_ranker(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "shop"
    found = read("data", "impressions", log, "--out", out)
    assert found["files"][0]["rows"] == 600
    assert found["parts"]["train"]["requests"] == 96
    assert found["features"] == {"topic": 2, "age": "numbers"}
    assert not found["graded"]
    assert Vocabulary.load(out / "vocabulary.json").hash == found["vocabulary"]
    assert "topic" in run("data", "impressions", log).stdout
    settings = out / "settings.toml"
    words = ["train", "--config", settings, "--ranker", "mlp", "--method", "click", *QUICK]
    run(*words, "--out", tmp_path / "run")
    files = ["--clicks", out / "clicks.npz", "--held-out", out / "held_out.npz"]
    run(*words, *files, "--out", tmp_path / "same")
    models = [Model.load(tmp_path / name / "model") for name in ("run", "same")]
    normaliser = models[0].normaliser
    assert normaliser is not None
    assert (normaliser.kind, normaliser.keep) == ("standard", (0,))
    value = [read("evaluate", tmp_path / name)["methods"][name]["mean"] for name in ("run", "same")]
    assert value[0] == value[1] > 0.5
    words = ["--method", "click-through", "--resamples", "0", "--json"]
    curve = run_command("bias", "position", out / "clicks.npz", *words).json["whole"]["curves"]
    assert len(curve["click-through"]["values"]) == 5


def test_names_reach_the_ranker_as_codes_or_indicators(log: Path, tmp_path: Path) -> None:
    data = ["--set", "data.source=impressions", "--set", f"data.train={log}", "--set", "evaluation.validation=clicks"]
    words = ["train", *data, "--method", "click", *QUICK, "--ranker"]
    run(*words, "attention", "--out", tmp_path / "attention")
    model = Model.load(tmp_path / "attention" / "model")
    assert (model.ranker.categorical, model.ranker.categories, model.features) == ((0,), (3,), 2)
    run(*words, "linear", "--set", "data.names=indicators", "--out", tmp_path / "linear")
    assert Model.load(tmp_path / "linear" / "model").features == 3
    run("simulate", *data, "--out", tmp_path / "no.npz", code=2)


def test_measures_by_clicks_and_pictures_by_name(log: Path, tmp_path: Path) -> None:
    log.write_text(log.read_text().replace("topic,age", "topic,$age$"))
    for names, shown in (("codes", ["topic", "$age$"]), ("indicators", ["topic=film", "topic=war", "$age$"])):
        out, picture = tmp_path / names, tmp_path / f"{names}.svg"
        data = ["--set", "data.source=impressions", "--set", f"data.train={log}", "--set", f"data.names={names}"]
        words = ["train", *data, "--set", "evaluation.validation=clicks", "--method", "click", "--ranker", "attention"]
        run(*words, *QUICK, "--out", out)
        note = "The log has no grades: measures take clicks for grades, which are biased as clicks are"
        assert f"{note}." in run("evaluate", out, "--attention", picture).stdout.splitlines()
        assert read("evaluate", out)["note"] == note
        assert all(f">{name}</text>" in picture.read_text() for name in shown)
    graded = ["request,item,position,clicked,relevance,age", *(f"r{n},i,1,1,{n % 2},3" for n in range(10))]
    log.write_text("\n".join(graded))
    run(*words[:3], "--set", f"data.train={log}", *words[5:], *QUICK, "--out", tmp_path / "graded")
    assert read("evaluate", tmp_path / "graded", "--set", "evaluation.empty=zero")["note"] is None


def test_what_to_do_next_and_what_to_mind(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    first, *rows = log.read_text().splitlines()
    log.write_text("\n".join([f"{first},time", *(f"{row},10:{place // 5}" for place, row in enumerate(rows))]))
    said = run("data", "impressions", "log.csv", "--out", "shop").stderr
    assert "measures take clicks for grades" in said
    assert "--ranker attention --out runs/dla" in said
    assert "names of column 'time' come in one list only" in said
    ignore = "data.impressions.ignore=time"
    assert "--set 'data.impressions.ignore=[\"time\"]'" in said
    words = ["train", "--config", tmp_path / "shop" / "settings.toml", "--set", ignore, "--method", "click", *QUICK]
    monkeypatch.chdir(tmp_path / "shop")
    run(*words, "--out", tmp_path / "run")
    assert "mlp takes the codes of names (topic) for numbers" in caplog.text
    assert "--set data.names=indicators" in caplog.text
    caplog.clear()
    run(*words, "--set", "data.names=indicators", "--out", tmp_path / "run")
    run(*words, "--ranker", "attention", "--out", tmp_path / "run")
    assert not caplog.text
    indicators = ["--set", ignore, "--set", "data.names=indicators"]
    assert "--ranker" not in run("data", "impressions", log, *indicators, "--out", tmp_path / "other").stderr


def test_a_part_without_clicks(log: Path, tmp_path: Path) -> None:
    rows = [row.split(",") for row in log.read_text().splitlines()]
    for row in rows[450:]:
        row[4] = "0"
    log.write_text("\n".join(map(",".join, rows)))
    said = run("data", "impressions", log, "--out", tmp_path / "shop").stderr
    assert "The validation part has no click, so there is nothing to choose an epoch by" in said
    assert "--ranker attention --set evaluation.validation=none --out runs/dla" in said
    words = [
        "train",
        "--config",
        tmp_path / "shop" / "settings.toml",
        "--method",
        "click",
        *QUICK,
        "--out",
        tmp_path / "run",
    ]
    assert "--set evaluation.validation=none" in run(*words, code=3).output
    run(*words, "--set", "evaluation.validation=none")


def test_a_filter_by_name(log: Path, tmp_path: Path) -> None:
    """Lists without a relevant document: only grades say which they are, clicks would choose the lists clicked on."""
    for name, value, off in (("drop_without_relevant", "true", "false"), ("filter", "inforank", "none")):
        words = ["--set", f"data.{name}={value}"]
        problem = f"data.{name} must be {off} for a log without a column of relevance"
        assert problem in run("data", "impressions", log, *words, code=2).output
    header, *rows = log.read_text().splitlines()
    graded = [f"{row},{int(row.split(',')[2] == 'i1')}" for row in rows]
    log.write_text("\n".join([f"{header},relevance", *graded]))
    relevant = [{row.split(",")[0] for row in graded[at : at + 60] if row.endswith(",1")} for at in (480, 540)]
    for more in (words, ["--set", "data.drop_without_relevant=true"]):
        found = read("data", "impressions", log, *more)["parts"]
        assert [found[part]["requests"] for part in ("validation", "test")] == list(map(len, relevant))
    data = ["--set", "data.source=impressions", "--set", f"data.train={log}", *words]
    run("train", *data, "--set", "evaluation.validation=clicks", "--method", "click", *QUICK, "--out", tmp_path / "run")
    (tmp_path / "letor.txt").write_text("1 qid:a 1:2\n0 qid:b 1:2\n")
    facts = read("data", "info", tmp_path / "letor.txt", "--filter", "inforank")["files"][0]
    assert (facts["kept"], facts["too_long"], facts["without_relevant_left_out"]) == (1, 0, 1)
    assert "1 of 2 lists kept" in run("data", "info", tmp_path / "letor.txt", "--filter", "inforank").stdout
    run("data", "info", tmp_path / "letor.txt", "--filter", "infrank", code=2)


def test_broken_logs_end_with_their_line_or_are_left_out(log: Path, tmp_path: Path) -> None:
    log.write_text(log.read_text().replace("r7,u7,", "r7,,", 1))
    assert "log.csv:37: column 'user_id' is empty" in run("data", "impressions", log, code=3).output
    left = tmp_path / "left.jsonl"
    found = read("data", "impressions", log, "--on-error", "quarantine", "--quarantine-file", left)
    assert found["files"][0]["quarantined"] == 5
    assert [json.loads(line)["line"] for line in left.read_text().splitlines()] == [37, 38, 39, 40, 41]


def test_errors_of_a_log_show_the_setting_that_mends_it(log: Path) -> None:
    good = log.read_text()
    log.write_text(good.replace("film,0.1\n", "film,n/a\n", 1))
    said = " ".join(run("data", "impressions", log, code=3).output.split())
    assert "column 'age' has 'n/a' and a number before. Leave the field empty" in said
    for kind in ("categorical", "ignore", "numeric"):
        assert f"--set 'data.impressions.{kind}=[\"age\"]'" in said
    run("data", "impressions", log, "--set", "data.impressions.ignore=age")
    run("data", "impressions", log, "--set", 'data.impressions.categorical=["age"]')
    run("data", "impressions", log, "--set", "data.impressions.numeric=age", "--on-error", "quarantine")
    first, *rows = (row.split(",") for row in good.splitlines())
    log.write_text("\n".join(map(",".join, [first, *([*row[:3], str(int(row[3]) - 1), *row[4:]] for row in rows)])))
    said = " ".join(run("data", "impressions", log, code=3).output.split())
    assert "from 1 (from 0 with --set data.impressions.first_position=0), got 0. No request of the log is sound" in said
    run("data", "impressions", log, "--set", "data.impressions.first_position=0")


def test_names_that_only_held_out_requests_have_are_counted(log: Path) -> None:
    head, tail = log.read_text().split("r110,", 1)
    log.write_text(f"{head}r110,{tail.replace(',war,', ',opera,')}")
    operas = log.read_text().count(",opera,")
    assert read("data", "impressions", log)["files"][0]["unknown"] == {"topic": operas}
    assert f"documents with an unknown name {operas} (topic)" in " ".join(
        run("data", "impressions", log).stdout.split()
    )


def test_a_log_without_features_cannot_train_a_ranker(log: Path, tmp_path: Path) -> None:
    log.write_text("\n".join(line.rsplit(",", 2)[0] for line in log.read_text().splitlines()))
    assert "no features" in run("data", "impressions", log, "--out", tmp_path / "shop").stdout
    words = ["train", "--config", tmp_path / "shop" / "settings.toml", *QUICK, "--out", tmp_path / "run"]
    assert "the documents have no features" in run(*words, code=3).output
