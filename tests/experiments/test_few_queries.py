"""Data so small that a part of it lacks the highest grades."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import clickprism as cp
from clickprism.errors import SettingError
from clickprism.experiments.data import simulate_log
from clickprism.experiments.settings import ExperimentSettings


def test_the_grading_scale_is_that_of_both_parts_that_are_searched() -> None:
    """The training part of five queries has no document of the highest grade, the validation part has one."""
    data = cp.synthetic(cp.SyntheticSettings(train_queries=5, validation_queries=30, test_queries=5))
    top = data.validation.max_grade
    few = replace(data, train=replace(data.train, grades=np.minimum(data.train.grades, top - 1)))
    settings = ExperimentSettings(methods={"click": {}}, sessions=500)
    log = simulate_log(settings, few, seed=0)
    assert log.simulation.clicks.clicks.any()
    assert log.held_out.clicks.any()
    with pytest.raises(SettingError, match=rf"max_grade must be at least {top}, .* \(set it to the top of the grading"):
        simulate_log(replace(settings, simulation=cp.SimulationSettings(max_grade=top - 1)), few, seed=0)
