"""What Figures 3 to 5 show of a run: where documents go, who is exposed, how relevance depends on observation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import clickprism as cp
from clickprism.data.items import item_frequency, items_across
from clickprism.evaluation.curves import Curve, Shares, by_frequency, by_position, exposure_shares, initial_order
from clickprism.evaluation.independence import Independence, independence
from clickprism.experiment import Log
from clickprism.types import Float64, Int32, Int64
from reproduce.common.kept import keep
from reproduce.inforank.worlds import World, data_settings

LENGTH = 10
BINS, GROUPS = 10, 5
AXES = ("position", "frequency", "popularity")


def dependence(learner: Any, clicks: cp.Clicks) -> Independence:
    """Delta-CI of a learner with `conditional`, on what a log shows, each document at the position where it stood."""
    with torch.no_grad():
        documents = torch.from_numpy(np.ascontiguousarray(clicks.lists.features[clicks.rows]))
        odds = learner.conditional(documents, torch.from_numpy(clicks.positions.astype(np.int64)))
        r1, r0, o = (torch.sigmoid(each.double()).numpy() for each in (odds.seen, odds.unseen, odds.observed))
    return independence(r1, r0, o, weights=clicks.list_impressions)


def moved(world: World, folder: Path | None, *, dataset: cp.Dataset, log: Log, scores: Float64) -> dict[str, Any]:
    """Of a ranking of the test part: each curve, that of the labels, and the distance of the two.

    Position: the mean place after of what stood at each place of the initial top ten, among these ten. Frequency: the
    same by how often the item was shown in the training log. Popularity: the share of the top ten places that items
    get, by how often they were clicked in the training log.
    """
    test, grades = dataset.test.lists, dataset.test.grades
    shown, every = initial_order(test, log.initial, length=LENGTH), initial_order(test, log.initial)
    trained, tested = _items(world, folder, dataset)
    count = 1 + int(max(trained.max(initial=-1), tested.max(initial=-1)))
    clicks = log.simulation.clicks
    frequency = item_frequency(clicks, trained, of="impressions", count=count)
    popularity = item_frequency(clicks, trained, of="clicks", count=count)

    def drawn(values: Float64 | Int32) -> tuple[Curve, Curve, Shares]:
        return (
            by_position(shown, values),
            by_frequency(shown, values, tested, frequency, bins=BINS),
            exposure_shares(every, values, tested, popularity, groups=GROUPS, top=LENGTH),
        )

    pairs: dict[str, tuple[Any, Any]] = dict(zip(AXES, zip(drawn(scores), drawn(grades), strict=True), strict=True))
    return {
        name: {
            "at": _rounded(mine.at),
            "value": _rounded(mine.value),
            "labels": _rounded(truth.value),
            "distance": mine.distance(truth),
        }
        for name, (mine, truth) in pairs.items()
    }


def _items(world: World, folder: Path | None, dataset: cp.Dataset) -> tuple[Int64, Int64]:
    """The items of the training and of the test part: by id where there are ids, else clusters of features."""
    key = ("items", repr(data_settings(world, folder)))
    parts = (dataset.train.lists, dataset.test.lists)
    items: tuple[Int64, Int64] = keep(key, lambda: items_across(parts))
    return items


def _rounded(values: Float64) -> list[float]:
    return [round(float(value), 5) for value in values]
