"""What came out of a feedback loop: how each measure changed over rounds, the figures, the page and the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clickprism._util.files import make_folder, write_file
from clickprism._util.tables import Table, to_json
from clickprism.evaluation import plots, tables
from clickprism.evaluation.compare import Comparison, compare
from clickprism.evaluation.report import write_report
from clickprism.experiments.chains import WARM, Chain
from clickprism.experiments.settings import FeedbackSettings, resolved
from clickprism.experiments.stages import data_name, is_told
from clickprism.experiments.train import SETTINGS
from clickprism.settings import to_toml
from clickprism.types import Float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CONFIDENCE = 0.95
BIAS = "correlation"
NAMES = {
    "correlation": "correlation of exposure with past clicks, given grade",
    "gini": "Gini coefficient of the exposure of items",
    "popular": "share of exposure of the 20% most clicked items",
    "top": "share of exposure of the 20% most exposed items",
    "mean": "mean popularity of what is exposed",
}


class Change(NamedTuple):
    """How a measure moved, a mean over seeds with an interval by Student's t; NaN for one seed."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """In a word: "grows" or "shrinks" where the interval leaves 0 out."""
        return "grows" if self.low > 0 else "shrinks" if self.high < 0 else "no clear change"


@dataclass(frozen=True, eq=False)
class FeedbackResults:
    """The chains of a feedback loop."""

    settings: FeedbackSettings
    chains: tuple[Chain, ...]

    def curves(self, label: str, measure: str) -> Float64:
        """A measure by seed and round, round 0 being the initial ranking, [seeds, rounds + 1]."""
        return np.stack([chain.curve(measure) for chain in self.chains if chain.label == label])

    @property
    def first(self) -> int:
        """The round from which all measures are there: popularity needs a past."""
        return 1

    @property
    def fork(self) -> int:
        """The round after which the methods part."""
        return max(self.settings.warm, self.first)

    def change(self, label: str, measure: str, *, since: int) -> Change:
        """From this round to the last."""
        curves = self.curves(label, measure)
        return _change(curves[:, -1] - curves[:, since])

    def against(self, label: str, other: str, measure: str) -> Change:
        """One method less another in the last round, seed by seed."""
        return _change(self.curves(label, measure)[:, -1] - self.curves(other, measure)[:, -1])

    @cached_property
    def measures(self) -> tuple[str, ...]:
        """What was measured in every round: the measures of the settings first, then those of concentration."""
        return tuple(self.chains[0].rounds[0])

    @cached_property
    def comparison(self) -> Comparison:
        """The last round's rankings on the test part, query by query."""
        evaluations: dict[str, list[Any]] = {}
        for chain in self.chains:
            evaluations.setdefault(chain.label, []).append(chain.evaluation)
        told = [label for label in evaluations if is_told(self.settings, label)]
        return compare(
            evaluations,
            baseline=WARM if WARM in evaluations else next(iter(evaluations)),
            reference=told if len(told) < len(evaluations) else [],
            data=f"{data_name(self.settings.data)}, after {self.settings.rounds} rounds",
            seeds=self.settings.seeds,
        )

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON: by method and measure the curves of all seeds and the changes, then each chain."""
        methods: dict[str, Any] = {}
        for label in self.settings.methods:
            told: dict[str, Any] = {}
            for measure in self.measures:
                curves, since = self.curves(label, measure), self.change(label, measure, since=self.fork)
                told[measure] = {
                    "mean": curves.mean(axis=0).tolist(),
                    "seeds": curves.tolist(),
                    "change": since._asdict() | {"since": self.fork, "verdict": since.verdict},
                    "growth": self.change(label, measure, since=self.first)._asdict() | {"since": self.first},
                }
                if WARM in self.settings.methods and label != WARM:
                    told[measure]["against_click"] = self.against(label, WARM, measure)._asdict()
            methods[label] = told
        ideals = [chain.ideal for chain in self.chains if chain.label == self.chains[0].label]
        return {
            "bias": BIAS,
            "rounds": self.settings.rounds,
            "warm": self.settings.warm,
            "seeds": list(self.settings.seeds),
            "confidence": CONFIDENCE,
            "data": data_name(self.settings.data),
            "methods": methods,
            "ideal": {name: float(np.mean([one[name] for one in ideals])) for name in ideals[0]},
            "details": [
                {"method": chain.label, "seed": chain.seed, "seconds": round(chain.seconds, 2)} for chain in self.chains
            ],
        }

    def table(self, measure: str) -> Table:
        """By method: the first round with a past, the round where methods part, the last, and the change since."""
        last, since = self.settings.rounds, self.fork
        header = ["method", f"round {self.first}", f"round {since}", f"round {last}", "change", "95% interval", ""]
        rows = []
        for label in self.settings.methods:
            curve, change = self.curves(label, measure).mean(axis=0), self.change(label, measure, since=since)
            places = [tables.number(float(curve[place])) for place in (self.first, since, last)]
            rows.append(
                [
                    label,
                    *places,
                    tables.number(change.mean, signed=True),
                    tables.bounds(change.low, change.high, signed=True),
                    change.verdict,
                ]
            )
        return Table(f"{NAMES.get(measure, measure)}; change since round {since}", header, rows)


def write_feedback(results: FeedbackResults, out: Path, *, next_commands: Sequence[str] = ()) -> Path:
    """Write results.json, the figures, the settings and report.html; returns the report's path."""
    make_folder(out)
    values, drawn = resolved(results.settings), figures(results)
    forms = {"results.json": to_json(results.as_dict()) + "\n", SETTINGS: to_toml(values)}
    forms |= {f"{name}.svg": picture for name, (_, picture) in drawn.items()}
    for name, text in forms.items():
        write_file(out / name, text)
    return write_report(
        out / "report.html",
        title="Popularity bias over rounds of log, retrain, show",
        summary=summary_of(results),
        comparison=results.comparison,
        figures=dict(drawn.values()),
        settings=values,
        more={"Round by round": [results.table(measure) for measure in results.measures]},
        notes=_notes(results),
        next_commands=next_commands,
    )


def summary_of(results: FeedbackResults) -> str:
    """What was done and what came out, in a few sentences."""
    settings, loop = results.settings, results.settings
    seeds = f"{len(settings.seeds)} seed{'s' * (len(settings.seeds) > 1)}"
    done = (
        f"Simulated users ({settings.user['name']}) were shown lists, a ranker ({settings.ranker['name']}) was trained "
        f"on their clicks and ordered the lists of the next round, {loop.rounds} times over, with {seeds}. The first "
        f"{loop.warm} rounds learned from raw clicks; then every method went its own way."
        if loop.warm
        else f"Simulated users ({settings.user['name']}) were shown lists, a ranker ({settings.ranker['name']}) was "
        f"trained on their clicks and ordered the lists of the next round, {loop.rounds} times over, with {seeds}."
    )
    parts = []
    for label in settings.methods:
        curve, change = results.curves(label, BIAS).mean(axis=0), results.change(label, BIAS, since=results.fork)
        parts.append(f"{label} {curve[results.fork]:.3f} to {curve[-1]:.3f} ({change.verdict})")
    came = (
        f"Popularity bias, the correlation of exposure with past clicks given the grade, from round {results.fork} to "
        f"round {loop.rounds}: {'; '.join(parts)}."
    )
    return f"{done}\n\n{came}"


def _notes(results: FeedbackResults) -> list[str]:
    loop = results.settings
    return [
        "All measures are of the test part, ranked as the system would show it; exposure is the users' observation by "
        "position, and past clicks are those of the training lists so far, of the method's own chain.",
        "A ranker that knows relevance in part only correlates with past clicks too: the level to compare with is that "
        "of `labels`, which was shown the grades, not 0.",
        f"The system adds {loop.boost:g} deviations of popularity to every ranker's score, that of labels too."
        if loop.boost
        else "The system shows the ranker's own order.",
        "Intervals are Student's t over seeds, of changes within a seed; bands in figures are a standard error of the "
        "mean over seeds, most of which is how seeds differ from each other, in every method alike.",
    ]


def figures(results: FeedbackResults) -> dict[str, tuple[str, str]]:
    """Caption and SVG of each figure, by file name."""
    worth = results.measures[0]
    drawn = {
        "popularity": ("Popularity bias and ranking quality over rounds", (BIAS, worth)),
        "concentration": ("Concentration of exposure over rounds", ("gini", "popular")),
    }
    return {
        name: (caption, plots.svg(round_curves(results, measures), title=caption))
        for name, (caption, measures) in drawn.items()
    }


@plots.styled
def round_curves(results: FeedbackResults, measures: Sequence[str]) -> Figure:
    """Measures over rounds, a panel each, a line a method, bands of a standard error over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8 * len(measures), 4.0), layout="constrained")
    looks = plots.looks_of(results.settings.methods)
    for place, measure in enumerate(measures):
        axes = figure.add_subplot(1, len(measures), place + 1)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color=plots.GRID, alpha=0.3, linewidth=0.8)
        axes.set_axisbelow(True)
        _draw(axes, results, measure, looks)
        if place == 0:
            axes.legend(frameon=False, fontsize=9, labelcolor=plots.INK)
    return figure


def _draw(axes: Axes, results: FeedbackResults, measure: str, looks: Mapping[str, plots.Look]) -> None:
    fork, last = results.settings.warm, results.settings.rounds
    for label in results.settings.methods:
        curves, look = results.curves(label, measure), looks[label]
        start = 0 if label == next(iter(results.settings.methods)) else fork
        rounds = np.arange(start, last + 1)
        part = curves[:, start:]
        dashed = (0, (4, 2)) if is_told(results.settings, label) else "-"
        axes.plot(
            rounds,
            part.mean(axis=0),
            color=look.colour,
            marker=look.marker,
            markersize=5,
            linewidth=1.8,
            linestyle=dashed,
            label=label,
            zorder=3,
        )
        if len(curves) > 1:
            mean, error = part.mean(axis=0), part.std(axis=0, ddof=1) / np.sqrt(len(part))
            axes.fill_between(rounds, mean - error, mean + error, color=look.colour, alpha=0.15, linewidth=0)
    if fork > 0:
        axes.axvline(fork, color=plots.GRID, linewidth=1.2, linestyle=(0, (2, 2)), zorder=1)
        axes.annotate(
            "methods part", (fork, 0.02), xycoords=("data", "axes fraction"), fontsize=8.5, rotation=90, ha="right"
        )
    axes.set_xticks(range(last + 1))
    axes.set_xlabel("times retrained")
    axes.set_ylabel(fill(NAMES.get(measure, measure), 30))


def _change(values: Float64) -> Change:
    """The mean of paired differences and its interval."""
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return Change(mean, float("nan"), float("nan"))
    from scipy.stats import t

    half = float(t.ppf((1 + CONFIDENCE) / 2, count - 1) * values.std(ddof=1) / np.sqrt(count))
    return Change(mean, mean - half, mean + half)
