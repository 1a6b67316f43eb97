"""From runs to figures: the rows of summary.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from clickprism.evaluation.significance import paired_t
from clickprism.types import Bool, Float64
from reproduce.adr.config import BARS, BASE, CANDIDATES, LEADING, MEASURES, ONLINE, TABLE_4
from reproduce.adr.online import TRAFFIC, good_same_bad
from reproduce.adr.plan import Plan
from reproduce.adr.runs import Run
from reproduce.adr.worlds import BUCKETS
from reproduce.common.results import Store, mark_of, mean_of, t_interval

COLUMNS = ("table", "data", "bucket", "method", "measure", "mean", "se", "seeds", "paper")
MORE = ("at", "low", "high", "mark", "p_value")
OVER = ", % over {}"
ONLINE_MEASURES: Final = {"dcg": LEADING, "gsb": "GSB", "clicks": "clicks", "satisfied": "satisfied clicks"}
LOST: Final = "first-slot clicks lost, %"
ALL = "all"


@dataclass(frozen=True)
class Row:
    """A figure of the summary.

    Attributes:
        table: which table or figure it is of.
        data: on what.
        bucket: of which queries: all, head, middle or tail; in Table 3 random or tail searches.
        method: the candidate, or two of them.
        measure: of what the mean is.
        mean: over draws.
        se: its standard error; None for one draw.
        seeds: how many draws.
        paper: the paper's figure, where there is one.
        at: where on the axis of a figure.
        low: of Student's 95 % interval over draws; of a bar, what it asks for.
        high: of the same.
        mark: whether a difference is one, by a paired t-test over queries; of a bar "ok" or "short".
        p_value: of that test.
    """

    table: str
    data: str
    bucket: str
    method: str
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

    def plain(self) -> dict[str, Any]:
        """As in summary.json."""
        values = asdict(self)
        return {name: values[name] for name in (*COLUMNS, *MORE)}


class Results:
    """The results of a plan's runs."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.store = Store(plan.out, folds=1)

    def has(self, method: str) -> bool:
        """Whether a method of the comparison has all its runs."""
        return method in self.plan.candidates and self._whole(self.plan.compared(method))

    def _whole(self, runs: Sequence[Run]) -> bool:
        return len(self.store.found(runs)) == len(runs)

    @property
    def methods(self) -> list[str]:
        """Those that have all their runs."""
        return [method for method in self.plan.candidates if self.has(method)]

    def queries(self, runs: Sequence[Run], measure: str, bucket: str) -> list[Float64]:
        """Query by query, a vector a seed."""
        found = self.store.found(runs)
        return [np.array(each["queries"][measure])[_in(each["bucket"], bucket)] for each in found]

    def values(self, runs: Sequence[Run], measure: str, bucket: str) -> Float64:
        """The mean over queries, [seeds]."""
        return np.array([values.mean() for values in self.queries(runs, measure, bucket)])

    def row(self, table: str, bucket: str, method: str, measure: str, values: Float64, **more: Any) -> Row:
        """The row of values by seed."""
        low, high = t_interval(values) or (None, None)
        given = {"low": low, "high": high} | more
        return Row(table, self.plan.data, bucket, method, measure, *mean_of(values), len(values), **given)

    def against(self, table: str, bucket: str, method: str, other: str, measure: str) -> Row:
        """How far a method is above another, in percent of it; marked by a paired t-test over queries of all seeds."""
        ours, theirs = (self.plan.compared(name) for name in (method, other))
        change = 100 * (self.values(ours, measure, bucket) / self.values(theirs, measure, bucket) - 1)
        both = (np.concatenate(self.queries(runs, measure, bucket)) for runs in (ours, theirs))
        test = paired_t(*both)
        mark = mark_of(test.difference, test.p_value)
        row = self.row(table, bucket, method, measure + OVER.format(other), change)
        return replace(row, mark=mark, p_value=None if np.isnan(test.p_value) else test.p_value)


def _in(bucket_of: Sequence[int], bucket: str) -> Bool:
    places = np.array(bucket_of)
    return np.ones(len(places), dtype=np.bool_) if bucket == ALL else places == BUCKETS.index(bucket)


def rows_of(results: Results) -> list[Row]:
    """Every row that the runs have figures for."""
    makers = (table_2, table_4, online, compared_side_by_side, examination, costs, bars, methods)
    return [row for make in makers for row in make(results)]


def methods(results: Results) -> Iterator[Row]:
    """What each method is worth, in every bucket, by every measure."""
    for method in results.methods:
        for bucket in (ALL, *BUCKETS):
            for measure in MEASURES:
                values = results.values(results.plan.compared(method), measure, bucket)
                yield results.row("methods", bucket, method, measure, values)


def table_2(results: Results) -> Iterator[Row]:
    """DCG and ERR relative to No-correction, of all queries."""
    if "table 2" in results.plan.parts and results.has(BASE):
        for method in results.methods:
            if method != BASE:
                yield from (results.against("table 2", ALL, method, BASE, measure) for measure in MEASURES)


def table_4(results: Results) -> Iterator[Row]:
    """DCG@4 by how often a query is asked, relative to the approximated affine estimate."""
    if "table 4" in results.plan.parts and results.has(TABLE_4[0]):
        for method in results.methods:
            if method != TABLE_4[0]:
                yield from (results.against("table 4", bucket, method, TABLE_4[0], LEADING) for bucket in BUCKETS)


def bars(results: Results) -> Iterator[Row]:
    """What must hold, and whether it does."""
    for bar in BARS:
        if results.has(bar.method) and results.has(bar.other):
            row = results.against("bars", bar.bucket, bar.method, bar.other, LEADING)
            yield replace(row, at=bar.least, mark="ok" if row.mean >= bar.least else "short")


def online(results: Results) -> Iterator[Row]:
    """Table 3: the A/B tests."""
    for method, runs in results.plan.tests().items():
        found = results.store.found(runs)
        if len(found) < len(runs):
            continue
        for traffic in TRAFFIC:
            for name, measure in ONLINE_MEASURES.items():
                tests = [each[traffic][name] for each in found]
                scale = [100.0 if name == "gsb" else 100 / test["base"] for test in tests]
                change = np.array([test["mean"] * by for test, by in zip(tests, scale, strict=True)])
                certain = [test["decided"] is not None and test["mean"] > 0 for test in tests]
                row = results.row("table 3", traffic, method, measure + OVER.format(ONLINE), change)
                yield replace(row, mark="+" if all(certain) else "")
                unit = "searches" if name in ("clicks", "satisfied") else "judged queries"
                known = np.array([test["decided"] for test in tests if test["decided"] is not None], dtype=np.float64)
                if len(known):
                    yield results.row("table 3", traffic, method, f"{measure}: {unit} until decided", known)
                yield results.row(
                    "table 3", traffic, method, f"{measure}: decided for it, %", 100 * np.array(certain, np.float64)
                )


def compared_side_by_side(results: Results) -> Iterator[Row]:
    """Good, same and bad, by bucket, against the ranker of Table 3."""
    if not (results.has(ONLINE) and results.has("production")):
        return
    best = [np.array(each["notes"]["best"]) for each in results.store.found(results.plan.compared("production"))]
    buckets = [each["bucket"] for each in results.store.found(results.plan.compared(ONLINE))]
    old = results.queries(results.plan.compared(ONLINE), LEADING, ALL)
    for method in [name for name in results.methods if name != ONLINE]:
        new = results.queries(results.plan.compared(method), LEADING, ALL)
        votes = [good_same_bad(*each) for each in zip(new, old, best, strict=True)]
        for bucket in (ALL, *BUCKETS):
            some = [each[_in(of, bucket)] for each, of in zip(votes, buckets, strict=True)]
            for vote, name in ((1, "good, %"), (0, "same, %"), (-1, "bad, %")):
                shares = np.array([100 * (each == vote).mean() for each in some])
                yield results.row("good same bad", bucket, method, name, shares)
            gain = np.array([100 * each.mean() for each in some])
            yield results.row("good same bad", bucket, method, "delta GSB, %", gain)


def examination(results: Results) -> Iterator[Row]:
    """§7.8: AUC; Figure 4: the mean estimate by position, and below a click."""
    runs = results.plan.examinations()
    found = results.store.found(runs)
    if not found or len(found) < len(runs):
        return
    for name, of in (("AUC, labels", "held_out"), ("AUC, truth", "truth")):
        values = np.array([each[of]["auc"] for each in found])
        yield results.row("section 7.8", ALL, "examination", name, values)
    for method, read in (("estimate", found), ("truth", [each["truth"] for each in found])):
        curves = [_curve(each["by_position"]) for each in read]
        yield from _points(results, "figure 4 (a)", method, curves)
        for anchor in sorted(set.intersection(*(set(each["below_anchor"]) for each in read)), key=int):
            curves = [_curve(each["below_anchor"][anchor]) for each in read]
            yield from _points(results, "figure 4 (b)", f"{method}, click at {anchor}", curves)


def _curve(points: Sequence[dict[str, Any]]) -> dict[int, float]:
    """Of the first page."""
    return {point["position"]: point["value"] for point in points if point["page"] == points[0]["page"]}


def _points(results: Results, table: str, method: str, curves: Sequence[dict[int, float]]) -> Iterator[Row]:
    for position in sorted(set.intersection(*map(set, curves))):
        values = np.array([curve[position] for curve in curves])
        yield results.row(table, ALL, method, "examination", values, at=float(position))


def costs(results: Results) -> Iterator[Row]:
    """What exploration costs in clicks, and what it buys: DCG@4 by bucket."""
    if "costs" not in results.plan.parts:
        return
    said = set()
    for share, exploration, method in results.plan.costs():
        runs = results.plan.explored(method, share, exploration)
        found = results.store.found(runs)
        if len(found) < len(runs):
            continue
        table = f"costs, {exploration}"
        if (share, exploration) not in said:
            said.add((share, exploration))
            lost = np.array([100 * each["notes"]["lost"] for each in results.store.found([run.needs for run in runs])])
            yield results.row(table, ALL, "exploration", LOST, lost, at=share)
        for bucket in (ALL, *BUCKETS):
            values = results.values(runs, LEADING, bucket)
            yield results.row(table, bucket, method, LEADING, values, at=share)


def titled(method: str) -> str:
    """As the paper, or we, call it."""
    return CANDIDATES[method].title if method in CANDIDATES else method
