"""The folder of `auto`: kept whole, gone on from, refused to others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.errors import DataError
from clickprism.experiments.auto.folder import AutoFolder, fingerprint_of
from clickprism.types import Clicks, Lists

SETTINGS = {"budget": 60.0, "seed": 0}


def small(clicked: int = 3) -> Logged:
    lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array(["q"]))
    counts = np.array([clicked, 0]), np.array([9])
    return Logged(Clicks(lists, np.array([0, 2]), np.array([0, 1]), np.array([1, 2]), *counts), days=np.array([0]))


def test_the_fingerprint_sees_all_that_a_log_tells() -> None:
    log = small()
    lists = replace(log.clicks.lists, document_ids=np.array(["a", "b"]))
    others = [
        small(4),
        replace(log, days=None),
        replace(log, days=np.array([1])),
        replace(log, policy=np.array([0]), policies=("new",)),
        replace(log, randomised=np.array([True, False])),
        replace(log, feature_names=("price",)),
        replace(log, clicks=replace(log.clicks, lists=lists)),
        replace(log, clicks=replace(log.clicks, seen=np.array([3, 0]))),
    ]
    assert fingerprint_of(small()) == fingerprint_of(log)
    assert len({fingerprint_of(each) for each in [log, *others]}) == len(others) + 1


def test_a_stage_is_made_once_and_comes_back_as_it_was(tmp_path: Path) -> None:
    calls = []

    def make() -> dict[str, object]:
        calls.append(1)
        return {"curve": np.array([1.0, 0.5]), "missing": float("nan")}

    for again in (False, True):
        with AutoFolder.opened(tmp_path / "out", log="a", settings=SETTINGS) as folder:
            assert folder.done("read") is again
            assert folder.stage("read", make).result == {"curve": [1.0, 0.5], "missing": None}
    assert len(calls) == 1


def test_what_fails_or_was_half_written_is_made_again(tmp_path: Path) -> None:
    def fail() -> dict[str, object]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), AutoFolder.opened(tmp_path, log="a", settings=SETTINGS) as folder:
        folder.stage("read", fail)
    half = tmp_path / "stages" / ".read.json.77"
    half.parent.mkdir()
    half.write_text("{")
    with AutoFolder.opened(tmp_path, log="a", settings=SETTINGS) as folder:
        assert not half.exists()
        assert not folder.done("read")
        assert folder.stage("read", lambda: {"n": 1}).result == {"n": 1}


def test_another_log_and_other_settings_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with (
        AutoFolder.opened(tmp_path, log="a", settings=SETTINGS),
        pytest.raises(DataError, match=r"another clickprism auto is at work there\. Wait"),
        AutoFolder.opened(tmp_path, log="a", settings=SETTINGS),
    ):
        pass
    for log, settings, words in [
        ("b", SETTINGS, r"is of another log, .* Choose another --out, or remove"),
        ("a", SETTINGS | {"seed": 1}, r"made with other settings \(seed 0\)\. Call it with the same"),
        ("a", SETTINGS | {"more": 1}, r"made with other settings \(fewer\)"),
    ]:
        with pytest.raises(DataError, match=words), AutoFolder.opened(tmp_path, log=log, settings=settings):
            pass


def test_a_folder_of_someone_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    with (
        pytest.raises(DataError, match=r"holds thesis.tex, which is not of clickprism auto"),
        AutoFolder.opened(tmp_path, log="a", settings=SETTINGS),
    ):
        pass


def test_damage_is_named(tmp_path: Path) -> None:
    with AutoFolder.opened(tmp_path, log="a", settings=SETTINGS) as folder:
        folder.stage("read", lambda: {"n": 1})
    file = tmp_path / "stages" / "read.json"
    for text in ("{", "[]", json.dumps({"result": {}})):
        file.write_text(text)
        with (
            pytest.raises(DataError, match=r"read.json: is damaged. Remove it: what it held is made anew"),
            AutoFolder.opened(tmp_path, log="a", settings=SETTINGS) as folder,
        ):
            folder.stage("read", lambda: {"n": 1})
    (tmp_path / "start.json").write_text("[")
    with (
        pytest.raises(DataError, match=r"start.json: is damaged. Remove the folder"),
        AutoFolder.opened(tmp_path, log="a", settings=SETTINGS),
    ):
        pass
