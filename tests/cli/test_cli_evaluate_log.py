"""`clickprism evaluate --log`: what rankers would earn, from sessions and simulated clicks, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from clickprism.cli_old.app import app


def run(*words: object, code: int = 0, command: str = "evaluate") -> Result:
    result = CliRunner().invoke(app, [command, *map(str, words)])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions of 30 queries, two documents each way as often; d1 is clicked in half of them, d0 in none.

    And rankers: `first` puts d1 first, `half` scores d0 only, `missing` names other documents.
    """
    made = tmp_path_factory.mktemp("log")
    sessions = ["query\tdocuments\tclicks"]
    for number in range(600):
        query = number % 30
        documents = [f"d{query}-{place}" for place in ((0, 1) if number % 60 < 30 else (1, 0))]
        sessions.append(f"q{query}\t{','.join(documents)}\t{f'd{query}-1' if number % 120 < 60 else ''}")
    (made / "sessions.tsv").write_text("\n".join(sessions))
    scores = [f"q{query},d{query}-{place},{place}" for query in range(30) for place in range(2)]
    (made / "first.csv").write_text("\n".join(["query,document,score", *scores]))
    (made / "missing.csv").write_text("query,document,score\nq0,other,1")
    (made / "half.csv").write_text("\n".join(["query,document,score", *scores[::2]]))
    return made


def test_a_file_of_scores_is_valued(folder: Path) -> None:
    """Every estimator without a model: half a click a search; as much as was logged."""
    told = json.loads(run("--log", folder / "sessions.tsv", "--scores", folder / "first.csv", "--json", "-q").stdout)
    (ranker,) = told["rankers"].values()
    assert ranker["logged"]["value"] == pytest.approx(0.5)
    assert ranker["best"] == "ips"
    for name in ("ips", "snips", "reward-interaction", "item-position", "cascade-dr", "item-position-dr"):
        assert ranker["estimates"][name]["value"]["value"] == pytest.approx(0.5), name
        assert ranker["estimates"][name]["verdict"] == "not told apart"
    assert ranker["estimates"]["ips"]["effective"] == pytest.approx(300)


def test_words_say_what_each_assumes(folder: Path) -> None:
    shown = run(
        "--log", folder / "sessions.tsv", "--scores", folder / "first.csv", "--estimator", "ips", "--measure", "dcg"
    )
    assert "DCG of clicks a search at positions 1 to 2, 95% intervals" in shown.stdout
    assert "ips assumes: none of how users look" in shown.stdout
    assert "snips" not in shown.stdout


def test_documents_without_a_score_rank_last_and_are_counted(folder: Path) -> None:
    shown = run("--log", folder / "sessions.tsv", "--scores", folder / "half.csv", "--estimator", "ips")
    assert "30 of 60 documents of the log have no score, and rank last" in shown.stderr


def test_a_log_that_values_nothing_is_exit_code_3(folder: Path) -> None:
    """In effect 300 of 600 searches match; clipped at 1, half of the clicks at stake are cut off."""
    words = ("--log", folder / "sessions.tsv", "--scores", folder / "first.csv", "--estimator", "ips", "--clip", 1)
    shown = run(*words, code=3)
    assert "ips is refused: 50.0% of the clicks at stake are on lists that were never shown" in shown.stdout
    assert "the log can value none of the rankers" in shown.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--log", "sessions.tsv"), 2, "MODEL must be given, one or more, or --scores FILE"),
        (("--log", "sessions.tsv", "--scores", "missing.csv"), 3, "has no score of any document of the log"),
        (
            ("--log", "sessions.tsv", "--scores", "first.csv", "--estimator", "ipw"),
            2,
            "--estimator must be a known name (did you mean 'ips'?)",
        ),
        (("--log", "sessions.tsv", "--scores", "first.csv", "--clip", "0"), 2, "--clip must be at least 1"),
        (("--log", "sessions.tsv", "--scores", "first.csv", "--measure", "nDCG@10"), 2, "be one of clicks, dcg"),
        (("--scores", "first.csv"), 2, "--log must be given where --scores or --estimator is"),
    ],
)
def test_errors_name_the_option(folder: Path, words: tuple[str, ...], code: int, said: str) -> None:
    given = [folder / word if (folder / word).is_file() else word for word in words]
    assert said in run(*given, code=code).stderr


def test_a_model_scores_the_documents_of_a_simulated_log(tmp_path: Path) -> None:
    """It was trained for these features; a log of sessions without any is refused."""
    small = ["--set", "data.synthetic.train_queries=40", "--set", "data.synthetic.test_queries=20"]
    small += ["--set", "data.synthetic.validation_queries=20", "--set", "data.synthetic.features=12"]
    many = ["--set", "simulation.rankers=3", "--sessions", "200"]
    run(*small, *many, "--out", tmp_path / "clicks.npz", command="simulate")
    out = tmp_path / "run"
    run(
        *small,
        "--clicks",
        tmp_path / "clicks.npz",
        "--method",
        "click",
        "--ranker",
        "linear",
        "--epochs",
        2,
        "--out",
        out,
        command="train",
    )
    log = ["--log", tmp_path / "clicks.npz", "--unit", "query"]
    told = json.loads(run(out, *log, *small, "--json", "-q").stdout)["rankers"][str(out)]
    assert told["best"] in ("item-position-dr", "position-based", "cascade-dr")
    assert np.isfinite(told["estimates"][told["best"]]["value"]["value"])
    (tmp_path / "bare.tsv").write_text("query\tdocuments\tclicks\nq\ta,b\ta\n")
    assert "have no features to score them by" in run(out, "--log", tmp_path / "bare.tsv", code=3).stderr
