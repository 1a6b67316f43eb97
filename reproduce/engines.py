"""Methods on the logs of engines of known quality: `python -m reproduce.engines`.

No paper measures how its method does as engines improve. An engine's order mixes true relevance (weight: quality) with
an irrelevant direction, and may react to clicks of earlier days (`reproduce.common.engines`). A linear ranker is
trained by each method and judged over all candidates of other queries, most of which are unlike those that were shown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, cast, get_args

import numpy as np
from scipy.special import logit
from sklearn.linear_model import Ridge

import clickprism as cp
from clickprism.data.logged import Logged
from clickprism.debias import method
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.types import Float64, JudgedLists
from reproduce.common.cli import guarded, whole_numbers, words
from reproduce.common.engines import EngineSettings, EngineWorld, Users, engine_world

MEASURE: Final = "nDCG(exp)@10"
RIVALS: Final = ("click", "lbd_paper", "targets")
QUALITIES: Final = (0.0, 0.3, 0.6, 0.9)
EPOCHS: Final = 40
MOST_IMPRESSIONS: Final = 50  # that a pair counts for in the regression on posterior targets
ALPHA: Final = 10.0  # its ridge penalty


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a Markdown table: a row for each world, a column for each method and its distance to the best rival."""
    parser = argparse.ArgumentParser(prog="python -m reproduce.engines", description=__doc__)
    parser.add_argument("--seeds", default="0", help="seeds of the worlds, such as 0,1 (default: %(default)s)")
    parser.add_argument("--users", default="pbm,mix,lazy", help="kinds of users (default: %(default)s)")
    parser.add_argument("--methods", default="lbd,inforank", help="methods to compare (default: %(default)s)")
    given = parser.parse_args(arguments)

    def printed() -> None:
        users = cast("tuple[Users, ...]", words("users", given.users, get_args(Users)))
        for line in table(users, given.methods.split(","), seeds=whole_numbers("seeds", given.seeds)):
            print(line, flush=True)

    return guarded(printed)


def table(users: Sequence[Users], methods: Sequence[str], *, seeds: Sequence[int]) -> Iterator[str]:
    """Yield the lines of the table, each a mean over the seeds."""
    columns = [*RIVALS, *(word for name in methods for word in (f"`{name}`", "- best"))]
    yield f"| users, quality of the engine | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for user, feedback, quality in product(users, (0.0, 2.0), QUALITIES):
        worlds = [
            engine_world(EngineSettings(users=user, quality=quality, feedback=feedback, seed=seed)) for seed in seeds
        ]
        rivals = [float(np.mean([reached(name, world) for world in worlds])) for name in RIVALS]
        cells = [f"{value:.3f}" for value in rivals]
        for name in methods:
            value = float(np.mean([reached(name, world) for world in worlds]))
            cells += [f"{value:.3f}", f"{value - max(rivals):+.3f}"]
        name = f"{user}{', feedback' if feedback else ''}, {quality:g}"
        yield f"| {name} | {' | '.join(cells)} |"


def reached(name: str, world: EngineWorld) -> float:
    """Return the nDCG of a linear ranker that is trained by a method, or on posterior targets, in a world."""
    if name == "targets":
        return ndcg(world.test, world.test.lists.features @ posterior_weights(world.logged))
    settings = cp.FitSettings(epochs=EPOCHS, patience=0, threads=1)
    log = world.logged.clicks.merge()
    fitted = cp.fit(log, method=method(name), ranker=cp.Linear(), settings=settings, show=False)
    return ndcg(world.test, fitted.model.score(world.test.lists))


def ndcg(judged: JudgedLists, scores: Float64) -> float:
    """Return the mean measure of these scores."""
    return float(cp.evaluate(judged, scores, MEASURE).mean(MEASURE))


def posterior_weights(logged: Logged) -> Float64:
    """Return the weights of a ridge regression within queries on the log odds of the log model's posterior."""
    found = LogModel.fit(logged, settings=LogModelSettings(resamples=0)).relevance
    lists, weight = logged.clicks.lists, np.minimum(found.impressions, MOST_IMPRESSIONS)
    query = np.unique(lists.list_of[found.rows], return_inverse=True)[1]
    columns = np.column_stack([lists.features[found.rows], logit(np.clip(found.value, 0.01, 0.99))])
    total = np.zeros((query.max() + 1, columns.shape[1]))
    np.add.at(total, query, columns * weight[:, None])
    centred = columns - (total / np.bincount(query, weights=weight)[:, None])[query]
    weights: Float64 = Ridge(alpha=ALPHA).fit(centred[:, :-1], centred[:, -1], sample_weight=weight).coef_
    return weights


if __name__ == "__main__":
    raise SystemExit(main())
