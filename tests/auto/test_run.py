"""`auto`: killed at every stage it continues to the same result; small and unusual logs get a ranker or a reason."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.auto import checks as checks_module
from clickprism.auto.run import POINTS, STAGES, AutoResult, AutoSettings, auto
from clickprism.data.logged import Logged
from clickprism.errors import DataError, SettingError
from clickprism.log_model.model import LogModel
from clickprism.model import Model
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.scoring.scorer import Candidates, open_scorer
from clickprism.types import Clicks, Float32
from tests.auto.children import run, small_world


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files of a run, without the path of its folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes().replace(str(folder).encode(), b"OUT") for path in files}


def test_killed_at_every_point_it_continues_to_the_same_bytes(
    undisturbed: AutoResult, forks: ForkServerContext, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for point in (*POINTS, ""):
        process = forks.Process(target=run, args=(out, point))
        process.start()
        process.join()
        assert process.exitcode == (-signal.SIGKILL if point else 0), point
    first, second = contents(undisturbed.out), contents(out)
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_a_second_call_runs_no_stage_and_says_the_same(
    undisturbed: AutoResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogModel, "fit", None)
    monkeypatch.setattr(checks_module, "choose_ranker", None)
    said: list[tuple[str, str]] = []
    again = auto(small_world().logged, out=undisturbed.out, name="mylog", progress=lambda *what: said.append(what))
    assert said[1:] == [(stage, "complete") for stage in STAGES if stage != "grades"]
    assert again.text() == undisturbed.text()
    assert again.stages == undisturbed.stages


def test_the_diagnosis_reads_the_model_that_is_saved(undisturbed: AutoResult) -> None:
    model, curve = LogModel.load(undisturbed.out / "log_model"), undisturbed.diagnosis.curve
    assert curve is not None
    assert curve.values.tolist() == model.curve.values.tolist()


def test_the_bundle_scores_raw_features_as_the_saved_ranker_does(undisturbed: AutoResult) -> None:
    assert undisturbed.bundle is not None
    world, bundle = small_world(), Bundle.load(undisturbed.bundle)
    manifest = bundle.manifest
    assert manifest.feature_names == world.logged.feature_names
    assert manifest.scope is not None
    assert manifest.scope.rerank_depth == undisturbed.stages["choice"]["scope"]["rerank_depth"]
    assert manifest.scope.reason[1:] in undisturbed.verdict[2]
    assert b'"queries"' in bundle.read("examples.json")
    lists = world.test.lists
    served = open_scorer(bundle).score(Candidates(features=lists.features, offsets=lists.offsets)).scores
    np.testing.assert_allclose(served, Model.load(undisturbed.out / "model").score(lists), rtol=1e-4, atol=1e-4)
    for name, method in (("model", "log_model"), ("naive", "click"), ("imitation", "imitation")):
        saved = Model.load(undisturbed.out / name)
        assert np.isfinite(saved.score(lists)).all()
        assert saved.method == {"name": method}
    assert manifest.method["name"] == "log_model"
    assert b"on clicks corrected for position bias" in bundle.read("MODEL_CARD.md")


def test_value_uses_copies_that_did_not_learn_from_the_query(undisturbed: AutoResult) -> None:
    """Held-out scores differ from those of the ranker, and rank documents that were never shown last."""
    lists = small_world().logged.clicks.lists
    held_out = np.load(undisturbed.out / "held_out.npy")
    assert held_out.shape == (lists.documents,)
    assert np.abs(held_out - Model.load(undisturbed.out / "model").score(lists)).max() > 1e-3


def test_other_settings_and_other_logs_are_refused(undisturbed: AutoResult) -> None:
    with pytest.raises(DataError, match=r"was written with other settings \(seed 0\)\. Choose another --out"):
        auto(small_world().logged, out=undisturbed.out, settings=AutoSettings(seed=1))
    with pytest.raises(DataError, match="belongs to another log"):
        auto(small_world(seed=4).logged, out=undisturbed.out)
    for field, value in (("budget", timedelta(0)), ("seed", -1)):
        with pytest.raises(SettingError, match=f"{field} must be"):
            AutoSettings(**{field: value})  # type: ignore[arg-type]


def test_grades_evaluate_and_change_nothing_else(undisturbed: AutoResult, tmp_path: Path) -> None:
    world = small_world()
    lists, grades = world.train.lists, tmp_path / "grades.txt"
    assert lists.document_ids is not None
    queries = lists.query_ids[lists.list_of]
    rows = zip(queries, lists.document_ids, world.train.grades, strict=True)
    grades.write_text("".join(f"{query} 0 {document} {grade}\n" for query, document, grade in rows))
    out = tmp_path / "out"
    shutil.copytree(undisturbed.out, out)
    with pytest.raises(DataError, match="was written with other settings"):
        auto(world.logged, out=out, grades=grades)
    start = (out / "start.json").read_text()
    digest = hashlib.sha256(grades.read_bytes()).hexdigest()[:16]
    (out / "start.json").write_text(start.replace('"grades": ""', f'"grades": "{digest}"'))
    for stage in ("grades", "bundle", "report"):
        (out / "stages" / f"{stage}.json").unlink()
    result = auto(world.logged, out=out, grades=grades)
    numbers = result.stages["grades"]["numbers"]
    assert numbers["queries"] == 30
    assert list(numbers["values"]) == ["the ranker", "raw clicks", "order of the log"]
    assert 0.6 < numbers["values"]["the ranker"] < 1
    assert "Your grades" in result.text()
    assert result.stages["bundle"] == undisturbed.stages["bundle"]
    with pytest.raises(DataError, match=r"none.txt: cannot be read .* Name a file for --grades"):
        auto(world.logged, out=tmp_path / "other", grades=tmp_path / "none.txt")


def without_features(logged: Logged) -> Logged:
    clicks = logged.clicks
    lists = clicks.lists.with_features(np.zeros((clicks.lists.documents, 0), np.float32))
    return Logged(Clicks(lists, clicks.offsets, clicks.rows, clicks.positions, clicks.clicks, clicks.impressions))


def without_clicks(logged: Logged) -> Logged:
    return replace(logged, clicks=replace(logged.clicks, clicks=np.zeros_like(logged.clicks.clicks)))


def test_without_features_it_reports_and_says_what_to_do_instead(tmp_path: Path) -> None:
    said: list[str] = []
    log = without_features(small_world().logged)
    result = auto(log, out=tmp_path / "out", progress=lambda stage, _text: said.append(stage))
    assert list(dict.fromkeys(said)) == ["read", "model", "diagnosis", "report"]  # nothing about stages that do nothing
    assert not set(result.verdict) & set(result.steps)
    assert result.bundle is None
    assert result.chosen is None
    assert not (tmp_path / "out" / "bundle").exists()
    assert result.verdict[0].startswith("No ranker can be trained: the documents of the log have no features")
    assert any(
        "`clickprism relevance estimate`, then `clickprism relevance judgments`" in each for each in result.steps
    )
    assert "Not in the log: days, rankers, randomised positions." in result.stages["read"]["sentence"]
    assert result.diagnosis.findings
    assert "No ranker can be trained" in result.report.read_text()


def test_without_clicks_it_says_why_there_is_no_ranker(tmp_path: Path) -> None:
    result = auto(without_clicks(small_world().logged), out=tmp_path / "out")
    assert result.chosen is None
    assert result.verdict[0].startswith("No ranker can be trained: the model of the log could not be fitted: ")
    assert result.steps[0] == "Log more searches with clicks, and run `clickprism auto` again."
    assert json.loads((tmp_path / "out" / "auto.json").read_text())["bundle"] is None


def with_features(logged: Logged, features: Float32) -> Logged:
    return replace(logged, clicks=replace(logged.clicks, lists=logged.clicks.lists.with_features(features)))


def test_features_that_never_differ_cannot_be_learned_from(tmp_path: Path) -> None:
    logged = small_world().logged
    features = np.ones_like(logged.clicks.lists.features)
    features[:, 0], features[::2, 1] = np.nan, np.nan
    result = auto(with_features(logged, features), out=tmp_path / "out")
    assert result.verdict[0].startswith("No ranker can be trained: all documents of the log have the same features")
    assert "`clickprism relevance estimate`" in result.steps[0]


def test_positions_that_are_too_deep_for_a_curve_are_ignored_and_counted(tmp_path: Path) -> None:
    world = small_world(queries=4, searches=3, days=1, candidates=205, shown=203)
    result = auto(without_clicks(world.logged), out=tmp_path / "out")
    assert "the log has 0 clicks" in result.verdict[0]  # a fit would take long, but would not be refused
    deep = int((world.logged.clicks.positions > 200).sum())
    assert result.stages["read"]["counts"]["account"]["entries below position 200, ignored"] == deep


def test_missing_infinite_and_huge_features_and_one_position_are_no_obstacle(tmp_path: Path) -> None:
    world = small_world(shown=1)
    features = world.logged.clicks.lists.features.copy()
    features[::7, 0], features[::11, 1], features[::13, 2] = np.nan, np.inf, 1e30
    features[:, 3] = np.nan
    result = auto(with_features(world.logged, features), out=tmp_path / "out")
    assert result.bundle is not None
    assert "The log has one position only" in result.verdict[0]
    assert np.isfinite(Model.load(result.out / "model").score(world.test.lists)).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"queries": 5, "searches": 30},
        {"queries": 1, "searches": 100},
        {"queries": 25, "days": 1},
        {"queries": 25, "log_candidates": True},
    ],
    ids=["five queries", "one query", "one day", "candidates are logged"],
)
def test_small_and_unusual_logs_get_a_ranker(settings: dict[str, object], tmp_path: Path) -> None:
    world = small_world(**settings)
    result = auto(world.logged, out=tmp_path / "out")
    assert result.bundle is not None
    assert np.isfinite(Model.load(result.out / "model").score(world.test.lists)).all()
    # what was trained, the checks, the scope; and a fourth sentence if the model expects fewer clicks
    assert len(result.verdict) == 3 + any("fewer clicks" in sentence for sentence in result.verdict)
    counts = result.stages["read"]["counts"]
    assert counts["queries"] == world.settings.queries
    assert (counts["candidates"] > counts["documents"]) is world.settings.log_candidates
    held_out = np.load(result.out / "held_out.npy")
    shown = np.unique(world.logged.clicks.rows)
    unshown = np.setdiff1d(np.arange(len(held_out)), shown)
    assert held_out[unshown].max(initial=-np.inf) < held_out[shown].min()


def test_raw_clicks_are_shipped_with_a_warning(
    undisturbed: AutoResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose: Callable[..., Any] = checks_module.choose_ranker
    monkeypatch.setattr(checks_module, "choose_ranker", lambda *a, **k: replace(choose(*a, **k), use="raw clicks"))
    world = small_world()
    result = auto(world.logged, out=tmp_path / "out")
    assert "Position bias remains" in result.verdict[0]
    assert result.chosen == "raw clicks"
    assert result.bundle is not None
    manifest = Bundle.load(result.bundle).manifest
    assert manifest.notes[0] == "This ranker was trained on raw clicks: position bias remains in it."
    raw, naive = (
        Model.load(path).score(world.test.lists) for path in (result.out / "model", undisturbed.out / "naive")
    )
    np.testing.assert_array_equal(raw, naive)


def test_the_value_is_skipped_if_the_budget_is_used_up(undisturbed: AutoResult, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(undisturbed.out, out)
    for stage in ("value", "bundle", "report"):
        (out / "stages" / f"{stage}.json").unlink()
    slow = json.loads((out / "stages" / "model.json").read_text()) | {"seconds": 601}
    (out / "stages" / "model.json").write_text(json.dumps(slow))
    result = auto(small_world().logged, out=out)
    assert "use a larger --budget" in result.stages["value"]["refusal"]
    assert result.bundle is not None


@pytest.mark.parametrize("first", ["", "import clickprism.auto.run; "])
def test_the_public_name_is_the_function_in_any_order_of_imports(first: str) -> None:
    code = f"{first}import clickprism as cp; cp.auto(3)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "read_log takes a frame, a path or the URL of a database, not int" in done.stderr
