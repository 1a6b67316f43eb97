"""The feedback loop: what a ranker shows decides what is clicked, and clicks decide what is shown next.

One chain per method and run. Round t shows the training lists in the order of the previous ranker, logs clicks, adds
them to the past of the items, and trains the next ranker on the log, with the past as it was when the lists were shown.
`docs/guides/popularity.md` has the equations and results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from clickprism._util.processes import process_count, side_by_side
from clickprism._util.progress import Progress, no_progress
from clickprism._util.tables import Table
from clickprism.click_models import USERS
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.popularity import PopularityUser, percentiles
from clickprism.click_models.users import User, adapted
from clickprism.data.items import items_across
from clickprism.errors import DataError, SettingError
from clickprism.evaluation import plots
from clickprism.evaluation.compare import Comparison, bounds, number
from clickprism.evaluation.concentration import concentration, position_exposure
from clickprism.evaluation.measures import Evaluation, evaluate
from clickprism.experiments.compare import check_methods
from clickprism.experiments.data import PARTS, data_name, graded, load_data, simulation_settings, with_categories
from clickprism.experiments.results import as_svg, compare_runs, write_experiment
from clickprism.experiments.settings import FeedbackSettings
from clickprism.experiments.train import make_method, train_method, true_trust, uses_truth
from clickprism.settings import choose
from clickprism.simulation.clicks import simulate
from clickprism.simulation.rankings import Intervention
from clickprism.training.settings import Fitted
from clickprism.types import Clicks, Dataset, Float64, Int64, JudgedLists, Lists, Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRIOR: Final = 10.0  # impressions at the mean rate that every item's rate starts with
WARM: Final = "click"  # the method of the first rounds, with its defaults
FIRST: Final = 1  # the first round in which all measures exist: popularity needs a past
CONFIDENCE: Final = 0.95
BIAS: Final = "correlation"
NAMES: Final = {
    "correlation": "correlation of exposure with past clicks, given the grade",
    "gini": "Gini coefficient of the exposure of items",
    "popular": "share of exposure of the 20% most clicked items",
    "top": "share of exposure of the 20% most exposed items",
    "mean": "mean popularity of the exposed items",
}
Measured = tuple["Chain", Evaluation]


@dataclass(frozen=True, eq=False)
class Chain:
    """The rounds of one method with one seed.

    Attributes:
        label: Label of the method.
        seed: Random seed.
        rounds: Measurements on the test part before training, after the first round, and so on: the measures of the
            settings and those of `Concentration`, by name.
    """

    label: str
    seed: int
    rounds: tuple[Mapping[str, float], ...]

    def curve(self, measure: str) -> Float64:
        """Return a measure by round, where round 0 is the initial ranking, [rounds + 1]."""
        return np.array([one[measure] for one in self.rounds])


@dataclass(frozen=True, eq=False)
class Rounds:
    """One measure of one method over rounds.

    Attributes:
        mean: Mean over runs, [rounds + 1].
        change: Mean change from the round after which methods differ to the last.
        low: Lower end of its interval by Student's t over runs; NaN for a single run.
        high: Upper end of the interval.
        verdict: "grows" or "shrinks" if the interval excludes 0.
    """

    mean: Float64
    change: float
    low: float
    high: float
    verdict: Literal["grows", "shrinks", "no clear change"] = "no clear change"

    @classmethod
    def of(cls, curves: Float64, fork: int) -> Rounds:
        """Return the summary of curves, one for each run; methods differ after the round `fork`."""
        mean, changes = curves.mean(axis=0), curves[:, -1] - curves[:, fork]
        change = float(changes.mean())
        if len(changes) < 2:
            return cls(mean, change, math.nan, math.nan)
        from scipy.stats import t

        half = t.ppf((1 + CONFIDENCE) / 2, len(changes) - 1) * changes.std(ddof=1) / np.sqrt(len(changes))
        low, high = change - half, change + half
        verdict: Any = "grows" if low > 0 else "shrinks" if high < 0 else "no clear change"
        return cls(mean, change, float(low), float(high), verdict)


@dataclass(frozen=True, eq=False)
class FeedbackResults:
    """The result of a feedback loop.

    Attributes:
        settings: Settings of the loop.
        comparison: Rankings of the last round on the test part.
        methods: Every measure of every method over rounds.
        chains: The chains of all methods and runs.
    """

    settings: FeedbackSettings
    comparison: Comparison
    methods: Mapping[str, Mapping[str, Rounds]]
    chains: tuple[Chain, ...]

    @property
    def fork(self) -> int:
        """The round after which the methods differ."""
        return max(self.settings.warm, FIRST)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures of the settings, then those of concentration."""
        return tuple(self.chains[0].rounds[0])

    def tables(self) -> list[Table]:
        """Return the popularity bias, the concentration of exposure and the quality of the ranking."""
        return [self.table(measure) for measure in (BIAS, "gini", self.measures[0])]

    def table(self, measure: str) -> Table:
        """Return the first round, the round after which methods differ, the last, and the change, by method."""
        shown = (FIRST, self.fork, self.settings.rounds)
        header = ["method", *(f"round {each}" for each in shown), "change", "95% interval", ""]
        rows = []
        for label, measured in self.methods.items():
            found = measured[measure]
            cells = [number(float(found.mean[each])) for each in shown]
            cells += [number(found.change, signed=True), bounds(found.low, found.high, signed=True)]
            rows.append([label, *cells, found.verdict])
        return Table(f"{NAMES.get(measure, measure)}; change since round {self.fork}", header, rows)


def feedback_loop(settings: FeedbackSettings, *, jobs: int = 1, progress: Progress = no_progress) -> FeedbackResults:
    """Run the loop for every method and run.

    Args:
        settings: Settings of the loop.
        jobs: Number of processes, one run each; 0 for one per core.
        progress: Called for each chain when its run is complete.
    """
    check_methods(settings)
    if not settings.methods:
        raise SettingError("methods", (), "name at least one method")
    tasks = [(settings, seed) for seed in settings.seeds]
    done: list[Measured] = []
    for chains in side_by_side([(_chains, task) for task in tasks], process_count(jobs)):
        for chain, evaluation in chains:
            done.append((chain, evaluation))
            text = f"{chain.label}, seed {chain.seed}: {BIAS} {chain.curve(BIAS)[-1]:.3f}"
            progress(len(done), len(tasks) * len(settings.methods), text)
    order = list(settings.methods)
    done.sort(key=lambda each: (order.index(each[0].label), each[0].seed))
    return feedback_results(settings, done)


def feedback_results(settings: FeedbackSettings, done: Sequence[Measured]) -> FeedbackResults:
    """Return the changes over rounds and the comparison of the last rankings."""
    methods = {
        label: {
            measure: Rounds.of(
                np.stack([chain.curve(measure) for chain, _ in done if chain.label == label]), max(settings.warm, FIRST)
            )
            for measure in done[0][0].rounds[0]
        }
        for label in dict.fromkeys(chain.label for chain, _ in done)
    }
    evaluated = [(chain.label, evaluation) for chain, evaluation in done]
    data = f"{data_name(settings.data)}, after {settings.rounds} rounds"
    comparison = compare_runs(settings, evaluated, data=data)
    return FeedbackResults(settings, comparison, methods, tuple(chain for chain, _ in done))


def _chains(settings: FeedbackSettings, seed: int) -> list[Measured]:
    """Return the chains of one run; the rounds that methods share are run once."""
    loop = _Loop(settings, seed)
    for _ in range(settings.warm):
        loop.step(WARM, replace(loop.settings, methods={WARM: {}}))  # raw clicks, whatever is called `click`
    chains = []
    for label in settings.methods:
        own = loop.fork()
        while len(own.rounds) <= settings.rounds:
            own.step(label, loop.settings)
        chains.append((Chain(label, seed, tuple(own.rounds)), own.evaluation))
    return chains


class _Loop:
    """State of one chain between two rounds.

    Attributes:
        items: Item of each document of each part, with the same numbers in all parts.
        observation: Observation probability by position, by which exposure is measured.
        clicks: Clicks of each item in all rounds.
        exposure: Exposure of each item in all rounds, as the method of each round estimates it.
        scores: Scores by part that order the next round.
        rounds: Measurements so far.
    """

    def __init__(self, settings: FeedbackSettings, seed: int) -> None:
        source = settings.data
        if source.source == "synthetic" and settings.worlds:
            source = replace(source, synthetic=replace(source.synthetic, seed=source.synthetic.seed + seed))
        data = load_data(source)
        self.dataset = graded(data)
        if len(self.dataset.test) == 0 or len(self.dataset.train) == 0:
            raise DataError("the loop needs lists to train on and lists to test on")
        self.settings = with_categories(settings, data.encoding, warn=seed == settings.seed)
        self.seed = seed
        items = items_across([getattr(self.dataset, part).lists for part in PARTS], seed=seed)
        self.items: dict[str, Int64] = dict(zip(PARTS, items, strict=True))
        count = max(int(each.max(initial=-1)) for each in items) + 1
        self.names = np.arange(count).astype(np.str_)
        user: User = choose(USERS, settings.user, path="user")
        self.user = user if isinstance(user, PopularityUser) else adapted(user, self.dataset.train, seed=seed)
        base = self.user if isinstance(self.user, PositionUser) else getattr(self.user, "base", PositionUser())
        self.observation = np.asarray(base.observation(np.arange(1, settings.simulation.length + 1)))
        self.clicks, self.exposure = np.zeros(count), np.zeros(count)
        initial = settings.simulation.initial.fit(self.dataset.train, seed=seed)
        self.scores = {part: initial(getattr(self.dataset, part).lists.features) for part in PARTS}
        self.rounds: list[dict[str, float]] = []
        self._measure()

    def fork(self) -> _Loop:
        """Return a copy that can be continued without changing this chain."""
        other = copy(self)
        other.rounds = list(self.rounds)
        return other

    def step(self, label: str, settings: FeedbackSettings) -> None:
        """Show lists, log clicks, train by this method, and measure the ranking that is shown next."""
        seeds = np.random.SeedSequence([self.seed, len(self.rounds)]).generate_state(3).tolist()
        column, cold = self._column(), not self.clicks.any()
        parts = {part: self._part(part, column) for part in PARTS}
        simulation = self._log(parts["train"], "train", seeds[0])
        merges = settings.simulation.merge != "none" and not make_method(settings, label).needs_patterns
        clicks = simulation.clicks.merge() if merges else simulation.clicks
        held_out = None
        if settings.evaluation.validation == "clicks":
            held_out = self._log(parts["validation"], "validation", seeds[1]).clicks
            held_out = held_out.merge() if merges else held_out
        fitted = train_method(
            settings,
            Dataset(self.dataset.name, *parts.values()),
            label,
            clicks=clicks,
            truth=simulation.observation,
            trust=true_trust(settings),
            held_out=held_out,
            seed=seeds[2],
            show=False,
        )
        if fitted.stopped == "interrupted":
            raise KeyboardInterrupt
        self._remember(clicks, fitted)
        if not cold:  # a ranker that was trained before any click has learned nothing about the feature
            column = self._column()
        self.scores = {part: self._boosted(part, fitted.model.score(self._part(part, column).lists)) for part in PARTS}
        self._measure()

    def _part(self, name: str, column: Float64 | None) -> JudgedLists:
        """Return a part with items as document ids and, as a last feature, a value of each item."""
        judged: JudgedLists = getattr(self.dataset, name)
        lists, items = judged.lists, self.items[name]
        features = lists.features
        if column is not None:
            features = np.concatenate([features, column[items, None].astype(np.float32)], axis=1)
        ids = self.names[items] if len(self.names) else None
        return JudgedLists(Lists(features, lists.offsets, lists.query_ids, ids), judged.grades)

    def _log(self, judged: JudgedLists, part: str, seed: int) -> Simulation:
        """Simulate clicks on a part, merged only as far as every method of the settings allows."""
        settings, made = self.settings, simulation_settings(self.settings, self.dataset)
        if settings.exploration > 0:
            shuffle = Intervention(kind="shuffle", share=settings.exploration, depth=made.length)
            made = replace(made, intervention=shuffle)
        user = self.user
        if isinstance(user, PopularityUser):
            user = user.after(self.names, self.clicks)
        scores = self.scores[part]
        return simulate(judged, user, sessions=settings.sessions, seed=seed, settings=made, scores=scores)

    def _remember(self, log: Clicks, fitted: Fitted) -> None:
        """Add a log to the past of the items; the method that was trained on it estimates the exposure."""
        exposure = log.list_impressions if fitted.learner is None else fitted.learner.exposure(log)
        items, size = self.items["train"][log.rows], len(self.names)
        self.clicks = self.clicks + np.bincount(items, weights=log.clicks, minlength=size)
        self.exposure = self.exposure + np.bincount(items, weights=exposure, minlength=size)

    def _column(self) -> Float64 | None:
        """Return the feature of the past of each item, with about mean 0 and deviation 1; 0 before any click."""
        kind, past = self.settings.feature, self.clicks
        if kind == "none":
            return None
        if not past.any():
            return np.zeros(len(past))
        if kind == "rate":
            mean = self.clicks.sum() / self.exposure.sum()
            past = (self.clicks + PRIOR * mean) / (self.exposure + PRIOR)
        return np.asarray(math.sqrt(12) * (percentiles(past) - 0.5))

    def _boosted(self, part: str, scores: Float64) -> Float64:
        """Return the scores plus the weight of popularity, both in standard deviations within lists."""
        boost = self.settings.boost
        if boost == 0:
            return scores
        lists, popularity = getattr(self.dataset, part).lists, percentiles(self.clicks)
        return _standard(lists, scores) + boost * _standard(lists, popularity[self.items[part]])

    def _measure(self) -> None:
        """Measure the ranking of the test part that is shown next."""
        evaluation, judged, scores = self.settings.evaluation, self.dataset.test, self.scores["test"]
        self.evaluation = evaluate(judged, scores, evaluation.measures, empty=evaluation.empty)
        if self.settings.worlds:
            ids = np.char.add(f"{self.seed}/", self.evaluation.query_ids)
            self.evaluation = replace(self.evaluation, query_ids=ids)
        exposure = position_exposure(judged.lists, scores, observation=self.observation)
        found = concentration(judged, exposure, items=self.items["test"], popularity=percentiles(self.clicks))
        self.rounds.append({**self.evaluation.means, **asdict(found)})


def _standard(lists: Lists, values: Float64) -> Float64:
    """Return each value minus the mean of its list, divided by the standard deviation of these differences."""
    means = np.bincount(lists.list_of, weights=values, minlength=len(lists)) / np.maximum(lists.lengths, 1)
    own = values - means[lists.list_of]
    deviation = float(own.std()) if len(own) else 0.0
    return np.asarray(own / deviation if deviation > 0 else np.zeros(len(own)))


def write_feedback(results: FeedbackResults, out: Path, *, next_commands: Sequence[str] = ()) -> Path:
    """Write results.json, the figures, the settings and report.html; return the path of the report."""
    return write_experiment(
        out,
        results,
        settings=results.settings,
        comparison=results.comparison,
        title="Popularity bias over rounds of logging and retraining",
        summary=summary_of(results),
        figures=figures(results),
        more={"Measures by round": [results.table(measure) for measure in results.measures]},
        notes=_notes(results.settings),
        next_commands=next_commands,
    )


def summary_of(results: FeedbackResults) -> str:
    """Return what was done and what was found, in a few sentences."""
    settings = results.settings
    done = (
        f"Simulated users ({settings.user['name']}) were shown lists, a ranker ({settings.ranker['name']}) was trained "
        f"on their clicks and ordered the lists of the next round. There were {settings.rounds} rounds in "
        f"{settings.runs} run{'s' * (settings.runs > 1)}."
    )
    if settings.warm:
        done += f" In the first {settings.warm} rounds every method learned from raw clicks."
    parts = []
    for label, measured in results.methods.items():
        found = measured[BIAS]
        parts.append(f"{label} {found.mean[results.fork]:.3f} to {found.mean[-1]:.3f} ({found.verdict})")
    return (
        f"{done}\n\nPopularity bias, the correlation of exposure with past clicks given the grade, from round "
        f"{results.fork} to round {settings.rounds}: {'; '.join(parts)}."
    )


def _notes(settings: FeedbackSettings) -> list[str]:
    shown = "the ranker's own order"
    if settings.boost:
        shown = f"the ranker's scores plus {settings.boost:g} standard deviations of popularity"
    return [
        f"All measures are on the test part, in the order that the system shows: {shown}. Exposure is the users' "
        "observation by position. Past clicks are those on the training lists so far, in the method's own chain.",
        "A ranker that knows relevance only in part also correlates with past clicks. Compare with `labels`, which was "
        "trained on the grades, not with 0.",
        "Intervals are Student's t over runs, for changes within a run. Bands are a standard error of the mean.",
    ]


def figures(results: FeedbackResults) -> dict[str, tuple[str, str]]:
    """Return the caption and SVG of each figure, by file name."""
    drawn = {
        "popularity": ("Popularity bias and ranking quality over rounds", (BIAS, results.measures[0])),
        "concentration": ("Concentration of exposure over rounds", ("gini", "popular")),
    }
    return as_svg({name: (caption, round_curves(results, measures)) for name, (caption, measures) in drawn.items()})


@plots.styled
def round_curves(results: FeedbackResults, measures: Sequence[str]) -> Figure:
    """Return a figure with one panel per measure, one line per method, and bands of a standard error over runs."""
    from matplotlib.figure import Figure

    settings, looks = results.settings, plots.looks_of(results.settings.methods)
    figure = Figure(figsize=(4.8 * len(measures), 4.0), layout="constrained")
    for axes, measure in zip(figure.subplots(1, len(measures), squeeze=False)[0], measures, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color=plots.GRID, alpha=0.3, linewidth=0.8)
        axes.set_axisbelow(True)
        for place, label in enumerate(settings.methods):
            several = np.stack([chain.curve(measure) for chain in results.chains if chain.label == label])
            rounds = np.arange(settings.warm if place else 0, settings.rounds + 1)
            mean, colour = several.mean(axis=0)[rounds], looks[label].colour
            style = (0, (4, 2)) if uses_truth(settings, label) else "-"
            marker = {"marker": looks[label].marker, "markersize": 5}
            axes.plot(rounds, mean, color=colour, linewidth=1.8, linestyle=style, label=label, zorder=3, **marker)
            if len(several) > 1:
                error = several.std(axis=0, ddof=1)[rounds] / np.sqrt(len(several))
                axes.fill_between(rounds, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        if settings.warm > 0:
            axes.axvline(settings.warm, color=plots.GRID, linewidth=1.2, linestyle=(0, (2, 2)), zorder=1)
            text = {"xycoords": ("data", "axes fraction"), "fontsize": 8.5, "rotation": 90, "ha": "right"}
            axes.annotate("methods differ", (settings.warm, 0.02), **text)
        axes.set_xticks(range(settings.rounds + 1))
        axes.set_xlabel("times retrained")
        axes.set_ylabel(fill(NAMES.get(measure, measure), 30))
    figure.axes[0].legend(frameon=False, fontsize=9, labelcolor=plots.INK)
    return figure
