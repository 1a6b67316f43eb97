"""What Figures 3 and 5 show of a run: where documents go, and who is exposed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import clickprism as cp
from clickprism.experiments.data import Log
from clickprism.types import Float64
from reproduce.common.kept import keep
from reproduce.inforank.bias_curves import KnownItems, bias_basis, find_items
from reproduce.inforank.worlds import World, data_key

LENGTH = 10


def moved(world: World, folder: Path | None, *, dataset: cp.Dataset, log: Log, scores: Float64) -> dict[str, Any]:
    """Of a ranking of the test part: each curve, that of the labels, and the distance of the two.

    Position: the mean place after of what stood at each place of the initial top ten, among these ten. Frequency: the
    same by how often the item was shown in the training log. Popularity: the share of the top ten places that items
    get, by how often they were clicked in the training log. The last two only where the log shows an item of the test
    part.
    """
    items = found_items(world, folder, dataset)
    clicks = log.simulation.clicks
    bias = bias_basis(dataset, clicks, log.initial, length=LENGTH, items=items, top=LENGTH).bias(scores)
    own, distances = bias.labels_own.parts, bias.curves.distances(bias.labels_own)
    return {
        mine.axis: {
            "at": _rounded(mine.at),
            "value": _rounded(mine.value),
            "labels": _rounded(own[name].value),
            "distance": distances[name],
        }
        for name, mine in bias.curves.parts.items()
    }


def found_items(world: World, folder: Path | None, dataset: cp.Dataset) -> KnownItems:
    """The items of the training and of the test part: articles of Adressa, else, as in the paper, clusters of features.

    LETOR has ids too, but its queries share hardly a document: 4 % of those of the test part in fold 1 of MQ2008.
    """
    parts = (dataset.train.lists, dataset.test.lists)
    key = ("items", *data_key(world, folder))
    items: KnownItems = keep(key, lambda: find_items(*parts, "ids" if world.data == "adressa" else "features"))
    return items


def _rounded(values: Float64) -> list[float]:
    return [round(float(value), 5) for value in values]
