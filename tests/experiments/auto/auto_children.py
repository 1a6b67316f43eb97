"""What runs in processes that are killed: forked from a server that has imported all of it."""

from __future__ import annotations

import os
from pathlib import Path

import clickprism.choice.tune
import clickprism.diagnosis.diagnose
import clickprism.serve.bundle
import clickprism.training.fit  # noqa: F401 - all so that they are imported once, before the forks
from clickprism._util.crash_points import VARIABLE
from clickprism.experiments.auto.folder import EPOCH
from clickprism.experiments.auto.run import auto
from clickprism.experiments.auto.settings import AutoSettings
from clickprism.simulation.worlds import World, WorldSettings, make_world

NOON = "1790000000"


def small_world() -> World:
    """Few queries, asked often; three rankers, so that positions are linked."""
    return make_world(WorldSettings(queries=40, sessions=3000, days=2, features=6, seed=3))


def run(out: str, fault: str = "") -> None:
    """One call of auto on the small world; `fault` names the point at which it kills itself."""
    os.environ[VARIABLE] = fault
    os.environ[EPOCH] = NOON
    auto(small_world().logged, out=Path(out), settings=AutoSettings(processes=1))
