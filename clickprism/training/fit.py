"""`fit`: clicks, a method and a ranker in, a model out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clickprism.debias.base import Learner, Method
from clickprism.errors import DataError
from clickprism.model import Model
from clickprism.rankers.base import NetworkRanker, Ranker
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.mlp import MLP
from clickprism.training import network, trees
from clickprism.training.settings import FitSettings, Fitted, Progress, Stopped, Validation
from clickprism.types import Clicks


def fit(
    clicks: Clicks,
    *,
    method: Method,
    ranker: Ranker,
    settings: FitSettings | None = None,
    validation: Validation | Clicks | None = None,
    observer: NetworkRanker | None = None,
    out: Path | None = None,
    resume: bool = False,
    show: bool | None = None,
) -> Fitted:
    """Train a ranker on clicks by a method.

    Args:
        clicks: the log; merge it first (`clicks.merge()`), the cost is that of the distinct ranked lists.
        method: how clicks become a loss, such as `DualLearning()`.
        ranker: what to train, such as `MLP()`.
        settings: of the loop.
        validation: what chooses the best epoch: a measure, or held-out clicks, by whose likelihood under the learner's
            click model it is then chosen without any label.
        observer: for trees by a method that learns its observation: the network it learns it with (a small MLP).
        out: a folder for metrics.jsonl and the checkpoint.
        resume: go on from the checkpoint in `out` if there is one; the result is that of a run without a break.
        show: a progress bar; by default on a terminal only.

    Returns:
        The model and how it came to be. Ctrl-C ends training early and keeps the best so far.
    """
    settings = FitSettings() if settings is None else settings
    if len(clicks.rows) == 0:
        raise DataError("there is nothing to learn from: no ranked list shows a document")
    if not clicks.clicks.any():
        raise DataError("there is nothing to learn from: the log has no click")
    if not np.isfinite(clicks.lists.features).all():
        raise DataError("features must be finite", remedy="Impute missing values first (normalise does)")
    width = clicks.lists.features.shape[1]

    def by_gradients(network_ranker: NetworkRanker) -> tuple[Learner, Progress, Stopped]:
        return network.train(
            clicks,
            method=method,
            ranker=network_ranker,
            settings=settings,
            validation=validation,
            out=out,
            resume=resume,
            show=show,
        )

    if isinstance(ranker, LambdaMART):
        observer = observer or MLP(hidden=(64, 32))
        if method.learns_observation:
            learner, _, _ = by_gradients(observer)
        else:
            learner = method.learner(observer.build(width), clicks)
        ensemble, progress, stopped = trees.train(
            clicks,
            learner.exposure(clicks),
            title=f"{method.name} · {ranker.name}",
            ranker=ranker,
            settings=settings,
            validation=validation,
            out=out,
            show=show,
        )
        model = Model.from_trees(ranker, ensemble, features=width, method=method)
    else:
        learner, progress, stopped = by_gradients(ranker)
        model = Model.from_network(ranker, learner.ranker, features=width, method=method)
    return Fitted(
        model, learner.observation(), tuple(progress.history), progress.best_epoch, progress.best_value, stopped
    )
