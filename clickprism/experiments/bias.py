"""Whether position and popularity bias leave the ranking: what comparisons and training say of it.

The curves are those of `evaluation.curves`, over the test part in the order of the initial ranker; Delta-CI is that of
`evaluation.independence`, over the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import numpy as np

from clickprism.data.items import ids_tell, item_frequency, items_across
from clickprism.errors import SettingError
from clickprism.evaluation.curves import Curve, Shares, by_frequency, by_position, exposure_shares, initial_order
from clickprism.evaluation.independence import ConditionalLearner, Independence, learner_independence
from clickprism.types import Clicks, Dataset, Float32, Float64, Int32, Int64, Lists

if TYPE_CHECKING:
    from clickprism.experiments.settings import Items

C = TypeVar("C", Curve, Shares)

SMALL: Final = 5e8  # documents x features x classes that are clustered unasked: less than a second
BINS: Final = 10
GROUPS: Final = 5
IDS, CLUSTERS = "document ids", "clusters of features"


@final
@dataclass(frozen=True, eq=False)
class Moved:
    """What one ranking does to what stood high, to what is frequent, and to what is popular.

    Attributes:
        position: the mean position after, by position in the initial ranking.
        frequency: the same by how often the log shows the item; None where items are not known.
        exposure: the share of exposure of items, by how often the log clicks them; None where items are not known.
    """

    position: Curve
    frequency: Curve | None = None
    exposure: Shares | None = None

    @property
    def parts(self) -> dict[str, Any]:
        """The curves and shares that are there, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def distances(self, other: Moved) -> dict[str, float]:
        """How far each is from the other's, by name; see `Curve.distance` and `Shares.distance`."""
        theirs = other.parts
        return {name: mine.distance(theirs[name]) for name, mine in self.parts.items()}


@final
@dataclass(frozen=True, eq=False)
class Bias:
    """The bias of one run.

    Attributes:
        moved: by its ranking.
        own: by the labels themselves.
        items: what items are; empty where they are not known.
        note: why they are not; empty where they are.
    """

    moved: Moved
    own: Moved
    items: str = ""
    note: str = ""


@final
@dataclass(frozen=True, eq=False)
class Ground:
    """What the rankings of one data set and log are measured on.

    Attributes:
        shown: the test part as the initial ranker orders it, as many documents as users are shown.
        every: the same, all documents.
        grades: of the test part.
        tested: the item of each of its documents; None where items are not known.
        frequency: how often the log shows each item.
        popularity: how often it clicks each.
        items: what items are.
        note: why they are not known.
        top: see `exposure_shares`.
    """

    shown: Clicks
    every: Clicks
    grades: Int32
    tested: Int64 | None = None
    frequency: Float64 | None = None
    popularity: Float64 | None = None
    items: str = ""
    note: str = ""
    top: int | None = None

    def moved(self, scores: Float64 | Float32 | Int32) -> Moved:
        """What a ranking by these scores of the test part's documents does."""
        position = by_position(self.shown, scores)
        if self.tested is None or self.frequency is None or self.popularity is None:
            return Moved(position)
        return Moved(
            position,
            by_frequency(self.shown, scores, self.tested, self.frequency, bins=BINS),
            exposure_shares(self.every, scores, self.tested, self.popularity, groups=GROUPS, top=self.top),
        )

    def bias(self, scores: Float64 | Float32) -> Bias:
        """The bias of a ranking by these scores, beside the labels' own curves."""
        return Bias(self.moved(scores), self.moved(self.grades), self.items, self.note)


@final
@dataclass(frozen=True, eq=False)
class Known:
    """The items of the training and of the test part, or why they are not known."""

    trained: Int64 | None = None
    tested: Int64 | None = None
    name: str = ""
    note: str = ""


def find_items(train: Lists, test: Lists, by: Items) -> Known:
    """Items across the two parts: by document ids, else by clusters of features where that was asked or costs little.

    Ids that the parts hardly share tell nothing (MQ2008: 7% of the test documents); "auto" takes clusters there too.

    Args:
        train: what the log is of.
        test: what is ranked.
        by: the setting `evaluation.items`.
    """
    if by == "ids" and (train.document_ids is None or test.document_ids is None):
        raise SettingError("evaluation.items", by, "be 'features', 'auto' or 'none' where documents have no ids")
    if by == "none":
        return Known(note="Items were not asked for (evaluation.items), so nothing is said of popularity.")
    by_ids = by == "ids" or (by == "auto" and ids_tell([train, test]))
    if not by_ids:
        cost = (train.documents + test.documents) * train.features.shape[1] * (len(train) + len(test))
        if by == "auto" and cost > SMALL:
            return Known(
                note="Training and test part share few document ids or none, and finding items by clustering features "
                "takes a while here, so nothing is said of popularity; --set evaluation.items=features does it."
            )
    trained, tested = items_across([train, test], by="ids" if by_ids else "features")
    return Known(trained, tested, IDS if by_ids else CLUSTERS)


def ground_of(
    dataset: Dataset, clicks: Clicks, initial: Float64, *, length: int, items: Known, top: int | None = None
) -> Ground:
    """What rankings of the test part are measured on.

    Args:
        dataset: of which the test part is ranked.
        clicks: the log on the training part.
        initial: scores of the test part's documents by the initial ranker.
        length: how many documents users are shown.
        items: see `find_items`.
        top: how many places are exposed; None for all, each as `exposure_shares` weighs it.
    """
    test = dataset.test.lists
    shown, every = initial_order(test, initial, length=length), initial_order(test, initial)
    ground = Ground(shown, every, dataset.test.grades, note=items.note, top=top)
    if items.trained is None or items.tested is None:
        return ground
    count = 1 + max(int(part.max(initial=-1)) for part in (items.trained, items.tested))
    frequency, popularity = (
        item_frequency(clicks, items.trained, of=of, count=count) for of in ("impressions", "clicks")
    )
    if not frequency[items.tested].any():
        told = "No item of the test part was shown in the log, so nothing is said of popularity"
        return replace(ground, note=f"{told}; --set evaluation.items=features takes alike documents for one item.")
    return replace(ground, tested=items.tested, frequency=frequency, popularity=popularity, items=items.name)


def independence_of(learner: object, clicks: Clicks) -> Independence | None:
    """Delta-CI of a trained learner over its log; None for one that says no relevance given observation."""
    return learner_independence(learner, clicks.merge()) if isinstance(learner, ConditionalLearner) else None


def independence_text(found: Independence) -> str:
    """Delta-CI in a line.

    >>> independence_text(Independence(0.0123, 0.0004, 0.2, 0.00031, None, 50))
    'Delta-CI 0.0123 ± 0.0004, mutual information 0.00031 nats'
    """
    error = "" if np.isnan(found.error) else f" ± {found.error:.4f}"
    return f"Delta-CI {found.mean:.4f}{error}, mutual information {found.information:.2g} nats"


def mean_independence(several: Sequence[Independence]) -> Independence:
    """The mean over seeds, with its standard error over seeds; of one seed, that over its lists."""
    if len(several) == 1:
        return several[0]
    means = np.array([one.mean for one in several])
    curves = [one.by_position for one in several if one.by_position is not None]
    depth = min(map(len, curves), default=0)
    return Independence(
        mean=float(means.mean()),
        error=float(means.std(ddof=1) / np.sqrt(len(means))),
        largest=max(one.largest for one in several),
        information=float(np.mean([one.information for one in several])),
        by_position=np.mean([curve[:depth] for curve in curves], axis=0) if curves else None,
        documents=min(one.documents for one in several),
    )


def mean_moved(several: Sequence[Moved]) -> Moved:
    """The mean over seeds, point by point.

    Where ties leave some seeds with fewer points on an axis, those count that have as many as most.
    """
    common = [name for name in several[0].parts if all(name in one.parts for one in several)]
    return Moved(**{name: _mean([one.parts[name] for one in several]) for name in common})


def _mean(several: Sequence[C]) -> C:
    points = Counter(len(one.at) for one in several).most_common(1)[0][0]
    alike = [one for one in several if len(one.at) == points]
    arrays = {name: np.mean([getattr(one, name) for one in alike], axis=0) for name in vars(alike[0]) if name != "axis"}
    return replace(alike[0], **arrays)
