"""Methods side by side: means with intervals, differences to a baseline, and their significance, in four formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isnan
from typing import Literal, TypeAlias, final, get_args

import numpy as np

from clickprism._util.tables import Table, html_table
from clickprism._util.tables import as_text as plain_text
from clickprism.errors import DataError, SettingError
from clickprism.evaluation.measures import Empty, Evaluation, Measure
from clickprism.evaluation.significance import RESAMPLES, holm, intervals, paired_randomisation, paired_t
from clickprism.settings import suggest
from clickprism.types import Float64, Text

Test: TypeAlias = Literal["t", "randomisation"]

TEST_NAMES = {"t": "paired t-test", "randomisation": "paired randomisation test"}
EMPTY_NAMES = {"drop": "are dropped", "zero": "count as 0", "one": "count as 1"}
MARKS = {"better": "▲", "worse": "▼", "": ""}
LATEX_MARKS = {"better": "$^{+}$", "worse": "$^{-}$", "": ""}
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "▲": "$+$",
    "▼": "$-$",
}


@final
@dataclass(frozen=True)
class Row:
    """One method under one measure; what concerns the baseline is None where there is none to compare with."""

    method: str  # Its name
    measure: str  # Its name
    mean: float  # Over queries, each averaged over runs
    low: float  # Lower end of the mean's interval; NaN where fewer than two queries count
    high: float  # Upper end
    difference: float | None  # Mean minus the baseline's
    difference_low: float | None  # Lower end of the paired difference's interval
    difference_high: float | None  # Upper end
    p_value: float | None  # Of the paired test, uncorrected
    p_corrected: float | None  # By Holm, over all methods compared under this measure
    verdict: Literal["better", "worse", ""]  # "better" or "worse" than the baseline where that is significant, else ""
    best: bool  # Whether no method in competition has a better mean


@final
@dataclass(frozen=True)
class Comparison:
    """All rows, and all that one must know to read them; `tables` renders it."""

    rows: tuple[Row, ...]  # Measure by measure, the methods in the order given
    queries: Mapping[str, int]  # How many queries each measure counts
    dropped: Mapping[str, int]  # How many queries each measure leaves out
    runs: Mapping[str, int]  # How many evaluations (seeds, folds) each method has
    data: str  # What was ranked
    seeds: tuple[int, ...]  # Of the runs
    baseline: str | None  # The method that the others are compared with, if any
    # Methods that are shown but cannot be the best, as they use the grades or the true observation
    reference: tuple[str, ...]
    empty: Empty  # What queries without a relevant document count
    confidence: float  # Of the intervals; a difference is significant at 1 - confidence
    test: Test  # Which paired test
    resamples: int  # Of the bootstrap
    seed: int  # Of the bootstrap and of the randomisation test
    remark: str = ""  # What else one must know of the numbers, a sentence without its full stop; empty for nothing

    def __str__(self) -> str:
        """The table as plain text."""
        return as_text(self)

    def tables(self) -> list[Table]:
        """Return one table for each measure, and the notes below them."""
        tables = []
        for measure in self.measures:
            header, rows = _grid(self, measure, best=lambda text: f"{text} *", mark=_mark)
            tables.append(Table("", header, rows))
        return [*tables, Table("", ["Notes"], [[note] for note in (*self.notes, "* best")])]

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the measures, in order."""
        return tuple(self.queries)

    def of(self, measure: Measure | str) -> tuple[Row, ...]:
        """The rows of one measure."""
        return tuple(row for row in self.rows if row.measure == str(measure))

    @property
    def notes(self) -> tuple[str, ...]:
        """What every rendering says below the numbers: data, seeds, rule for empty queries, tests, correction."""
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
        evaluations: by method; the order is kept.
        baseline: the method to compare the others with; None for means and intervals only.
        measures: which to compare; all that the first method has by default.
        reference: methods that cannot be the best, as they use the grades or the true observation.
        confidence: of the intervals; differences are significant at 1 - confidence.
        test: "t" or "randomisation".
        resamples: of the bootstrap.
        seed: of bootstrap and randomisation.
        data: the name of the data, for the reader.
        seeds: the seeds of the runs, for the reader.
        remark: what else the reader must know of the numbers.
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
        rows += _rows(
            kept,
            list(runs),
            measure,
            baseline=baseline,
            reference=reference,
            confidence=confidence,
            test=test,
            resamples=resamples,
            seed=seed,
        )
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
    """The value of each query under each method, averaged over runs, [queries, methods]; the first method's order."""
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
    """The ids, made different where an evaluation has several lists of one id."""
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
    confidence: float,
    test: Test,
    resamples: int,
    seed: int,
) -> list[Row]:
    against = None if baseline is None else methods.index(baseline)
    means = table.mean(axis=0) if len(table) else np.full(len(methods), np.nan)
    gaps = np.zeros_like(table) if against is None else table - table[:, [against]]
    both = np.concatenate([table, gaps], axis=1)
    lows, highs = intervals(both, confidence=confidence, resamples=resamples, seed=seed)
    p_values = np.full(len(methods), np.nan)
    for i in range(len(methods)):
        if against is not None and i != against:
            pair = table[:, i], table[:, against]
            p_values[i] = (paired_t(*pair) if test == "t" else paired_randomisation(*pair, seed=seed)).p_value
    corrected = holm(p_values)
    sign = 1 if measure.higher_is_better else -1
    rivals = [sign * mean for mean, method in zip(means, methods, strict=True) if method not in reference]
    top = max((rival for rival in rivals if not np.isnan(rival)), default=np.nan)
    rows = []
    for i, method in enumerate(methods):
        compared = against is not None and i != against
        gap = float(means[i] - means[against]) if against is not None else 0.0
        verdict: Literal["better", "worse", ""] = ""
        if compared and corrected[i] < 1 - confidence:
            verdict = "better" if sign * gap > 0 else "worse"
        rows.append(
            Row(
                method=method,
                measure=str(measure),
                mean=float(means[i]),
                low=float(lows[i]),
                high=float(highs[i]),
                difference=gap if compared else None,
                difference_low=float(lows[len(methods) + i]) if compared else None,
                difference_high=float(highs[len(methods) + i]) if compared else None,
                p_value=float(p_values[i]) if compared else None,
                p_corrected=float(corrected[i]) if compared else None,
                verdict=verdict,
                best=method not in reference and sign * float(means[i]) == float(top),
            )
        )
    return rows


def as_text(comparison: Comparison) -> str:
    """Return plain text with aligned columns."""
    return plain_text(comparison.tables()) + "\n"


def as_markdown(comparison: Comparison) -> str:
    """GitHub's Markdown, a table a measure; the best in bold."""
    parts = []
    for measure in comparison.measures:
        header, rows = _grid(comparison, measure, best=lambda text: f"**{text}**", quote=_markdown, mark=_mark)
        rule = [":---", *["---:"] * (len(header) - 1)]
        parts.append(
            "\n".join("| " + " | ".join(line) + " |" for line in [[_markdown(h) for h in header], rule, *rows])
        )
    return "\n\n".join([*parts, "\n".join(f"- {_markdown(note)}" for note in comparison.notes)]) + "\n"


def as_html(comparison: Comparison) -> str:
    """HTML tables with captions and row headers, for any page; the best in `<strong>`. Everything is escaped."""
    parts = []
    for measure in comparison.measures:
        header, rows = _grid(
            comparison, measure, best=lambda text: f"<strong>{text}</strong>", quote=escape, mark=_html_mark
        )
        parts.append(html_table(measure, header, rows))
    notes = "\n".join(f"<li>{escape(note)}</li>" for note in comparison.notes)
    return "\n".join([*parts, f'<ul class="notes">\n{notes}\n</ul>']) + "\n"


def as_latex(comparison: Comparison) -> str:
    """One LaTeX table, methods by measures, for the booktabs package: the best in bold, + or - against the baseline."""
    methods = list(comparison.runs)
    columns = [{row.method: row for row in comparison.of(measure)} for measure in comparison.measures]
    lines = [
        " & ".join([_latex(method), *[_latex_cell(column[method]) for column in columns]]) + r" \\"
        for method in methods
    ]
    head = " & ".join(["Method", *[_latex(measure) for measure in comparison.measures]]) + r" \\"
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{' '.join(_latex(note) for note in comparison.notes)}}}",
            rf"\begin{{tabular}}{{l{'l' * len(columns)}}}",
            r"\toprule",
            head,
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _grid(
    comparison: Comparison,
    measure: str,
    *,
    best: Callable[[str], str],
    quote: Callable[[str], str] = str,
    mark: Callable[[str], str],
) -> tuple[list[str], list[list[str]]]:
    """The header, and the cells of each method: mean with mark, interval, difference, its interval, p."""
    level = f"{comparison.confidence:.0%} interval"
    header = ["method", measure, level]
    if comparison.baseline is not None:
        header += [f"vs {comparison.baseline}", level, "p (Holm)"]
    rows = []
    for row in comparison.of(measure):
        mean = best(number(row.mean)) if row.best else number(row.mean)
        if comparison.baseline is not None:
            mean = f"{mean}{mark(MARKS[row.verdict])}"
        cells = [quote(row.method), mean, quote(bounds(row.low, row.high))]
        rows.append(cells if comparison.baseline is None else cells + _against(row, quote))
    return header, rows


def _mark(sign: str) -> str:
    return f" {sign}" if sign else ""


def _html_mark(sign: str) -> str:
    return f' <span class="mark">{sign}</span>'


def _against(row: Row, quote: Callable[[str], str]) -> list[str]:
    if row.difference is None or row.difference_low is None or row.difference_high is None or row.p_corrected is None:
        return ["baseline", "", ""]
    span = bounds(row.difference_low, row.difference_high, signed=True)
    return [number(row.difference, signed=True), quote(span), quote(p_text(row.p_corrected))]


def number(value: float, *, signed: bool = False) -> str:
    """Four decimals, with a sign where it is a difference; n/a for NaN."""
    return "n/a" if isnan(value) else f"{value:+.4f}" if signed else f"{value:.4f}"


def bounds(low: float, high: float, *, signed: bool = False) -> str:
    """An interval in brackets; n/a where there is none."""
    return "n/a" if isnan(low) else f"[{number(low, signed=signed)}, {number(high, signed=signed)}]"


def p_text(value: float) -> str:
    """A p value to three decimals; below that, < .001.

    >>> p_text(0.0123), p_text(1e-9)
    ('0.012', '<0.001')
    """
    return "n/a" if isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def _markdown(text: str) -> str:
    for special in "\\`*_|<[]":
        text = text.replace(special, "\\" + special)
    return text


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _latex_cell(row: Row) -> str:
    mean = rf"\textbf{{{number(row.mean)}}}" if row.best else number(row.mean)
    return rf"{mean}{LATEX_MARKS[row.verdict]} {{\scriptsize {bounds(row.low, row.high)}}}"
