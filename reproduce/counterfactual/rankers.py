"""The rankers that are evaluated: one trained on clicks, some close to what was shown, one reversed."""

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
    """Return scores of the documents by name of the ranker, [documents] each.

    - "click": a linear ranker trained on the clicks of the log itself.
    - "shown": one of the lists that were shown for each query, at random.
    - "near": the list shown most; that of "shown" in 30% of the queries; in 5% of the queries shuffled.
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
    """Return the ranked list with the highest key of each query."""
    query = lists.lists.list_of[lists.rows[lists.offsets[:-1]]]
    order = np.lexsort((-key, query))
    first = np.concatenate([[True], query[order][1:] != query[order][:-1]])
    return np.asarray(order[first], dtype=np.int64)


def _as_scores(lists: Clicks, chosen: Int64) -> Float64:
    """Return scores that rank as these lists do; other documents rank last."""
    entries, _ = slices(lists.offsets, chosen)
    scores = np.full(lists.lists.documents, LAST)
    scores[lists.rows[entries]] = -lists.positions[entries]
    return scores
