"""From runs to figures: means with their errors over draws, and whether a difference is real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from clickprism.evaluation.measures import Measure
from clickprism.evaluation.significance import paired_t
from reproduce.common.results import Store, common, mark_of, mean_of, over_draws
from reproduce.lbd.config import CANDIDATES, CLAIMS, FORCED, LEADING, MEASURES, PANELS, TABLE, TABLE_COUPLING
from reproduce.lbd.plan import Plan

Epoch = Literal["clicks", "best", "last"]
COLUMNS = ("table", "data", "ranker", "method", "coupling", "lambda", "t", "measure", "mean", "se", "seeds", "paper")


@dataclass(frozen=True)
class Row:
    """A figure of the summary.

    Attributes:
        setting: lambda and t where the method has them.
        mark: its significance, by `p_value`: over queries in the tables, as in the paper; over draws of claims.
        interval: the t interval of the mean over draws, at 95 %; of claims.
        p_queries: of the test over queries, which takes the draws as given; of claims.
    """

    table: str
    data: str
    ranker: str
    method: str
    coupling: float
    setting: tuple[float, float] | None
    measure: str
    mean: float
    se: float | None
    seeds: int
    mark: str = ""
    p_value: float | None = None
    paper: float | None = None
    interval: tuple[float, float] | None = None
    p_queries: float | None = None

    def plain(self) -> dict[str, Any]:
        """As in summary.json."""
        values = asdict(self)
        penalty, drop = values.pop("setting") or (None, None)
        values |= {"lambda": penalty, "t": drop}
        low, high = values.pop("interval") or (None, None)
        more = {name: values[name] for name in ("mark", "p_value", "p_queries")}
        return {name: values[name] for name in COLUMNS} | more | {"low": low, "high": high}


class Results(Store):
    """Averages over the results of a plan's runs."""

    def __init__(self, plan: Plan, out: Path) -> None:
        super().__init__(out, folds=len(plan.worlds(0.0, [0])))
        self.plan = plan

    def has(self, label: str, ranker: str, coupling: float) -> bool:
        """Whether a candidate has all its runs here."""
        known = label in self.plan.labels and coupling in self.plan.couplings_of(label)
        return known and all(self.result(run) is not None for run in self.plan.of(label, ranker, coupling))

    def results(self, label: str, ranker: str, coupling: float) -> list[dict[str, Any]]:
        """Of a candidate, seed by seed and fold by fold."""
        return self.found(self.plan.of(label, ranker, coupling))

    def setting(self, label: str, ranker: str, coupling: float) -> tuple[float, float] | None:
        """Lambda and t that a candidate ran with, if it has them."""
        settings = self.plan.of(label, ranker, coupling)[0].settings
        return (settings["penalty"], settings["drop"]) if "drop" in settings else None

    def row(
        self,
        table: str,
        label: str,
        ranker: str,
        coupling: float,
        *,
        measure: str,
        epoch: Epoch = "clicks",
        draws: int | None = None,
    ) -> Row:
        """The row of a candidate, over so many of its first draws."""
        values = self.by_seed(self.results(label, ranker, coupling), measure, epoch)[:draws]
        data, setting = self.plan.data, self.setting(label, ranker, coupling)
        return Row(table, data, ranker, label, coupling, setting, measure, *mean_of(values), len(values))


def rows_of(results: Results) -> list[Row]:
    """Every row that the runs have figures for."""
    parts = results.plan.parts
    rows: list[Row] = []
    epochs: tuple[tuple[Epoch, str], ...] = (("clicks", ""), ("best", ", best epoch"), ("last", ", last epoch"))
    for epoch, name in epochs:
        if "table 1" in parts:
            rows += table(results, f"table 1{name}", (LEADING,), epoch)
        if "table 4" in parts:
            rows += table(results, f"table 4{name}", (MEASURES[-1], *MEASURES[1:-1], LEADING), epoch)
    if "table 3" in parts:
        rows += tuned(results)
    for part, labels in PANELS.items():
        if part in parts:
            rows += panel(results, part, labels)
    if "figure 4" in parts:
        rows += heat_map(results) + regret(results)
    rows += regret_of_lbd(results)
    for epoch, name in epochs:
        rows += claims(results, f"claims{name}", epoch)
    return rows + plateau(results)


def table(results: Results, name: str, measures: Sequence[str], epoch: Epoch) -> list[Row]:
    """Table 1 or 4: each candidate at coupling .1, ours marked against the best baseline of the measure."""
    rows = []
    for ranker in results.plan.size.rankers:
        labels = [label for label in TABLE if results.has(label, ranker, TABLE_COUPLING)]
        draws = min((len(results.results(label, ranker, TABLE_COUPLING)) for label in labels), default=0)
        draws //= results.folds
        for measure in measures:
            found = {
                label: results.row(name, label, ranker, TABLE_COUPLING, measure=measure, epoch=epoch, draws=draws)
                for label in labels
            }
            higher = Measure.parse(measure).higher_is_better
            baselines = [label for label in labels if CANDIDATES[label].role == "baseline"]
            if not baselines:
                continue
            best = (max if higher else min)(baselines, key=lambda label: found[label].mean)
            against = results.by_query(results.results(best, ranker, TABLE_COUPLING), measure, epoch)[:draws]
            for label, row in found.items():
                if CANDIDATES[label].role != "ours":
                    rows.append(replace(row, mark="best baseline" if label == best else ""))
                    continue
                ours = results.by_query(results.results(label, ranker, TABLE_COUPLING), measure, epoch)[:draws]
                test = paired_t(ours, against)
                mark = mark_of(test.difference, test.p_value, higher_is_better=higher)
                rows.append(replace(row, mark=mark, p_value=test.p_value))
    return rows


def panel(results: Results, name: str, labels: Sequence[str]) -> list[Row]:
    """A panel of Figure 3: nDCG@10 of each candidate over couplings."""
    return [
        results.row(name, label, ranker, coupling, measure=LEADING)
        for ranker in results.plan.size.rankers
        for label in labels
        for coupling in results.plan.size.couplings
        if results.has(label, ranker, coupling)
    ]


def tuned(results: Results) -> list[Row]:
    """Table 3: lambda and t, as chosen by labelled validation and by held-out clicks."""
    rows = []
    seeds, data = results.plan.size.tuning_seeds, results.plan.data
    for ranker, coupling in results.plan.trials:
        for label, by in (("lbd_paper", "validation"), ("lbd_paper, by clicks", "likelihood")):
            trial = results.plan.chosen("both", ranker, coupling, by=by)
            if trial is None:
                continue
            for measure, value in (
                ("lambda", trial.setting[0]),
                ("t", trial.setting[1]),
                (f"validation {LEADING}", trial.validation),
                ("held-out log-likelihood", trial.likelihood),
            ):
                rows.append(Row("table 3", data, ranker, label, coupling, trial.setting, measure, value, None, seeds))
    return rows


def cells(results: Results, ranker: str, coupling: float) -> dict[tuple[float, float], list[dict[str, Any]]]:
    """The results of each lambda and t that has all its runs."""
    found = {}
    for setting in results.plan.grid(ranker):
        runs = results.plan.cell(ranker, coupling, setting, seeds=results.plan.size.map_seeds)
        several = [result for run in runs if (result := results.result(run)) is not None]
        if len(several) == len(runs):
            found[setting] = several
    return found


def heat_map(results: Results) -> list[Row]:
    """Figure 4: nDCG@10 by lambda and t."""
    rows = []
    for ranker in results.plan.size.map_rankers:
        for coupling in results.plan.size.maps:
            for setting, several in cells(results, ranker, coupling).items():
                values = results.by_seed(several, LEADING)
                about = ("figure 4", results.plan.data, ranker, "lbd_paper", coupling, setting, LEADING)
                rows.append(Row(*about, *mean_of(values), len(values)))
    return rows


def regret(results: Results) -> list[Row]:
    """What choosing lambda and t costs against the best in hindsight, by held-out clicks and by labelled validation."""
    rows = []
    for ranker in results.plan.size.map_rankers:
        for coupling in results.plan.size.maps:
            found = cells(results, ranker, coupling)
            if not found:
                continue
            test = np.array([results.by_seed(several, LEADING) for several in found.values()])
            criteria = {
                "held-out clicks": [[result["likelihood"] for result in several] for several in found.values()],
                "validation": [[result["validation"]["clicks"] for result in several] for several in found.values()],
            }
            for criterion, values in criteria.items():
                by_seed = np.array(values, dtype=np.float64).reshape(*test.shape, -1).mean(axis=2)
                lost = test.max(axis=0) - test[by_seed.argmax(axis=0), np.arange(test.shape[1])]
                about = ("regret", results.plan.data, ranker, f"lbd_paper, by {criterion}", coupling, None, LEADING)
                rows.append(Row(*about, *mean_of(lost), len(lost)))
    return rows


def regret_of_lbd(results: Results) -> list[Row]:
    """What lbd's choice of its penalty by held-out clicks costs against the best one in hindsight, draw by draw."""
    rows = []
    for ranker in results.plan.size.rankers:
        for coupling in results.plan.couplings:
            if all(results.has(label, ranker, coupling) for label in ("lbd", *FORCED)):
                each = [results.by_seed(results.results(label, ranker, coupling), LEADING) for label in FORCED]
                best = np.max(each, axis=0)
                lost = np.maximum(
                    best - results.by_seed(results.results("lbd", ranker, coupling), LEADING)[: len(best)], 0
                )
                about = ("regret", results.plan.data, ranker, "lbd, by held-out clicks", coupling, None, LEADING)
                rows.append(Row(*about, *mean_of(lost), len(lost)))
    return rows


def claims(results: Results, name: str, epoch: Epoch) -> list[Row]:
    """Differences that the paper, or we, claim, at every coupling: that at 0 is the control.

    A claim is about draws to come, of users as of clicks, so it holds if it does over the draws: thousands of queries
    of one draw can only say that this draw came out so.
    """
    rows = []
    for ranker in results.plan.size.rankers:
        for one, other in CLAIMS:
            for coupling in results.plan.couplings:
                if not (results.has(one, ranker, coupling) and results.has(other, ranker, coupling)):
                    continue
                first, second = (results.results(label, ranker, coupling) for label in (one, other))
                ours, theirs = common(*(results.by_seed(each, LEADING, epoch) for each in (first, second)))
                gained = ours - theirs
                test = paired_t(*common(*(results.by_query(each, LEADING, epoch) for each in (first, second))))
                about = (name, results.plan.data, ranker, f"{one} - {other}", coupling)
                row = Row(*about, results.setting(one, ranker, coupling), LEADING, *mean_of(gained), len(gained))
                interval, p_value = over_draws(ours, theirs)
                mark = "" if p_value is None else mark_of(row.mean, p_value)
                rows.append(replace(row, mark=mark, p_value=p_value, interval=interval, p_queries=test.p_value))
    return rows


def plateau(results: Results) -> list[Row]:
    """How much validation still moved in the last quarter of training: last value minus that at three quarters."""
    rows = []
    for ranker in results.plan.size.rankers:
        for label in results.plan.labels:
            for coupling in results.plan.couplings_of(label):
                if not results.has(label, ranker, coupling):
                    continue
                curves = [result["curve"] for result in results.results(label, ranker, coupling)]
                moved = np.array([curve[-1] - curve[int(0.75 * (len(curve) - 1))] for curve in curves])
                values = moved.reshape(-1, results.folds).mean(axis=1)
                about = ("plateau", results.plan.data, ranker, label, coupling)
                setting = results.setting(label, ranker, coupling)
                measure = f"validation {LEADING}, change over the last quarter"
                rows.append(Row(*about, setting, measure, *mean_of(values), len(values)))
    return rows
