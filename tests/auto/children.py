"""Runs of `auto` in processes that are killed; a fork server imports this module once."""

from __future__ import annotations

import os
from pathlib import Path

import clickprism.auto.checks
import clickprism.diagnosis.diagnose
import clickprism.evaluation.counterfactual.run
import clickprism.evaluation.plots
import clickprism.serve.bundle.bundle
import clickprism.training.fit  # noqa: F401 - imported once, before the forks
from clickprism._util.crash_points import VARIABLE
from clickprism._util.resumable import EPOCH
from clickprism.auto.run import AutoResult, auto
from reproduce.common.engines import EngineSettings, EngineWorld, engine_world

TIME = "1790000000"


def small_world(**settings: object) -> EngineWorld:
    """Return a small log of a good engine, with days."""
    small = {"queries": 30, "candidates": 20, "searches": 10, "features": 6, "test_queries": 5, "days": 4, "seed": 3}
    return engine_world(EngineSettings(**(small | settings)))  # type: ignore[arg-type]


def run(out: Path, fault: str = "") -> AutoResult:
    """Run `auto` on the small log; the process kills itself at the crash point `fault`."""
    os.environ[VARIABLE] = fault
    os.environ[EPOCH] = TIME
    return auto(small_world().logged, out=out, name="mylog")
