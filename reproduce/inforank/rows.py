"""From runs to figures: the rows of summary.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from clickprism.evaluation.significance import paired_t
from clickprism.types import Float64
from reproduce.common.results import Store, common, mark_of, mean_of, over_draws, t_interval
from reproduce.inforank.config import CANDIDATES, CLAIMS, LEADING, RATIOS, TABLES, measures
from reproduce.inforank.plan import Case, Part, Plan, case, eta_of

Epoch = Literal["clicks", "best", "last"]
EPOCHS: Final[dict[Epoch, str]] = {"clicks": "", "best": ", best epoch", "last": ", last epoch"}
COLUMNS = ("table", "data", "user", "ranker", "method", "eta", "measure", "mean", "se", "seeds", "paper")
MORE = ("at", "low", "high", "mark", "p_value", "p_queries")
CHANGE = f"validation {LEADING}, change over the last quarter"
GRADES = "grades"  # the labels themselves, as scores
DISTANCE, AFTER, EXPOSED, GAP = "distance to the labels' curve", "mean position after", "share of exposure", "Delta-CI"


@dataclass(frozen=True)
class Row:
    """A figure of the summary.

    Attributes:
        table: which table or figure it is of.
        data: on what.
        user: who clicked.
        ranker: what was trained.
        method: the candidate, or a difference or ratio of two.
        eta: the weight of the mutual information, where the method has one.
        measure: of what the mean is.
        mean: over draws.
        se: its standard error; None for one draw.
        seeds: how many draws.
        paper: the paper's figure, where there is one for the same data.
        at: where on the axis of a figure: tau, gamma_1, share of the data, position, frequency, popularity.
        low: of Student's 95 % interval over draws.
        high: of the same.
        mark: "best baseline", or whether it differs from that; of claims, whether the difference is one.
        p_value: of the test that the mark is by: over queries in the tables, as in the paper; over draws of claims.
        p_queries: of the test over queries, which takes the draws as given; of claims.
    """

    table: str
    data: str
    user: str
    ranker: str
    method: str
    eta: float | None
    measure: str
    mean: float
    se: float | None
    seeds: int
    paper: float | None = None
    at: float | None = None
    low: float | None = None
    high: float | None = None
    mark: str = ""
    p_value: float | None = None
    p_queries: float | None = None

    def plain(self) -> dict[str, Any]:
        """As in summary.json."""
        values = asdict(self)
        return {name: values[name] for name in (*COLUMNS, *MORE)}


class Results:
    """The results of a plan's runs, case by case."""

    def __init__(self, plan: Plan, out: Path) -> None:
        self.plan, self.out = plan, out
        self.store = Store(out, folds=plan.folds)
        self._results: dict[Case, list[dict[str, Any]]] = {}

    def has(self, one: Case) -> bool:
        """Whether a case has all its runs."""
        return len(self.results(one)) == len(self.plan.of(one))

    def results(self, one: Case) -> list[dict[str, Any]]:
        """Of a case, seed by seed and fold by fold."""
        if one not in self._results:
            self._results[one] = self.store.found(self.plan.of(one))
        return self._results[one]

    def cases(self, part: Part) -> list[Case]:
        """Those of a table or figure that have all their runs."""
        return [one for one in self.plan.cases(part) if self.has(one)] if part in self.plan.parts else []

    @cached_property
    def usual(self) -> list[Case]:
        """Every case of tables and figures with the usual bias, each once."""
        found = (one for part in self.plan.parts for one in self.cases(part))
        return [one for one in dict.fromkeys(found) if one == case(one.label, one.ranker, one.user)]

    def values(self, one: Case, measure: str, epoch: Epoch = "clicks") -> Float64:
        """The mean over queries and folds, [seeds]."""
        return self.store.by_seed(self.results(one), measure, epoch)

    def queries(self, one: Case, measure: str, epoch: Epoch = "clicks") -> Float64:
        """Query by query, [seeds, queries]."""
        return self.store.by_query(self.results(one), measure, epoch)

    def gaps(self, one: Case) -> Float64:
        """Delta-CI, [seeds]."""
        return self.store.fold_means([result["delta_ci"]["clicks"] for result in self.results(one)])

    def row(self, table: str, one: Case, measure: str, values: Float64, *, at: float | None = None) -> Row:
        """The row of a case."""
        about = (table, self.plan.data, one.user, one.ranker, one.label, eta_of(one), measure)
        low, high = t_interval(values) or (None, None)
        return Row(*about, *mean_of(values), len(values), None, at, low, high)


def rows_of(results: Results) -> list[Row]:
    """Every row that the runs have figures for."""
    rows: list[Row] = []
    for epoch, name in EPOCHS.items():
        for part in [part for part in results.plan.parts if part in TABLES]:
            rows += table(results, part, f"{part}{name}", epoch)
    rows += [*curves(results), *gaps(results), *exposure(results), *weights(results), *severity(results)]
    rows += amounts(results)
    for epoch, name in EPOCHS.items():
        rows += claims(results, f"claims{name}", epoch)
    return [*rows, *ratios(results), *plateau(results)]


def table(results: Results, part: Part, name: str, epoch: Epoch) -> Iterator[Row]:
    """Table 2 or 3: ours marked against the best baseline of the measure, all over the draws that all have."""
    known = results.cases(part)
    for user, ranker in dict.fromkeys((one.user, one.ranker) for one in known):
        mine = [one for one in known if (one.user, one.ranker) == (user, ranker)]
        draws = min(len(results.plan.of(one)) for one in mine) // results.plan.folds
        for measure in measures(results.plan.data):
            found = {one: results.values(one, measure, epoch)[:draws] for one in mine}
            baselines = [one for one in mine if CANDIDATES[one.label].role == "baseline"]
            best = max(baselines, key=lambda one: float(found[one].mean())) if baselines else None
            for one, values in found.items():
                row = results.row(name, one, measure, values)
                if one == best:
                    row = replace(row, mark="best baseline")
                elif best is not None and CANDIDATES[one.label].role == "ours":
                    both = (results.queries(each, measure, epoch)[:draws] for each in (one, best))
                    test = paired_t(*both)
                    mark = mark_of(test.difference, test.p_value)
                    row = replace(row, mark=mark, p_value=test.p_value)
                yield row


def curves(results: Results) -> Iterator[Row]:
    """Figure 3: where documents go, by frequency and by position, and how far from where labels send them."""
    for axis, side in (("frequency", "left"), ("position", "right")):
        yield from _drawn(results, "figure 3", f"figure 3 {side}", axis, AFTER)


def exposure(results: Results) -> Iterator[Row]:
    """Figure 5, left: the share of exposure by popularity."""
    yield from _drawn(results, "figure 5 left", "figure 5 left", "popularity", EXPOSED)


def _drawn(results: Results, part: Part, name: str, axis: str, measure: str) -> Iterator[Row]:
    """Each curve, the labels' own once a log, and the distances; nothing where a log says nothing of items."""
    seen = set()
    for one in results.cases(part):
        moved = [result["moved"] for result in results.results(one)]
        if not all(axis in each for each in moved):
            continue
        found = [each[axis] for each in moved]
        yield results.row(name, one, DISTANCE, results.store.fold_means([each["distance"] for each in found]))
        at = found[0]["at"]
        methods = {"value": one.label}
        if (one.user, one.ranker) not in seen:
            seen.add((one.user, one.ranker))
            methods["labels"] = GRADES
        for key, method in methods.items():
            lines = [_at(at, each["at"], each[key], shares=measure == EXPOSED) for each in found]
            for place, where in enumerate(at):
                values = results.store.fold_means([line[place] for line in lines])
                row = results.row(name, one, measure, values, at=where)
                yield row if method == one.label else replace(row, method=method, eta=None)


def _at(points: Sequence[float], at: Sequence[float], values: Sequence[float], *, shares: bool) -> Float64:
    """A curve at the points of the first draw, for draws may differ in theirs; shares still sum to 1."""
    found = np.interp(points, at, values).astype(np.float64)
    return found / found.sum() if shares else found


def gaps(results: Results) -> Iterator[Row]:
    """Figure 4: Delta-CI by user model, with and without the mutual information."""
    for one in results.cases("figure 4"):
        yield results.row("figure 4", one, GAP, results.gaps(one))


def weights(results: Results) -> Iterator[Row]:
    """Figure 5, right: nDCG@10, and Delta-CI, by eta."""
    for one in results.cases("figure 5 right"):
        draws = results.plan.size.others
        yield results.row("figure 5 right", one, LEADING, results.values(one, LEADING)[:draws], at=eta_of(one))
        yield results.row("figure 5 right", one, GAP, results.gaps(one)[:draws], at=eta_of(one))


def severity(results: Results) -> Iterator[Row]:
    """Figure 6: nDCG@10 by tau of PBM and gamma_1 of CCM."""
    for one in results.cases("figure 6"):
        yield results.row(
            "figure 6", one, LEADING, results.values(one, LEADING)[: results.plan.size.others], at=one.bias
        )


def amounts(results: Results) -> Iterator[Row]:
    """Figure 7: nDCG@10 by the share of training queries."""
    for one in results.cases("figure 7"):
        values = results.values(one, LEADING)[: results.plan.size.others]
        yield results.row("figure 7", one, LEADING, values, at=one.share)


def _pairs(results: Results, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[Case, Case]]:
    known = results.usual
    for user, ranker in dict.fromkeys((one.user, one.ranker) for one in known):
        for labels in pairs:
            one, other = (case(label, ranker, user) for label in labels)
            if one in known and other in known:
                yield one, other


def claims(results: Results, name: str, epoch: Epoch) -> Iterator[Row]:
    """Differences that the paper, or we, claim, over the draws that both have."""
    for one, other in _pairs(results, CLAIMS):
        ours, theirs = common(*(results.values(each, LEADING, epoch) for each in (one, other)))
        queries = paired_t(*common(*(results.queries(each, LEADING, epoch) for each in (one, other))))
        row = replace(results.row(name, one, LEADING, ours - theirs), method=f"{one.label} - {other.label}")
        _, p_value = over_draws(ours, theirs)
        mark = "" if p_value is None else mark_of(row.mean, p_value)
        yield replace(row, mark=mark, p_value=p_value, p_queries=queries.p_value)


def ratios(results: Results) -> Iterator[Row]:
    """Delta-CI with the mutual information over that without, draw by draw."""
    for one, other in _pairs(results, RATIOS):
        ours, theirs = common(results.gaps(one), results.gaps(other))
        if (theirs > 0).all():
            row = results.row("claims", one, f"{GAP}, ratio", ours / theirs)
            yield replace(row, method=f"{one.label} / {other.label}")


def plateau(results: Results) -> Iterator[Row]:
    """How much validation still moved in the last quarter of training: last value minus that at three quarters."""
    for one in results.usual:
        series = [result["curve"] for result in results.results(one)]
        if all(series):
            moved = [each[-1] - each[int(0.75 * (len(each) - 1))] for each in series]
            yield results.row("plateau", one, CHANGE, results.store.fold_means(moved))
