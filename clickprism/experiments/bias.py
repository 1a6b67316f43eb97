"""Bias that remains in a ranking, and how a method's observation model depends on documents and relevance.

Three properties of a trained ranker: how it moves documents that were shown high or often (`BiasCurves`), whether its
observation model depends on document features (`DocumentDependence`), and how its relevance depends on observation
(Delta-CI, `evaluation.independence`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import numpy as np

from clickprism._util.tables import Table
from clickprism.data.items import ids_tell, item_frequency, items_across
from clickprism.errors import SettingError
from clickprism.evaluation.curves import Curve, Shares, by_frequency, by_position, exposure_shares, initial_order
from clickprism.evaluation.independence import ConditionalLearner, Independence, learner_independence
from clickprism.evaluation.report import Part
from clickprism.types import Clicks, Dataset, Float32, Float64, Int32, Int64, Lists

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from clickprism.debias.lbd import Choice
    from clickprism.evaluation.plots import Look
    from clickprism.experiments.settings import Items

C = TypeVar("C", Curve, Shares)

SMALL: Final = 5e8  # documents x features x classes that are clustered without being asked: less than a second
BINS: Final = 10
GROUPS: Final = 5
IDS, CLUSTERS = "document ids", "clusters of features"
CURVE: Final = "positions only"
HEADING: Final = "Bias"
DEPENDENCE: Final = "Document-dependent observation"
CAPTIONS: Final = {
    "position": "Position bias: mean position after re-ranking, by position in the initial ranking",
    "frequency": "Popularity bias: mean position after re-ranking, by how often the log shows the item",
    "exposure": "Popularity bias: share of exposure, 1 / log2(1 + position), by how often the log clicks the item",
}
DISTANCES: Final = (
    "Mean absolute differences of the curves above, in positions; for exposure, the share that goes to another group. "
    "The curve of the labels themselves is not a fair goal for a ranker that knows relevance only in part, as labels "
    "contain what no feature explains. The same ranker trained on labels (the method labels) is a better goal."
)
READ: Final = (
    "A line as flat as the thick one (the labels themselves) keeps no more of the old order than relevance explains. A "
    "steeper line keeps more of it, which is bias."
)
READ_BARS: Final = " A mark of exposure at the top of its bar gives the group what the labels would give it."
WITHOUT_LABELS: Final = "Add the method labels to see the distance from it."
DELTA_CI: Final = (
    "Delta-CI measures how far a model's relevance depends on observation. It describes the model, not the data, and a "
    "small value alone does not make a good ranking (docs/independence.md)."
)


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


def find_items(train: Lists, test: Lists, by: Items) -> KnownItems:
    """Return the items of two parts: by document ids, else by clusters of features if asked or if that is cheap.

    Ids that the parts hardly share are of no use (MQ2008: 7% of the test documents); "auto" uses clusters then.
    """
    if by == "ids" and (train.document_ids is None or test.document_ids is None):
        raise SettingError("evaluation.items", by, "be 'features', 'auto' or 'none' where documents have no ids")
    if by == "none":
        return KnownItems(note="Popularity was not measured (evaluation.items is none).")
    by_ids = by == "ids" or (by == "auto" and ids_tell([train, test]))
    cost = (train.documents + test.documents) * train.features.shape[1] * (len(train) + len(test))
    if by == "auto" and not by_ids and cost > SMALL:
        return KnownItems(
            note="Popularity was not measured: the training and test part share few document ids, and clustering "
            "documents by their features takes a while here; evaluation.items=features does it."
        )
    trained, tested = items_across([train, test], by="ids" if by_ids else "features")
    return KnownItems(trained, tested, IDS if by_ids else CLUSTERS)


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
        note = "Popularity was not measured: the log shows no item of the test part"
        return replace(basis, note=f"{note}; evaluation.items=features groups documents with similar features.")
    return replace(basis, tested=items.tested, frequency=frequency, popularity=popularity, items=items.name)


@final
@dataclass(frozen=True, eq=False)
class BiasResults:
    """The bias of all methods, as means over runs.

    Attributes:
        items: What items are; empty if they are not known.
        note: Why items are not known; empty if they are.
        labels_own: Curves of a ranking by the labels themselves.
        methods: Curves of each method.
        distance_from_labels_own: Distance of each method from the labels themselves, by curve.
        distance_from_labels_method: Distance from the ranker that was trained on labels; empty if there is none.
        delta_ci: Delta-CI of each method that models relevance given observation.
        runs: Number of runs of a method.
        labels: The method that was trained on labels; None if there is none.
    """

    items: str
    note: str
    labels_own: BiasCurves
    methods: Mapping[str, BiasCurves]
    distance_from_labels_own: Mapping[str, Mapping[str, float]]
    distance_from_labels_method: Mapping[str, Mapping[str, float]]
    delta_ci: Mapping[str, Independence]
    runs: int
    labels: str | None = None

    def section(self, figures: Mapping[str, str]) -> list[Part]:
        """Return the section of the report: figures (SVG by caption), how to read them, and the numbers."""
        read = READ + READ_BARS * ("exposure" in self.labels_own.parts)
        parts: list[Part] = [figures, read, self._distances()]
        parts.append(DISTANCES if self.labels else f"{DISTANCES} {WITHOUT_LABELS}")
        if self.note:
            parts.append(self.note)
        if self.delta_ci:
            rows = [
                [label, f"{gap.mean:.4f}", _text(gap.error), f"{gap.largest:.4f}", f"{gap.information:.2g}"]
                for label, gap in self.delta_ci.items()
            ]
            over = "runs" if self.runs > 1 else "ranked lists"
            header = ["method", "Delta-CI", f"standard error over {over}", "largest", "mutual information, nats"]
            parts += [Table("Delta-CI over the documents that the log shows", header, rows), DELTA_CI]
        return parts

    def _distances(self) -> Table:
        goals = {"own": self.distance_from_labels_own}
        if self.labels is not None:
            goals[self.labels] = self.distance_from_labels_method
        columns = [(name, goal) for name in self.labels_own.parts for goal in goals]
        rows = [
            [label, *(_distance_text(name, goals[goal].get(label, {}).get(name)) for name, goal in columns)]
            for label in self.methods
        ]
        caption = "Distance of a ranking from the curve of the labels themselves (own)"
        caption += "" if self.labels is None else f", and from the ranker trained on them ({self.labels})"
        return Table(caption, ["method", *(f"{name}, {goal}" for name, goal in columns)], rows)

    def figures(self, looks: Mapping[str, Look]) -> dict[str, tuple[str, Figure]]:
        """Return the caption and the figure of each curve, by file name."""
        from clickprism.evaluation.bias_plots import exposure_bars, moved_curve

        drawn = {}
        for name, own in self.labels_own.parts.items():
            draw = exposure_bars if name == "exposure" else moved_curve
            curves = {label: several.parts[name] for label, several in self.methods.items()}
            away = {label: of[name] for label, of in self.distance_from_labels_own.items()}
            caption = CAPTIONS[name] if name == "position" else f"{CAPTIONS[name]}; items are {self.items}"
            drawn["positions" if name == "position" else name] = caption, draw(curves, own, away=away, looks=looks)
        return drawn


def bias_results(
    biases: Mapping[str, Mapping[int, Bias]],
    gaps: Mapping[str, Mapping[int, Independence]],
    labels: str | None = None,
) -> BiasResults:
    """Return means over runs of biases and Delta-CI by method and seed; `labels` is the method trained on labels."""
    first = next(iter(next(iter(biases.values())).values()))
    goal = {} if labels is None else biases[labels]
    own = {label: [(bias.curves, bias.labels_own) for bias in of.values()] for label, of in biases.items()}
    trained = {
        label: [(bias.curves, goal[seed].curves) for seed, bias in of.items() if seed in goal]
        for label, of in biases.items()
        if label != labels
    }
    return BiasResults(
        items=first.items,
        note=first.note,
        labels_own=mean_curves([bias.labels_own for bias in next(iter(biases.values())).values()]),
        methods={label: mean_curves([bias.curves for bias in of.values()]) for label, of in biases.items()},
        distance_from_labels_own={label: _mean_distances(pairs) for label, pairs in own.items()},
        distance_from_labels_method={label: _mean_distances(pairs) for label, pairs in trained.items() if pairs},
        delta_ci={label: mean_independence(list(of.values())) for label, of in gaps.items()},
        runs=max(map(len, biases.values())),
        labels=labels,
    )


def independence_of(learner: object, clicks: Clicks) -> Independence | None:
    """Return Delta-CI of a trained learner over its log; None if it does not model relevance given observation."""
    return learner_independence(learner, clicks.merge()) if isinstance(learner, ConditionalLearner) else None


def independence_text(found: Independence) -> str:
    """Return Delta-CI in a line.

    >>> independence_text(Independence(0.0123, 0.0004, 0.2, 0.00031, np.empty(0), 50))
    'Delta-CI 0.0123 ± 0.0004, mutual information 0.00031 nats'
    """
    error = "" if np.isnan(found.error) else f" ± {found.error:.4f}"
    return f"Delta-CI {found.mean:.4f}{error}, mutual information {found.information:.2g} nats"


def mean_independence(several: Sequence[Independence]) -> Independence:
    """Return the mean over runs with its standard error over runs; a single run keeps that over its lists."""
    if len(several) == 1:
        return several[0]
    means = np.array([one.mean for one in several])
    return Independence(
        mean=float(means.mean()),
        error=float(means.std(ddof=1) / np.sqrt(len(means))),
        largest=max(one.largest for one in several),
        information=float(np.mean([one.information for one in several])),
        by_position=mean_curve([one.by_position for one in several]),
        documents=min(one.documents for one in several),
    )


def mean_curves(several: Sequence[BiasCurves]) -> BiasCurves:
    """Return the mean over runs, point by point.

    If ties leave some runs with fewer points on an axis, the runs with the most common number of points count.
    """
    common = [name for name in several[0].parts if all(name in one.parts for one in several)]
    return BiasCurves(**{name: _mean_points([one.parts[name] for one in several]) for name in common})


def mean_curve(curves: Sequence[Float64]) -> Float64:
    """Return the mean of curves by position, up to the end of the shortest."""
    mean: Float64 = np.mean([curve[: min(map(len, curves))] for curve in curves], axis=0)
    return mean


@final
@dataclass(frozen=True)
class DocumentDependence:
    """How `lbd` lets observation depend on documents.

    Attributes:
        choices: The forms of dependence that it tried, the chosen one first.
        doubt: Why the choice may be wrong and what to do; empty if nothing suggests it.
    """

    choices: tuple[Choice, ...]
    doubt: str = ""


def dependence_of(learner: object) -> DocumentDependence | None:
    """Return what `lbd` chose; None for a learner of another method, or of none."""
    from clickprism.debias.lbd import DecoupledLearner

    return DocumentDependence(learner.choices, learner.doubt) if isinstance(learner, DecoupledLearner) else None


def choice_text(choices: Sequence[Choice]) -> str:
    """Return what was chosen and why, in a line.

    >>> from clickprism.debias.lbd import Choice
    >>> choice_text([Choice(0, 0.01, -1.4081, 9), Choice(0, math.inf, -1.4161, 7)])
    'observation depends on documents: linear, penalty 0.01 (held-out log-likelihood -1.4081; positions only -1.4161)'
    >>> choice_text([Choice(0, math.inf, -1.5, 7), Choice(16, 0.0, -1.6, 9)])
    'observation depends on positions only (held-out log-likelihood -1.5000; best with documents -1.6000)'
    >>> choice_text([Choice(0, math.inf, math.nan, 60)])
    'observation depends on positions only (too few ranked lists with clicks, or positions, to choose by)'
    """
    chosen = choices[0]
    if math.isnan(chosen.likelihood):
        return f"observation {_verb(chosen)} (too few ranked lists with clicks, or positions, to choose by)"
    curve = chosen.penalty == math.inf
    others = [choice.likelihood for choice in choices[1:] if (choice.penalty < math.inf) == curve]
    beside = f"; {'best with documents' if curve else CURVE} {max(others):.4f}" if others else ""
    return f"observation {_verb(chosen)} (held-out log-likelihood {chosen.likelihood:.4f}{beside})"


def choices_text(dependences: Mapping[int, DocumentDependence]) -> str:
    """Return what was chosen in each run, by seed, in a line.

    >>> from clickprism.debias.lbd import Choice
    >>> line, curve = (DocumentDependence((Choice(0, each, -1.5, 3),)) for each in (0.01, math.inf))
    >>> choices_text({0: line, 1: curve, 2: line})
    'observation depends on documents: linear, penalty 0.01 (seeds 0, 2); depends on positions only (seed 1)'
    """
    seeds: dict[str, list[int]] = {}
    for seed, dependence in dependences.items():
        seeds.setdefault(_verb(dependence.choices[0]), []).append(seed)
    parts = [
        f"{verb} (seed{'s' * (len(each) > 1)} {', '.join(map(str, sorted(each)))})" for verb, each in seeds.items()
    ]
    return f"observation {'; '.join(parts)}"


def choices_table(dependences: Mapping[str, Mapping[int, DocumentDependence]]) -> Table:
    """Return what was tried and chosen in each run, by method and seed."""
    chosen = {f"{label}, seed {seed}": one.choices for label, of in dependences.items() for seed, one in of.items()}
    tried = [choice for choices in chosen.values() for choice in choices]
    tried.sort(key=lambda choice: (choice.penalty == math.inf, choice.hidden, choice.penalty))
    kinds = list(dict.fromkeys(map(_kind, tried)))
    rows = []
    for name, choices in chosen.items():
        likelihoods = {_kind(choice): _text(choice.likelihood) for choice in choices}
        likelihoods[_kind(choices[0])] += " *"
        rows.append([name, *(likelihoods.get(kind, "") for kind in kinds)])
    caption = "Log-likelihood per session of held-out clicks, by how observation depends on documents; * chosen"
    return Table(caption, ["method", *kinds], rows)


def _kind(choice: Choice) -> str:
    how = f"network of {choice.hidden} units" if choice.hidden else "linear"
    return CURVE if choice.penalty == math.inf else f"{how}, penalty {choice.penalty:g}"


def _verb(choice: Choice) -> str:
    return f"depends on {CURVE}" if choice.penalty == math.inf else f"depends on documents: {_kind(choice)}"


def _mean_points(several: Sequence[C]) -> C:
    points = Counter(len(one.at) for one in several).most_common(1)[0][0]
    alike = [one for one in several if len(one.at) == points]
    arrays = {name: np.mean([getattr(one, name) for one in alike], axis=0) for name in vars(alike[0]) if name != "axis"}
    return replace(alike[0], **arrays)


def _mean_distances(pairs: Sequence[tuple[BiasCurves, BiasCurves]]) -> dict[str, float]:
    several = [one.distances(other) for one, other in pairs]
    common = [name for name in several[0] if all(name in each for each in several)]
    return {name: float(np.mean([each[name] for each in several])) for name in common}


def _distance_text(name: str, distance: float | None) -> str:
    if distance is None:
        return ""
    return f"{100 * distance:.2f}%" if name == "exposure" else f"{distance:.3f}"


def _text(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "n/a"
