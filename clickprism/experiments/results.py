"""What came out of an experiment: the comparison, figures, a page, and the files that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clickprism._util.files import make_folder, write_file
from clickprism._util.tables import to_json
from clickprism.evaluation import plots, tables
from clickprism.evaluation.compare import Comparison, compare
from clickprism.evaluation.independence import Independence
from clickprism.evaluation.report import write_report
from clickprism.experiments.bend import Bend, bend_tables, chosen_text, mean_bend
from clickprism.experiments.bias import Bias
from clickprism.experiments.bias_report import HEADING, BiasResults
from clickprism.experiments.compare import INITIAL, Run
from clickprism.experiments.settings import ExperimentSettings, resolved
from clickprism.experiments.stages import data_name, is_told, make_method
from clickprism.experiments.train import SETTINGS
from clickprism.settings import to_toml
from clickprism.types import Float64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CEILING, FLOOR = "labels", "click"
BENT = "How documents bend the observation"


@dataclass(frozen=True, eq=False)
class Results:
    """The runs of an experiment, and how they compare."""

    settings: ExperimentSettings
    runs: tuple[Run, ...]
    comparison: Comparison

    def of(self, label: str) -> list[Run]:
        """The runs of one method, one a seed."""
        return [run for run in self.runs if run.label == label]

    @cached_property
    def observation(self) -> dict[str, list[Float64]]:
        """By method that has one, the observation by position relative to the first, one curve a seed."""
        curves: dict[str, list[Float64]] = {}
        for run in self.runs:
            if run.observation is not None:
                curves.setdefault(run.label, []).append(run.observation)
        return curves

    @cached_property
    def bends(self) -> dict[str, dict[int, Bend]]:
        """By method whose observation depends on the document, and by seed, how documents bend it."""
        found: dict[str, dict[int, Bend]] = {}
        for run in self.runs:
            if run.bend is not None:
                found.setdefault(run.label, {})[run.seed] = run.bend
        return found

    @cached_property
    def mean_bends(self) -> dict[str, Bend]:
        """The same, a mean over seeds."""
        return {label: mean_bend(list(seeds.values())) for label, seeds in self.bends.items()}

    @cached_property
    def bias(self) -> BiasResults:
        """Where the rankings put what stood high and what is popular, and Delta-CI."""
        biases: dict[str, dict[int, Bias]] = {}
        gaps: dict[str, dict[int, Independence]] = {}
        for run in self.runs:
            biases.setdefault(run.label, {})[run.seed] = run.bias
            if run.independence is not None:
                gaps.setdefault(run.label, {})[run.seed] = run.independence
        methods = self.settings.methods
        taught = next((label for label in biases if methods.get(label, {}).get("name", label) == CEILING), None)
        return BiasResults(biases, gaps, taught)

    @property
    def truth(self) -> Float64:
        """The true observation by position relative to the first, a mean over seeds."""
        return _mean([run.truth for run in self.runs])

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON: the comparison, the observation curves, and what each run came to."""
        curves = {label: _mean(several).tolist() for label, several in self.observation.items()}
        details = [
            {
                "method": run.label,
                "seed": run.seed,
                **run.evaluation.means,
                "best": run.best,
                "stopped": run.stopped,
                "seconds": round(run.seconds, 2),
                "lipschitz": None if run.bend is None else run.bend.plain(),
                "choices": [] if run.bend is None else run.bend.plain_choices(),
                "distance_from_labels_own": run.bias.moved.distances(run.bias.own),
                "delta_ci": None if run.independence is None else run.independence.plain(),
            }
            for run in self.runs
        ]
        return tables.as_dict(self.comparison) | {
            "observation": {"truth": self.truth.tolist(), **curves},
            "lipschitz": {label: bend.plain() for label, bend in self.mean_bends.items()},
            "bias": self.bias.plain(),
            "details": details,
        }


def results_of(settings: ExperimentSettings, runs: Sequence[Run], *, baseline: str | None = None) -> Results:
    """Compare the runs with a baseline: by default `click`, or else the first method."""
    evaluations: dict[str, list[Any]] = {}
    for run in runs:
        evaluations.setdefault(run.label, []).append(run.evaluation)
    told = [label for label in evaluations if label != INITIAL and is_told(settings, label)]
    comparison = compare(
        evaluations,
        baseline=baseline or (FLOOR if FLOOR in evaluations else next(iter(evaluations))),
        reference=told if len(told) < len(evaluations) else [],
        data=described(settings),
        seeds=settings.seeds,
    )
    return Results(settings, tuple(runs), comparison)


def write_results(
    results: Results, out: Path, *, title: str, summary: str | None = None, next_commands: Sequence[str] = ()
) -> Path:
    """Write the table in every form, the figures, the settings and report.html; returns the report's path."""
    make_folder(out)
    values = resolved(results.settings)
    forms = {
        "table.txt": tables.as_text(results.comparison),
        "table.md": tables.as_markdown(results.comparison),
        "table.tex": tables.as_latex(results.comparison),
        "table.html": tables.as_html(results.comparison),
        "results.json": to_json(results.as_dict()) + "\n",
        SETTINGS: to_toml(values),
    }
    drawn, biased = figures(results), bias_figures(results)
    forms |= {f"{name}.svg": picture for name, (_, picture) in {**drawn, **biased}.items()}
    for name, text in forms.items():
        write_file(out / name, text, durable=not name.endswith(".svg"))
    return write_report(
        out / "report.html",
        title=title,
        summary=summary or summary_of(results),
        comparison=results.comparison,
        figures=dict(drawn.values()),
        settings=values,
        more={HEADING: results.bias.section(dict(biased.values()))}
        | ({BENT: bend_tables(results.bends)} if results.bends else {}),
        notes=[*(_note(results, label) for label in results.settings.methods), *_doubts(results)],
        next_commands=next_commands,
    )


def chosen(results: Results) -> list[str]:
    """What each method chose of its observation by itself, and its Delta-CI, a line each; none for most."""
    texts = {label: chosen_text(seeds) for label, seeds in results.bends.items()}
    return [*(f"{label}: {text}" for label, text in texts.items() if text), *results.bias.lines()]


def _doubts(results: Results) -> list[str]:
    doubts = ((label, seed, bend.doubt) for label, of in results.bends.items() for seed, bend in of.items())
    return [f"{label}, seed {seed}: {doubt}." for label, seed, doubt in doubts if doubt]


def summary_of(results: Results) -> str:
    """What was done and what came out, in a few sentences."""
    settings, measure = results.settings, results.comparison.measures[0]
    rows = {row.method: row for row in results.comparison.of(measure)}
    seeds = f"{len(settings.seeds)} seed{'s' * (len(settings.seeds) > 1)} a method"
    labels = [label for label in settings.methods if label not in (CEILING, FLOOR)]
    lines = [
        f"Simulated users ({settings.user['name']}) clicked in {_sessions(settings)}, on lists ordered by "
        f"a ranker that knew {settings.simulation.initial.share:.0%} of the labels. From their clicks a new ranker "
        f"({settings.ranker['name']}) was trained, with {seeds}, and measured against the true grades."
    ]
    if {CEILING, FLOOR} <= set(rows) and labels and results.comparison.baseline == FLOOR:
        floor, ceiling = rows[FLOOR].mean, rows[CEILING].mean
        reached = f"Clicks taken as they are reach {measure} {floor:.4f}"
        if rows[CEILING].verdict == "better":
            parts = [
                f"{label} {rows[label].mean:.4f}, {(rows[label].mean - floor) / (ceiling - floor):.0%} of the way"
                for label in labels
            ]
            lines.append(
                f"{reached} (the floor), the true labels {ceiling:.4f} (the ceiling). Between them: {'; '.join(parts)}."
            )
        else:
            means = "; ".join(f"{label} {rows[label].mean:.4f}" for label in labels)
            lines.append(
                f"{reached}, the true labels {ceiling:.4f}: the labels are not significantly better than the clicks "
                f"here, so no share of the way is given. The others: {means}."
            )
    return "\n\n".join(lines)


def described(settings: ExperimentSettings) -> str:
    """What the table says of an experiment: the data, who clicked and how often, the ranker, how its epoch was chosen.

    >>> described(ExperimentSettings()).partition("; users")[2]
    ': pbm, 100 sessions of each query; ranker: mlp, best epoch by nDCG(exp)@10 on the judged validation part'
    """
    unit = "number of trees" if settings.ranker["name"] == "lambdamart" else "epoch"
    chosen = {"none": f"last {unit}", "clicks": f"best {unit} by held-out clicks"}.get(
        settings.evaluation.validation, f"best {unit} by {settings.evaluation.validation} on the judged validation part"
    )
    users = f"{settings.user['name']}, {_sessions(settings)}"
    return f"{data_name(settings.data)}; users: {users}; ranker: {settings.ranker['name']}, {chosen}"


def _sessions(settings: ExperimentSettings) -> str:
    return f"{settings.sessions} sessions {'of each query' if settings.simulation.frequency == 'each' else 'in all'}"


def figures(results: Results) -> dict[str, tuple[str, str]]:
    """Caption and SVG of each figure that the runs have data for, by file name, but for those of bias."""
    looks = _looks(results)
    drawn: dict[str, tuple[str, Figure]] = {}
    learned = {label: several for label, several in results.observation.items() if not _is(several, results.truth)}
    if learned:
        curves = {label: _mean(several) for label, several in learned.items()}
        bands = {label: _range(several) for label, several in learned.items() if len(several) > 1}
        caption = f"Observation by position, true and estimated{_epochs(results, learned)}"
        caption += "; bands over seeds" if bands else ""
        figure = plots.observation_curve(results.truth, curves, intervals=bands, looks=looks)
        drawn["observation"] = caption, figure
    if results.bends:
        true = next(iter(results.mean_bends.values())).truth
        slopes = {label: np.array(bend.fitted.means) for label, bend in results.mean_bends.items()}
        drawn["slopes"] = (
            "Slope of log observation, relative to position 1, in the features: a mean over documents and seeds",
            plots.slope_curve(None if true is None else np.array(true.means), slopes, looks=looks),
        )
    first = results.settings.seeds[0]
    validated = {run.label: (run.steps, run.values) for run in results.runs if run.seed == first and len(run.values)}
    validation = results.settings.evaluation.validation
    if validated and validation != "clicks":
        steps = "trees" if results.settings.ranker["name"] == "lambdamart" else "epoch"
        figure = plots.training_curve(_lists(validated), measure=validation, xlabel=steps, looks=looks)
        drawn["training"] = (
            f"{validation} over training on the validation part, seed {first}; a dot at the best",
            figure,
        )
    drawn["methods"] = (
        f"Methods with {results.comparison.confidence:.0%} intervals",
        plots.method_dots(results.comparison, looks=looks),
    )
    return _pictures(drawn)


def bias_figures(results: Results) -> dict[str, tuple[str, str]]:
    """Caption and SVG of each figure of bias, by file name."""
    return _pictures(results.bias.figures(_looks(results)))


def _looks(results: Results) -> dict[str, plots.Look]:
    return plots.looks_of([*results.settings.methods, INITIAL])


def _pictures(drawn: Mapping[str, tuple[str, Figure]]) -> dict[str, tuple[str, str]]:
    return {name: (caption, plots.svg(figure, title=caption)) for name, (caption, figure) in drawn.items()}


def _epochs(results: Results, labels: Iterable[str]) -> str:
    """Which epoch the observation of each method is of, one a seed; trees take theirs from another network."""
    if results.settings.ranker["name"] == "lambdamart":
        return ""
    taken = {label: ", ".join(str(run.best) for run in results.of(label)) for label in labels}
    epochs = "; ".join(f"{label} {best}" for label, best in taken.items())
    return f", at the best epoch of at most {results.settings.fit.epochs} ({epochs})"


def _lists(validated: Mapping[str, tuple[Float64, Float64]]) -> dict[str, tuple[list[float], list[float]]]:
    return {label: (steps.tolist(), values.tolist()) for label, (steps, values) in validated.items()}


def _note(results: Results, label: str) -> str:
    """What a method is, and how its training went."""
    what = (type(make_method(results.settings, label)).__doc__ or "").partition("\n")[0]
    unit = "trees" if results.settings.ranker["name"] == "lambdamart" else "epoch"
    ends = [f"{unit} {run.best} with seed {run.seed} (ended by {run.stopped})" for run in results.of(label)]
    told = "" if label == CEILING or not is_told(results.settings, label) else " It was told the true observation."
    return f"{label}: {what}{told} The best: {', '.join(ends)}."


def _is(curves: Sequence[Float64], truth: Float64) -> bool:
    """Whether the curves are the truth itself, which a method was given."""
    return bool(np.allclose(_mean(curves), truth[: len(_mean(curves))], atol=1e-3))


def _mean(curves: Sequence[Float64]) -> Float64:
    """The mean of curves, as far as the shortest goes."""
    mean: Float64 = np.mean([curve[: min(map(len, curves))] for curve in curves], axis=0)
    return mean


def _range(curves: Sequence[Float64]) -> tuple[Float64, Float64]:
    """The lowest and the highest of curves at each place, as far as the shortest goes."""
    several = np.array([curve[: min(map(len, curves))] for curve in curves])
    return several.min(axis=0), several.max(axis=0)
