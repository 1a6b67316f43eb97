"""`tune`: every trial a file, the same result by any number of processes, refusals that say what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.choice import tune as search
from clickprism.choice.candidates import METHODS, RANKERS, Candidate
from clickprism.choice.folder import START, begin, only_one
from clickprism.choice.material import Material, load_material, save_material
from clickprism.choice.trials import observation_trial, target_of, tried_of, unseen_scores
from clickprism.choice.tune import Choice, TuneSettings, tune
from clickprism.data.logged import Logged
from clickprism.errors import DataError, SettingError
from clickprism.model import Model
from clickprism.simulation.worlds import WorldSettings, make_world

QUICK = TuneSettings(processes=1, methods=("pooled", "pooled-bend"), rankers=("linear", "lambdamart"))


@pytest.fixture(scope="module")
def logged() -> Logged:
    return make_world(WorldSettings(queries=60, sessions=6000, days=3, features=12, seed=3)).logged


@pytest.fixture(scope="module")
def done(logged: Logged, tmp_path_factory: pytest.TempPathFactory) -> tuple[Choice, Path]:
    out = tmp_path_factory.mktemp("tune") / "out"
    return tune(logged, settings=QUICK, out=out), out


def test_position_bias_is_found_and_told(done: tuple[Choice, Path]) -> None:
    choice, out = done
    assert choice.chosen.startswith("pooled/")
    assert "clicked less the lower they stand" in choice.why[0]
    assert "those that moved and those that look alike" in choice.words
    kept = json.loads((out / "choice.json").read_text())
    assert kept == json.loads(json.dumps(choice.plain()))
    assert kept["numbers"]["observation"][9] < 0.4
    assert [len(row) for row in kept["trials"]["rows"]] == [4] * len(kept["trials"]["rows"])


def test_the_models_say_what_they_learned(done: tuple[Choice, Path]) -> None:
    choice, out = done
    assert Model.load(out / "model").method["name"] == choice.chosen.partition("/")[0] == "pooled"
    assert Model.load(out / "naive").method["name"] == "click"


def test_the_models_take_raw_features(done: tuple[Choice, Path], logged: Logged) -> None:
    choice, out = done
    assert choice.model.normaliser is not None
    scores = Model.load(out / "model").score(logged.clicks.lists)
    assert (scores == choice.model.score(logged.clicks.lists)).all()
    assert (Model.load(out / "naive").score(logged.clicks.lists) != scores).any()


def test_a_second_call_trains_only_what_is_missing_in_any_number_of_processes(
    done: tuple[Choice, Path], logged: Logged, tmp_path: Path
) -> None:
    choice, out = done[0], tmp_path / "out"
    shutil.copytree(done[1], out)
    files = {file: file.stat().st_mtime_ns for file in out.rglob("*.npz")}
    lost = out / "rankers" / f"{choice.chosen.replace('/', '-')}-60.json"
    lost.unlink()
    again = tune(logged, settings=replace(QUICK, processes=2), out=out)
    assert again.chosen == choice.chosen
    assert again.rows == choice.rows
    changed = {file.name for file, when in files.items() if file.stat().st_mtime_ns != when}
    assert changed == {lost.with_suffix(".npz").name}


def test_scores_of_queries_that_a_ranker_did_not_see(done: tuple[Choice, Path], logged: Logged) -> None:
    choice, out = done
    queries = len(logged.clicks.lists)
    scores = unseen_scores(out, choice.chosen, queries)
    assert scores is not None
    assert (scores != choice.model.score(logged.clicks.lists)).any()
    assert unseen_scores(out, choice.chosen, queries - 1) is None


def test_another_log_or_other_settings_are_refused(done: tuple[Choice, Path], logged: Logged) -> None:
    with pytest.raises(DataError, match="another log or of other settings"):
        tune(logged, settings=replace(QUICK, seed=1), out=done[1])
    clicks = replace(logged.clicks, impressions=logged.clicks.impressions + 1)  # searches without a click came in
    with pytest.raises(DataError, match="another log or of other settings"):
        tune(replace(logged, clicks=clicks), settings=QUICK, out=done[1])


def test_a_folder_of_someone_else_is_left_alone(logged: Logged, tmp_path: Path) -> None:
    mine = tmp_path / "below" / ".mine.npz"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(DataError, match="holds below, which is not of clickprism tune"):
        tune(logged, settings=QUICK, out=tmp_path)
    assert mine.read_text() == "mine"


def test_one_search_at_a_time(logged: Logged, tmp_path: Path) -> None:
    with only_one(tmp_path, "tune"), pytest.raises(DataError, match="another clickprism tune is at work there"):
        tune(logged, settings=QUICK, out=tmp_path)


def test_damaged_files_are_named(done: tuple[Choice, Path], tmp_path: Path) -> None:
    (tmp_path / "observations").mkdir()
    for name in ("click.json", "click.npz"):
        whole = (done[1] / "observations" / name).read_bytes()
        (tmp_path / "observations" / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataError, match=rf"{name}: .*Remove it: it is made anew"):
            tried_of(tmp_path, "click")
        (tmp_path / "observations" / name).write_bytes(whole)
    (tmp_path / START).write_text("{")
    with pytest.raises(DataError, match=r"is not valid JSON.* Remove the folder"):
        begin(tmp_path, {})


def test_a_budget_that_ends_says_what_was_left_out(logged: Logged) -> None:
    choice = tune(logged, settings=replace(QUICK, budget=1e-3))
    assert any(reason.startswith("Not tried for want of time: ") for reason in choice.why)


def test_while_nothing_is_done_there_is_some_more_time(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(search, "GRACE", 1e9)

    def never(*_: Any, until: Callable[[], bool]) -> Iterator[str]:
        asked.append(until())
        monkeypatch.setattr(search, "GRACE", -9.0)
        asked.append(until())
        yield from ()

    monkeypatch.setattr(search, "side_by_side", never)
    choice = tune(logged, settings=replace(QUICK, processes=2, budget=1e-9))
    assert asked[:2] == [False, True]
    assert choice.chosen == "click/linear"
    assert choice.why[0].startswith("No observation model was ready in time")


def test_no_features_no_clicks_wrong_names() -> None:
    world = make_world(WorldSettings(queries=20, sessions=200, days=1, features=12)).logged
    bare = world.clicks.lists.with_features(np.zeros((world.clicks.lists.documents, 0), np.float32))
    with pytest.raises(DataError, match="no features"):
        tune(replace(world, clicks=replace(world.clicks, lists=bare), feature_names=()))
    silent = replace(world, clicks=replace(world.clicks, clicks=0 * world.clicks.clicks))
    with pytest.raises(DataError, match="no click"):
        tune(silent)
    for settings in ({"methods": ("bent",)}, {"rankers": ("tree",)}, {"rankers": ()}, {"budget": 0.0}, {"seed": -1}):
        with pytest.raises(SettingError):
            TuneSettings(**settings)


def test_every_method_makes_targets(logged: Logged, tmp_path: Path) -> None:
    material = Material.of(logged)
    save_material(material, tmp_path)
    assert (load_material(tmp_path).places.clicks == material.places.clicks).all()
    shown = np.unique(material.clicks.rows)
    for name in METHODS:
        observation_trial(str(tmp_path), name, 0)
        assert not tried_of(tmp_path, name).about["refused"]
        target = target_of(tmp_path, name)
        assert (np.flatnonzero(~np.isnan(target)) == shown).all()
        assert (target[shown] >= 0).all()


def test_every_candidate_has_words() -> None:
    for method in METHODS:
        for ranker in RANKERS:
            assert Candidate.parse(f"{method}/{ranker}").words.count(" learns clicks") == 1
