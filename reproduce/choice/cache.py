"""Train every candidate on a world, once: what criteria are then studied on, many times."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from clickprism.choice.candidates import LEARNED, METHODS, supported
from clickprism.choice.material import Material, load_arrays, positions_linked, save_arrays, save_material
from clickprism.choice.training import BLENDED, blended, train
from clickprism.choice.trials import FOLDS, Tried, folds, observation_trial, target_of, tried_of
from clickprism.evaluation.measures import Measure, evaluate
from clickprism.model import Model
from clickprism.simulation.worlds import World
from clickprism.types import Bool, Float64, Int64, JudgedLists

MEASURE: Final = Measure.parse("nDCG(exp)@10")
STUDIED: Final = tuple(name for name in METHODS if name not in LEARNED)
"""Networks that learn an observation beside relevance cost the most, and are left out."""


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """The candidates of a world, by name.

    Attributes:
        linked: whether documents that moved link all positions.
        ndcg: by the true grades of the test part, after training on all queries.
        scores: of the training documents, by models that did not see their query, [documents] each.
        targets: of each method, [documents].
        tried: what the trial of each method came to.
        fold: of each query, [lists].
        seconds: CPU time that it took.
    """

    linked: bool
    ndcg: Mapping[str, float]
    scores: Mapping[str, Float64]
    targets: Mapping[str, Float64]
    tried: Mapping[str, Tried]
    fold: Int64
    seconds: float


def ndcg(test: JudgedLists, scores: Float64) -> float:
    """By the true grades of queries that no log has."""
    return float(np.nanmean(evaluate(test, np.asarray(scores), MEASURE)[MEASURE]))


def reached(material: Material, target: Float64, test: JudgedLists) -> dict[str, float]:
    """What each ranker reaches on the test part after learning these targets."""
    models = _models(material, target, np.ones(len(material.lists), dtype=np.bool_))
    return {ranker: ndcg(test, model.score(test.lists)) for ranker, model in models.items()}


def crossed(material: Material, target: Float64, fold: Int64) -> dict[str, Float64]:
    """The scores of all documents by each ranker, each by a model that did not see the query, [documents]."""
    scores: dict[str, Float64] = {}
    lists = material.lists
    for part in range(FOLDS):
        mine = (fold == part)[lists.list_of]
        for ranker, model in _models(material, target, fold != part).items():
            scores.setdefault(ranker, np.zeros(lists.documents))[mine] = model.score(lists)[mine]
    return scores


def _models(material: Material, target: Float64, queries: Bool) -> dict[str, Model]:
    """All rankers; the blend is made of two of them."""
    weights = material.weights
    models = {
        ranker: train(material.lists, target, ranker, queries=queries, seed=0, weights=weights)
        for ranker in ("linear", "mlp", "lambdamart")
    }
    models["blend"] = blended([models["linear"], models["mlp"]], weights=BLENDED)
    return models


def trained(world: World, file: Path, methods: Sequence[str] = STUDIED) -> Trained:
    """All candidates of a world, from their file or trained now; but for methods that the log does not support."""
    if not file.is_file():
        _train(world, file, methods)
    kept = load_arrays(file)
    told: dict[str, Any] = json.loads(str(kept["told"]))
    return Trained(
        told["linked"],
        told["ndcg"],
        {name: kept[f"{name}:scores"] for name in told["ndcg"]},
        {name: kept[f"{name}:target"] for name in told["methods"]},
        {
            name: Tried(about, *(kept[f"{name}:{each}"] for each in ("moved", "gains", "more")))
            for name, about in told["methods"].items()
        },
        kept["fold"],
        told["seconds"],
    )


def _train(world: World, file: Path, methods: Sequence[str]) -> None:
    begun, material, lists = time.process_time(), Material.of(world.logged), world.logged.clicks.lists
    arrays: dict[str, NDArray[Any]] = {"fold": folds(len(lists), len(lists), 0)}
    clicks = material.clicks
    linked = positions_linked(clicks)
    told: dict[str, Any] = {"linked": linked, "methods": {}, "ndcg": {}}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        save_material(material, place)
        for method in supported(methods, linked=linked, patterns=material.places.knows_clicks):
            observation_trial(name, method, 0)
            tried = tried_of(place, method)
            if tried.about["refused"]:
                continue
            told["methods"][method] = tried.about
            target = target_of(place, method)
            arrays |= {f"{method}:target": target, f"{method}:moved": tried.moved}
            arrays |= {f"{method}:gains": tried.gains, f"{method}:more": tried.more}
            values = reached(material, target, world.data.test)
            told["ndcg"] |= {f"{method}/{ranker}": value for ranker, value in values.items()}
            scores = crossed(material, target, arrays["fold"])
            arrays |= {f"{method}/{ranker}:scores": each for ranker, each in scores.items()}
    told["seconds"] = round(time.process_time() - begun, 1)
    save_arrays(file, told=np.array(json.dumps(told)), **arrays)
