"""`clickprism relevance`: from a log to estimates, grades and rankings, and what is said about errors."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.cli.reference import examples
from clickprism.log.ingest import ingest
from clickprism.log_model.results import ClickParameters
from clickprism.simulation.raw_log import write_raw_log
from clickprism.simulation.raw_settings import RawLogSettings
from tests.data.shop import shop_table
from tests.rankers.tiny_language_model import write_tiny_model

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a query with three documents: the first is always clicked, the second often, the third never."""
    folder = tmp_path_factory.mktemp("three")
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
    ClickParameters(np.array([1.0, 0.8, 0.6]), np.zeros(3)).write(folder / "trust.json")
    return folder


def estimated(cli: Run, three: Path, *words: object, code: int = 0) -> Any:
    """Estimate the log of three documents with known propensities."""
    given = ["--propensities", three / "trust.json", "--out", three / "e.parquet", "--json"]
    return cli("relevance", "estimate", three / "log", *given, *words, code=code)


def test_from_a_log_to_grades_and_rankings(three: Path, tmp_path: Path, cli: Run) -> None:
    found = estimated(cli, three)
    assert (found.json["pairs"], found.json["suppressed"], found.json["estimator"]) == (3, 0, "log_model")
    assert found.json["model"]["strength"] > 0
    assert found.json["model"]["curve"]["values"] == [1.0, 0.8, 0.6]
    assert sum(found.json["sources"].values()) == 3
    assert f"clickprism relevance judgments {three / 'e.parquet'}" in found.stderr
    estimates = three / "e.parquet"
    words = ["--cuts", ".2", "--cuts", ".8", "--out", tmp_path / "judged.csv"]
    assert cli("relevance", "judgments", estimates, *words, "--json").json["grades"] == {"0": 1, "1": 1, "2": 1}
    judged = list(csv.DictReader((tmp_path / "judged.csv").read_text().splitlines()))
    assert {row["document_id"]: row["grade"] for row in judged} == {"always": "2", "often": "1", "never": "0"}
    for by in ("value", "lower", "thompson"):
        words = ["--by", by, "--top", 2, "--out", tmp_path / "ranked.jsonl", "--json"]
        assert cli("relevance", "rank", estimates, *words).json["documents"] == 2
        ranked = [json.loads(line) for line in (tmp_path / "ranked.jsonl").read_text().splitlines()]
        assert [(row["rank"], row["document_id"]) for row in ranked] == [(1, "always"), (2, "often")]


def test_draws_and_ties_do_not_depend_on_the_order_of_the_file(tmp_path: Path, cli: Run) -> None:
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
            "source": pa.nulls(5, pa.string()),
            "query": pa.nulls(5, pa.string()),
        }
    )
    file, written = tmp_path / "e.parquet", set()
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1]):
        pq.write_table(whole.take(order), file)
        texts = []
        for words in (["rank", "--by", "thompson"], ["rank"], ["judgments"]):
            cli("relevance", words[0], file, *words[1:], "--out", tmp_path / "out.csv")
            texts.append((tmp_path / "out.csv").read_text())
        assert [row["document_id"] for row in csv.DictReader(texts[1].splitlines())] == ["x", "y", "a" * 500, "x", "y"]
        written.add("".join(texts))
    assert len(written) == 1
    cli("relevance", "rank", file, "--out", tmp_path / "r.parquet")
    assert pq.read_table(tmp_path / "r.parquet")["rank"].to_pylist() == [1, 2, 1, 2, 3]
    pq.write_table(pa.concat_tables([whole, whole.slice(2, 1)]), file)
    assert "has a pair twice" in cli("relevance", "rank", file, "--out", tmp_path / "r.csv", code=1).stderr


def test_few_users_and_days(three: Path, cli: Run) -> None:
    refused = estimated(cli, three, "--min-users", 999, code=3).stderr
    assert "fewer than 999 users saw each of the 3 pairs" in refused
    assert "--min-users 0" in refused
    words = ["--days", "2026-03-03", "--min-users", 0, "--estimator", "affine"]
    assert estimated(cli, three, *words).json["pairs"] == 3
    assert "2026-03-01 to 2026-03-03" in estimated(cli, three, "--days", "2027-01-01", code=3).stderr


def test_a_number_of_the_estimator_is_read(three: Path, cli: Run) -> None:
    ids = {"query_id": ["q"], "document_id": ["always"], "imputation": [0.5]}
    pq.write_table(pa.table(ids), three / "imputed.parquet")
    words = ["--estimator", "doubly_robust", "--beta-1", "1.5"]
    refused = estimated(cli, three, *words, "--imputation", three / "imputed.parquet", code=2).stderr
    assert "--beta-1 must be 0 or more and below 1, got 1.5" in refused


def test_parameters_are_for_other_estimators(three: Path, cli: Run) -> None:
    words = [three / "log", "--parameters", three / "trust.json", "--out", three / "e.parquet"]
    assert "--propensities" in cli("relevance", "estimate", *words, code=2).stderr
    found = cli("relevance", "estimate", *words, "--estimator", "affine", "--json").json
    assert (found["parameters"]["alpha"], found["model"]) == ([1.0, 0.8, 0.6], None)
    saved = ["--estimator", "affine", "--model", three / "model"]
    assert "no model is fitted" in cli("relevance", "estimate", *words, *saved, code=2).stderr


def test_documents_shown_at_one_position_only_are_warned_about(three: Path, cli: Run) -> None:
    found = cli("relevance", "estimate", three / "log", "--out", three / "e.parquet", "--model", three / "model")
    assert "Warning: Not identified: positions 2 to 3." in found.stderr
    assert "mostly from" in found.stdout
    assert (three / "model" / "log_model.json").is_file()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["estimate", "LOG", "--out", "e.csv"], 2, "--out must end in .parquet"),
        (["estimate", "LOG", "--out", "e.parquet", "--estimator", "log_modle"], 2, 'Did you mean "log_model"'),
        (["estimate", "LOG", "--out", "e.parquet", "--estimator", "doubly_robust"], 2, "--imputation must be"),
        (["estimate", "LOG", "--out", "e.parquet", "--beta-1", ".2"], 2, "used with the estimator doubly_robust only"),
        (
            ["estimate", "LOG", "--out", "e.parquet", "--click-parameters", "first_slot"],
            2,
            "--click-parameters must be used with the estimators affine, ipw and doubly_robust",
        ),
        (
            ["estimate", "LOG", "--out", "e.parquet", "--estimator", "affine", "--click-parameters", "first_slot"],
            3,
            "has no randomised first result",
        ),
        (["estimate", "LOG", "--out", "e.parquet", "--days", "March"], 2, "--days must be two days such as"),
        (["estimate", "LOG", "--out", "e.parquet", "--depth", "-1"], 2, "--depth must be at least 1"),
        (["judgments", "nothing.parquet", "--out", "j.csv"], 1, "clickprism relevance estimate"),
        (["judgments", "nothing.parquet", "--out", "j.xls"], 2, "--out must end in .csv"),
        (
            ["judgments", "nothing.parquet", "--out", "j.csv", "--cuts", "2"],
            2,
            "--cuts must be 1 to 4 numbers between 0 and 1",
        ),
        (["rank", "nothing.parquet", "--out", "j.csv"], 1, "clickprism relevance estimate"),
        (["rank", "nothing.parquet", "--out", "j.csv", "--top", "0"], 2, "--top must be at least 1"),
        (["exploration", "LOG"], 3, "has no randomised first result"),
        (["exploration", "LOG", "--share", "2"], 2, "--share must be from 0 to 1"),
    ],
)
def test_errors_name_the_option(three: Path, words: list[str], code: int, told: str, cli: Run) -> None:
    paths = [str(three / "log") if word == "LOG" else word for word in words]
    paths = [str(three / word) if word.endswith((".parquet", ".csv", ".xls")) else word for word in paths]
    assert told in cli("relevance", *paths, code=code).stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cli: Run) -> Path:
    """A folder with all that the examples of the help name."""
    folder = tmp_path_factory.mktemp("relevance")
    raw = RawLogSettings(
        searches=2000, days=2, seed=5, queries=30, randomised=0.3, robots=0.0, max_documents=6, broken=0.0, length=6
    )
    write_raw_log(folder / "raw", raw)
    ingest([folder / "raw" / "events"], folder / "mylog")
    ClickParameters(1 / np.arange(1, 7) ** 0.5, np.zeros(6)).write(folder / "trust.json")
    cli("relevance", "estimate", folder / "mylog", "--out", folder / "estimates.parquet")
    pairs = pq.read_table(folder / "estimates.parquet").select(["query_id", "document_id"])
    imputed = pairs.append_column("imputation", pa.array(np.linspace(0.1, 0.9, len(pairs))))
    pq.write_table(imputed, folder / "imputed.parquet")
    queries = sorted(set(pairs["query_id"].to_pylist()))
    (folder / "queries.tsv").write_text("".join(f"{name}\t{name} query\n" for name in queries), encoding="utf-8")
    ids = [(str(row["query_id"]), str(row["document_id"])) for row in pairs.to_pylist()]
    documents = sorted({document for _, document in ids})
    (folder / "documents.tsv").write_text("".join(f"{name}\tdocument {name}\n" for name in documents))
    (folder / "pairs.tsv").write_text("query_id\tdocument_id\n" + "".join(f"{q}\t{d}\n" for q, d in ids))
    counts = "".join(f"{query}\t{document}\t{number % 3}\t4\n" for number, (query, document) in enumerate(ids))
    (folder / "clicks.tsv").write_text(f"query_id\tdocument_id\tclicks\timpressions\n{counts}")
    letor = [f"0 qid:{query} 1:{number % 3} 2:1 # docid = {document}" for number, (query, document) in enumerate(ids)]
    (folder / "features.letor").write_text("\n".join(letor))
    write_tiny_model(folder / "model")
    text = "[text.encoder]\nmodel = 'model'\ntokens = 16\nquery_tokens = 4\n[text.fit]\nthreads = 1\n"
    (folder / "imputation.toml").write_text(f"{text}[feature.fit]\nepochs = 2\nthreads = 1\n")
    (folder / "small.toml").write_text("members = 1\nepochs = 2\n", encoding="utf-8")
    words = ["--features", folder / "features.letor", "--config", folder / "imputation.toml"]
    cli("relevance", "impute", "fit", folder / "mylog", *words, "--out", folder / "runs" / "imputation")
    words = ["--imputation", folder / "imputed.parquet", "--config", folder / "small.toml"]
    cli("relevance", "approximate", "fit", folder / "mylog", *words, "--out", folder / "runs" / "approximation")
    return folder


SMALL = {
    "approximate fit": "small.toml",
    "impute fit": "imputation.toml",
    "impute cross-fit": "imputation.toml",
}
NAMES = (
    "estimate",
    "impute fit",
    "impute apply",
    "impute cross-fit",
    "approximate fit",
    "approximate apply",
    "judgments",
    "rank",
    "exploration",
)
EXAMPLES = [(name, line) for name in NAMES for line in examples(["relevance", *name.split()])]


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_examples_of_the_help_run(
    name: str, line: str, folder: Path, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    shop_table(folder / "clicks.csv", folder / "shop.db")
    cli(*shlex.split(line)[1:], *(["--config", SMALL[name]] if name in SMALL else []))


def test_exploration_measures_the_cost(folder: Path, cli: Run) -> None:
    words = ["--share", 0.1, "--json"]
    found = cli("relevance", "exploration", folder / "mylog", *words).json
    lost = found["lost_per_1000_searches"]
    assert 0.2 < found["randomised"] < 0.4
    assert lost[0] == pytest.approx(0.1 * found["lost_per_1000_randomised"][0])
    assert lost[1] < lost[0] < lost[2]
    assert "lost per 1,000 searches" in cli("relevance", "exploration", folder / "mylog").stdout


def test_click_parameters_by_first_slots(folder: Path, tmp_path: Path, cli: Run) -> None:
    words = ["--estimator", "ipw", "--click-parameters", "first_slot", "--depth", 3, "--out", tmp_path / "e.parquet"]
    found = cli("relevance", "estimate", folder / "mylog", *words, "--json").json
    assert found["parameters"]["source"] == "randomised first results"
    assert (found["parameters"]["theta"][0], len(found["parameters"]["theta"]), found["model"]) == (1.0, 3, None)


def test_doubly_robust_estimates_beta_1_by_first_slots(folder: Path, tmp_path: Path, cli: Run) -> None:
    log, files = folder / "mylog", ["--imputation", folder / "imputed.parquet", "--out", tmp_path / "e.parquet"]
    words = ["--estimator", "doubly_robust", "--click-parameters", "first_slot", "--depth", 4, "--json"]
    cli("bias", "examination", log, "--clicks", "others")
    levels = [
        cli("relevance", "estimate", log, *files, *words, *more).json["beta_1"] for more in ([], ["--beta-1", 0.05])
    ]
    shutil.rmtree(log / "models")
    assert 0 <= levels[0] < 0.9
    assert levels[1] == 0.05


@pytest.mark.parametrize("preset", ["default", "published"])
def test_approximate_fits_and_applies_a_network(preset: str, folder: Path, tmp_path: Path, cli: Run) -> None:
    words = ["--imputation", folder / "imputed.parquet"]
    small = ["--preset", preset, "--members", 1, "--epochs", 1, "--out", tmp_path / "network", "--json"]
    fitted = cli("relevance", "approximate", "fit", folder / "mylog", *words, *small)
    assert fitted.json["impressions"] > 100
    assert list(fitted.json["losses"]["values"]) == ["click rate", "imputation", "affine", "approximation"]
    assert len(fitted.json["losses"]["gains"]["affine"]) == 3
    out = tmp_path / "e.parquet"
    applied = cli("relevance", "approximate", "apply", folder / "mylog", tmp_path / "network", *words, "--out", out)
    assert "without an imputation: its mean" in applied.stdout
    assert f"clickprism relevance rank {out}" in applied.stderr
    cli("relevance", "rank", out, "--out", tmp_path / "ranking.csv")


def test_approximate_says_what_it_needs(three: Path, tmp_path: Path, cli: Run) -> None:
    imputed, log = tmp_path / "imputed.parquet", three / "log"
    pq.write_table(pa.table({"query_id": ["q"], "document_id": ["always"], "imputation": [0.5]}), imputed)
    words = ["--imputation", imputed, "--out", tmp_path / "a"]
    refused = cli("relevance", "approximate", "fit", log, *words, code=3).stderr
    assert "no randomised first result" in refused
    told = cli("relevance", "approximate", "fit", log, *words, "--as-of", "2026-03-03", code=2).stderr
    assert "--as-of" in told
    late = cli("relevance", "approximate", "fit", log, *words, "--since", "2030-01-01", code=2).stderr
    assert "--since must be within the log" in late
    words = ["--imputation", imputed, "--out", tmp_path / "e.parquet"]
    told = cli("relevance", "approximate", "apply", log, tmp_path, *words, "--seed", 3, code=2).stderr
    assert "--seed" in told


def test_approximate_refuses_a_log_of_one_day(tmp_path: Path, cli: Run) -> None:
    row = {"search_id": "s", "query_id": "q", "document_id": "a", "position": 1, "time": "2026-03-01T10:00:00Z"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    ingest([tmp_path / "rows.jsonl"], tmp_path / "log")
    pq.write_table(pa.table({"query_id": ["q"], "document_id": ["a"], "imputation": [0.5]}), tmp_path / "i.parquet")
    words = ["--imputation", tmp_path / "i.parquet", "--out", tmp_path / "network"]
    assert "has one day only" in cli("relevance", "approximate", "fit", tmp_path / "log", *words, code=3).stderr


def test_estimate_reads_a_session_file_and_says_when_it_is_too_small(tmp_path: Path, cli: Run) -> None:
    file = tmp_path / "sessions.tsv"
    file.write_text("query\tdocuments\tclicks\ncat\ta,b\ta\n")
    told = cli("relevance", "estimate", file, "--out", tmp_path / "e.parquet", code=1).stderr
    assert "the log has 1 click, too few to fit a model" in told


def test_a_log_without_user_ids_is_judged_completely_with_the_texts_of_its_queries(tmp_path: Path, cli: Run) -> None:
    """Read directly or ingested: no pair is dropped, since no threshold of users can be applied."""
    lines = [f"{q}\ttext of {q}\ta,b,c\t{'a' if turn % 3 else 'b'}" for turn in range(20) for q in ("q1", "q2")]
    sessions = tmp_path / "sessions.tsv"
    sessions.write_text("\n".join(["query\tquery_text\tdocuments\tclicks", *lines]) + "\n")
    cli("log", "ingest", sessions, "--into", tmp_path / "log")
    for log in (sessions, tmp_path / "log"):
        found = cli("relevance", "estimate", log, "--out", tmp_path / "e.parquet", "--json")
        assert (found.json["pairs"], found.json["suppressed"]) == (6, 0)
        assert ("no user ids" in found.stderr) == (log != sessions)
        cli("relevance", "judgments", tmp_path / "e.parquet", "--out", tmp_path / "j.jsonl")
        rows = [json.loads(line) for line in (tmp_path / "j.jsonl").read_text().splitlines()]
        assert len(rows) == 6
        if log == sessions:
            assert {row["query"] for row in rows} == {"text of q1", "text of q2"}
    with_threshold = cli(
        "relevance", "estimate", tmp_path / "log", "--min-users", 2, "--out", tmp_path / "e.parquet", code=3
    )
    assert "fewer than 2 users" in with_threshold.stderr
