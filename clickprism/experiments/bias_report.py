"""Bias in results and reports: curves as means over seeds, how far they are from the labels, Delta-CI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism._util.tables import Table
from clickprism.evaluation.independence import Independence
from clickprism.evaluation.report import Part
from clickprism.experiments.bias import Bias, Moved, independence_text, mean_independence, mean_moved

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from clickprism.evaluation.plots import Look

HEADING: Final = "Bias"
FILES: Final = {"position": "positions"}
FAIR: Final = (
    "Mean absolute differences of the curves above, in positions; of exposure, the share that goes to another group. "
    "The labels' own curve is no fair goal for a ranker that knows relevance only in part: labels hold what no feature "
    "tells, so the same ranker trained on labels (the method labels) is the better one to be near to."
)
READ: Final = (
    "How to read them: a line as flat as the thick one (labels' own) keeps no more of the old order, or of what was "
    "frequent, than relevance explains. A steeper one remembers it: that is bias."
)
READ_BARS: Final = " A mark of exposure at the top of its bar gives the group what the labels would."
UNTAUGHT: Final = "Add labels to --methods to see how far from that one each is."
OPINION: Final = (
    "Delta-CI is how far a model's relevance depends on whether a document is seen. It describes the model, not the "
    "data, and a small one alone does not make a good ranking (docs/independence.md)."
)


@final
@dataclass(frozen=True, eq=False)
class BiasResults:
    """The bias of all runs.

    Attributes:
        biases: by method and seed.
        gaps: Delta-CI by method that says it, and by seed.
        taught: the method that learned from labels; None where there was none.
    """

    biases: Mapping[str, Mapping[int, Bias]]
    gaps: Mapping[str, Mapping[int, Independence]]
    taught: str | None = None

    @cached_property
    def moved(self) -> dict[str, Moved]:
        """By method, the mean over seeds."""
        return {label: mean_moved([bias.moved for bias in of.values()]) for label, of in self.biases.items()}

    @cached_property
    def own(self) -> Moved:
        """The labels' own, the mean over seeds."""
        return mean_moved([bias.own for bias in next(iter(self.biases.values())).values()])

    @cached_property
    def delta_ci(self) -> dict[str, Independence]:
        """By method, the mean over seeds."""
        return {label: mean_independence(list(of.values())) for label, of in self.gaps.items()}

    @cached_property
    def from_own(self) -> dict[str, dict[str, float]]:
        """How far each method's curves are from the labels' own, by method and curve: the mean over seeds."""
        pairs = {label: [(bias.moved, bias.own) for bias in of.values()] for label, of in self.biases.items()}
        return {label: _mean_distances(several) for label, several in pairs.items()}

    @cached_property
    def from_taught(self) -> dict[str, dict[str, float]]:
        """How far they are from those of the ranker trained on labels with the same seed; empty where there is none."""
        if self.taught is None:
            return {}
        goal = self.biases[self.taught]
        pairs = {
            label: [(bias.moved, goal[seed].moved) for seed, bias in of.items() if seed in goal]
            for label, of in self.biases.items()
            if label != self.taught
        }
        return {label: _mean_distances(several) for label, several in pairs.items() if several}

    @property
    def _first(self) -> Bias:
        return next(iter(next(iter(self.biases.values())).values()))

    def plain(self) -> dict[str, Any]:
        """All of it for JSON: a curve's points, its values by the labels and by each method; distances; Delta-CI."""
        curves = {
            name: {
                **own.plain(),
                "labels_own": own.value.tolist(),
                "methods": {label: moved.parts[name].value.tolist() for label, moved in self.moved.items()},
            }
            for name, own in self.own.parts.items()
        }
        for curve in curves.values():
            del curve["value"]
        return {
            "items": self._first.items or None,
            "note": self._first.note or None,
            "curves": curves,
            "distance_from_labels_own": self.from_own,
            "distance_from_labels_method": self.from_taught,
            "delta_ci": {label: found.plain() for label, found in self.delta_ci.items()},
        }

    def section(self, figures: Mapping[str, str]) -> list[Part]:
        """What the report says: the figures (SVG by caption), how to read them, and the numbers."""
        read = READ + READ_BARS * ("exposure" in self.own.parts)
        parts: list[Part] = [figures, read, self._distances(), FAIR if self.taught else f"{FAIR} {UNTAUGHT}"]
        if self._first.note:
            parts.append(self._first.note)
        if self.delta_ci:
            rows = [
                [label, f"{found.mean:.4f}", _number(found.error), f"{found.largest:.4f}", f"{found.information:.2g}"]
                for label, found in self.delta_ci.items()
            ]
            over = "seeds" if len(next(iter(self.gaps.values()))) > 1 else "ranked lists"
            header = ["method", "Delta-CI", f"standard error over {over}", "largest", "mutual information, nats"]
            parts += [Table("Delta-CI over what the log shows", header, rows), OPINION]
        return parts

    def _distances(self) -> Table:
        """A column a curve and what it is compared with."""
        goals = {"own": self.from_own}
        if self.taught is not None:
            goals[self.taught] = self.from_taught
        columns = [(name, goal) for name in self.own.parts for goal in goals]
        rows = [
            [label, *(_away(name, goals[goal].get(label, {}).get(name)) for name, goal in columns)]
            for label in self.biases
        ]
        caption = "How far a ranking is from the labels' own curve (own)"
        caption += "" if self.taught is None else f", and from the ranker trained on them ({self.taught})"
        return Table(caption, ["method", *(f"{name}, {goal}" for name, goal in columns)], rows)

    def lines(self) -> list[str]:
        """Delta-CI for the terminal, a line a method that says it."""
        return [f"{label}: {independence_text(found)}" for label, found in self.delta_ci.items()]

    def figures(self, looks: Mapping[str, Look]) -> dict[str, tuple[str, Figure]]:
        """Caption and figure by file name."""
        from clickprism.evaluation.bias_plots import exposure_bars, moved_curve

        what = {
            "position": "Position bias: where re-ranking puts what stood at each position of the initial ranking",
            "frequency": "Popularity bias: where re-ranking puts documents, by how often the log shows their item",
            "exposure": "Popularity bias: share of exposure, 1 / log2(1 + place), by how often the log clicks the item",
        }
        drawn = {}
        for name, own in self.own.parts.items():
            draw, file = exposure_bars if name == "exposure" else moved_curve, FILES.get(name, name)
            curves = {label: moved.parts[name] for label, moved in self.moved.items()}
            away = {label: of[name] for label, of in self.from_own.items()}
            caption = what[name] if name == "position" else f"{what[name]}; items are {self._first.items}"
            drawn[file] = caption, draw(curves, own, away=away, looks=looks)
        return drawn


def _mean_distances(pairs: Sequence[tuple[Moved, Moved]]) -> dict[str, float]:
    several = [one.distances(other) for one, other in pairs]
    common = [name for name in several[0] if all(name in each for each in several)]
    return {name: float(np.mean([each[name] for each in several])) for name in common}


def _away(name: str, distance: float | None) -> str:
    if distance is None:
        return ""
    return f"{100 * distance:.2f}%" if name == "exposure" else f"{distance:.3f}"


def _number(value: float) -> str:
    return "n/a" if np.isnan(value) else f"{value:.4f}"
