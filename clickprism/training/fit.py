"""`fit`: clicks, a method and a ranker in, a model out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from clickprism.debias import METHODS
from clickprism.debias.base import Learner, Method, NetworkMethod, PublishedMethod, TreeMethod
from clickprism.debias.loop import Stopped
from clickprism.errors import DataError, SettingError
from clickprism.model import Model
from clickprism.rankers.base import NetworkRanker, Ranker
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.mlp import MLP
from clickprism.settings import resolve
from clickprism.training import network, trees
from clickprism.training.settings import FitSettings, Fitted, Progress, Validation
from clickprism.types import Clicks, Lists

BLOCK = 65_536


def fit(
    clicks: Clicks,
    *,
    method: Method,
    ranker: Ranker,
    settings: FitSettings | None = None,
    validation: Validation | Clicks | None = None,
    observer: NetworkRanker | None = None,
    watch: Callable[[int, Learner], None] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    show: bool | None = None,
) -> Fitted:
    """Train a ranker on clicks by a method.

    Args:
        clicks: the log; merge it first (`clicks.merge()`, or `clicks.merge(by="pattern")` for a method that needs to
            know what was clicked together), the cost is that of the distinct ranked lists.
        method: how clicks become a loss, such as `DualLearning()`.
        ranker: what to train, such as `MLP()`.
        settings: of the loop; a method that is a paper to the letter replaces what the paper names.
        validation: what chooses the best epoch: a measure, or held-out clicks, by whose likelihood under the learner's
            click model it is then chosen without any label.
        observer: for trees by a method that learns its observation: the network it learns it with (a small MLP).
        watch: called with the epoch and the learner, ready to score, whenever validation is due; for networks only.
        out: a folder for metrics.jsonl and the checkpoint (of the observer, in `out/observer`, where there is one).
        resume: go on from the checkpoint in `out` if there is one; the result is that of a run without a break. Trees
            have no checkpoint and grow anew.
        show: a progress bar; by default on a terminal only.

    Returns:
        The model and how it came to be. Ctrl-C ends training early and keeps the best so far.

    >>> import clickprism as cp
    >>> data = cp.synthetic(cp.SyntheticSettings(train_queries=50, validation_queries=20, test_queries=50))
    >>> log = cp.simulate(data.train, cp.PositionUser(), sessions=2000, seed=0)
    >>> settings = cp.FitSettings(epochs=5, threads=1)
    >>> fitted = cp.fit(log.clicks, method=cp.DualLearning(), ranker=cp.Linear(), settings=settings)
    >>> fitted.model.score(data.test.lists).shape == (data.test.lists.documents,)
    True
    """
    if not isinstance(clicks, Clicks):
        kind = type(clicks).__name__
        raise TypeError(f"fit learns from Clicks, not from {kind}; ideal_clicks(judged) makes clicks of labels")
    settings = FitSettings() if settings is None else settings
    out = None if out is None else Path(out)
    if not isinstance(ranker, LambdaMART):
        _with_loss(method, ranker)
    _check_log(clicks, method)
    if isinstance(validation, Clicks):
        _check_held_out(validation, clicks, ranker)
    if isinstance(method, PublishedMethod):
        ranker, settings = method.published_ranker(ranker), replace(settings, **method.published_training(clicks))
    if out is not None and out.exists() and not out.is_dir():
        raise DataError("is a file, not a folder", file=out)
    width = clicks.lists.features.shape[1]

    def by_gradients(
        network_method: NetworkMethod, network_ranker: NetworkRanker, out: Path | None
    ) -> tuple[Learner, Progress, Stopped]:
        return network.train(
            clicks,
            method=network_method,
            ranker=network_ranker,
            settings=settings,
            validation=validation,
            out=out,
            watch=watch,
            resume=resume,
            show=show,
        )

    learner: Learner | None = None
    if isinstance(ranker, LambdaMART):
        if isinstance(method, TreeMethod):
            boosting = method.boosting(clicks, ranker)
        else:
            observer = observer or MLP(hidden=(64, 32))
            if method.learns_observation:
                learner, _, stopped = by_gradients(method, observer, None if out is None else out / "observer")
                if stopped == "interrupted":
                    raise KeyboardInterrupt
            else:
                with network.torch_set_for(settings):
                    learner = method.learner(observer.build(width), clicks)
            boosting = trees.per_exposure(clicks, learner, ranker)
        ensemble, progress, stopped = trees.train(
            boosting,
            title=f"{method.name} · {ranker.name}",
            ranker=ranker,
            settings=settings,
            validation=None if isinstance(validation, Clicks) else validation,
            out=out,
            show=show,
        )
        model = Model.of(ranker, ensemble, features=width, method=method)
        observation = boosting.observation() if learner is None else learner.observation()
    else:
        learner, progress, stopped = by_gradients(_with_loss(method, ranker), ranker, out)
        model = Model.of(ranker, learner.ranker, features=width, method=method)
        observation = learner.observation()
    best = progress.best_epoch, progress.best_value
    return Fitted(model, observation, tuple(progress.history), *best, stopped, learner)


def _with_loss(method: Method, ranker: NetworkRanker) -> NetworkMethod:
    """The method, if it has a loss for a network."""
    if not isinstance(method, NetworkMethod):
        must = f"be {LambdaMART.name} for the method {method.name}, which grows trees and has no loss for a network"
        raise SettingError("ranker", ranker.name, must)
    return method


def _check_log(clicks: Clicks, method: Method) -> None:
    if len(clicks.rows) == 0:
        raise DataError("there is nothing to learn from: no ranked list shows a document")
    if not clicks.clicks.any():
        raise DataError("there is nothing to learn from: the log has no click")
    if method.needs_patterns and not clicks.are_patterns:
        remedy = 'Simulate with --simulation.merge pattern, or merge with clicks.merge(by="pattern")'
        raise DataError(f"{method.name} must know what was clicked together, which a merged log forgets", remedy=remedy)
    if clicks.weights is not None and not getattr(method, "takes_weights", False):
        able = [name for name in METHODS if resolve(METHODS, name, path="method").takes_weights]
        remedy = f"Take {', '.join(able[:-1])} or {able[-1]}, or the log without weights"
        raise DataError(f"the clicks of the log have weights, and {method.name} takes none", remedy=remedy)
    _check_features(clicks.lists)


def _check_features(lists: Lists) -> None:
    for start in range(0, lists.documents, BLOCK):
        if not np.isfinite(lists.features[start : start + BLOCK]).all():
            raise DataError("features must be finite", remedy="Impute missing values first (normalise does)")


def _check_held_out(held_out: Clicks, clicks: Clicks, ranker: Ranker) -> None:
    if isinstance(ranker, LambdaMART):
        raise SettingError("validation", "clicks", "be a measure for trees, whose scores are no click probabilities")
    if not held_out.clicks.any():
        remedy = (
            "Give a longer log, or one log for each part (data.train, data.validation, data.test), "
            "or use the last epoch: --evaluation.validation none"
        )
        raise DataError("the clicks that were held out to validate by have no click", remedy=remedy)
    if (held_out.weights is None) != (clicks.weights is None):
        one, other = ("held out", "to learn from") if clicks.weights is None else ("to learn from", "held out")
        raise DataError(f"the clicks {one} have weights, those {other} none", remedy="Weigh both alike, or neither")
    widths = clicks.lists.features.shape[1], held_out.lists.features.shape[1]
    if widths[0] != widths[1]:
        raise DataError(f"the log has {widths[0]} features, the clicks that were held out have {widths[1]}")
    _check_features(held_out.lists)
