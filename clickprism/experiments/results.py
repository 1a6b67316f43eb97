"""The results of a comparison: tables, figures, a report, and the files that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from clickprism._util.files import make_folder, write_file
from clickprism._util.tables import Table, to_json
from clickprism.evaluation import plots
from clickprism.evaluation.compare import Comparison, as_html, as_markdown, compare
from clickprism.evaluation.measures import Evaluation
from clickprism.evaluation.report import write_report
from clickprism.experiments.data import data_name
from clickprism.experiments.settings import ExperimentSettings, resolved
from clickprism.experiments.train import SETTINGS, make_method, uses_truth
from clickprism.settings import to_toml
from clickprism.types import Float64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CEILING, FLOOR, INITIAL = "labels", "click", "initial"
FORMATS: Final[Mapping[str, Callable[[Comparison], str]]] = {
    "txt": str,
    "md": as_markdown,
    "html": as_html,
}


@dataclass(frozen=True, eq=False)
class Run:
    """The result of one method with one seed.

    Attributes:
        label: Label of the method.
        seed: Random seed.
        means: Mean of each measure on the test part.
        observation: Observation by position, relative to the first, as learned or given; None if there is none, and for
            methods that correct trust bias, whose curve is alpha.
        truth: The same of the simulated users.
        steps: Epochs (or numbers of trees) at which validation was measured, and `values` of the validation.
        best: Epoch (or number of trees) that was chosen.
        stopped: Why training ended.
        seconds: Duration of the run.
        observation_model: What the method says about observation, such as the form that `lbd` chose, or Delta-CI.
    """

    label: str
    seed: int
    means: Mapping[str, float]
    observation: Float64 | None
    truth: Float64
    steps: Float64
    values: Float64
    best: int
    stopped: str
    seconds: float
    observation_model: str = ""


@dataclass(frozen=True, eq=False)
class Results:
    """The runs of an experiment, and their comparison.

    Attributes:
        settings: Settings of the experiment.
        comparison: Methods side by side, with intervals and tests.
        observation: Mean curve of each method that has one, and the "truth".
        runs: All runs; those of the initial ranking come last.
    """

    settings: ExperimentSettings
    comparison: Comparison
    observation: Mapping[str, Float64]
    runs: tuple[Run, ...]

    def of(self, label: str) -> list[Run]:
        """Return the runs of one method."""
        return [run for run in self.runs if run.label == label]

    def observation_models(self) -> list[Table]:
        """Return a table of the observation models that methods chose or measured; empty if no method has one."""
        rows = [[f"{run.label}, seed {run.seed}", run.observation_model] for run in self.runs if run.observation_model]
        return [Table("", ["method", "observation model"], rows)] if rows else []

    def tables(self) -> list[Table]:
        """Return the comparison, and the observation models that methods chose or measured."""
        return [*self.comparison.tables(), *self.observation_models()]


def results_of(
    settings: ExperimentSettings, runs: Sequence[tuple[Run, Evaluation]], *, baseline: str | None = None
) -> Results:
    """Return the comparison of runs with a baseline: by default `click`, or else the first method."""
    only, evaluated = [run for run, _ in runs], [(run.label, evaluation) for run, evaluation in runs]
    curves: dict[str, list[Float64]] = {"truth": [run.truth for run in only]}
    for run in only:
        if run.observation is not None:
            curves.setdefault(run.label, []).append(run.observation)
    return Results(
        settings=settings,
        comparison=compare_runs(settings, evaluated, data=described(settings), baseline=baseline),
        observation={label: _mean_curve(several) for label, several in curves.items()},
        runs=tuple(only),
    )


def compare_runs(
    settings: ExperimentSettings, runs: Iterable[tuple[str, Evaluation]], *, data: str, baseline: str | None = None
) -> Comparison:
    """Return the comparison of runs, given by label, with a baseline: by default `click`, or else the first method.

    Methods that use the grades or the true observation are out of competition, unless all do.
    """
    evaluations: dict[str, list[Evaluation]] = {}
    for label, evaluation in runs:
        evaluations.setdefault(label, []).append(evaluation)
    reference = [label for label in evaluations if label != INITIAL and uses_truth(settings, label)]
    return compare(
        evaluations,
        baseline=baseline or (FLOOR if FLOOR in evaluations else next(iter(evaluations))),
        reference=reference if len(reference) < len(evaluations) else [],
        data=data,
        seeds=settings.seeds,
    )


def write_results(results: Results, out: Path, *, title: str, next_commands: Sequence[str] = ()) -> Path:
    """Write the tables, the figures, the settings and report.html; return the path of the report."""
    make_folder(out)
    for ending, rendered in FORMATS.items():
        write_file(out / f"table.{ending}", rendered(results.comparison))
    models = results.observation_models()
    return write_experiment(
        out,
        results,
        settings=results.settings,
        comparison=results.comparison,
        title=title,
        summary=summary_of(results),
        figures=figures(results),
        more={"Observation models": models} if models else {},
        notes=[_note(results, label) for label in results.settings.methods],
        next_commands=next_commands,
    )


def write_experiment(
    out: Path, results: object, *, settings: ExperimentSettings, figures: Mapping[str, tuple[str, str]], **report: Any
) -> Path:
    """Write results.json, the settings, the figures and report.html; return the path of the report.

    `figures` has a caption and an SVG by file name; `report` are the other parts that `write_report` takes.
    """
    make_folder(out)
    values = resolved(settings)
    write_file(out / "results.json", to_json(results) + "\n")
    write_file(out / SETTINGS, to_toml(values))
    for name, (_, picture) in figures.items():
        write_file(out / f"{name}.svg", picture, durable=False)
    return write_report(out / "report.html", figures=dict(figures.values()), settings=values, **report)


def summary_of(results: Results) -> str:
    """Return what was done and what was found, in a few sentences."""
    settings, measure = results.settings, results.comparison.measures[0]
    rows = {row.method: row for row in results.comparison.of(measure)}
    labels = [label for label in settings.methods if label not in (CEILING, FLOOR)]
    lines = [
        f"Simulated users ({settings.user['name']}) clicked in {_sessions(settings)}, on lists ordered by a ranker "
        f"that was trained on {settings.simulation.initial.share:.0%} of the labels. A new ranker "
        f"({settings.ranker['name']}) was trained on their clicks, in {_runs(settings)} per method, and measured "
        "against the true grades."
    ]
    if {CEILING, FLOOR} <= set(rows) and labels and results.comparison.baseline == FLOOR:
        floor, ceiling, better = rows[FLOOR].mean, rows[CEILING].mean, rows[CEILING].verdict == "better"
        parts = [f"{label} {rows[label].mean:.4f}" for label in labels]
        if better:
            shares = [(rows[label].mean - floor) / (ceiling - floor) for label in labels]
            parts = [f"{part} ({share:.0%} of the way)" for part, share in zip(parts, shares, strict=True)]
        first, second, between = ("", "", ". The labels are not significantly better than the clicks. The others")
        if better:
            first, second, between = " (the floor)", " (the ceiling)", ". Between them"
        lines.append(
            f"Raw clicks reach {measure} {floor:.4f}{first}, the true labels {ceiling:.4f}{second}{between}: "
            f"{', '.join(parts)}."
        )
    return "\n\n".join(lines)


def described(settings: ExperimentSettings) -> str:
    """Return the data, the users, the ranker and the choice of its epoch in a line, for tables.

    >>> described(ExperimentSettings()).partition("; users")[2]
    ': pbm, 100 sessions of each query; ranker: mlp, best epoch by nDCG(exp)@10 on the judged validation part'
    """
    unit = "number of trees" if settings.ranker["name"] == "lambdamart" else "epoch"
    chosen = {"none": f"last {unit}", "clicks": f"best {unit} by held-out clicks"}.get(
        settings.evaluation.validation, f"best {unit} by {settings.evaluation.validation} on the judged validation part"
    )
    users = f"{settings.user['name']}, {_sessions(settings)}"
    return f"{data_name(settings.data)}; users: {users}; ranker: {settings.ranker['name']}, {chosen}"


def figures(results: Results) -> dict[str, tuple[str, str]]:
    """Return the caption and SVG of each figure that the runs have data for, by file name."""
    settings, truth = results.settings, results.observation["truth"]
    looks = plots.looks_of([*settings.methods, INITIAL])
    trees = settings.ranker["name"] == "lambdamart"
    drawn: dict[str, tuple[str, Figure]] = {}
    learned = {
        label: curve
        for label, curve in results.observation.items()
        if label != "truth" and not np.allclose(curve, truth[: len(curve)], atol=1e-3)  # not the truth that was given
    }
    if learned:
        bands = {label: band for label in learned if (band := _range(results.of(label)))}
        chosen = "; ".join(f"{label} {', '.join(str(run.best) for run in results.of(label))}" for label in learned)
        epochs = "" if trees else f", at the best epoch of at most {settings.fit.epochs} ({chosen})"
        caption = f"Observation by position, true and estimated{epochs}{'; bands over runs' if bands else ''}"
        drawn["observation"] = caption, plots.observation_curve(truth, learned, intervals=bands, looks=looks)
    validation = settings.evaluation.validation
    validated = {
        run.label: (run.steps.tolist(), run.values.tolist())
        for run in results.runs
        if run.seed == settings.seed and len(run.values)
    }
    if validated and validation != "clicks":
        figure = plots.training_curve(validated, measure=validation, xlabel="trees" if trees else "epoch", looks=looks)
        caption = f"{validation} on the validation part during training, seed {settings.seed}; a dot marks the best"
        drawn["training"] = caption, figure
    drawn["methods"] = (
        f"Methods with {results.comparison.confidence:.0%} intervals",
        plots.method_dots(results.comparison, looks=looks),
    )
    return as_svg(drawn)


def as_svg(drawn: Mapping[str, tuple[str, Figure]]) -> dict[str, tuple[str, str]]:
    """Return figures, each with its caption, as SVG with the caption as title."""
    return {name: (caption, plots.svg(figure, title=caption)) for name, (caption, figure) in drawn.items()}


def _sessions(settings: ExperimentSettings) -> str:
    return f"{settings.sessions} sessions {'of each query' if settings.simulation.frequency == 'each' else 'in total'}"


def _runs(settings: ExperimentSettings) -> str:
    return f"{settings.runs} run{'s' * (settings.runs > 1)}"


def _note(results: Results, label: str) -> str:
    """Return what a method is, and how its training went."""
    what = (type(make_method(results.settings, label)).__doc__ or "").partition("\n")[0]
    unit = "trees" if results.settings.ranker["name"] == "lambdamart" else "epoch"
    ends = [f"{unit} {run.best} with seed {run.seed} (ended by {run.stopped})" for run in results.of(label)]
    truth = "" if label == CEILING or not uses_truth(results.settings, label) else " It used the true observation."
    return f"{label}: {what}{truth} Best: {', '.join(ends)}."


def _mean_curve(curves: Sequence[Float64]) -> Float64:
    """Return the mean of curves by position, up to the end of the shortest."""
    mean: Float64 = np.mean([curve[: min(map(len, curves))] for curve in curves], axis=0)
    return mean


def _range(runs: Sequence[Run]) -> tuple[Float64, Float64] | None:
    """Return the lowest and the highest observation at each position, up to the end of the shortest curve."""
    curves = [run.observation for run in runs if run.observation is not None]
    if len(curves) < 2:
        return None
    several = np.array([curve[: min(map(len, curves))] for curve in curves])
    return several.min(axis=0), several.max(axis=0)
