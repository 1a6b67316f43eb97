"""`clickprism estimate`, `judgments` and `rank`: from a log to grades and rankings, and their errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from clickprism.cli_old.app import app
from clickprism.log.ingest import ingest
from clickprism.observation.parameters import ClickParameters


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query with three documents, of which the first is clicked always, the second often, the third never."""
    folder = tmp_path_factory.mktemp("estimates")
    rows = [
        {
            "search_id": f"s{number}",
            "query_id": "q",
            "document_id": document,
            "position": place + 1,
            "time": f"2026-03-0{1 + number % 3}T10:00:00Z",
            "click": number % 4 < chance,
            "user_id": f"u{number}",
        }
        for number in range(60)
        for place, (document, chance) in enumerate((("always", 4), ("often", 2), ("never", 0)))
    ]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ingest([folder / "rows.jsonl"], folder / "log")
    ClickParameters(np.array([1.0, 0.8, 0.6]), np.zeros(3)).write(folder / "parameters.json")
    return folder


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


def test_from_a_log_to_grades_and_rankings(folder: Path) -> None:
    out = folder / "estimates.parquet"
    code, said, noted = run(
        "estimate", folder / "log", "--parameters", folder / "parameters.json", "--out", out, "--json"
    )
    assert code == 0, noted
    found = json.loads(said)
    assert (found["pairs"], found["suppressed"], found["estimator"]) == (3, 0, "shrunk")
    assert found["learned"]["k"] > 0
    cuts = ["--set", "scale=absolute", "--set", "cuts=[.2, .8]"]
    code, said, noted = run("judgments", out, "--out", folder / "judged.csv", *cuts)
    assert code == 0, noted
    judged = list(csv.DictReader((folder / "judged.csv").read_text().splitlines()))
    assert {row["document_id"]: row["grade"] for row in judged} == {"always": "2", "often": "1", "never": "0"}
    for by in ("value", "lower", "thompson"):
        code, said, noted = run("rank", out, "--by", by, "--top", 2, "--out", folder / "ranked.jsonl", "--json")
        assert code == 0, noted
        ranked = [json.loads(line) for line in (folder / "ranked.jsonl").read_text().splitlines()]
        assert [(row["rank"], row["document_id"]) for row in ranked] == [(1, "always"), (2, "often")]


def test_draws_and_ties_do_not_depend_on_the_order_of_the_file(tmp_path: Path) -> None:
    whole = pa.table(
        {
            "query_id": ["b", "a", "b", "a", "b"],
            "document_id": ["x", "y", "a" * 500, "x", "y"],
            "estimate": [0.5, 0.2, 0.5, 0.2, None],
            "lower": [0.1] * 5,
            "upper": [0.9] * 5,
            "variance": [0.04] * 5,
            "weight": [20.0] * 5,
            "imputed_only": [False] * 5,
            "impressions": [30] * 5,
            "clicked": [15] * 5,
            "imputation": pa.nulls(5, pa.float64()),
        }
    )
    written = set()
    for number, order in enumerate(([0, 1, 2, 3, 4], [4, 2, 0, 3, 1])):
        pq.write_table(whole.take(order), tmp_path / "e.parquet")
        texts = []
        for words in (["rank", "--by", "thompson"], ["rank"], ["judgments"]):
            out = tmp_path / f"{number}.csv"
            code, _, noted = run(words[0], tmp_path / "e.parquet", *words[1:], "--out", out)
            assert code == 0, noted
            texts.append(out.read_text())
        assert [row["document_id"] for row in csv.DictReader(texts[1].splitlines())] == ["x", "y", "a" * 500, "x", "y"]
        written.add("".join(texts))
    assert len(written) == 1
    assert run("rank", tmp_path / "e.parquet", "--out", tmp_path / "r.parquet")[0] == 0
    assert pq.read_table(tmp_path / "r.parquet")["rank"].to_pylist() == [1, 2, 1, 2, 3]
    pq.write_table(pa.concat_tables([whole, whole.slice(2, 1)]), tmp_path / "e.parquet")
    code, _, noted = run("rank", tmp_path / "e.parquet", "--out", tmp_path / "r.csv")
    assert (code, "has a pair twice" in noted) == (3, True)


def test_few_users_and_days(folder: Path) -> None:
    given = ["--parameters", folder / "parameters.json", "--out", folder / "e.parquet"]
    code, _, noted = run("estimate", folder / "log", *given, "--k", 999)
    assert (code, "no pair to estimate" in noted) == (3, True)
    code, said, _ = run(
        "estimate", folder / "log", *given, "--since", "2026-03-03", "--k", 0, "--json", "--estimator", "affine"
    )
    assert (code, json.loads(said)["pairs"]) == (0, 3)
    code, _, noted = run("estimate", folder / "log", *given, "--since", "2027-01-01")
    assert (code, "2026-03-01 to 2026-03-03" in noted) == (3, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["estimate", "LOG", "--out", "e.csv"], 2, "end in .parquet"),
        (["estimate", "LOG", "--out", "e.parquet", "--estimator", "shrink"], 2, "did you mean 'shrunk'"),
        (["estimate", "LOG", "--out", "e.parquet", "--estimator", "doubly_robust"], 2, "--imputation"),
        (["estimate", "LOG", "--out", "e.parquet", "--set", "kk=3"], 2, "kk"),
        (["estimate", "LOG", "--out", "e.parquet", "--since", "March"], 2, "be a day such as"),
        (["estimate", "LOG", "--out", "e.parquet", "--depth", "-1"], 2, "--depth"),
        (["judgments", "nothing.parquet", "--out", "j.csv"], 3, "clickprism estimate"),
        (["judgments", "nothing.parquet", "--out", "j.xls"], 2, "end in .csv"),
        (["rank", "nothing.parquet", "--out", "j.csv"], 3, "clickprism estimate"),
    ],
)
def test_errors(folder: Path, tmp_path: Path, words: list[str], code: int, said: str) -> None:
    paths = [str(folder / "log") if word == "LOG" else word for word in words]
    paths = [str(tmp_path / word) if word.endswith((".parquet", ".csv", ".xls")) else word for word in paths]
    found, _, noted = run(*paths)
    assert (found, said in noted) == (code, True), noted


def test_approximate_and_exploration_say_what_they_need(folder: Path, tmp_path: Path) -> None:
    imputed = tmp_path / "imputed.parquet"
    pq.write_table(pa.table({"query_id": ["q"], "document_id": ["always"], "imputation": [0.5]}), imputed)
    words = ["approximate", folder / "log", "--imputation", imputed, "--out", tmp_path / "a"]
    code, _, noted = run(*words)
    assert (code, "no impression in a randomised first slot" in noted) == (3, True), noted
    code, _, noted = run(*words, "--as-of", "2026-03-03")
    assert (code, "with --apply only" in noted) == (2, True), noted
    code, _, noted = run(*words[:-1], tmp_path / "e.parquet", "--apply", tmp_path, "--seed", 3)
    assert (code, "learns nothing" in noted) == (2, True), noted
    code, _, noted = run("exploration", folder / "log")
    assert (code, "filled at random" in noted) == (3, True), noted


def test_impute_takes_a_log_that_was_only_ingested(tmp_path: Path) -> None:
    rows = [
        {
            "search_id": f"s{number}",
            "query_id": f"q{number % 40}",
            "document_id": f"d{number % 3}",
            "position": 1,
            "time": "2026-03-01T10:00:00Z",
            "click": number % 3 > 0,
            "user_id": f"u{number}",
            "randomised": True,
            "features": {"good": float(number % 3), "same": 1.0},
        }
        for number in range(240)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ingest([tmp_path / "rows.jsonl"], tmp_path / "log")
    words = ["--features", tmp_path / "log", "--ranker", "linear", "--epochs", 2, "--out", tmp_path / "imputation"]
    code, said, noted = run("impute", "--clicks", tmp_path / "log", *words, "--json")
    assert code == 0, noted
    assert json.loads(said)["impressions"] == 240
