"""A comparison as a table: for the terminal, plain text, Markdown, LaTeX, HTML and JSON, all from the same value."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from math import isnan
from typing import TYPE_CHECKING, Any

from clickprism._util.tables import html_table
from clickprism.evaluation.compare import Comparison, Row
from clickprism.evaluation.measures import Measure

if TYPE_CHECKING:
    from rich.console import Group

MARKS = {"better": "▲", "worse": "▼", "": ""}
NO_BREAK = "\u00a0"
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


def as_text(comparison: Comparison) -> str:
    """Plain text with aligned columns, a table a measure; the best is marked with a star."""
    parts = []
    for measure in comparison.measures:
        header, rows = _grid(comparison, measure, best=lambda text: f"{text} *", mark=_mark)
        widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
        lines = [_aligned(line, widths) for line in [header, *rows]]
        parts.append("\n".join([lines[0], "-" * len(lines[0]), *lines[1:]]))
    return "\n\n".join([*parts, "\n".join([*comparison.notes, "* best"])]) + "\n"


def as_rich(comparison: Comparison) -> Group:
    """For the terminal, through rich: the best in bold."""
    from rich.console import Group
    from rich.markup import escape as plain
    from rich.table import Table
    from rich.text import Text

    parts: list[Table | Text] = []
    for measure in comparison.measures:
        header, rows = _grid(
            comparison,
            measure,
            best=lambda text: f"[bold]{text}[/bold]",
            quote=plain,
            mark=lambda sign: f" {sign or NO_BREAK}",
        )
        table = Table(box=None, pad_edge=False, header_style="bold")
        for i, name in enumerate(header):
            table.add_column(plain(name), justify="left" if i == 0 else "right", no_wrap=i == 0)
        for row in rows:
            table.add_row(*row)
        parts += [table, Text()]
    return Group(*parts, Text("\n".join(comparison.notes), style="dim"))


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
        parts.append(html_table(str(measure), header, rows))
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
    head = " & ".join(["Method", *[_latex(str(measure)) for measure in comparison.measures]]) + r" \\"
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


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """What JSON holds: the first measure's methods at the top, then what one must know, then the other measures.

    NaN becomes None.
    """
    first, *others = [_measured(comparison, measure) for measure in comparison.measures]
    return first | {
        "data": comparison.data,
        "seeds": list(comparison.seeds),
        "runs": dict(comparison.runs),
        "empty": comparison.empty,
        "baseline": comparison.baseline,
        "reference": list(comparison.reference),
        "confidence": comparison.confidence,
        "interval": "bca",
        "resamples": comparison.resamples,
        "test": comparison.test,
        "correction": "holm",
        "unit": "query",
        "seed": comparison.seed,
        "note": comparison.remark or None,
        "others": others,
    }


def as_json(comparison: Comparison) -> str:
    """The comparison as a JSON object; see `as_dict`."""
    return json.dumps(as_dict(comparison), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _measured(comparison: Comparison, measure: Measure) -> dict[str, Any]:
    names = ("mean", "low", "high", "difference", "difference_low", "difference_high", "p_value", "p_corrected")
    methods: dict[str, Any] = {}
    for row in comparison.of(measure):
        values = {name: getattr(row, name) for name in names}
        known = {name: None if isnan(value) else value for name, value in values.items() if value is not None}
        methods[row.method] = known | {"verdict": row.verdict, "best": row.best}
    return {
        "measure": str(measure),
        "higher_is_better": measure.higher_is_better,
        "queries": comparison.queries[measure],
        "dropped": comparison.dropped[measure],
        "methods": methods,
    }


def _grid(
    comparison: Comparison,
    measure: Measure,
    *,
    best: Callable[[str], str],
    quote: Callable[[str], str] = str,
    mark: Callable[[str], str],
) -> tuple[list[str], list[list[str]]]:
    """The header, and the cells of each method: mean with mark, interval, difference, its interval, p."""
    level = f"{comparison.confidence:.0%} interval"
    header = ["method", str(measure), level]
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


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
    return "  ".join(cells).rstrip()


def _markdown(text: str) -> str:
    for special in "\\`*_|<[]":
        text = text.replace(special, "\\" + special)
    return text


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _latex_cell(row: Row) -> str:
    mean = rf"\textbf{{{number(row.mean)}}}" if row.best else number(row.mean)
    return rf"{mean}{LATEX_MARKS[row.verdict]} {{\scriptsize {bounds(row.low, row.high)}}}"
