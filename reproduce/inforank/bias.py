"""What Figures 3 and 5 show of a ranking: where documents go that were shown high or often, and whom it exposes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np

import clickprism as cp
from clickprism.data.items import items_across
from clickprism.experiments.data import Log
from clickprism.types import Clicks, Dataset, Float32, Float64, Int32, Int64
from reproduce.common.training import keep
from reproduce.inforank.curves import Curve, by_frequency, by_position, exposure_shares, initial_order
from reproduce.inforank.worlds import World, data_key

LENGTH: Final = 10
BINS: Final = 10
GROUPS: Final = 5
Items: TypeAlias = tuple[Int64 | None, Int64 | None]  # of the training and of the test documents, if they are known


def bias_curves(
    scores: Float64 | Float32 | Int32,
    *,
    dataset: Dataset,
    clicks: Clicks,
    initial: Float64,
    items: Items,
    length: int = LENGTH,
    top: int | None = LENGTH,
) -> dict[str, Curve]:
    """Return how a ranking of the test part moves documents that were shown high, shown often, or clicked often.

    Position: the mean position after re-ranking, by position in the initial ranking. Frequency: the same, by how often
    the log shows the item. Popularity: the share of exposure, by how often the log clicks the item. The last two are
    missing if the log shows no item of the test part.

    Args:
        scores: Of the test documents; for the labels' own curves, the grades.
        dataset: Its test part is ranked.
        clicks: The log on the training part.
        initial: Scores of the test documents by the initial ranker.
        items: Of the training and of the test documents.
        length: Number of documents that users are shown.
        top: Number of positions that are exposed; all if None.
    """
    test, (trained, tested) = dataset.test.lists, items
    shown, every = initial_order(test, initial, length=length), initial_order(test, initial)
    found = {"position": by_position(shown, scores)}
    if trained is None or tested is None:
        return found
    count = 1 + max(int(part.max(initial=-1)) for part in (trained, tested))
    shown_items = trained[clicks.rows]
    frequency, popularity = (
        np.bincount(shown_items, weights=counts, minlength=count).astype(np.float64)
        for counts in (clicks.list_impressions, clicks.clicks)
    )
    if frequency[tested].any():
        found["frequency"] = by_frequency(shown, scores, tested, frequency, bins=BINS)
        found["popularity"] = exposure_shares(every, scores, tested, popularity, groups=GROUPS, top=top)
    return found


def moved(world: World, folder: Path | None, *, dataset: cp.Dataset, log: Log, scores: Float64) -> dict[str, Any]:
    """Return each curve of a ranking of the test part, that of the labels, and the distance of the two."""
    known: dict[str, Any] = {"dataset": dataset, "clicks": log.simulation.clicks, "initial": log.initial}
    known["items"] = found_items(world, folder, dataset)
    mine, own = bias_curves(scores, **known), bias_curves(dataset.test.grades, **known)
    return {
        axis: {
            "at": _rounded(curve.at),
            "value": _rounded(curve.value),
            "labels": _rounded(own[axis].value),
            "distance": curve.distance(own[axis]),
        }
        for axis, curve in mine.items()
    }


def found_items(world: World, folder: Path | None, dataset: cp.Dataset) -> Items:
    """Return the items of the training and of the test part: articles of Adressa, otherwise clusters of features.

    LETOR has ids too, but its queries share hardly a document: 4 % of those of the test part in fold 1 of MQ2008.
    """
    parts = [dataset.train.lists, dataset.test.lists]
    by: Literal["ids", "features"] = "ids" if world.data == "adressa" else "features"
    items: Items = keep(("items", *data_key(world, folder)), lambda: tuple(items_across(parts, by=by)))
    return items


def _rounded(values: Float64) -> list[float]:
    return [round(float(value), 5) for value in values]
