"""One world: what `auto` chose without a label, and what every candidate would have reached by the true grades."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

import clickprism as cp
from clickprism.choice.candidates import METHODS, RANKERS, Candidate
from clickprism.choice.training import train
from clickprism.errors import ClickprismError
from clickprism.evaluation.report import write_whole
from clickprism.experiment.worlds import World, draw_settings, make_world
from clickprism.model import Model

MEASURE: Final = "nDCG(exp)@10"
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


def row_of(seed: int, out: Path, budget: float) -> dict[str, Any]:
    """The row of a world, from its file or made now."""
    file = out / f"{seed}.json"
    if file.is_file():
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return kept
    world = make_world(draw_settings(seed))
    folder = out / f"world-{seed}"
    begun = time.process_time()
    result = cp.auto(world.logged, out=folder, budget=budget, seed=0, processes=1)
    spent = time.process_time() - begun
    reached = candidates(world)
    made = {
        "seed": seed,
        "world": {name: value for name, value in asdict(world.settings).items() if name in SETTINGS},
        "chosen": result.chosen,
        "ndcg": ndcg(world, Model.load(folder / "choice" / "model")),
        "candidates": reached,
        "verdicts": {name: finding.verdict for name, finding in result.diagnosis.findings.items()},
        "expected": world.settings.verdicts,
        "value": result.stages["value"]["verdict"],
        "cpu_seconds": round(spent, 1),
    }
    write_whole(file, json.dumps(made, indent=1))
    shutil.rmtree(folder)
    return made


def ndcg(world: World, model: Model) -> float:
    """By the true grades of queries that no log has."""
    test = world.data.test
    return float(cp.evaluate(test, np.asarray(model.score(test.lists)), MEASURE).mean(MEASURE))


def candidates(world: World) -> dict[str, float]:
    """What every candidate reaches, trained on all queries as `auto` trains the one it takes; but for those refused."""
    clicks = world.logged.clicks.merge()
    everything = np.ones(len(clicks.lists), dtype=np.bool_)
    reached = {}
    for method in METHODS:
        for ranker in RANKERS:
            candidate = Candidate(method, ranker)
            try:
                model = train(clicks, candidate, queries=everything, seed=0)
            except ClickprismError:
                continue
            reached[candidate.name] = ndcg(world, model)
    return reached
