"""`clickprism bias` on a session file, on simulated clicks and on an ingested log."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.cli.reference import examples
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.trust import TrustUser
from clickprism.data.clicks import save_clicks
from clickprism.examination.examine import Examination
from clickprism.examination.model import ExaminationModel, newest_model
from clickprism.examination.settings import ExaminationSettings
from clickprism.log.engine import Engine
from clickprism.log.forget import forget
from clickprism.log.ingest import ingest
from clickprism.log.store import LogStore
from clickprism.log_model.parameters import ClickParameters
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.simulation.raw_log import write_raw_log
from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.types import JudgedLists, Lists, Simulation

Run = Callable[..., Any]


def judged_lists(queries: int, seed: int) -> JudgedLists:
    """Lists of six documents with random grades, without features."""
    rng, size = np.random.default_rng(seed), 6 * queries
    names = np.array([f"q{query}" for query in range(queries)])
    lists = Lists(np.zeros((size, 0), np.float32), np.arange(0, size + 1, 6), names)
    return JudgedLists(lists, rng.integers(0, 5, size).astype(np.int32))


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    judged = judged_lists(40, seed=0)
    scores = judged.grades + 2 * np.random.default_rng(1).normal(size=(3, 240))
    settings = SimulationSettings(length=4, merge="none")
    return simulate(judged, PositionUser(), sessions=8000, seed=0, settings=settings, scores=scores)


@pytest.fixture(scope="module")
def folder(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with clicks.npz, sessions.tsv and the ingested log mylog."""
    folder = tmp_path_factory.mktemp("bias")
    merged, clicks = simulation.merge(), simulation.clicks
    save_clicks(merged.clicks, folder / "clicks.npz", truth=merged.truth)
    lines = ["query\tdocuments\tclicks\tdevice"]
    for number, (start, end) in enumerate(zip(clicks.offsets[:-1], clicks.offsets[1:], strict=True)):
        rows, clicked = clicks.rows[start:end], clicks.clicks[start:end] > 0
        words = [f"q{clicks.lists.list_of[rows[0]]}", ",".join(map(str, rows)), ",".join(map(str, rows[clicked]))]
        lines.append("\t".join([*words, "phone" if number % 4 else "tv"]))
    (folder / "sessions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    raw = RawLogSettings(
        searches=6000, days=2, seed=5, queries=60, randomised=0.3, robots=0.0, max_documents=6, broken=0.0, length=6
    )
    write_raw_log(folder / "raw", settings=raw)
    ingest([folder / "raw" / "events"], folder / "mylog")
    return folder


@pytest.fixture(scope="module")
def npz(folder: Path) -> Path:
    return folder / "clicks.npz"


@pytest.fixture(scope="module")
def tsv(folder: Path) -> Path:
    return folder / "sessions.tsv"


@pytest.mark.parametrize(
    "line", [line for name in ("position", "trust", "examination") for line in examples(["bias", name])]
)
def test_examples_of_the_help_run(line: str, folder: Path, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    cli(*shlex.split(line)[1:])


def test_position_of_simulated_clicks_shows_the_truth(npz: Path, cli: Run) -> None:
    methods = [word for name in ("allpairs", "randomised", "allpairs") for word in ("--method", name)]
    shown = cli("bias", "position", npz, "--resamples", 20, *methods)
    lines = shown.stdout.splitlines()
    assert lines[0] == "All: 8,000 sessions; 95% intervals, resampled by query"
    assert lines[1].split() == ["position", "truth", "allpairs"]
    assert lines[2].split() == ["1", "1.000", "1.000"]
    assert len(lines[3].split("[")) == 2
    assert "relative error" in shown.stdout
    assert "randomised  not supported: documents are not spread" in shown.stdout
    assert f"train {npz} --method ipw --methods.ipw.propensities '[1, " in shown.stderr


def test_a_session_file_gets_the_setting_but_no_command(tsv: Path, cli: Run) -> None:
    shown = cli("bias", "position", tsv, "--resamples", 0, "--method", "allpairs").stderr
    assert "To train with the curve of allpairs: --methods.ipw.propensities '[1, " in shown
    assert "Next: " not in shown


def test_position_is_the_same_for_sessions_and_for_merged_clicks(npz: Path, tsv: Path, cli: Run) -> None:
    words = ["--resamples", 0, "--method", "allpairs", "--method", "pbm", "--json"]
    one, other = (cli("bias", "position", file, *words).json["whole"] for file in (npz, tsv))
    assert one["sessions"] == other["sessions"] == 8000
    for name in ("allpairs", "pbm"):
        np.testing.assert_allclose(one["curves"][name]["values"], other["curves"][name]["values"], rtol=1e-5)
    assert one["best"] == "allpairs"
    assert other["truth"] is None
    assert one["curves"]["pbm"]["error"] < 0.2
    assert other["curves"]["pbm"]["lower"] == [None] * 4


def test_position_by_device_writes_curves_and_plots(tsv: Path, tmp_path: Path, cli: Run) -> None:
    out = tmp_path / "made" / "curves"
    words = ["--by", "device", "--min-sessions", 3000, "--depth", 3, "--resamples", 5, "--out", out]
    shown = cli("bias", "position", tsv, *words).stdout
    assert "device = phone: 6,000 sessions" in shown
    assert "Excluded: values of device with fewer than 3,000 sessions" in shown
    written = json.loads((out / "curves.json").read_text(encoding="utf-8"))
    assert len(written["whole"]["curves"]["allpairs"]["values"]) == 3
    assert written["excluded"] == {"tv": 2000}
    plots = {f"{name}.{kind}" for name in ("curves", "parts") for kind in ("svg", "png")}
    assert {file.name for file in out.iterdir()} == plots | {"curves.json"}
    words = ["--where", "device=tv", "--method", "click-through", "--resamples", 0, "--json"]
    assert cli("bias", "position", tsv, *words).json["whole"]["sessions"] == 2000


def test_broken_lines_stop_position_or_are_skipped(tmp_path: Path, cli: Run) -> None:
    file = tmp_path / "log.csv"
    file.write_text('query,documents,clicks\ncat,"a,b",a\ncat,"a,b,a",a\n', encoding="utf-8")
    assert f"{file}:3: document 'a' stands twice in the list" in cli("bias", "position", file, code=1).stderr
    shown = cli("bias", "position", file, "--on-error", "quarantine", "--resamples", 0)
    assert "skipped 1 broken lines" in shown.stderr
    assert "allpairs       not supported: positions 1 and 2 are not linked" in shown.stdout
    assert "Only the click rate is available" in shown.stderr


def test_parts_that_differ_are_reported_and_reasons_are_not_repeated(tmp_path: Path, cli: Run) -> None:
    lines = ["query\tdocuments\tclicks\tdevice"]
    for device, second in (("desk", 40), ("phone", 10)):
        for number in range(100):
            low = int(number < second)
            lines += [f"q\ta,b\t{'a,b' if low else 'a'}\t{device}", f"q\tb,a\t{'a,b' if low else 'b'}\t{device}"]
    file = tmp_path / "log.tsv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ["--by", "device", "--min-sessions", 1, "--resamples", 50, "--method", "allpairs", "--pivot", 9]
    shown = cli("bias", "position", file, *words, "--method", "pivot")
    assert "device = desk and device = phone differ by more than their intervals, most at position 2" in shown.stderr
    assert shown.stdout.count("there is no position 9") == 1
    assert shown.stdout.count("not supported: same reason as for all sessions") == 2
    assert "differ" not in cli("bias", "position", file, *words, "--where", "device=desk").stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--method", "allpair"], 2, "--method must be a known estimator (did you mean 'allpairs'?)"),
        (["--by", "device"], 1, "the log has no column 'device'"),
        (["--where", "device"], 2, "--where must be written as column=value"),
        (["--confidence", "2"], 2, "--confidence must be between 0 and 1"),
        (["--resamples", "-1"], 2, "--resamples must be 0, or at least 2"),
        (["--depth", "1"], 2, "--depth must be at least 2"),
        (["--pivot", "0"], 2, "--pivot must be at least 1"),
        (["--unit", "session"], 3, "merged by list"),
        (["--unit", "session"], 3, "--unit query or list. Simulate with --simulation.merge pattern"),
        (["--by", "query-frequency", "--min-sessions", "0"], 2, "--min-sessions must be at least 1, got 0"),
    ],
)
def test_errors_of_position_name_the_option(npz: Path, words: list[str], code: int, message: str, cli: Run) -> None:
    assert message in cli("bias", "position", npz, *words, code=code).stderr


def test_position_of_files_that_are_no_log(tmp_path: Path, cli: Run) -> None:
    assert "cannot be read" in cli("bias", "position", tmp_path / "nothing.tsv", code=1).stderr
    file = tmp_path / "log.npz"
    for content in (b"PK\x03\x04 and no more", b"no archive"):
        file.write_bytes(content)
        assert "is not a sound .npz file" in cli("bias", "position", file, code=1).stderr


def hostile(file: Path, **columns: list[int]) -> Path:
    """Write two ranked lists of two documents in both orders, with some of the columns replaced."""
    usual = {"offsets": [0, 2, 4], "rows": [0, 1, 1, 0], "clicks": [50, 20, 40, 10], "impressions": [100, 100]}
    made = {name: np.array(values, dtype=np.int64) for name, values in (usual | columns).items()}
    made["positions"] = np.array(columns.get("positions", [1, 2, 1, 2]), dtype=np.int32)
    np.savez(file, format="clickprism clicks", version=1, fingerprint="", **made)  # type: ignore[arg-type]
    return file


@pytest.mark.parametrize(
    ("columns", "code", "message"),
    [
        ({"rows": [0, 1, -1, 0]}, 1, "rows must not be negative"),
        ({"positions": [1, 2, 1, 2**31 - 1]}, 1, "has a position 2,147,483,647"),
        ({"impressions": [2**62, 2**62]}, 1, "more sessions than can be counted"),
        ({"offsets": [0, 5, 4]}, 1, "offsets of clicks must not decrease"),
        ({"positions": [1, 2, 1, 100_000]}, 3, r"positions down to 100,000.*--depth"),
    ],
)
def test_hostile_numbers_are_refused(
    columns: dict[str, list[int]], code: int, message: str, tmp_path: Path, cli: Run
) -> None:
    assert re.search(message, cli("bias", "position", hostile(tmp_path / "log.npz", **columns), code=code).stderr)


def test_parts_of_a_column_of_ids_are_summarised(tmp_path: Path, cli: Run) -> None:
    lines = "\n".join(f"cat\ta,b\ta\ts{i}" for i in range(20_000))
    file = tmp_path / "log.tsv"
    file.write_text(f"query\tdocuments\tclicks\tid\n{lines}\n", encoding="utf-8")
    shown = cli("bias", "position", file, "--by", "id", "--method", "click-through", "--resamples", 0).stdout
    assert "Excluded: values of id with fewer than 1,000 sessions" in shown
    assert "and 19,990 more" in shown
    assert len(shown.splitlines()) < 25


def test_a_log_that_supports_no_estimator_is_refused(npz: Path, cli: Run) -> None:
    shown = cli("bias", "position", npz, "--method", "randomised", "--resamples", 0, "--json", code=3)
    assert "random" in shown.json["whole"]["unsupported"]["randomised"]
    assert "the log supports none of these estimators" in shown.stderr
    words = ["--method", "pivot", "--method", "allpairs", "--pivot", 9, "--resamples", 0]
    assert "pivot      not supported: there is no position 9" in cli("bias", "position", npz, *words).stdout


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulated clicks of users with trust bias."""
    judged = judged_lists(60, seed=0)
    scores = judged.grades + 2 * np.random.default_rng(1).normal(size=(4, 360))
    settings = SimulationSettings(length=4, gain="linear", noise=0)
    made = simulate(judged, TrustUser("hyperbolic"), sessions=40_000, seed=0, settings=settings, scores=scores)
    file = tmp_path_factory.mktemp("trust") / "clicks.npz"
    save_clicks(made.clicks, file, truth=made.truth)
    return file


def test_trust_recovers_the_parameters_of_simulated_users(trusting: Path, tmp_path: Path, cli: Run) -> None:
    out = tmp_path / "runs" / "trust.json"
    shown = cli("bias", "trust", trusting, "--out", out)
    assert "P(click at position k) = alpha P(click at position 1) + beta; 95% intervals" in shown.stdout
    assert "randomised  not supported: the log does not say" in shown.stdout
    assert "clicks do not identify the level" in shown.stderr
    found, k = ClickParameters.read(out), np.arange(1, 5)
    true = ClickParameters.of_trust(TrustUser("hyperbolic").observation(k), *TrustUser("hyperbolic").trust(k))
    assert found.source == "harvest"
    assert found.alpha == pytest.approx(true.alpha, rel=0.1)
    assert found.beta == pytest.approx(true.beta, abs=0.08)


def test_seed_depth_and_theta_of_trust(trusting: Path, cli: Run) -> None:
    def read(*words: object) -> Any:
        return cli("bias", "trust", trusting, "--method", "harvest", *words, "--json").json

    one, other = read(), read("--seed", 1)
    assert one["parameters"]["harvest"]["alpha"] == other["parameters"]["harvest"]["alpha"]
    assert one["parameters"]["harvest"]["alpha_lower"] != other["parameters"]["harvest"]["alpha_lower"]
    assert one == read()
    short = read("--method", "em", "--depth", 3, "--theta", "curve", "--resamples", 0)
    assert list(short["parameters"]) == ["harvest", "em"]
    made = short["parameters"]["harvest"]
    assert len(made["alpha"]) == 3
    assert made["theta"][0] == 1
    assert made["alpha_lower"] == [None] * 3
    assert short["best"] == "harvest"


def test_errors_of_trust_name_the_option(trusting: Path, tmp_path: Path, cli: Run) -> None:
    def refused(*words: object, code: int = 2) -> Any:
        return cli("bias", "trust", trusting, *words, code=code)

    assert "--out must end in .json" in refused("--out", tmp_path / "x").stderr
    assert "did you mean 'harvest'" in refused("--method", "harvets").stderr
    assert "--depth must be at least 2" in refused("--depth", 1).stderr
    assert "--resamples must be 0" in refused("--resamples", 1).stderr
    unsupported = refused("--method", "randomised", code=3)
    assert "the log supports none of these estimators" in unsupported.stderr
    assert "Put a random result first" in unsupported.stdout


def test_trust_of_an_ingested_log_uses_its_random_first_results(folder: Path, cli: Run) -> None:
    found = cli("bias", "trust", folder / "mylog", "--depth", 3, "--json").json
    assert {"randomised", "harvest"} <= set(found["parameters"])
    for each in found["parameters"].values():
        assert max(each["alpha"][1:]) < 1.5
        assert each["theta"] is None


@pytest.fixture(scope="module")
def displayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the ingested log of users whose display times were recorded, and its raw files."""
    folder = tmp_path_factory.mktemp("displayed")
    write_raw_log(folder / "raw", RawLogSettings(searches=3000, days=2, seed=5))
    ingest([folder / "raw" / "events"], folder / "log")
    return folder


def test_examination_fits_the_current_model_of_a_log(displayed: Path, cli: Run) -> None:
    """The bar: AUC 0.90 against what the simulated users truly observed, on held-out searches."""
    truth, report = displayed / "raw" / "truth", displayed / "report" / "page.html"
    found = cli("bias", "examination", displayed / "log", "--truth", truth, "--out", report, "--json").json
    assert found["truth"]["quality"]["auc"] >= 0.9
    assert found["quality"]["auc"] >= 0.9
    kinds = ("positive", "negative", "between", "missing")
    assert found["counts"]["rows"] == sum(found["counts"][kind] for kind in kinds)
    first = [point["value"] for point in found["by_position"] if point["page"] == 1]
    assert first == sorted(first, reverse=True)
    assert found["warning"] is None
    model = newest_model(displayed / "log" / "models")
    assert model is not None
    assert model.fingerprint == found["fingerprint"]
    assert list(model.sessions) == found["days"]
    names = {path.name for path in report.parent.iterdir()}
    assert names == {"page.html", "page-position.png", "page-anchor.png", "page-calibration.png"}
    page = report.read_text(encoding="utf-8")
    assert page.count("<svg") == 3
    assert "Against true observation: AUC 0.9" in page
    before = len(list((displayed / "log" / "models").iterdir()))
    assert "true observation" not in cli("bias", "examination", displayed / "log").stdout
    assert len(list((displayed / "log" / "models").iterdir())) == before


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--days", "2024-01-02..2024-01-01"], 2, "--days must have the earlier day first"),
        (["--days", "january"], 2, "--days must be two days such as"),
        (["--days", "2020-01-01"], 3, "has no sessions from 2020-01-01 to 2020-01-01"),
        (["--out", "report.pdf"], 2, "--out must end in .html"),
        (["--negative-ms", "6000"], 2, "--negative-ms must be from 1 to positive_ms (5000), got 6000"),
        (["--positive-ms", "90000000"], 3, "lower --positive-ms, or compute click features without estimates"),
        (["--engine", "oracle"], 2, "--engine must be duckdb"),
        (["--truth", "nowhere"], 1, "nowhere: has no Parquet files"),
    ],
)
def test_errors_of_examination_say_what_to_do(
    displayed: Path, words: list[str], code: int, text: str, cli: Run
) -> None:
    assert text in cli("bias", "examination", displayed / "log", *words, code=code).stderr


def test_examination_of_no_log(tmp_path: Path, cli: Run) -> None:
    assert "is not a click log" in cli("bias", "examination", tmp_path, code=1).stderr


def test_examination_uses_the_settings_of_the_log(displayed: Path, tmp_path: Path, cli: Run) -> None:
    log = shutil.copytree(displayed / "log", tmp_path / "log")
    with (log / "log.toml").open("a", encoding="utf-8") as file:
        file.write("\n[examination]\npositive_ms = 4000\n")
    settings = cli("bias", "examination", log, "--trees", 3, "--json").json["settings"]
    assert (settings["positive_ms"], settings["trees"]) == (4000, 3)


def forget_one(store: LogStore, engine: Engine) -> None:
    users = [user for user in store.table("sessions").read(["user_id"])["user_id"].to_pylist() if user is not None]
    forget(store, engine, [users[0]])


def test_a_user_forgotten_while_a_model_is_trained_is_not_in_it(
    displayed: Path, tmp_path: Path, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(displayed / "log", tmp_path / "log", ignore=shutil.ignore_patterns("models"))
    module = sys.modules["clickprism.examination.examine"]
    store, train, trained = LogStore.open(tmp_path / "log"), module.examine, []

    def slow(store: LogStore, engine: Engine, **asked: Any) -> tuple[ExaminationModel, Examination]:
        model, found = train(store, engine, **asked)
        trained.append(model)
        if len(trained) < 2:
            forget_one(store, engine)
        return model, found

    monkeypatch.setattr(module, "examine", slow)
    shown = cli("bias", "examination", tmp_path / "log")
    assert "The sessions changed while the model was trained: training again" in shown.stderr
    model = newest_model(store.folder / "models")
    assert model is not None
    assert [dict(each.sessions) == dict(model.sessions) for each in trained] == [False, True]
    assert len(list((store.folder / "models").glob("*.json"))) == 1

    monkeypatch.setattr(module, "examine", lambda store, *_, **__: (outdated(store), None))
    refused = cli("bias", "examination", tmp_path / "log", code=1)
    assert "changed during each of 3 attempts to train a model; no model was saved" in refused.stderr
    assert newest_model(store.folder / "models") == model


def outdated(store: LogStore) -> ExaminationModel:
    """Return a model of days that have changed since."""
    days = store.table("sessions").days()
    return ExaminationModel("", ExaminationSettings(), {day.isoformat(): "other" for day in days})


def test_a_log_without_display_times_is_refused_before_any_work(tmp_path: Path, cli: Run) -> None:
    row = {"search_id": "s", "query": "cat", "document_id": "a", "position": 1, "time": "2026-01-01T00:00:00Z"}
    (tmp_path / "events.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    ingest([tmp_path / "events.jsonl"], tmp_path / "log")
    refused = cli("bias", "examination", tmp_path / "log", code=3).stderr
    assert "no session row of this log has a display time" in refused
    assert LogStore.open(tmp_path / "log").table("sessions").days() == []


def test_a_small_log_gets_a_warning(tmp_path: Path, cli: Run) -> None:
    write_raw_log(tmp_path / "raw", RawLogSettings(searches=150, days=1, robots=0, seed=5))
    ingest([tmp_path / "raw" / "events"], tmp_path / "log")
    shown = cli("bias", "examination", tmp_path / "log", "--json")
    assert "Uncertain: only " in shown.stderr
    assert shown.json["warning"] in shown.stderr


def test_click_models_are_compared_on_held_out_sessions(tsv: Path, cli: Run) -> None:
    """The users are those of the position-based model: it is the best, and its curve is theirs."""
    words = ["--model", "rank", "--model", "pbm", "--model", "global", "--held-out", 0.5, "--json"]
    found = cli("bias", "click-models", tsv, *words).json
    assert found["sessions"] + found["held_out"] == 8000
    assert abs(found["held_out"] - 4000) < 200
    assert [model["name"] for model in found["models"]] == ["pbm", "rank", "global"]
    best, rank, _ = found["models"]
    assert best["behind"] == [0, 0]
    assert rank["behind"][0] == pytest.approx(best["log_likelihood"] - rank["log_likelihood"])
    assert rank["behind"][0] > 3 * rank["behind"][1] > 0
    assert len(best["perplexity_by_position"]) == 4
    assert best["perplexity"] == pytest.approx(np.mean(best["perplexity_by_position"]))
    assert rank["observation"] is None
    true = PositionUser().observation(np.arange(1, 5))
    np.testing.assert_allclose(best["observation"], true / true[0], rtol=0.1)
    assert found == cli("bias", "click-models", tsv, *words).json
    assert found["held_out"] != cli("bias", "click-models", tsv, *words, "--seed", 1).json["held_out"]


def test_click_models_show_the_best_first_and_all_curves(tsv: Path, cli: Run) -> None:
    shown = cli("bias", "click-models", tsv, "--model", "rank", "--model", "ubm").stdout
    overall, perplexity, curves = shown.split("\n\n")
    assert "compared on" in overall
    assert [line.split()[0] for line in overall.splitlines()[1:]] == ["model", "ubm", "rank"]
    assert perplexity.splitlines()[1].split() == ["position", "ubm", "rank"]
    assert curves.splitlines()[1].split() == ["position", "ubm"]
    assert "Observation" not in cli("bias", "click-models", tsv, "--model", "rank").stdout


def test_click_models_need_sessions(npz: Path, tsv: Path, tmp_path: Path, cli: Run) -> None:
    refused = cli("bias", "click-models", npz, code=3).stderr
    assert "not known what was clicked together" in refused
    assert "--simulation.merge pattern" in refused
    assert "did you mean 'ubm'" in cli("bias", "click-models", tsv, "--model", "ubn", code=2).stderr
    assert "--held-out must be between 0 and 1" in cli("bias", "click-models", tsv, "--held-out", 1, code=2).stderr
    file = tmp_path / "log.tsv"
    file.write_text("query\tdocuments\tclicks\ncat\ta,b\ta\n", encoding="utf-8")
    assert "1 sessions are too few" in cli("bias", "click-models", file, code=3).stderr
