"""Methods side by side: means with intervals, differences to a baseline, and their significance, in three formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from math import isnan
from typing import Any, Literal, NamedTuple, TypeAlias, final, get_args

import numpy as np

from clickprism._util.tables import Table, as_text, html_table
from clickprism.errors import DataError, SettingError
from clickprism.evaluation.measures import Empty, Evaluation, Measure
from clickprism.evaluation.significance import RESAMPLES, PairedTest, holm, intervals, paired_randomisation, paired_t
from clickprism.settings import suggest
from clickprism.types import Float64, Text

Test: TypeAlias = Literal["t", "randomisation"]
Verdict: TypeAlias = Literal["better", "worse", ""]

TEST_NAMES = {"t": "paired t-test", "randomisation": "paired randomisation test"}
EMPTY_NAMES = {"drop": "are dropped", "zero": "count as 0", "one": "count as 1"}
SIGNS = {"better": "▲", "worse": "▼", "": ""}
_MARKDOWN = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_|<[]"})


class Form(NamedTuple):
    """How a format writes texts, the best mean, and the sign of a verdict."""

    quote: Callable[[str], str]
    best: str
    sign: str


PLAIN = Form(str, "{} *", " {}")
MARKDOWN = Form(lambda text: text.translate(_MARKDOWN), "**{}**", " {}")
HTML = Form(escape, "<strong>{}</strong>", ' <span class="mark">{}</span>')


@final
@dataclass(frozen=True)
class Row:
    """One method under one measure; fields about the baseline are None without a baseline."""

    method: str
    measure: str
    mean: float  # over queries, each averaged over runs
    low: float  # lower end of the interval of the mean; NaN if fewer than two queries count
    high: float  # upper end
    difference: float | None = None  # mean minus that of the baseline
    difference_low: float | None = None  # lower end of the interval of the paired difference
    difference_high: float | None = None  # upper end
    p_value: float | None = None  # of the paired test, not corrected
    p_corrected: float | None = None  # corrected by Holm over all methods compared under this measure
    verdict: Verdict = ""  # whether it is significantly better or worse than the baseline
    best: bool = False  # whether no method has a better mean, apart from those for reference


@final
@dataclass(frozen=True)
class Comparison:
    """All rows, and the facts needed to read them; `tables` renders them."""

    rows: tuple[Row, ...]  # measure by measure, the methods in the order given
    queries: Mapping[str, int]  # number of queries that each measure counts
    dropped: Mapping[str, int]  # number of queries that each measure excludes
    runs: Mapping[str, int]  # number of evaluations (seeds, folds) of each method
    data: str  # what was ranked
    seeds: tuple[int, ...]  # of the runs
    baseline: str | None  # method that the others are compared with
    reference: tuple[str, ...]  # methods that cannot be the best, as they use the grades or the true observation
    empty: Empty  # what queries without a relevant document count
    confidence: float  # of the intervals; a difference is significant at 1 - confidence
    test: Test
    resamples: int  # of the bootstrap
    seed: int  # of the bootstrap and of the randomisation test
    remark: str = ""  # what else a reader must know, a sentence without its full stop

    def __str__(self) -> str:
        """Return the tables as plain text."""
        return as_text(self.tables()) + "\n"

    def tables(self) -> list[Table]:
        """Return one table for each measure, and the notes below them."""
        tables = [Table("", *_grid(self, measure, PLAIN)) for measure in self.measures]
        return [*tables, Table("", ["Notes"], [[note] for note in (*self.notes, "* best")])]

    @property
    def measures(self) -> tuple[str, ...]:
        """Return the names of the measures, in order."""
        return tuple(self.queries)

    def of(self, measure: Measure | str) -> tuple[Row, ...]:
        """Return the rows of one measure."""
        return tuple(row for row in self.rows if row.measure == str(measure))

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what every rendering says below the numbers: data, seeds, empty queries, tests, correction."""
        seeds = f"seeds {', '.join(map(str, self.seeds))}" if self.seeds else "seeds not stated"
        counts = sorted(set(self.runs.values()))
        runs = f"{counts[0]} run{'s' * (counts[0] > 1)} per method"
        if len(counts) > 1:
            runs = "runs: " + ", ".join(f"{method} {count}" for method, count in self.runs.items())
        groups: dict[tuple[int, int], list[str]] = {}
        for measure, count in self.queries.items():
            name = measure if Measure.parse(measure).higher_is_better else f"{measure} (lower is better)"
            groups.setdefault((count, self.dropped[measure]), []).append(name)
        scope = "; ".join(
            f"{', '.join(names)} over {count} queries" + (f", {left_out} excluded" if left_out else "")
            for (count, left_out), names in groups.items()
        )
        notes = [
            f"Data: {self.data}; {seeds}; {runs}.",
            f"{scope}. Queries without a relevant document {EMPTY_NAMES[self.empty]}.",
            f"Brackets: {self.confidence:.0%} intervals, BCa bootstrap over queries ({self.resamples} resamples, "
            f"seed {self.seed}); the unit of analysis is the query, averaged over runs.",
        ]
        if self.baseline is not None:
            others = len(self.runs) - 1
            notes.append(
                f"▲ better, ▼ worse than {self.baseline}: two-sided {TEST_NAMES[self.test]}, "
                f"p < {1 - self.confidence:.3g} after Holm's correction over {others} "
                f"comparison{'s' * (others != 1)} per measure."
            )
        if self.reference:
            names = ", ".join(self.reference)
            notes.append(f"For reference only, as they use the grades or the true observation: {names}.")
        if self.remark:
            notes.append(f"{self.remark}.")
        return tuple(notes)


def compare(
    evaluations: Mapping[str, Evaluation | Sequence[Evaluation]],
    *,
    baseline: str | None = None,
    measures: Sequence[Measure | str] | None = None,
    reference: Sequence[str] = (),
    confidence: float = 0.95,
    test: Test = "t",
    resamples: int = RESAMPLES,
    seed: int = 0,
    data: str = "not stated",
    seeds: Sequence[int] = (),
    remark: str = "",
) -> Comparison:
    """Compare methods on the same queries.

    A method has one evaluation or several, over seeds or folds; they are joined by query id, and each query counts
    once, with the mean over the runs that have it. Every method must cover the same queries. Ids must be unique over
    folds: different queries that share one, such as unnamed lists numbered from 1 in every fold, would be averaged.

    Args:
        evaluations: Evaluations by method; the order is kept.
        baseline: Method to compare the others with; None for means and intervals only.
        measures: Measures to compare; by default all that the first method has.
        reference: Methods that cannot be the best, as they use the grades or the true observation.
        confidence: Confidence level of the intervals; differences are significant at 1 - confidence.
        test: "t" or "randomisation".
        resamples: Number of bootstrap samples.
        seed: Random seed of bootstrap and randomisation.
        data: Name of the data, for the reader.
        seeds: Random seeds of the runs, for the reader.
        remark: What else the reader must know of the numbers.
    """
    runs = {
        name: [several] if isinstance(several, Evaluation) else list(several) for name, several in evaluations.items()
    }
    _check(runs, baseline, reference, test)
    first = next(iter(runs.values()))[0]
    wanted = first.measures if measures is None else [first.named(measure) for measure in measures]
    rows: list[Row] = []
    queries: dict[str, int] = {}
    dropped: dict[str, int] = {}
    for measure in dict.fromkeys(wanted):
        table = _table(runs, measure)
        kept = table[~np.isnan(table).any(axis=1)]
        queries[str(measure)], dropped[str(measure)] = len(kept), len(table) - len(kept)
        bounds = partial(intervals, confidence=confidence, resamples=resamples, seed=seed)
        p_value = paired_t if test == "t" else partial(paired_randomisation, seed=seed)
        given: Any = {"baseline": baseline, "reference": reference, "level": 1 - confidence}
        rows += _rows(kept, list(runs), measure, intervals_of=bounds, test=p_value, **given)
    return Comparison(
        rows=tuple(rows),
        queries=queries,
        dropped=dropped,
        runs={name: len(several) for name, several in runs.items()},
        data=data,
        seeds=tuple(seeds),
        baseline=baseline,
        reference=tuple(reference),
        empty=first.empty,
        confidence=confidence,
        test=test,
        resamples=resamples,
        seed=seed,
        remark=remark,
    )


def _check(runs: Mapping[str, list[Evaluation]], baseline: str | None, reference: Sequence[str], test: str) -> None:
    if not runs:
        raise DataError("there is nothing to compare: no method was given")
    for name, several in runs.items():
        if not several:
            raise DataError(f"{name} has no evaluation")
    for name in [*reference, *([] if baseline is None else [baseline])]:
        if name not in runs:
            raise SettingError(
                "baseline" if name == baseline else "reference", name, f"be a method ({suggest(name, runs)})"
            )
    if test not in get_args(Test):
        raise SettingError("test", test, f"be one of {', '.join(get_args(Test))}")
    rules = {evaluation.empty for several in runs.values() for evaluation in several}
    if len(rules) > 1:
        problem = f"the methods count queries without a relevant document differently: {', '.join(sorted(rules))}"
        raise DataError(problem, remedy="Evaluate all with the same rule")


def _table(runs: Mapping[str, list[Evaluation]], measure: Measure) -> Float64:
    """Return each query's value under each method, the mean over runs, [queries, methods], in the first one's order."""
    columns: list[Float64] = []
    known: Text | None = None
    order = np.empty(0, dtype=np.int64)
    for name, several in runs.items():
        ids = np.concatenate([_unique(evaluation.query_ids) for evaluation in several])
        values = np.concatenate([evaluation[measure] for evaluation in several])
        found, first, place = np.unique(ids, return_index=True, return_inverse=True)
        if known is None:
            known, order = found, np.argsort(first)
        elif not np.array_equal(known, found):
            odd = np.setxor1d(known, found)
            problem = (
                f"{name} and {next(iter(runs))} were evaluated on different queries: {odd[0]!s} and {len(odd) - 1} more"
            )
            raise DataError(problem, remedy="Evaluate every method on the same lists")
        counts = ~np.isnan(values)
        times = np.bincount(place, weights=counts)
        total = np.bincount(place, weights=np.where(counts, values, 0))
        columns.append(np.where(times > 0, total / np.maximum(times, 1), np.nan))
    return np.stack(columns, axis=1)[order]


def _unique(ids: Text) -> Text:
    """Return the ids, made different if an evaluation has several lists of one id."""
    found, place, times = np.unique(ids, return_inverse=True, return_counts=True)
    if len(found) == len(ids):
        return ids
    order = np.argsort(place, kind="stable")
    again = np.empty(len(ids), dtype=np.int64)
    again[order] = np.arange(len(ids)) - np.repeat(np.cumsum(times) - times, times)
    return np.array([f"{name}#{time}" if time else name for name, time in zip(ids, again, strict=True)])


def _rows(
    table: Float64,
    methods: list[str],
    measure: Measure,
    *,
    baseline: str | None,
    reference: Sequence[str],
    intervals_of: Callable[[Float64], tuple[Float64, Float64]],
    test: Callable[[Float64, Float64], PairedTest],
    level: float,
) -> list[Row]:
    """Return the rows of one measure; `table` has the value of each query under each method, [queries, methods]."""
    base = None if baseline is None else methods.index(baseline)
    means = table.mean(axis=0) if len(table) else np.full(len(methods), np.nan)
    gaps = np.zeros_like(table) if base is None else table - table[:, [base]]
    lows, highs = intervals_of(np.concatenate([table, gaps], axis=1))
    compared = [base is not None and each != base for each in range(len(methods))]
    p_values = np.array(
        [test(table[:, i], table[:, base]).p_value if compared[i] else np.nan for i in range(len(methods))]
    )
    corrected, sign = holm(p_values), 1 if measure.higher_is_better else -1
    rivals = [sign * mean for mean, method in zip(means, methods, strict=True) if method not in reference]
    top = max((rival for rival in rivals if not np.isnan(rival)), default=np.nan)
    rows = []
    for i, method in enumerate(methods):
        best = method not in reference and sign * float(means[i]) == float(top)
        row = Row(method, str(measure), float(means[i]), float(lows[i]), float(highs[i]), best=best)
        if base is not None and compared[i]:
            gap = float(means[i] - means[base])
            better: Verdict = "better" if sign * gap > 0 else "worse"
            row = replace(
                row,
                difference=gap,
                difference_low=float(lows[len(methods) + i]),
                difference_high=float(highs[len(methods) + i]),
                p_value=float(p_values[i]),
                p_corrected=float(corrected[i]),
                verdict=better if corrected[i] < level else "",
            )
        rows.append(row)
    return rows


def as_markdown(comparison: Comparison) -> str:
    """Return GitHub's Markdown, a table a measure; the best in bold."""
    parts = []
    for measure in comparison.measures:
        header, rows = _grid(comparison, measure, MARKDOWN)
        rule = [":---", *["---:"] * (len(header) - 1)]
        lines = [[MARKDOWN.quote(name) for name in header], rule, *rows]
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join([*parts, "\n".join(f"- {MARKDOWN.quote(note)}" for note in comparison.notes)]) + "\n"


def as_html(comparison: Comparison) -> str:
    """Return HTML tables with captions and row headers; the best in `<strong>`. Everything is escaped."""
    parts = [html_table(measure, *_grid(comparison, measure, HTML)) for measure in comparison.measures]
    notes = "\n".join(f"<li>{escape(note)}</li>" for note in comparison.notes)
    return "\n".join([*parts, f'<ul class="notes">\n{notes}\n</ul>']) + "\n"


def _grid(comparison: Comparison, measure: str, form: Form) -> tuple[list[str], list[list[str]]]:
    """Return the header, and the cells of each method: mean with sign, interval, difference, its interval, p."""
    level, baseline = f"{comparison.confidence:.0%} interval", comparison.baseline
    header, rows = ["method", measure, level], []
    if baseline is not None:
        header += [f"vs {baseline}", level, "p (Holm)"]
    for row in comparison.of(measure):
        mean = form.best.format(number(row.mean)) if row.best else number(row.mean)
        if row.verdict:
            mean += form.sign.format(SIGNS[row.verdict])
        cells = [form.quote(row.method), mean, form.quote(bounds(row.low, row.high))]
        if row.difference is not None and row.p_corrected is not None:
            span = bounds(row.difference_low, row.difference_high, signed=True)
            cells += [number(row.difference, signed=True), form.quote(span), form.quote(p_text(row.p_corrected))]
        elif baseline is not None:
            cells += ["baseline", "", ""]
        rows.append(cells)
    return header, rows


def number(value: float, *, signed: bool = False) -> str:
    """Return a number with four decimals, with a sign if it is a difference; n/a for NaN."""
    return "n/a" if isnan(value) else f"{value:+.4f}" if signed else f"{value:.4f}"


def bounds(low: float | None, high: float | None, *, signed: bool = False) -> str:
    """Return an interval in brackets; n/a if there is none."""
    return (
        "n/a"
        if low is None or high is None or isnan(low)
        else f"[{number(low, signed=signed)}, {number(high, signed=signed)}]"
    )


def p_text(value: float) -> str:
    """Return a p value with three decimals, or <0.001.

    >>> p_text(0.0123), p_text(1e-9)
    ('0.012', '<0.001')
    """
    return "n/a" if isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"
