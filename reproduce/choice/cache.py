"""Train every candidate on worlds drawn by seed, once: what criteria are then studied on, many times.

    python -m reproduce.choice.cache FOLDER 100-123

A world's file holds, for every method, its targets and what it gains on held-out queries; for every candidate,
nDCG(exp)@10 on the judged test part after training on all queries; and for `CROSSED`, scores of the training documents
by models that did not see their query.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from clickprism.choice.candidates import METHODS, supported
from clickprism.choice.material import Material, save_arrays, save_material
from clickprism.choice.training import MEMBERS, blended, train
from clickprism.choice.trials import folds, observation_trial, target_of, tried_of
from clickprism.evaluation.measures import Measure, evaluate
from clickprism.experiment.worlds import draw_settings, make_world
from clickprism.observation.counts import count
from clickprism.observation.pairs import LEAST_CLICKS, link
from clickprism.observation.support import linked_depth
from clickprism.types import Float64, JudgedLists, Lists

MEASURE: Final = Measure.parse("nDCG(exp)@10")
CROSSED: Final = ("linear", "mlp", "lambdamart")


def ndcg(test: JudgedLists, scores: Float64) -> float:
    """By the true grades of queries that no log has."""
    return float(np.nanmean(evaluate(test, np.asarray(scores), MEASURE)[MEASURE]))


def reached(lists: Lists, target: Float64, test: JudgedLists) -> dict[str, float]:
    """What each ranker reaches on the test part after learning these targets; the blend is made of two of them."""
    everything = np.ones(len(lists), dtype=np.bool_)
    models = {
        ranker: train(lists, target, ranker, queries=everything, seed=0) for ranker in ("linear", "mlp", "lambdamart")
    }
    models["blend"] = blended([models["linear"], models["mlp"]], weights=(1, MEMBERS))
    return {ranker: ndcg(test, model.score(test.lists)) for ranker, model in models.items()}


def run(folder: Path, seed: int) -> None:
    """One world."""
    file = folder / f"{seed}.npz"
    if file.is_file():
        return
    begun = time.process_time()
    world = make_world(draw_settings(seed))
    material, lists = Material.of(world.logged), world.logged.clicks.lists
    fold = folds(len(lists), len(lists), 0)
    arrays: dict[str, NDArray[Any]] = {}
    clicks = material.clicks
    told: dict[str, Any] = {
        "seed": seed,
        "linked": linked_depth(link(count(clicks)), LEAST_CLICKS) == clicks.max_position,
        "methods": {},
        "ndcg": {},
    }
    with tempfile.TemporaryDirectory() as place:
        save_material(material, Path(place))
        for method in supported(tuple(METHODS), linked=True, patterns=material.places.knows_clicks):
            observation_trial(place, method, 0)
            tried = tried_of(Path(place), method)
            told["methods"][method] = tried.about
            if tried.about["refused"]:
                continue
            target = target_of(Path(place), method)
            arrays |= {f"{method}:target": target, f"{method}:gains": tried.gains, f"{method}:moved": tried.moved}
            for ranker, value in reached(lists, target, world.data.test).items():
                told["ndcg"][f"{method}/{ranker}"] = value
            for ranker in CROSSED:
                scores = np.zeros(lists.documents)
                for part in range(2):
                    model = train(lists, target, ranker, queries=fold != part, seed=0)
                    mine = (fold == part)[lists.list_of]
                    scores[mine] = model.score(lists)[mine]
                arrays[f"{method}/{ranker}:scores"] = scores
            known = {name: round(each, 4) for name, each in told["ndcg"].items() if name.startswith(f"{method}/")}
            print(seed, known, flush=True)
    told["seconds"] = round(time.process_time() - begun, 1)
    save_arrays(file, told=np.array(json.dumps(told)), **arrays)
    print(seed, world.settings, told["seconds"], flush=True)


if __name__ == "__main__":
    first, _, last = sys.argv[2].partition("-")
    step = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    for each in range(int(first), int(last or first) + 1, step):
        run(Path(sys.argv[1]), each)
