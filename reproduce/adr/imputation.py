"""The imputation of a world, learned from explored first slots of its earlier months, for every candidate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import clickprism as cp
from clickprism.types import Bool, Clicks, Float32, Float64, Int64, Lists
from reproduce.adr.searches import Log
from reproduce.adr.worlds import Site, World, site_of
from reproduce.adr.year import log_of

HELD_OUT = 0.15  # of the queries, by whose clicks the epoch is chosen
HIDDEN = (64, 32)


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
    """A network on the features, fitted to clicks in the first slot."""
    lists = site.judged.lists
    aside = np.random.default_rng(seed).random(len(lists)) < HELD_OUT
    parts = [single(lists, rows, clicks, shown) for rows in _rows(shown, aside[lists.list_of])]
    fitted = cp.fit(
        parts[0],
        method=cp.method("pal"),
        ranker=cp.MLP(hidden=HIDDEN),
        settings=cp.FitSettings(epochs=epochs, batch_size=256, patience=5, threads=1, seed=seed),
        validation=parts[1],
        show=False,
    )
    scores = fitted.model.score(lists)
    return calibrated(scores, clicks, shown), {"epochs": len(fitted.history)}


def _rows(shown: Int64, aside: Bool) -> tuple[Int64, Int64]:
    return np.flatnonzero((shown > 0) & ~aside), np.flatnonzero((shown > 0) & aside)


def single(lists: Lists, rows: Int64, clicks: Int64, shown: Int64) -> Clicks:
    """Lists of one document each, in the first slot."""
    ones = np.ones(len(rows), dtype=np.int32)
    return Clicks(lists, np.arange(len(rows) + 1), rows, ones, clicks[rows], shown[rows])


def calibrated(scores: Float64, clicks: Int64, shown: Int64) -> Float64:
    """Click probabilities: the logistic curve of scores that fits the clicks best, [documents]."""
    from sklearn.linear_model import LogisticRegression

    known = np.flatnonzero(shown > 0)
    mean, spread = float(scores[known].mean()), max(float(scores[known].std()), 1e-9)
    inputs = ((scores - mean) / spread)[:, None]
    targets = np.repeat([1, 0], len(known))
    weights = np.concatenate([clicks[known], shown[known] - clicks[known]])
    fitted = LogisticRegression().fit(np.tile(inputs[known], (2, 1)), targets, sample_weight=weights)
    return np.asarray(fitted.predict_proba(inputs)[:, 1])
