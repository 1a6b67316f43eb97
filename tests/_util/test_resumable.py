"""A folder of stages: written completely, continued, and refused to others."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from clickprism._util.resumable import EPOCH, StageFolder
from clickprism.errors import DataError

IDENTITY = {"log": "a", "seed": 0}


def test_a_stage_runs_once_and_returns_the_same(tmp_path: Path) -> None:
    calls = []

    def make() -> dict[str, object]:
        calls.append(1)
        return {"curve": np.array([1.0, 0.5]), "missing": float("nan")}

    for again in (False, True):
        with StageFolder.opened(tmp_path / "out", command="auto", identity=IDENTITY) as folder:
            assert folder.done("read") is again
            assert folder.stage("read", make).result == {"curve": [1.0, 0.5], "missing": None}
    assert len(calls) == 1


def test_a_stage_that_failed_or_was_half_written_runs_again(tmp_path: Path) -> None:
    def fail() -> dict[str, object]:
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        StageFolder.opened(tmp_path, command="auto", identity=IDENTITY) as folder,
    ):
        folder.stage("read", fail)
    file, bundle = tmp_path / "stages" / ".read.json.77.part", tmp_path / ".bundle.77.part"
    file.parent.mkdir()
    bundle.mkdir()
    for half in (file, bundle / "network.onnx"):
        half.write_text("{")
    with StageFolder.opened(tmp_path, command="auto", identity=IDENTITY) as folder:
        assert not file.exists()
        assert not bundle.exists()
        assert not folder.done("read")
        assert folder.stage("read", lambda: {"n": 1}).result == {"n": 1}


def test_another_log_and_other_settings_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with (
        StageFolder.opened(tmp_path, command="auto", identity=IDENTITY),
        pytest.raises(DataError, match=r"another clickprism auto is using this folder\. Wait"),
        StageFolder.opened(tmp_path, command="auto", identity=IDENTITY),
    ):
        pass
    for command, identity, words in [
        ("auto", IDENTITY | {"log": "b"}, r"belongs to another log, .* Choose another --out, or delete"),
        ("auto", IDENTITY | {"seed": 1}, r"written with other settings \(seed 0\)\. Choose another"),
        ("auto", IDENTITY | {"more": 1}, r"written with other settings \(fewer\)"),
        ("other", IDENTITY, r"written by another command or version"),
    ]:
        with (
            pytest.raises(DataError, match=words),
            StageFolder.opened(tmp_path, command=command, identity=identity),
        ):
            pass


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    with (
        pytest.raises(DataError, match=r"contains thesis.tex, which is not from clickprism auto"),
        StageFolder.opened(tmp_path, command="auto", identity=IDENTITY),
    ):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "thesis.tex"]


def test_a_damaged_file_is_named_with_a_remedy(tmp_path: Path) -> None:
    with StageFolder.opened(tmp_path, command="auto", identity=IDENTITY) as folder:
        folder.stage("read", lambda: {"n": 1})
    file = tmp_path / "stages" / "read.json"
    for text in ("{", "[]", json.dumps({"result": {}}), json.dumps({"result": 3, "seconds": 1})):
        file.write_text(text)
        with (
            pytest.raises(DataError, match=r"read.json: is .*\. Delete read.json and run the same command again"),
            StageFolder.opened(tmp_path, command="auto", identity=IDENTITY) as folder,
        ):
            folder.stage("read", lambda: {"n": 1})
    (tmp_path / "start.json").write_text("[")
    with (
        pytest.raises(DataError, match=r"start.json: is .*\. Delete the folder"),
        StageFolder.opened(tmp_path, command="auto", identity=IDENTITY),
    ):
        pass


def test_with_a_fixed_time_no_clock_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EPOCH, "1790000000")
    with StageFolder.opened(tmp_path, command="auto", identity=IDENTITY) as folder:
        assert folder.started == datetime.fromisoformat("2026-09-21T14:13:20+00:00")
        assert folder.stage("read", dict, spent=3.0).seconds == 0
    monkeypatch.delenv(EPOCH)
    with StageFolder.opened(tmp_path, command="auto", identity=IDENTITY) as folder:
        assert folder.stage("model", dict, spent=3.0).seconds >= 3
