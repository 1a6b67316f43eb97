"""What a run leaves behind: summary.json, figures, one page, and a few lines for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clickprism._util.tables import Table
from reproduce.common.page import HOW_TO_READ, LEGEND, cell, leave
from reproduce.inforank.config import BESIDE, CANDIDATES, LEADING, PAPER_RANKERS, TABLES, measures
from reproduce.inforank.figures import NAMES, figures_of
from reproduce.inforank.rows import DISTANCE, GAP, Results, Row

PAPER_DATA = {"yahoo": "Yahoo!", "mq2007": "LETOR", "adressa": "Adressa"}


def write_all(results: Results, rows: Sequence[Row], expected: Sequence[Mapping[str, Any]], *, seconds: float) -> Path:
    """Write summary.json, figures/ and report.html into the folder of the runs; returns the page's path."""
    return leave(
        results.out,
        rows,
        title="InfoRank (Jin et al. 2024), run again",
        summary=summary(results),
        tables=tables(results, rows, expected),
        figures=figures_of(results, rows),
        settings=asdict(results.plan.size),
        seconds=seconds,
    )


def summary(results: Results) -> list[str]:
    """What the reader has to know."""
    size = results.plan.size
    return [
        f"Data: {results.plan.data}. {len(size.seeds)} draws of the initial ranker, of the clicks and of the weights "
        f"at the start, {size.others} for methods of which nothing is claimed; {size.sessions} sessions a query; "
        f"networks train for {size.epochs} epochs or a share of them, of which the one counts under which held-out "
        "clicks are the most probable: no labels are needed for it. Tables named “best epoch” take the "
        "epoch that is best by labelled validation instead, those named “last epoch” the last. Trees are taken as they "
        "are in the end.",
        HOW_TO_READ,
        "InfoRank, as printed, is the preset inforank_paper: the attention of Eqs. 10 and 11 with tokens for position "
        "and o, two networks on its output, Adam; with the MLP, two networks whose first layers take position and o. "
        "The paper's figures stand beside ours where they are of the same table, in brackets where they are of other "
        "data.",
    ]


def tables(results: Results, rows: Sequence[Row], expected: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each table as HTML."""
    made = []
    for name in sorted(dict.fromkeys(row.table for row in rows), key=lambda name: "," in name):  # other epochs last
        mine = [row for row in rows if row.table == name]
        if name.split(",")[0] in TABLES:
            for user in dict.fromkeys(row.user for row in mine):
                paper = expected if name in TABLES else ()
                made.append(_methods(results, name, user, [row for row in mine if row.user == user], paper))
        elif name.startswith("claims"):
            made.append(_by_user(name.capitalize(), [row for row in mine if row.measure == LEADING]))
            if ratios := [row for row in mine if row.measure.startswith(GAP)]:
                made.append(_by_user("Delta-CI with the mutual information, as a share of that without", ratios))
        elif name.startswith("figure") and (far := [row for row in mine if row.measure == DISTANCE]):
            unit = "share of exposure" if name == "figure 5 left" else "positions"
            made.append(_by_user(f"{name.capitalize()}: distance to the labels' own curve, in {unit}", far))
    return made


def _methods(results: Results, name: str, user: str, rows: Sequence[Row], expected: Sequence[Mapping[str, Any]]) -> str:
    """Methods of each ranker down, measures across; the paper's figures of the same table after them."""
    data = results.plan.data
    beside = BESIDE.get(data, data)
    columns = measures(data)
    found = {(row.ranker, row.method, row.measure): row for row in rows}
    paper = {
        (row["ranker"], row["method"], row["measure"]): f"{row['paper']:.3f}{row['paper_mark']}"
        for row in expected
        if (row["table"], row["data"], row["user"]) == (name, beside, user) and row["paper"] is not None
    }
    printed = {measure for *_, measure in paper}
    theirs = [*(measure for measure in columns if measure in printed), *sorted(printed - set(columns))]
    head = ["", *columns]
    head += [f"paper, {PAPER_DATA[beside]}: {measure.replace('(exp)', '')}" for measure in theirs]
    body = []
    for ranker, label in dict.fromkeys((row.ranker, row.method) for row in rows):
        cells = [figure(found[ranker, label, measure]) for measure in columns]
        shown = [paper.get((ranker, label, measure), "") for measure in theirs]
        if beside != data:
            shown = [f"[{text}]" if text else "" for text in shown]
        body.append([f"{PAPER_RANKERS[ranker]}: {CANDIDATES[label].title}", *cells, *shown])
    return Table(f"{name.capitalize()}, {user.upper()}", head, body).html()


def _by_user(title: str, rows: Sequence[Row]) -> str:
    users = list(dict.fromkeys(row.user for row in rows))
    found = {(row.ranker, row.method, row.user): row for row in rows}
    body = []
    for ranker, method in dict.fromkeys((row.ranker, row.method) for row in rows):
        several = [found.get((ranker, method, user)) for user in users]
        body.append([f"{NAMES[ranker]}: {method}", *["" if row is None else figure(row) for row in several]])
    return Table(title, ["", *[user.upper() for user in users]], body).html()


def figure(row: Row) -> str:
    """A cell: mean, standard error, interval of a claim, mark."""
    claim = row.table.startswith("claims")
    return cell(row, signed=claim and row.measure == LEADING, interval=(row.low, row.high) if claim else None)


def as_text(rows: Sequence[Row]) -> str:
    """The leading measure of the tables, and the claims, for a terminal."""
    lines = []
    for name in (*TABLES, "claims"):
        mine = [row for row in rows if row.table == name and (name == "claims" or row.measure == LEADING)]
        if mine:
            lines += ["", f"{name.capitalize()}, {LEADING}"]
            for row in mine:
                what = "" if row.measure == LEADING else f" {row.measure}"
                lines.append(f"  {row.user:4} {NAMES[row.ranker]:17} {row.method:28} {figure(row)}{what}")
    return "\n".join([*lines, "", LEGEND]).strip()
