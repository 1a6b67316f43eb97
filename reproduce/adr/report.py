"""What a run leaves behind: summary.json, figures, one page, and a few lines for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clickprism._util.tables import Table
from reproduce.adr.config import CANDIDATES, LEADING, MEASURES
from reproduce.adr.expected import PAPER
from reproduce.adr.figures import figures_of
from reproduce.adr.rows import ALL, LOST, Results, Row, titled
from reproduce.adr.worlds import BUCKETS
from reproduce.common.page import leave

LEGEND = "± over draws; + or - for p < .05, ++ or -- for p < .005, paired over queries; [the paper's figure]"


def write_all(results: Results, rows: Sequence[Row], expected: Sequence[Mapping[str, Any]], *, seconds: float) -> Path:
    """Write summary.json, figures/ and report.html into the folder of the runs; returns the page's path."""
    return leave(
        results.plan.out,
        rows,
        title="Approximated Doubly Robust Search Relevance Estimation (Zou et al. 2022), run again",
        summary=summary(results),
        tables=tables(rows, expected),
        figures=figures_of(results, rows),
        settings=asdict(results.plan.size),
        seconds=seconds,
    )


def summary(results: Results) -> list[str]:
    """What the reader has to know."""
    head, middle, tail = results.plan.size.queries
    return [
        f"Data: {results.plan.data}, {len(results.plan.size.seeds)} draws. A year of simulated searches, 13 months of "
        f"four weeks, over {head} head queries (600 to 60,000 searches a month), {middle} middle ones (10 to 600) and "
        f"{tail} tail ones (1 to 10). Users have position and trust bias; 5 % of the searches have "
        "a random candidate in the first slot. The imputation learns from the first slots of the first seven months, "
        "the approximation from those of the last six, by click vectors as of the end of the seventh. All are judged "
        "by the true grades of all candidates, at the end of the year; offline estimators count the last month.",
        LEGEND + ". The paper's figures are of other data: compare signs and orders, not columns.",
    ]


def _paper(expected: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], float]:
    return {
        (row["table"], row["bucket"], row["method"], row["measure"]): row["paper"]
        for row in expected
        if row["data"] == PAPER and row["paper"] is not None
    }


def tables(rows: Sequence[Row], expected: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each table as HTML."""
    paper = _paper(expected)
    places = list(dict.fromkeys((row.bucket, row.measure) for row in rows if row.table == "table 2"))
    made = _across(rows, paper, "table 2", places, "Table 2, all queries")
    relative = next((row.measure for row in rows if row.table == "table 4"), "")
    made += _across(rows, paper, "table 4", [(bucket, relative) for bucket in BUCKETS], f"Table 4, {relative}")
    places = list(dict.fromkeys((row.bucket, row.measure) for row in rows if row.table == "table 3"))
    made += _across(rows, paper, "table 3", places, "Table 3, a simulated A/B test")
    made += _across(rows, paper, "methods", [(bucket, LEADING) for bucket in (*BUCKETS, ALL)], f"{LEADING} by bucket")
    made += _across(rows, paper, "methods", [(ALL, measure) for measure in MEASURES], "All measures, all queries")
    places = list(dict.fromkeys((row.bucket, row.measure) for row in rows if row.table == "good same bad"))
    made += _across(rows, paper, "good same bad", places, "Good, same, bad against the ranker of Table 3")
    made += _across(
        rows, paper, "section 7.8", [(ALL, "AUC, labels"), (ALL, "AUC, truth")], "§7.8, the examination model"
    )
    made += [_costs(rows, how) for how in ("uniform", "thompson") if any(row.table == f"costs, {how}" for row in rows)]
    if found := [row for row in rows if row.table == "bars"]:
        body = [[row.bucket, f"{row.method} {row.measure}", figure(row), f"{row.at:+g} %", row.mark] for row in found]
        made.append(Table("Bars", ["", "", "here", "at least", ""], body).html())
    return made


def _across(
    rows: Sequence[Row],
    paper: Mapping[tuple[Any, ...], float],
    table: str,
    places: Sequence[tuple[str, str]],
    title: str,
) -> list[str]:
    """Methods down, places (bucket, measure) across; nothing where there are no rows."""
    mine = {(row.method, row.bucket, row.measure): row for row in rows if row.table == table}
    if not mine:
        return []
    several = len({bucket for bucket, _ in places}) > 1
    head = ["", *(f"{bucket}: {measure}" if several else measure for bucket, measure in places)]
    body = []
    for method in dict.fromkeys(method for method, *_ in mine):
        cells = [titled(method)]
        for bucket, measure in places:
            row, theirs = mine.get((method, bucket, measure)), paper.get((table, bucket, method, measure))
            text = "" if row is None else figure(row)
            cells.append(text + ("" if theirs is None else f" [{theirs:+.2f}]"))
        body.append(cells)
    return [Table(title, head, body).html()]


def _costs(rows: Sequence[Row], how: str) -> str:
    mine = [row for row in rows if row.table == f"costs, {how}"]
    places = list(dict.fromkeys((row.method, row.bucket) for row in mine if row.measure == LEADING))
    found = {(row.at, row.method, row.bucket): row for row in mine}
    body = []
    for share in sorted({row.at or 0.0 for row in mine}):
        lost = found.get((share, "exploration", ALL))
        cells = [f"{100 * share:g} %", "" if lost is None else f"{lost.mean:.3f}"]
        cells += ["" if (row := found.get((share, *place))) is None else figure(row) for place in places]
        body.append(cells)
    head = ["share explored", LOST, *(f"{bucket}: {method}" for method, bucket in places)]
    return Table(f"What exploration costs and buys, {how}; {LEADING}", head, body).html()


def figure(row: Row) -> str:
    """A cell: mean, standard error, mark."""
    relative = "%" in row.measure and not row.measure.startswith(("good", "same", "bad", "first"))
    digits = 2 if relative or row.mean >= 2 else 3
    error = "" if row.se is None else f" ± {row.se:.{digits}f}"
    mark = f" {row.mark}" if row.mark and row.table != "bars" else ""
    return (f"{row.mean:+.{digits}f}" if relative else f"{row.mean:.{digits}f}") + error + mark


def as_text(rows: Sequence[Row]) -> str:
    """The leading measure by bucket, Table 3 and the bars, for a terminal."""
    lines = [f"{LEADING:34} {'head':>16} {'middle':>16} {'tail':>16} {'all':>16}"]
    found = {(row.method, row.bucket): row for row in rows if row.table == "methods" and row.measure == LEADING}
    known = [method for method in CANDIDATES if (method, ALL) in found]
    lines += [f"{name:34} " + " ".join(f"{figure(found[name, b]):>16}" for b in (*BUCKETS, ALL)) for name in known]
    for name in ("table 3", "section 7.8", "bars"):
        mine = [row for row in rows if row.table == name]
        if mine:
            lines += ["", name.capitalize()]
            lines += [f"  {row.bucket:7} {row.method:32} {row.measure:42} {figure(row)}{_bar(row)}" for row in mine]
    return "\n".join([*lines, "", LEGEND])


def _bar(row: Row) -> str:
    return f"  at least {row.at:+g}: {row.mark}" if row.table == "bars" else ""
