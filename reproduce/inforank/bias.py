"""What Figures 3 and 5 show of a ranking: where documents go that were shown high or often, and whom it exposes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, final

import clickprism as cp
from clickprism.data.items import item_frequency, items_across
from clickprism.experiments.data import Log
from clickprism.types import Clicks, Dataset, Float32, Float64, Int32, Int64, Lists
from reproduce.common.training import keep
from reproduce.inforank.curves import Curve, Shares, by_frequency, by_position, exposure_shares, initial_order
from reproduce.inforank.worlds import World, data_key

LENGTH: Final = 10
BINS: Final = 10
GROUPS: Final = 5
IDS, CLUSTERS = "document ids", "clusters of features"


@final
@dataclass(frozen=True, eq=False)
class BiasCurves:
    """How a ranking moves documents that were shown high, shown often, or clicked often.

    Attributes:
        position: Mean position after re-ranking, by position in the initial ranking.
        frequency: The same by how often the log shows the item; None if items are not known.
        exposure: Share of exposure of items, by how often the log clicks them; None if items are not known.
    """

    position: Curve
    frequency: Curve | None = None
    exposure: Shares | None = None

    @property
    def parts(self) -> dict[str, Any]:
        """The curves and shares that were measured, by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def distances(self, other: BiasCurves) -> dict[str, float]:
        """Return the distance of each curve from the other's; see `Curve.distance` and `Shares.distance`."""
        theirs = other.parts
        return {name: mine.distance(theirs[name]) for name, mine in self.parts.items()}


@final
@dataclass(frozen=True, eq=False)
class Bias:
    """The bias of one run.

    Attributes:
        curves: Curves of its ranking.
        labels_own: Curves of a ranking by the labels themselves.
        items: What items are; empty if they are not known.
        note: Why items are not known; empty if they are.
    """

    curves: BiasCurves
    labels_own: BiasCurves
    items: str = ""
    note: str = ""


@final
@dataclass(frozen=True, eq=False)
class BiasBasis:
    """What the bias of rankings is measured on: a test part in its initial order, and the log of the training part."""

    shown: Clicks  # the test part as the initial ranker orders it, as many documents as users are shown
    every: Clicks  # the same, all documents
    grades: Int32
    tested: Int64 | None = None  # item of each test document
    frequency: Float64 | None = None  # how often the log shows each item
    popularity: Float64 | None = None  # how often the log clicks each item
    items: str = ""
    note: str = ""
    top: int | None = None  # positions that are exposed

    def curves(self, scores: Float64 | Float32 | Int32) -> BiasCurves:
        """Return the curves of a ranking by these scores of the test documents."""
        position = by_position(self.shown, scores)
        if self.tested is None or self.frequency is None or self.popularity is None:
            return BiasCurves(position)
        return BiasCurves(
            position,
            by_frequency(self.shown, scores, self.tested, self.frequency, bins=BINS),
            exposure_shares(self.every, scores, self.tested, self.popularity, groups=GROUPS, top=self.top),
        )

    def bias(self, scores: Float64 | Float32) -> Bias:
        """Return the bias of a ranking by these scores."""
        return Bias(self.curves(scores), self.curves(self.grades), self.items, self.note)


@final
@dataclass(frozen=True, eq=False)
class KnownItems:
    """Items of the training and the test documents, or a note why they are not known."""

    trained: Int64 | None = None
    tested: Int64 | None = None
    name: str = ""
    note: str = ""


def find_items(train: Lists, test: Lists, by: Literal["ids", "features"]) -> KnownItems:
    """Return the items of two parts: documents with the same id, or clusters of documents with similar features."""
    trained, tested = items_across([train, test], by=by)
    return KnownItems(trained, tested, IDS if by == "ids" else CLUSTERS)


def bias_basis(
    dataset: Dataset, clicks: Clicks, initial: Float64, *, length: int, items: KnownItems, top: int | None = None
) -> BiasBasis:
    """Return what rankings of the test part are measured on.

    Args:
        dataset: Its test part is ranked.
        clicks: The log on the training part.
        initial: Scores of the test documents by the initial ranker.
        length: Number of documents that users are shown.
        items: See `find_items`.
        top: Number of positions that are exposed; all if None.
    """
    test = dataset.test.lists
    shown, every = initial_order(test, initial, length=length), initial_order(test, initial)
    basis = BiasBasis(shown, every, dataset.test.grades, note=items.note, top=top)
    if items.trained is None or items.tested is None:
        return basis
    count = 1 + max(int(part.max(initial=-1)) for part in (items.trained, items.tested))
    frequency, popularity = (
        item_frequency(clicks, items.trained, of=of, count=count) for of in ("impressions", "clicks")
    )
    if not frequency[items.tested].any():
        return replace(basis, note="Popularity was not measured: the log shows no item of the test part")
    return replace(basis, tested=items.tested, frequency=frequency, popularity=popularity, items=items.name)


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
