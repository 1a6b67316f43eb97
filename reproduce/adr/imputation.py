"""The imputation of a world, learned from explored first slots of its earlier months, for every candidate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import clickprism as cp
from clickprism.training.settings import Validation
from clickprism.types import Clicks, Float32, Float64, Int64, Lists
from reproduce.adr.searches import Log
from reproduce.adr.worlds import Site, World, site_of
from reproduce.adr.year import log_of

HELD_OUT = 0.15  # of the queries, by whose clicks the epoch is chosen
HIDDEN = (64, 32)
RATE, PATIENCE = 0.02, 8
MOST = 30  # impressions that a document counts for at most: else a few documents of head queries would be all there is


def imputed(world: World, folder: Path | None, *, epochs: int) -> tuple[dict[str, Float64 | Float32], dict[str, Any]]:
    """The imputation of each candidate, [documents], and its representation, [documents, width]."""
    site, log = site_of(world, folder), log_of(world, folder)
    clicks, shown = learned_clicks(world, log, len(site.relevance))
    values, notes = by_features(site, clicks, shown, epochs=epochs, seed=world.seed)
    found = {"correlation": float(np.corrcoef(values, site.first_slot)[0, 1]), "impressions": int(shown.sum())}
    return {"imputed": values, "representation": site.judged.lists.features}, notes | found | {
        "lost": lost(log, site.judged.lists.list_of)
    }


def lost(log: Log, query_of: Int64) -> float:
    """The share of clicks in the first slot that exploration costs: in each query, what it shows against what it hides.

    sum over queries of n_e (rate - rate_e) / sum of (n + n_e) rate, with n_e explored searches of rate_e
    """
    first = log.take(log.places == 0)
    queries = int(query_of.max()) + 1
    shown, clicked, explored, explored_clicked = (
        np.bincount(query_of[first.rows[of]], weights=values[of], minlength=queries)
        for of in (~first.randomised, first.randomised)
        for values in (first.impressions, first.clicked)
    )
    both = (shown > 0) & (explored > 0)
    rate = clicked / np.maximum(shown, 1)
    gone = (explored * rate - explored_clicked)[both].sum()
    return float(gone / max(((shown + explored) * rate).sum(), 1.0))


def learned_clicks(world: World, log: Log, documents: int) -> tuple[Int64, Int64]:
    """Clicks and impressions in first slots of the earlier months, [documents].

    Explored ones; in a world without exploration all, which the production ranker filled.
    """
    first = log.take((log.places == 0) & (log.months < world.split) & (log.randomised | (world.randomised == 0)))
    clicks, shown = np.zeros(documents, np.int64), np.zeros(documents, np.int64)
    np.add.at(clicks, first.rows, first.clicked)
    np.add.at(shown, first.rows, first.impressions)
    return clicks, shown


def by_features(site: Site, clicks: Int64, shown: Int64, *, epochs: int, seed: int) -> tuple[Float64, dict[str, Any]]:
    """A network on the features, fitted to clicks in the first slot; the epoch by those of held-out queries."""
    lists = site.judged.lists
    kept = np.minimum(shown, MOST)
    counted = np.minimum(np.rint(clicks * kept / np.maximum(shown, 1)).astype(np.int64), kept)
    aside = (np.random.default_rng(seed).random(len(lists)) < HELD_OUT)[lists.list_of]
    rows, others = np.flatnonzero((kept > 0) & ~aside), np.flatnonzero((kept > 0) & aside)

    def likelihood(score: Callable[[Lists], Float64]) -> float:
        chance = calibrated(score(lists), counted, kept, rows)[others]
        of = counted[others] * np.log(chance) + (kept - counted)[others] * np.log(1 - chance)
        return float(of.sum() / kept[others].sum())

    fitted = cp.fit(
        single(lists, rows, counted, kept),
        method=cp.method("pal"),
        ranker=cp.MLP(hidden=HIDDEN),
        settings=cp.FitSettings(
            epochs=epochs, batch_size=256, learning_rate=RATE, patience=PATIENCE, threads=1, seed=seed
        ),
        validation=Validation("the likelihood of held-out first-slot clicks", likelihood),
        show=False,
    )
    known = np.flatnonzero(kept > 0)
    return calibrated(fitted.model.score(lists), counted, kept, known), {"best_epoch": fitted.best_epoch}


def single(lists: Lists, rows: Int64, clicks: Int64, shown: Int64) -> Clicks:
    """Lists of one document each, in the first slot."""
    ones = np.ones(len(rows), dtype=np.int32)
    return Clicks(lists, np.arange(len(rows) + 1), rows, ones, clicks[rows], shown[rows])


def calibrated(scores: Float64, clicks: Int64, shown: Int64, known: Int64) -> Float64:
    """Click probabilities: the logistic curve of scores that fits the clicks of known rows best, [documents]."""
    from sklearn.linear_model import LogisticRegression

    mean, spread = float(scores[known].mean()), max(float(scores[known].std()), 1e-9)
    inputs = ((scores - mean) / spread)[:, None]
    targets = np.repeat([1, 0], len(known))
    weights = np.concatenate([clicks[known], shown[known] - clicks[known]])
    fitted = LogisticRegression().fit(np.tile(inputs[known], (2, 1)), targets, sample_weight=weights)
    return np.asarray(fitted.predict_proba(inputs)[:, 1])
