"""`clickprism data`: judged lists, public data sets, embedded data, and impression logs up to a trained ranker."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.cli.app import TREE
from clickprism.cli.reference import examples
from clickprism.data.vocabulary import Vocabulary
from clickprism.model import Model

Run = Callable[..., Any]
QUICK = ["--fit.epochs", "2", "--fit.threads", "1"]
HEADER = "request_id,user_id,item_id,position,clicked,seen,topic,age"


def impression_rows(requests: int = 120) -> list[str]:
    """Return rows of users who like films and not wars, and look at the first positions."""
    rng, rows = np.random.default_rng(0), []
    for request in range(requests):
        for position, item in enumerate(rng.permutation(30)[:5].tolist(), start=1):
            seen = rng.random() < 1 / position
            clicked = seen and rng.random() < (0.9 if item % 2 else 0.1)
            topic, age = ("film", item / 10) if item % 2 else ("war", "")
            rows.append(f"r{request},u{request % 9},i{item},{position},{clicked:d},{seen:d},{topic},{age}")
    return rows


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text("\n".join([HEADER, *impression_rows()]))
    return tmp_path / "log.csv"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the examples in the help use."""
    folder = tmp_path_factory.mktemp("work")
    for name in ("train", "test"):
        (folder / f"{name}.txt").write_text("2 qid:1 1:0.5\n0 qid:1 2:1\n0 qid:2 1:1\n")
    rows = impression_rows(30)
    for name in ("log", "train", "validation", "test"):
        (folder / f"{name}.csv").write_text("\n".join([HEADER, *rows]))
    header = HEADER.replace("item_id", "sku").replace("age", "zip,dwell,time")
    (folder / "shop.csv").write_text("\n".join([header, *(f"{row},3,{number}" for number, row in enumerate(rows))]))
    (folder / "small.toml").write_text("train_queries = 9\nvalidation_queries = 2\ntest_queries = 2\n")
    return folder


@pytest.mark.parametrize(
    "line", [line for name in TREE["data"][1] for line in examples(["data", name])], ids=lambda line: line[11:40]
)
def test_examples_of_the_help_run(line: str, work: Path, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    words = shlex.split(line)[1:]
    if words[1] == "generate":
        words += ["--config", "small.toml"]
    assert cli(*words, code=1 if "mq2008" in words else 0).stdout  # the files of MQ2008 are missing here


def test_check_lists_data_sets_and_says_what_is_missing(tmp_path: Path, cli: Run) -> None:
    assert "mq2008" in cli("data", "check").stdout
    assert cli("data", "check", "--json").json["recipes"]["mq2008"]["features"] == 46
    done = cli("data", "check", "yahoo", tmp_path, "--json", code=1)
    assert done.json["missing"] == ["set1.train.txt", "set1.valid.txt", "set1.test.txt"]
    assert "the files of yahoo are not complete" in done.stderr
    assert "missing set1.train.txt" in " ".join(cli("data", "check", "yahoo", tmp_path, code=1).stdout.split())


def test_generated_files_contain_the_embedded_data(tmp_path: Path, cli: Run) -> None:
    sizes = {"train": 12, "validation": 4, "test": 8}
    words = [word for part, size in sizes.items() for word in (f"--{part}-queries", size)]
    written = cli("data", "generate", *words, "--seed", 3, "--out", tmp_path, "--json").json["files"]
    assert [file["facts"]["lists"] for file in written] == [12, 4, 8]
    assert written == cli("data", "info", *(file["file"] for file in written), "--json").json["files"]
    clicks = [tmp_path / "files.npz", tmp_path / "embedded.npz"]
    files = [word for part in sizes for word in (f"--data.{part}", tmp_path / f"{part}.txt")]
    embedded = [word for part, size in sizes.items() for word in (f"--data.synthetic.{part}-queries", size)]
    cli("experiment", "simulate", *files, "--data.source", "files", "--sessions", 5, "--out", clicks[0])
    cli("experiment", "simulate", *embedded, "--data.synthetic.seed", 3, "--sessions", 5, "--out", clicks[1])
    first, second = (np.load(out, allow_pickle=False)["clicks"] for out in clicks)
    assert np.array_equal(first, second)


def test_info_counts_lists_grades_and_missing_values(tmp_path: Path, cli: Run) -> None:
    file = tmp_path / "small.txt"
    file.write_text("2 qid:1 1:0.5\n0 qid:1 2:1\n0 qid:2 1:nan\n0 qid:2 1:1\n")
    lines = dict(line.rsplit("  ", 1) for line in cli("data", "info", file).stdout.splitlines()[1:])
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    assert (facts["lists"], facts["grade 0"], facts["grade 2"]) == ("2", "75.0%", "25.0%")
    assert (facts["lists without a relevant document"], facts["missing values"]) == ("1", "1")


def test_broken_lines_of_judged_lists_stop_or_are_skipped_and_saved(tmp_path: Path, cli: Run) -> None:
    file, broken = tmp_path / "data.txt", tmp_path / "broken.jsonl"
    file.write_text("1 qid:1 1:0.5\nx qid:1 1:2\n0 qid:1 1:1\n")
    assert f"error: {file}:2:1: " in cli("data", "info", file, code=1).stderr
    words = ["--on-error", "quarantine", "--quarantine-file", broken]
    (found,) = cli("data", "info", file, *words, "--json").json["files"]
    assert (found["facts"]["documents"], found["quarantined"]) == (2, 1)
    skipped = json.loads(broken.read_text())
    assert (skipped["line"], skipped["raw"]) == (2, "x qid:1 1:2")


def test_a_folder_is_not_a_data_file(tmp_path: Path, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parts = [word for part in ("train", "validation", "test") for word in (f"--data.{part}", ".")]
    for words in (["data", "info", "."], ["train", "--data.source", "files", *parts, "--out", tmp_path / "run"]):
        assert cli(*words, code=1).stderr.startswith("error: .: cannot be read (it is a folder")


def test_impressions_lead_to_a_ranker(log: Path, tmp_path: Path, cli: Run) -> None:
    out = tmp_path / "shop"
    found = cli("data", "impressions", log, "--out", out, "--json").json
    assert found["files"][0]["rows"] == 600
    assert found["parts"]["train"]["requests"] == 96
    assert found["features"] == {"topic": 2, "age": "numbers"}
    assert not found["graded"]
    assert Vocabulary.load(out / "vocabulary.json").hash == found["vocabulary"]
    assert "topic" in cli("data", "impressions", log).stdout
    words = ["--config", out / "settings.toml", "--ranker", "mlp", "--method", "click", *QUICK]
    cli("train", *words, "--out", tmp_path / "run")
    files = [out / "clicks.npz", "--held-out", out / "held_out.npz"]
    cli("train", *files, *words, "--out", tmp_path / "same")
    normaliser = Model.load(tmp_path / "run" / "model").normaliser
    assert normaliser is not None
    assert (normaliser.kind, normaliser.keep) == ("standard", (0,))
    means = [cli("evaluate", "judged", tmp_path / name, "--json").json["rows"][0]["mean"] for name in ("run", "same")]
    assert means[0] == means[1] > 0.5
    found = cli("bias", "position", out / "clicks.npz", "--json").json
    assert len(found["curve"]["values"]) == 5
    assert found["sessions"] == 96


def test_names_reach_the_ranker_as_codes_or_indicators(log: Path, tmp_path: Path, cli: Run) -> None:
    words = ["train", log, "--evaluation.validation", "clicks", "--method", "click", *QUICK, "--ranker"]
    cli(*words, "attention", "--out", tmp_path / "attention")
    model = Model.load(tmp_path / "attention" / "model")
    assert (model.ranker.categorical, model.ranker.categories, model.features) == ((0,), (3,), 2)
    cli(*words, "linear", "--data.names", "indicators", "--out", tmp_path / "linear")
    assert Model.load(tmp_path / "linear" / "model").features == 3


def test_measures_by_clicks_are_marked_and_pictures_name_features(log: Path, tmp_path: Path, cli: Run) -> None:
    log.write_text(log.read_text().replace("topic,age", "topic,$age$"))
    words = ["--evaluation.validation", "clicks", "--method", "click", "--ranker", "attention", *QUICK]
    for names, shown in (("codes", ["topic", "$age$"]), ("indicators", ["topic=film", "topic=war", "$age$"])):
        out, picture = tmp_path / names, tmp_path / f"{names}.svg"
        cli("train", log, "--data.names", names, *words, "--out", out)
        printed = cli("evaluate", "judged", out, "--attention", picture).stdout
        assert "The log has no grades: measures use clicks as grades, which are biased" in printed
        assert all(f">{name}</text>" in picture.read_text() for name in shown)
    graded = ["request,item,position,clicked,relevance,age", *(f"r{n},i,1,1,{n % 2},3" for n in range(10))]
    log.write_text("\n".join(graded))
    cli("train", log, *words, "--evaluation.empty", "zero", "--out", tmp_path / "graded")
    assert "no grades" not in cli("evaluate", "judged", tmp_path / "graded").stdout


def test_impressions_name_the_next_command_and_columns_to_ignore(
    log: Path, tmp_path: Path, cli: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    first, *rows = log.read_text().splitlines()
    log.write_text("\n".join([f"{first},time", *(f"{row},10:{place // 5}" for place, row in enumerate(rows))]))
    noted = cli("data", "impressions", "log.csv", "--out", "shop").stderr
    assert "measures use clicks as grades" in noted
    assert "--config shop/settings.toml --method dla --ranker attention --out runs/dla" in noted
    assert "names of column 'time' occur in one list only" in noted
    assert "add --ignore time" in noted
    cli("data", "impressions", "log.csv", "--ignore", "time", "--out", "shop")
    words = ["train", "--config", tmp_path / "shop" / "settings.toml", "--method", "click", *QUICK]
    monkeypatch.chdir(tmp_path / "shop")
    cli(*words, "--out", tmp_path / "run")
    assert "mlp uses the codes of categories (topic) as numbers" in caplog.text
    caplog.clear()
    cli(*words, "--data.names", "indicators", "--out", tmp_path / "run")
    cli(*words, "--ranker", "attention", "--out", tmp_path / "run")
    assert not caplog.text


def test_a_part_without_clicks_is_reported(log: Path, tmp_path: Path, cli: Run) -> None:
    rows = [row.split(",") for row in log.read_text().splitlines()]
    for row in rows[450:]:
        row[4] = "0"
    log.write_text("\n".join(map(",".join, rows)))
    noted = cli("data", "impressions", log, "--out", tmp_path / "shop").stderr
    assert "The validation part has no clicks to choose an epoch by" in noted
    words = ["train", "--config", tmp_path / "shop" / "settings.toml", "--method", "click", *QUICK]
    assert cli(*words, "--out", tmp_path / "run", "--json").json["validation"] == "none"


def test_lists_without_a_relevant_document_are_excluded_by_grades_only(log: Path, tmp_path: Path, cli: Run) -> None:
    words = ["--evaluation.validation", "clicks", "--data.drop-without-relevant", "--method", "click", *QUICK]
    refused = cli("train", log, *words, "--out", tmp_path / "run", code=2).stderr
    assert "--data.drop-without-relevant must be false for a log without a relevance column" in refused
    header, *rows = log.read_text().splitlines()
    graded = [f"{row},{int(row.split(',')[2] in ('i1', 'i3'))}" for row in rows]
    log.write_text("\n".join([f"{header},relevance", *graded]))
    cli("train", log, *words, "--out", tmp_path / "run")


def test_broken_rows_stop_or_are_skipped_with_their_request(log: Path, tmp_path: Path, cli: Run) -> None:
    log.write_text(log.read_text().replace("r7,u7,", "r7,,", 1))
    assert "log.csv:37: column 'user_id' is empty" in cli("data", "impressions", log, code=1).stderr
    skipped = tmp_path / "skipped.jsonl"
    words = ["--on-error", "quarantine", "--quarantine-file", skipped, "--json"]
    assert cli("data", "impressions", log, *words).json["files"][0]["quarantined"] == 5
    assert [json.loads(line)["line"] for line in skipped.read_text().splitlines()] == [37, 38, 39, 40, 41]


def test_errors_of_a_log_name_the_option_that_helps(log: Path, cli: Run) -> None:
    good = log.read_text()
    log.write_text(good.replace("film,0.1\n", "film,n/a\n", 1))
    told = cli("data", "impressions", log, code=1).stderr
    assert "column 'age' has 'n/a' and a number before. Leave the field empty" in told
    for kind in ("categorical", "ignore", "numeric"):
        assert f"--{kind} age" in told
    cli("data", "impressions", log, "--ignore", "age")
    cli("data", "impressions", log, "--categorical", "age")
    cli("data", "impressions", log, "--numeric", "age", "--on-error", "quarantine")
    first, *rows = (row.split(",") for row in good.splitlines())
    log.write_text("\n".join(map(",".join, [first, *([*row[:3], str(int(row[3]) - 1), *row[4:]] for row in rows)])))
    told = cli("data", "impressions", log, code=1).stderr
    assert "from 1 (from 0 with --first-position 0" in told
    assert "got 0. No request of the log is sound" in told
    cli("data", "impressions", log, "--first-position", "0")
    log.write_text(good.replace("item_id", "thing"))
    assert "Name it: --item NAME" in cli("data", "impressions", log, code=1).stderr


def test_names_of_held_out_requests_only_are_counted(log: Path, cli: Run) -> None:
    head, tail = log.read_text().split("r110,", 1)
    log.write_text(f"{head}r110,{tail.replace(',war,', ',opera,')}")
    operas = log.read_text().count(",opera,")
    done = cli("data", "impressions", log)
    assert f"documents with a name unknown in training {operas} (topic)" in " ".join(done.stdout.split())
    assert cli("data", "impressions", log, "--json").json["files"][0]["unknown"] == {"topic": operas}


def test_a_log_without_features_cannot_train_a_ranker(log: Path, tmp_path: Path, cli: Run) -> None:
    log.write_text("\n".join(line.rsplit(",", 2)[0] for line in log.read_text().splitlines()))
    assert "no features" in cli("data", "impressions", log, "--out", tmp_path / "shop").stdout
    words = ["train", "--config", tmp_path / "shop" / "settings.toml", *QUICK, "--out", tmp_path / "run"]
    assert "the documents have no features" in cli(*words, code=1).stderr
