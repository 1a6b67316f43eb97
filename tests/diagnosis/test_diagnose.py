"""Diagnoses of simulated logs: verdicts, one fit, and the same numbers as the model."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import clickprism as cp
from clickprism.click_models.pbm import PositionUser
from clickprism.data.logged import Logged
from clickprism.diagnosis.diagnose import FINDINGS, OF_LOG, OF_MODEL, check_names
from clickprism.diagnosis.finding import Diagnosis
from clickprism.errors import SettingError
from clickprism.log_model.model import LogModel, LogModelSettings
from tests.diagnosis.tiny_logs import log_of, small_world


@cache
def diagnosed(**settings: object) -> Diagnosis:
    return cp.diagnose(small_world(**settings))


def test_a_log_with_position_bias_only() -> None:
    found = diagnosed()
    assert found.verdict("coverage") == "present"
    assert found.verdict("identifiability") == "present"
    assert found.verdict("position") == "present"
    truth = PositionUser().observation(np.arange(1, 11))
    assert found["position"].estimate == pytest.approx(truth[1:].mean() / truth[0], abs=0.05)
    for name in ("popularity", "interaction", "feedback", "drift"):
        assert found.verdict(name) == "absent", name
    assert found.verdict("trust") != "present"
    assert all(finding.sentence and finding.advice for finding in found.findings.values())


def test_every_finding_reads_the_same_model() -> None:
    found, model = diagnosed(), LogModel.fit(small_world(), settings=LogModelSettings())
    assert found.model is not None
    assert found.curve is found.model.curve
    assert found.curve.values.tolist() == model.curve.values.tolist()
    assert found["position"].table is not None
    assert [row[1] for row in found["position"].table.rows] == [f"{value:.3f}" for value in model.curve.values]
    for name in ("position", "popularity"):
        assert found[name].estimate == pytest.approx(model.tests[name].estimate)
        assert found.verdict(name) == model.tests[name].verdict


@pytest.mark.parametrize("policy", ["single", "blocks"])
def test_positions_that_nothing_links_are_found(policy: str) -> None:
    found = diagnosed(policy=policy)
    assert found.verdict("identifiability") == "absent"
    assert "Swap the results at positions" in found["identifiability"].advice
    assert "Identified by features only" in found["position"].sentence


def test_users_who_react_to_clicks_above() -> None:
    assert diagnosed(browsing="dbn").verdict("interaction") == "present"


def test_an_engine_that_reacts_to_clicks() -> None:
    assert diagnosed(policy="feedback").verdict("feedback") == "present"


def test_position_bias_is_absent_if_all_positions_are_observed() -> None:
    assert diagnosed(severity=0.0).verdict("position") == "absent"


def test_findings_in_the_order_of_the_report() -> None:
    steps: list[str] = []
    made = cp.diagnose(small_world(), only=["drift", "coverage"], progress=steps.append, as_of="now")
    assert list(made.findings) == steps == ["coverage", "drift"]  # no model is fitted for these
    assert (made.model, made.curve, made.as_of) == (None, None, "now")
    assert set(FINDINGS) == set(OF_LOG) | set(OF_MODEL)
    with pytest.raises(SettingError, match="luck"):
        check_names(["luck"])


def test_a_log_without_clicks_has_no_model_but_a_diagnosis() -> None:
    found = cp.diagnose(log_of([((0, 1), (), 30, 0)], documents=[2]))
    assert found.model is None
    assert found.verdict("coverage") == "absent"
    assert found.verdict("position") == "inconclusive"
    assert "The model of the log could not be fitted" in found["position"].sentence
    empty = small_world().take(np.zeros(len(small_world()), dtype=np.bool_))
    assert cp.diagnose(empty).verdict("coverage") == "absent"


def test_a_log_without_days_and_features() -> None:
    clicks = small_world().clicks
    lists = clicks.lists.with_features(np.zeros((clicks.lists.documents, 0), np.float32))
    bare = Logged(type(clicks)(lists, clicks.offsets, clicks.rows, clicks.positions, clicks.clicks, clicks.impressions))
    found = cp.diagnose(bare)
    assert found.verdict("position") == "present"
    for name in ("coupling", "popularity", "drift"):
        assert found.verdict(name) == "inconclusive", name
