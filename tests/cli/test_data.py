"""`clickprism data`: judged lists, public data sets, embedded data, and training on an impression log."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.cli.app import COMMANDS
from clickprism.cli.reference import examples
from clickprism.data.encoding import Encoding
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
    (folder / "small.toml").write_text("train_queries = 9\nvalidation_queries = 2\ntest_queries = 2\n")
    return folder


@pytest.mark.parametrize(
    "line",
    [line for name in COMMANDS if name.startswith("data ") for line in examples(name.split())],
    ids=lambda line: line[11:40],
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
    assert [file["lists"] for file in written] == [12, 4, 8]
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
    assert (found["documents"], found["quarantined"]) == (2, 1)
    skipped = json.loads(broken.read_text())
    assert (skipped["line"], skipped["raw"]) == (2, "x qid:1 1:2")


def test_a_folder_is_not_a_data_file(tmp_path: Path, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parts = [word for part in ("train", "validation", "test") for word in (f"--data.{part}", ".")]
    for words in (["data", "info", "."], ["train", "--data.source", "files", *parts, "--out", tmp_path / "run"]):
        assert cli(*words, code=1).stderr.startswith("error: .: cannot be read (it is a folder")


def test_an_impression_log_leads_to_a_ranker_and_to_scores_of_new_requests(log: Path, tmp_path: Path, cli: Run) -> None:
    cli(
        "train",
        log,
        "--ranker",
        "mlp",
        "--method",
        "click",
        *QUICK,
        "--data.names",
        "indicators",
        "--out",
        tmp_path / "run",
    )
    normaliser = Model.load(tmp_path / "run" / "model").normaliser
    assert normaliser is not None
    assert (normaliser.kind, normaliser.keep) == ("standard", (0, 1, 3))
    assert cli("evaluate", "judged", tmp_path / "run", "--json").json["rows"][0]["mean"] > 0.5
    encoding = Encoding.load(tmp_path / "run" / "encoding.json")
    assert encoding.names == ("topic=war", "topic=film", "age", "age is missing")
    assert encoding.encode_rows([{"topic": "film", "age": 3}, {"topic": "opera"}])[:, [0, 1, 3]].tolist() == [
        [0, 1, 0],
        [0, 0, 1],
    ]
    cli("model", "bundle", tmp_path / "run", "--out", tmp_path / "bundle")
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert Encoding.of_plain(manifest["data"]["encoding"]) == encoding


def test_names_reach_the_ranker_as_codes_or_indicators(log: Path, tmp_path: Path, cli: Run) -> None:
    words = ["train", log, "--evaluation.validation", "clicks", "--method", "click", *QUICK, "--ranker"]
    cli(*words, "attention", "--out", tmp_path / "attention")
    model = Model.load(tmp_path / "attention" / "model")
    assert (model.ranker.categorical, model.ranker.categories, model.features) == ((0,), (3,), 3)
    cli(*words, "linear", "--data.names", "indicators", "--out", tmp_path / "linear")
    assert Model.load(tmp_path / "linear" / "model").features == 4


def test_measures_by_clicks_are_marked_and_pictures_name_features(log: Path, tmp_path: Path, cli: Run) -> None:
    log.write_text(log.read_text().replace("topic,age", "topic,$age$"))
    words = ["--evaluation.validation", "clicks", "--method", "click", "--ranker", "attention", *QUICK]
    for names, shown in (("codes", ["topic", "$age$"]), ("indicators", ["topic=film", "topic=war", "$age$"])):
        out, picture = tmp_path / names, tmp_path / f"{names}.svg"
        cli("train", log, "--data.names", names, *words, "--out", out)
        printed = cli("evaluate", "judged", out, "--attention", picture).stdout
        assert "The log has no grades: measures use clicks as grades, which are biased" in printed
        assert all(f">{name}</text>" in picture.read_text() for name in shown)
    graded = ["request,item,position,clicked,relevance,age", *(f"r{n},i,1,1,{n % 2},{n % 5}" for n in range(10))]
    log.write_text("\n".join(graded))
    cli("train", log, *words, "--evaluation.empty", "zero", "--out", tmp_path / "graded")
    assert "no grades" not in cli("evaluate", "judged", tmp_path / "graded").stdout


def test_categories_as_numbers_are_warned_of(
    log: Path, tmp_path: Path, cli: Run, caplog: pytest.LogCaptureFixture
) -> None:
    words = ["train", log, "--method", "click", *QUICK, "--out", tmp_path / "run"]
    cli(*words)
    assert "mlp uses the codes of categories (topic) as numbers" in caplog.text
    caplog.clear()
    cli(*words, "--data.names", "indicators")
    cli(*words, "--ranker", "attention")
    assert not caplog.text


def test_a_part_without_clicks_cannot_choose_an_epoch(log: Path, tmp_path: Path, cli: Run) -> None:
    header, *rows = log.read_text().splitlines()
    parts = {"train": rows, "validation": rows[:50], "test": rows[:50]}
    for name, lines in parts.items():
        cells = [line.split(",") for line in lines]
        for cell in cells if name == "validation" else []:
            cell[4] = "0"
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *map(",".join, cells)]))
    files = [word for name in parts for word in (f"--data.{name}", tmp_path / f"{name}.csv")]
    words = ["train", "--data.source", "log", *files, "--method", "click", *QUICK, "--data.names", "indicators"]
    assert cli(*words, "--out", tmp_path / "run", "--json").json["validation"] == "none"


def test_lists_without_a_relevant_document_are_excluded_by_grades_only(log: Path, tmp_path: Path, cli: Run) -> None:
    words = ["--evaluation.validation", "clicks", "--data.drop-without-relevant", "--method", "click", *QUICK]
    refused = cli("train", log, *words, "--out", tmp_path / "run", code=2).stderr
    assert "--data.drop-without-relevant must be false for a log without grades" in refused
    header, *rows = log.read_text().splitlines()
    graded = [f"{row},{int(row.split(',')[2] in ('i1', 'i3'))}" for row in rows]
    log.write_text("\n".join([f"{header},relevance", *graded]))
    cli("train", log, *words, "--out", tmp_path / "run")


def test_a_log_without_features_cannot_train_a_ranker(log: Path, tmp_path: Path, cli: Run) -> None:
    log.write_text("\n".join(line.rsplit(",", 2)[0] for line in log.read_text().splitlines()))
    assert "the documents of this log have no features" in cli("train", log, *QUICK, "--out", tmp_path, code=3).stderr
