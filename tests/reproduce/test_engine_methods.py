"""The table of methods on logs of engines of known quality."""

from __future__ import annotations

import pytest

from reproduce import engines
from reproduce.common.engines import EngineSettings, engine_world


def test_posterior_targets_correct_the_log_of_a_poor_engine() -> None:
    """Where the engine ignores relevance, raw clicks teach its order; the model of the log does not."""
    world = engine_world(EngineSettings(quality=0.0, queries=60, test_queries=40, candidates=30, searches=20))
    assert engines.reached("targets", world) > engines.reached("click", world) + 0.05


def test_a_row_has_the_best_rival_and_the_distance_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"click": 0.5, "lbd_paper": 0.6, "targets": 0.55, "lbd": 0.625}
    monkeypatch.setattr(engines, "QUALITIES", (0.3,))
    monkeypatch.setattr(engines, "engine_world", lambda settings: settings)
    monkeypatch.setattr(engines, "reached", lambda name, settings: values[name] + 0.1 * settings.seed)
    header, line, *rows = engines.table(["pbm"], ["lbd"], seeds=(0, 1))
    assert header == "| users, quality of the engine | click | lbd_paper | targets | `lbd` | - best |"
    assert line == "|---|---|---|---|---|---|"
    assert rows == [
        "| pbm, 0.3 | 0.550 | 0.650 | 0.600 | 0.675 | +0.025 |",
        "| pbm, feedback, 0.3 | 0.550 | 0.650 | 0.600 | 0.675 | +0.025 |",
    ]


def test_unknown_users_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert engines.main(["--users", "robots"]) == 2
    assert "users must be among pbm" in capsys.readouterr().err
