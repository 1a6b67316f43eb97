"""Methods of the registry as candidates of `auto`."""

from __future__ import annotations

import numpy as np

from clickprism.auto.candidates import method_candidates
from clickprism.auto.checks import choose_ranker
from clickprism.log_model.model import LogModel, LogModelSettings
from reproduce.common.engines import EngineSettings, engine_world

SETTINGS = LogModelSettings(resamples=0)


def test_no_method_is_tried_if_the_log_shows_position_bias_only() -> None:
    logged = engine_world(EngineSettings(users="pbm", quality=0.6, queries=60, searches=10, seed=3)).logged
    model = LogModel.fit(logged, settings=SETTINGS)
    assert method_candidates(logged.clicks, logged.clicks.lists, model) == {}


def test_lbd_and_inforank_are_tried_if_observation_depends_on_documents() -> None:
    """The presets of the papers are for comparison, and not tried."""
    logged = engine_world(EngineSettings(users="coupled", quality=0.6, queries=240, searches=30, seed=3)).logged
    model = LogModel.fit(logged, settings=SETTINGS)
    assert model.tests["coupling"].verdict == "present"  # otherwise this log is no test
    checked = choose_ranker(logged, model)
    found = checked.candidates.found
    assert {"lbd", "inforank"} <= found.keys()
    assert not {"lbd_paper", "lbd_code", "inforank_paper", "dla"} & found.keys()
    for name in ("lbd", "inforank"):
        assert np.isfinite(found[name].held_out).all()
        assert found[name].held_out.std() > 0
    best = max((name for name in found if name != "imitation"), key=lambda name: found[name].likelihood.sum())
    assert checked.candidates.chosen in ("linear", best)
