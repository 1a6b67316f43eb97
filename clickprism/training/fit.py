"""`fit`: clicks, a method and a ranker in, a model out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from clickprism.debias import METHODS
from clickprism.debias.base import Learner, Method
from clickprism.errors import DataError, SettingError
from clickprism.model import Model
from clickprism.rankers.base import NetworkRanker, Ranker
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.mlp import MLP
from clickprism.settings import resolve
from clickprism.training import network, trees
from clickprism.training.settings import FitSettings, Fitted, Validation
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
    """Train a ranker on clicks by a method; Ctrl-C ends training early and keeps the best so far.

    Args:
        clicks: The log; merge it first (`clicks.merge()`, or `clicks.merge(by="pattern")` for a method that needs to
            know what was clicked together), as the cost is that of the distinct ranked lists.
        method: How clicks become a loss, such as `DualLearning()`.
        ranker: What to train, such as `MLP()`.
        settings: Of the loop; a method that is a paper to the letter replaces what the paper specifies.
        validation: What chooses the best epoch: a measure, or held-out clicks, by whose likelihood under the learner's
            click model it is chosen without labels.
        observer: For trees by a method that learns its observation: the network that learns it (a small MLP).
        watch: Called with the epoch and the learner, ready to score, whenever validation is due; for networks only.
        out: A folder for metrics.jsonl and the checkpoint (of the observer, in `out/observer`, if there is one).
        resume: Continue from the checkpoint in `out` if there is one; the result is that of a run without a break.
            Trees have no checkpoint and start again.
        show: A progress bar; by default on a terminal only.

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
    out = None if out is None else Path(out)
    if method.trees_only and not isinstance(ranker, LambdaMART):
        must = f"be {LambdaMART.name} for the method {method.name}, which grows trees and has no loss for a network"
        raise SettingError("ranker", ranker.name, must)
    _check_log(clicks, method)
    if isinstance(validation, Clicks):
        _check_held_out(validation, clicks, ranker)
    ranker = method.published_ranker(ranker)
    settings = replace(settings or FitSettings(), **method.published_training(clicks))
    if out is not None and out.exists() and not out.is_dir():
        raise DataError("is a file, not a folder", file=out)
    width = clicks.lists.features.shape[1]
    by_gradients = partial(
        network.train,
        clicks,
        method=method,
        settings=settings,
        validation=validation,
        watch=watch,
        resume=resume,
        show=show,
    )
    learner: Learner | None = None
    if isinstance(ranker, LambdaMART):
        boosting = method.boosting(clicks, ranker)
        if boosting is None:
            observer = observer or MLP(hidden=(64, 32))
            if method.learns_observation:
                learner, _, stopped = by_gradients(ranker=observer, out=None if out is None else out / "observer")
                if stopped == "interrupted":
                    raise KeyboardInterrupt
            else:
                with network.torch_set_for(settings.seed, settings.threads):
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
    else:
        learner, progress, stopped = by_gradients(ranker=ranker, out=out)
        model, boosting = Model.of(ranker, learner.ranker, features=width, method=method), None
    source = boosting if learner is None else learner
    observation = None if source is None else source.observation()
    best = progress.best_epoch, progress.best_value
    return Fitted(model, observation, tuple(progress.history), *best, stopped, learner)


def _check_log(clicks: Clicks, method: Method) -> None:
    if len(clicks.rows) == 0:
        raise DataError("there is nothing to learn from: no ranked list shows a document")
    if not clicks.clicks.any():
        raise DataError("there is nothing to learn from: the log has no click")
    if method.needs_patterns and not clicks.are_patterns:
        remedy = 'Simulate with --simulation.merge pattern, or merge with clicks.merge(by="pattern")'
        raise DataError(f"{method.name} must know what was clicked together, which a merged log forgets", remedy=remedy)
    if clicks.weights is not None and not method.takes_weights:
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
        raise DataError(f"the clicks {one} have weights, those {other} none", remedy="Weight both alike, or neither")
    widths = clicks.lists.features.shape[1], held_out.lists.features.shape[1]
    if widths[0] != widths[1]:
        raise DataError(f"the log has {widths[0]} features, the clicks that were held out have {widths[1]}")
    _check_features(held_out.lists)
