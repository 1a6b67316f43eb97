"""The rankers that are valued: one that learned from clicks, some near what was shown, one that is turned around."""

from __future__ import annotations

import numpy as np

from clickprism.data.logged import Logged
from clickprism.debias.click import Click
from clickprism.rankers.linear import Linear
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Float64, Int64, slices

LAST = -1000.0
MIXED, MOVED = 0.3, 0.05


def rankers(logged: Logged, seed: int) -> dict[str, Float64]:
    """Scores of the documents by name of the ranker, [documents] each.

    - "click": a linear ranker that learned from the clicks of the log itself.
    - "shown": of each query, one of the lists that were shown, by chance.
    - "near": the list shown most; "shown" in three queries of ten; and documents moved at random in one of twenty.
    - "reversed": the list shown most, from bottom to top.
    """
    lists = logged.clicks.merge()
    rng = np.random.default_rng(seed)
    learned = fit(
        lists, method=Click(), ranker=Linear(), settings=FitSettings(epochs=3, threads=1, seed=seed), show=False
    )
    most = _as_scores(lists, _one_each(lists, lists.impressions.astype(np.float64)))
    shown = _as_scores(lists, _one_each(lists, rng.random(len(lists))))
    query = lists.lists.list_of
    mixed, moved = (rng.random(len(lists.lists)) < share for share in (MIXED, MOVED))
    near = np.where(mixed[query], shown, most) + moved[query] * rng.normal(size=len(most))
    turned = np.where(most > LAST, -most, LAST)
    return {"click": learned.model.score(lists.lists), "shown": shown, "near": near, "reversed": turned}


def _one_each(lists: Clicks, key: Float64) -> Int64:
    """Of each query the ranked list with the highest key."""
    query = lists.lists.list_of[lists.rows[lists.offsets[:-1]]]
    order = np.lexsort((-key, query))
    first = np.concatenate([[True], query[order][1:] != query[order][:-1]])
    chosen: Int64 = order[first].astype(np.int64)
    return chosen


def _as_scores(lists: Clicks, chosen: Int64) -> Float64:
    """Scores that rank as these lists do, and put all else last."""
    entries, _ = slices(lists.offsets, chosen)
    scores = np.full(lists.lists.documents, LAST)
    scores[lists.rows[entries]] = -lists.positions[entries]
    return scores
