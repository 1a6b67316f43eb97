"""Imputation: probabilities by id, whatever makes them; to a folder and back; from files to files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import clickprism as cp
from clickprism.data.normalise import fit as fit_normaliser
from clickprism.data.texts import Texts, read_texts
from clickprism.errors import DataError, SettingError
from clickprism.log.ingest import ingest
from clickprism.log_model.model import LogModel
from clickprism.rankers.language_model import CrossEncoder
from clickprism.rankers.text_tokens import Pairs
from clickprism.relevance.imputation import FeatureImputation, Imputation, TextImputation, cross_fit, fit_imputation
from clickprism.relevance.pair_files import read_features, read_pairs, read_slot
from clickprism.relevance.pairs import FirstSlot, find_pairs
from clickprism.training.text_settings import TextFitSettings
from clickprism.types import Clicks, Float64, JudgedLists, Lists, Text
from tests.rankers.tiny_language_model import WORDS, write_tiny_model

Run = Callable[..., Any]
FIT = TextFitSettings(epochs=2, learning_rate=1e-3, threads=1, batch_pairs=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world of files: a tiny language model, texts, first-slot clicks."""
    folder = tmp_path_factory.mktemp("files")
    write_tiny_model(folder / "model")
    rng = np.random.default_rng(5)
    queries = [f"{i}\t{WORDS[i % 10]} {WORDS[i // 10]}" for i in range(30)]
    documents = [f"d{i}\t{' '.join(rng.choice(WORDS, 4))}" for i in range(40)]
    (folder / "queries.tsv").write_text("\n".join(queries))
    (folder / "documents.tsv").write_text("\n".join(documents))
    rows = ["query_id\tdocument_id\tclicks\timpressions"]
    for _ in range(200):
        shown = int(rng.integers(1, 9))
        query, document = int(rng.integers(30)), int(rng.integers(40))
        alike = queries[query].split("\t")[1].split()[0] in documents[document]
        rows.append(f"{query}\td{document}\t{rng.binomial(shown, 0.8 if alike else 0.3)}\t{shown}")
    (folder / "clicks.tsv").write_text("\n".join(rows))
    (folder / "pairs.tsv").write_text("query_id\tdocument_id\n3\td1\n4\td2\n3\td1\n")
    return folder


def texts(folder: Path) -> tuple[Texts, Texts]:
    return read_texts(folder / "queries.tsv"), read_texts(folder / "documents.tsv")


@pytest.fixture(scope="module")
def trained(folder: Path) -> TextImputation:
    slot = read_slot(folder / "clicks.tsv")
    encoder = CrossEncoder(model=str(folder / "model"), tokens=16, query_tokens=4)
    fitted = fit_imputation(slot, *texts(folder), encoder=encoder, settings=FIT)[0]
    assert isinstance(fitted, TextImputation)
    return fitted


def test_each_distinct_pair_is_read_once_and_in_its_place(
    trained: TextImputation, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    odds = trained.network.odds

    def counted(pairs: Pairs) -> Float64:
        read.append(len(pairs))
        return odds(pairs)

    monkeypatch.setattr(trained.network, "odds", counted)
    imputation: Imputation = trained
    values = imputation.impute(["3", "4", "3"], ["d1", "d2", "d1"])
    assert read == [2]
    assert values[0] == values[2]
    assert ((values > 0) & (values < 1)).all()
    alone = trained.network.score_pairs(trained.queries.of_ids(["4"]), trained.documents.of_ids(["d2"]))
    assert values[1] == pytest.approx(alone[0], abs=1e-6)
    with pytest.raises(DataError, match="1 of 2 rows name a document without a text, first 'dx'"):
        imputation.impute(["3", "4"], ["d1", "dx"])


def test_a_folder_and_back(trained: TextImputation, tmp_path: Path) -> None:
    trained.save(tmp_path)
    again = TextImputation.load(tmp_path, queries=trained.queries, documents=trained.documents)
    ids = ["3", "9"], ["d1", "d7"]
    np.testing.assert_array_equal(trained.impute(*ids), again.impute(*ids))
    names = {path.name.partition("-")[0] for path in tmp_path.iterdir()}
    assert names == {"imputation.json", "network", "config", "tokenizer", "about", "corpus", "untuned"}
    manifest = tmp_path / "imputation.json"
    good = manifest.read_text()
    weights = next(tmp_path.glob("network-*.safetensors"))
    for values, words in (
        ({"format": 9}, "format 9, this version reads 2"),
        ({"kind": "features"}, "of kind 'features'"),
        ({"encoder": {"pooling": "max"}}, r"encoder\.pooling must be one of"),
        ({"files": {"evil.pkl": "0"}}, "names a file that no model has"),
        ({"files": {}}, "is not the manifest of an imputation"),
    ):
        manifest.write_text(json.dumps(json.loads(good) | values))
        with pytest.raises(Exception, match=words) as caught:
            TextImputation.load(tmp_path, queries=trained.queries, documents=trained.documents)
        assert type(caught.value).__module__ == "clickprism.errors"
    manifest.write_text(good)
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match="was changed after the model was saved"):
        TextImputation.load(tmp_path, queries=trained.queries, documents=trained.documents)


def test_any_ranker_on_features_is_an_imputation(judged: JudgedLists, clicks: Clicks) -> None:
    lists = judged.lists
    named = Lists(lists.features, lists.offsets, lists.query_ids, np.array([f"d{i}" for i in range(lists.documents)]))
    settings = cp.FitSettings(epochs=5, threads=1)
    model = cp.fit(clicks, method=cp.method("dla"), ranker=cp.Linear(), settings=settings).model
    rng = np.random.default_rng(1)
    truth = 0.2 + 0.15 * judged.grades
    shown = np.full(lists.documents, 200)
    queries = named.query_ids[named.list_of]
    documents = named.document_ids
    assert documents is not None
    slot = FirstSlot.of(queries, documents, rng.binomial(shown, truth), impressions=shown)
    imputation = FeatureImputation.fit(model, named, slot)
    values = imputation.impute(queries, documents)
    assert values.mean() == pytest.approx(truth.mean(), abs=0.01)
    assert np.corrcoef(values, truth)[0, 1] > 0.8
    low = truth[values < np.median(values)].mean(), values[values < np.median(values)].mean()
    assert low[0] == pytest.approx(low[1], abs=0.05)
    with pytest.raises(DataError, match="1 pairs have no features, first 'q0', 'other'"):
        imputation.impute(["q0"], ["other"])
    with pytest.raises(DataError, match="none of the pairs"):
        FeatureImputation.fit(model, named, FirstSlot.of(np.array(["x"]), np.array(["y"]), np.array([1])))


def small(folder: Path) -> list[object]:
    """Return the options of a tiny language model."""
    files = ["--queries", folder / "queries.tsv", "--documents", folder / "documents.tsv"]
    sizes = ["--text.encoder.tokens", 16, "--text.encoder.query-tokens", 4, "--text.fit.threads", 1, "--seed", 3]
    return [*files, "--text.encoder.model", folder / "model", *sizes]


def test_the_commands_fit_and_apply(folder: Path, tmp_path: Path, cli: Run) -> None:
    files = ["--queries", folder / "queries.tsv", "--documents", folder / "documents.tsv"]
    fit = ["relevance", "impute", "fit", folder / "clicks.tsv", *small(folder), "--text.fit.epochs", 1]
    told = cli(*fit, "--out", tmp_path / "a", "--json")
    found = told.json
    assert found["impressions"] == int(read_slot(folder / "clicks.tsv").impressions.sum())
    assert 0 < found["losses"]["best"] < 1
    assert found["stopped"] in ("epochs", "patience")
    assert "the loss on held-out queries is" in told.stderr
    assert "step " in told.stderr
    assert "click rate" in cli(*fit, "--out", tmp_path / "b", "--quiet").stdout
    for ending in ("parquet", "jsonl"):
        words = [tmp_path / "a", folder / "pairs.tsv", *files, "--out", tmp_path / f"imputed.{ending}"]
        cli("relevance", "impute", "apply", *words)
    table = pq.read_table(tmp_path / "imputed.parquet").to_pylist()
    lines = [json.loads(line) for line in (tmp_path / "imputed.jsonl").read_text().splitlines()]
    assert [row["imputation"] for row in lines] == pytest.approx([row["imputation"] for row in table], abs=1e-9)
    assert [row["document_id"] for row in table] == ["d1", "d2", "d1"]
    assert all(0 < row["imputation"] < 1 for row in table)
    words = [tmp_path / "b", folder / "pairs.tsv", *files, "--out", tmp_path / "c.jsonl", "--json"]
    other = cli("relevance", "impute", "apply", *words).json
    assert other["mean"] == pytest.approx(np.mean([row["imputation"] for row in table]), abs=1e-12)


def test_cross_fitting_predicts_a_query_without_its_clicks(folder: Path, tmp_path: Path, cli: Run) -> None:
    words = [folder / "clicks.tsv", folder / "pairs.tsv", *small(folder), "--folds", 3]
    cli("relevance", "impute", "cross-fit", *words, "--out", tmp_path / "crossed.jsonl")
    crossed = [json.loads(line)["imputation"] for line in (tmp_path / "crossed.jsonl").read_text().splitlines()]
    assert crossed[0] == crossed[2] != crossed[1]


def test_errors_of_the_commands_say_what_is_wrong(folder: Path, tmp_path: Path, cli: Run) -> None:
    files = ["--queries", folder / "queries.tsv", "--documents", folder / "documents.tsv", "--out", tmp_path / "x"]
    fit = ["relevance", "impute", "fit"]
    assert "CLICKS" in cli(*fit, *files, code=2).stderr
    assert (
        "--queries must be given with --documents"
        in cli(*fit, folder / "clicks.tsv", "--out", tmp_path / "x", code=2).stderr
    )
    apply = ["relevance", "impute", "apply", tmp_path, folder / "pairs.tsv", *files]
    assert "--out must end in .csv, .tsv, .jsonl or .parquet" in cli(*apply, code=2).stderr
    wrong = cli(*fit, folder / "clicks.tsv", *files, "--text.fit.epoch", 2, code=2).stderr
    assert "--text.fit.epochs" in wrong
    bad = tmp_path / "bad.tsv"
    for text, words in (
        ("query_id\tdocument_id\tclicks\n3\td1\t1\n", "has no column 'impressions'"),
        ("query_id\tdocument_id\tclicks\timpressions\n3\td1\t2\t1\n", "bad.tsv:2: has 2 clicks on 1 impressions"),
        ("query_id\tdocument_id\tclicks\timpressions\n3\td1\t0.5\t1\n", "bad.tsv:2: has 0.5 clicks on 1 impressions"),
        ("query_id\tdocument_id\tclicks\timpressions\n\td1\t0\t1\n", "has a row without a query_id"),
    ):
        bad.write_text(text)
        assert words in cli(*fit, bad, *files, code=1).stderr


def feature_files(folder: Path) -> tuple[Lists, Float64]:
    """Features of 40 queries with 8 documents each as a table and as LETOR, and first-slot clicks that follow them."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(320, 3)).astype(np.float32)
    truth = 1 / (1 + np.exp(-(features @ [1.0, -0.5, 0.0])))
    queries, documents = [f"q{i // 8:02}" for i in range(320)], [f"d{i % 8}" for i in range(320)]
    shown = rng.integers(1, 20, 320)
    clicks = rng.binomial(shown, truth)
    rows = list(zip(queries, documents, features.tolist(), shown.tolist(), clicks.tolist(), strict=True))
    table = [f"{q},{d},{x[0]},{x[1]},{x[2]}" for q, d, x, _, _ in rows]
    letor = [f"0 qid:{q} 1:{x[0]} 2:{x[1]} 3:{x[2]} # docid = {d}" for q, d, x, _, _ in rows]
    (folder / "features.csv").write_text("\n".join(["query_id,document_id,a,b,c", *table[::-1]]))
    (folder / "features.letor").write_text("\n".join(letor))
    counts = [f"{q},{d},{c},{n}" for q, d, _, n, c in rows[:300]]
    (folder / "clicks.csv").write_text("\n".join(["query_id,document_id,clicks,impressions", *counts]))
    (folder / "pairs.csv").write_text("\n".join(["query_id,document_id", *(f"{q},{d}" for q, d, *_ in rows)]))
    return read_features(folder / "features.letor"), truth


@pytest.mark.parametrize(("ranker", "file"), [("linear", "letor"), ("lambdamart", "csv")])
def test_the_commands_take_features(tmp_path: Path, ranker: str, file: str, cli: Run) -> None:
    lists, truth = feature_files(tmp_path)
    features = ["--features", tmp_path / f"features.{file}"]
    fit = ["relevance", "impute", "fit", tmp_path / "clicks.csv", *features, "--feature.fit.threads", 1]
    named = ["--feature.ranker.name", ranker]
    found = cli(*fit, *named, "--out", tmp_path / "made", "--json").json
    assert (found["kind"], found["without_features"]) == ("features", 0)
    assert found["losses"]["best"] < found["losses"]["constant"]
    words = [tmp_path / "made", tmp_path / "pairs.csv", *features, "--out", tmp_path / "out.parquet"]
    cli("relevance", "impute", "apply", *words)
    values = np.array(pq.read_table(tmp_path / "out.parquet")["imputation"])
    assert np.corrcoef(values, truth)[0, 1] > 0.8
    loaded = FeatureImputation.load(tmp_path / "made", lists=lists)
    ids = read_pairs(tmp_path / "pairs.csv")
    np.testing.assert_allclose(loaded.impute(*ids), values, atol=1e-6)
    loaded.model.with_normaliser(fit_normaliser("none", lists)).save(tmp_path / "made" / "model")
    with pytest.raises(DataError, match="is not the model of this imputation"):
        FeatureImputation.load(tmp_path / "made", lists=lists)
    texts = ["--queries", tmp_path / "pairs.csv", "--documents", tmp_path / "pairs.csv"]
    assert "not be given with --queries" in cli(*fit, *named, *texts, "--out", tmp_path / "x", code=2).stderr


def test_an_imputation_that_could_not_be_measured_has_a_note(tmp_path: Path, cli: Run) -> None:
    (tmp_path / "clicks.csv").write_text("query_id,document_id,clicks,impressions\nq,d,1,3\n")
    (tmp_path / "features.csv").write_text("query_id,document_id,a\nq,d,1\n")
    words = ["--features", tmp_path / "features.csv", "--out", tmp_path / "imputation"]
    fitted = cli("relevance", "impute", "fit", tmp_path / "clicks.csv", *words, "--feature.fit.epochs", 1)
    assert "no query was left to measure how good the imputation is" in fitted.stderr


def test_a_folder_that_is_no_imputation_names_the_command_that_makes_one(tmp_path: Path, cli: Run) -> None:
    (tmp_path / "features.csv").write_text("query_id,document_id,a\nq,d,1\n")
    words = [tmp_path / "features.csv", "--features", tmp_path / "features.csv", "--out", tmp_path / "imputed.parquet"]
    failed = cli("relevance", "impute", "apply", tmp_path, *words, code=1)
    assert "imputation.json: cannot be read" in failed.stderr
    assert "clickprism relevance impute fit" in failed.stderr


class Memory:
    """The worst imputation there is: it knows each pair's own clicks, and of others the mean."""

    def __init__(self, slot: FirstSlot) -> None:
        self.slot = slot

    def impute(self, queries: Sequence[str] | Text, documents: Sequence[str] | Text) -> Float64:
        rows = find_pairs((self.slot.query_ids, self.slot.document_ids), (np.asarray(queries), np.asarray(documents)))
        own = (self.slot.clicks + 0.5) / (self.slot.impressions + 1)
        return np.where(rows >= 0, own[rows], self.slot.rate)


def test_clicks_count_once_by_cross_fitting() -> None:
    """Intervals with an imputation that saw the same clicks are far too narrow; cross-fitted, they hold."""
    rng = np.random.default_rng(8)
    queries, documents = np.repeat([f"q{i}" for i in range(300)], 5), np.tile([f"d{i}" for i in range(5)], 300)
    truth = rng.beta(6, 4, 1500)
    shown = np.full(1500, 12)
    clicks = rng.binomial(shown, truth)
    slot = FirstSlot.of(queries, documents, clicks, impressions=shown)
    first = find_pairs((queries, documents), (slot.query_ids, slot.document_ids))
    lists = Lists(np.zeros((1500, 0), np.float32), np.arange(0, 1501, 5), slot.query_ids[::5])
    ones = np.ones(1500, np.int32)
    log = Clicks(lists, np.arange(1501), np.arange(1500), ones, clicks[first], shown[first])
    ids = slot.query_ids, slot.document_ids
    covered = {}
    for name, values in (
        ("own", Memory(slot).impute(*ids)),
        ("cross", cross_fit(slot, *ids, fit=Memory, folds=5)),
    ):
        made = LogModel.fit(log, imputation=values).relevance
        covered[name] = float(((made.lower <= truth[first]) & (truth[first] <= made.upper)).mean())
    assert covered["cross"] == pytest.approx(0.95, abs=0.02)
    assert covered["own"] < 0.8
    with pytest.raises(SettingError, match="folds must be at most"):
        cross_fit(slot.take(np.arange(5)), *ids, fit=Memory, folds=5)


def test_impute_takes_a_log_that_was_only_ingested(tmp_path: Path, cli: Run) -> None:
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
    words = ["--feature.ranker.name", "linear", "--feature.fit.epochs", 2, "--out", tmp_path / "imputation", "--json"]
    found = cli("relevance", "impute", "fit", tmp_path / "log", "--features", tmp_path / "log", *words).json
    assert found["impressions"] == 240
