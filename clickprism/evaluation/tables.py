"""A comparison as a table: plain text, Markdown, LaTeX and HTML, all from the same value."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from math import isnan

from clickprism._util.tables import Table, html_table
from clickprism._util.tables import as_text as plain_text
from clickprism.evaluation.compare import Comparison, Row

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


def text_tables(comparison: Comparison) -> list[Table]:
    """Return one table for each measure, the best method marked with a star, and the notes."""
    tables = []
    for measure in comparison.measures:
        header, rows = _grid(comparison, measure, best=lambda text: f"{text} *", mark=_mark)
        tables.append(Table("", header, rows))
    return [*tables, Table("", ["Notes"], [[note] for note in (*comparison.notes, "* best")])]


def as_text(comparison: Comparison) -> str:
    """Return plain text with aligned columns."""
    return plain_text(text_tables(comparison)) + "\n"


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
