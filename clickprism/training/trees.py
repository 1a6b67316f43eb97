"""Training of tree ensembles, by default on clicks per exposure."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from clickprism._util.progress import progress_bar
from clickprism.debias.base import Learner
from clickprism.debias.loop import Measured, Stopped
from clickprism.rankers.lambdamart import Boosting, LambdaMART, Trees, shown
from clickprism.training import checkpoint
from clickprism.training.settings import FitSettings, Progress, Record, Validation
from clickprism.types import Clicks, Float64, Int64

EVERY = 10  # trees between two validations


def clicks_per_exposure(
    clicks: Clicks, exposure: Float64, *, shrinkage: float, background: Float64 | None = None
) -> tuple[Int64, Float64, Int64]:
    """Return the target of each document that was shown: its clicks over its exposure, over the whole log.

    target = (sum of clicks - sum of background + s m) / (sum of exposure + s) - s m_0 / (most exposure + s)

    If exposure is impressions times observation relative to the first position, this estimates r(x) o_1, whatever
    positions the document was shown at. The background is the clicks that come without relevance, from trust in the
    ranking. Little evidence is shrunk towards m, as if by s more impressions at position 1: the mean over the
    impressions of the document of m_k, the clicks per exposure of everything shown at position k. A mean over the whole
    log would lift documents with little exposure, which the ranking put low. Without position bias m is that mean, and
    targets are proportional to clicks: m_0 is the least m. Targets below 0 are 0.

    Returns:
        The document rows in the order of the lists, the target of each row, and the number of rows of each list.
    """
    documents, impressions = clicks.lists.documents, clicks.list_impressions
    caused = clicks.weighted_clicks - (0.0 if background is None else background)
    rows, lengths = shown(clicks)
    clicked, exposed, times = (
        np.bincount(clicks.rows, weights=each, minlength=documents)[rows] for each in (caused, exposure, impressions)
    )
    biased = float(np.ptp(exposure / impressions)) > 1e-9
    places = clicks.positions - 1 if biased else np.zeros_like(clicks.positions)
    means = np.bincount(places, weights=caused) / np.maximum(np.bincount(places, weights=exposure), 1e-12)
    means = np.maximum(means, 0.0)[places]
    prior = np.bincount(clicks.rows, weights=impressions * means, minlength=documents)[rows] / times
    evidence = np.maximum(exposed + shrinkage, 1e-12)
    targets = (clicked + shrinkage * prior) / evidence - shrinkage * prior.min() / evidence.max()
    return rows, np.maximum(targets, 0.0), lengths


def per_exposure(clicks: Clicks, learner: Learner, ranker: LambdaMART) -> Boosting:
    """Return clicks per exposure, with exposure and background from the learner of any method for networks.

    Exposure is raised to the ranker's floor times the impressions: targets of documents with hardly any exposure are
    noise, and lambdarank cannot weight single documents.
    """
    exposure = np.maximum(learner.exposure(clicks), ranker.floor * clicks.list_impressions)
    rows, targets, lengths = clicks_per_exposure(
        clicks, exposure, shrinkage=ranker.shrinkage, background=learner.background(clicks)
    )
    return Boosting(clicks.lists.features, rows, lengths, targets)


def train(
    boosting: Boosting,
    *,
    title: str,
    ranker: LambdaMART,
    settings: FitSettings,
    validation: Validation | None,
    out: Path | None,
    show: bool | None,
) -> tuple[Trees, Progress, Stopped]:
    """Train an ensemble and return it cut to the best number of trees by validation, or whole without one."""
    progress, start, patience = Progress(), time.perf_counter(), settings.patience
    grown: Trees | None = None
    best: Measured | None = None
    stopped: Stopped = "epochs"

    def on_tree(count: int, trees: Trees) -> bool:
        nonlocal grown, best
        grown, progress.epoch, progress.step = trees, count, count
        if count % EVERY and count != ranker.trees:
            return False
        measured, seconds = None, time.perf_counter() - start
        if validation is not None:
            measured = validation.of(lambda x: trees(x.features))
        speed = len(boosting.lengths) * count / seconds
        record = Record(count, count, {}, 0.0, speed, seconds, None if measured is None else measured.value)
        progress.history.append(record)
        checkpoint.add_metrics(out, record)
        report(count, ranker.trees, f"{title}  {record.text()}")
        if best is None or (measured is not None and measured.beats(best)):
            progress.best_epoch, progress.best_value, progress.waited = count, record.validation, 0
            best = measured
        else:
            progress.waited += 1
        return patience > 0 and progress.waited >= patience

    checkpoint.start_metrics(out)
    with progress_bar(title, show=show) as report:
        try:
            ranker.train(boosting, seed=settings.seed, threads=settings.threads, on_tree=on_tree)
            stopped = "patience" if patience > 0 and progress.waited >= patience else "epochs"
        except KeyboardInterrupt:
            if progress.best_epoch == 0:
                raise
            stopped = "interrupted"
    if grown is None:
        raise RuntimeError("LightGBM grew no tree")
    return grown.first(progress.best_epoch), progress, stopped
