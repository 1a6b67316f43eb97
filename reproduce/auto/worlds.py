"""One world: what `auto` chose without a label, and what every candidate would have reached by the true grades."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

import clickprism as cp
from clickprism._util.files import write_file
from clickprism.choice.candidates import METHODS, supported
from clickprism.choice.material import load_material
from clickprism.choice.trials import observation_trial, target_of, tried_of
from clickprism.debias import method as debias
from clickprism.experiments.auto.settings import AutoSettings
from clickprism.model import Model
from clickprism.simulation.worlds import World, draw_settings, make_world
from reproduce.choice.cache import ndcg, reached

SETTINGS: Final = (
    "browsing",
    "severity",
    "trust",
    "coupling",
    "attention",
    "policy",
    "queries",
    "features",
    "sessions",
)


LIBRARY: Final = ("dla", "pal", "regression_em", "vectorization", "lbd", "inforank")
HELD_OUT: Final = 0.15
EPOCHS: Final = 30
PATIENCE: Final = 5


def row_of(seed: int, out: Path, budget: float) -> dict[str, Any]:
    """The row of a world, from its file or made now."""
    file = out / f"{seed}.json"
    if file.is_file():
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return kept
    world = make_world(draw_settings(seed))
    folder = out / f"world-{seed}"
    begun = time.process_time()
    result = cp.auto(world.logged, out=folder, settings=AutoSettings(budget=timedelta(seconds=budget), processes=1))
    spent = time.process_time() - begun
    reached = candidates(world, folder / "choice")
    made = {
        "seed": seed,
        "world": {name: value for name, value in asdict(world.settings).items() if name in SETTINGS},
        "chosen": result.chosen,
        "ndcg": ndcg(world.data.test, Model.load(folder / "choice" / "model").score(world.data.test.lists)),
        "candidates": reached,
        "verdicts": {name: finding.verdict for name, finding in result.diagnosis.findings.items()},
        "expected": world.settings.verdicts,
        "value": result.stages["value"]["verdict"],
        "cpu_seconds": round(spent, 1),
    }
    write_file(file, json.dumps(made, indent=1))
    shutil.rmtree(folder)
    return made


def library_row(seed: int, out: Path) -> dict[str, Any]:
    """What methods of the library reach that learn a network from sessions, with their defaults."""
    file = out / f"library-{seed}.json"
    if file.is_file():
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return kept
    world = make_world(draw_settings(seed))
    clicks, test = world.logged.clicks.merge(), world.data.test
    held = np.random.default_rng(seed).random(len(clicks.lists)) < HELD_OUT
    mine = held[clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]]]
    found: dict[str, Any] = {"seed": seed}
    for name in LIBRARY:
        settings = cp.FitSettings(epochs=EPOCHS, patience=PATIENCE, threads=1)
        fitted = cp.fit(
            clicks.take(~mine), method=debias(name), ranker=cp.MLP(), settings=settings, validation=clicks.take(mine)
        )
        found[name] = ndcg(test, fitted.model.score(test.lists))
    write_file(file, json.dumps(found, indent=1))
    return found


def candidates(world: World, place: Path) -> dict[str, float]:
    """What every candidate reaches, trained on all queries as `auto` trains the one it takes; but for those refused.

    `place` is the folder of its choice: observation models that it did not try are fitted there.
    """
    material, normaliser = load_material(place), Model.load(place / "model").normaliser
    if normaliser is None:
        raise TypeError("the model of a choice takes raw features")
    test = world.data.test.with_features(normaliser(world.data.test.lists).features)
    names = supported(tuple(METHODS), linked=True, patterns=material.places.knows_clicks)
    found: dict[str, float] = {}
    for method in names:
        observation_trial(str(place), method, 0)
        if not tried_of(place, method).about["refused"]:
            values = reached(material, target_of(place, method), test)
            found |= {f"{method}/{ranker}": value for ranker, value in values.items()}
    return found
