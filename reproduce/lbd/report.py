"""What a run leaves behind: summary.json, figures, one page, and a few lines for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clickprism._util.tables import Table
from reproduce.common.page import HOW_TO_READ, LEGEND, cell, leave
from reproduce.lbd.config import CANDIDATES, LEADING, PAPER_NAMES, TABLE
from reproduce.lbd.figures import RANKERS, figures_of
from reproduce.lbd.rows import Results, Row

PAPER_DATA = {"yahoo": "Yahoo!", "istella-s": "Istella-S"}


def write_all(results: Results, rows: Sequence[Row], expected: Sequence[Mapping[str, Any]], *, seconds: float) -> Path:
    """Write summary.json, figures/ and report.html into the folder of the runs; returns the page's path."""
    plan = results.plan
    return leave(
        results.out,
        rows,
        title="LBD (Chen et al. 2022), run again",
        summary=[
            f"Data: {plan.data}. {len(plan.size.seeds)} draws of the coupling's weights, of the initial ranker and of "
            f"the clicks; {plan.size.sessions} sessions a query; {plan.size.epochs} epochs, of which the one counts "
            "under which held-out clicks are the most probable: no labels are needed for it. Tables named “best epoch” "
            "take the epoch that is best by labelled validation instead, those named “last epoch” the last.",
            HOW_TO_READ,
        ],
        tables=[*tables(rows, expected), *own_choices(results), realised(results)],
        figures=figures_of(results, rows),
        settings=asdict(plan.size),
        seconds=seconds,
    )


def tables(rows: Sequence[Row], expected: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each table as HTML."""
    made = []
    for name in dict.fromkeys(row.table for row in rows):
        mine = [row for row in rows if row.table == name]
        if name.startswith("table 1"):
            made.append(_methods(name, mine, expected if name == "table 1" else ()))
        elif name.startswith("table 4"):
            rankers = dict.fromkeys(row.ranker for row in mine)
            made += [_methods(name, [row for row in mine if row.ranker == ranker], ()) for ranker in rankers]
        elif name == "table 3":
            made.append(_tuned(mine, expected))
        elif name.startswith(("claims", "regret")):
            made.append(_by_coupling(name, mine))
    return made


def _methods(name: str, rows: Sequence[Row], expected: Sequence[Mapping[str, Any]]) -> str:
    """Methods down; rankers and measures across, and the paper's figures of the same table after them."""
    columns = list(dict.fromkeys((row.ranker, row.measure) for row in rows))
    found = {(row.method, row.ranker, row.measure): row for row in rows}
    paper = {
        (row["method"], row["data"], row["ranker"]): f"{row['paper']:.3f}{row['paper_mark']}"
        for row in expected
        if row["table"] == name and row["paper"] is not None
    }
    papers = list(dict.fromkeys(key[1:] for key in paper))
    head = ["method", *[f"{ranker}: {measure}" for ranker, measure in columns]]
    head += [f"paper, {PAPER_DATA[data]} {PAPER_NAMES[ranker]}" for data, ranker in papers]
    body = []
    for label in [label for label in TABLE if any(row.method == label for row in rows)]:
        cells = [figure(found[label, *column]) if (label, *column) in found else "" for column in columns]
        body.append([CANDIDATES[label].title, *cells, *[paper.get((label, *key), "") for key in papers]])
    return Table(f"{name.capitalize()}, coupling η = .1", head, body).html()


def _tuned(rows: Sequence[Row], expected: Sequence[Mapping[str, Any]]) -> str:
    paper = {
        (row["data"], row["ranker"], row["coupling"], row["measure"]): row["paper"]
        for row in expected
        if row["table"] == "table 3"
    }
    found = {(row.ranker, row.coupling, row.method, row.measure): row.mean for row in rows}
    body = []
    for ranker, coupling in dict.fromkeys((row.ranker, row.coupling) for row in rows):
        chosen = []
        for method in ("lbd_paper", "lbd_paper, by clicks"):
            chosen += [f"{found[ranker, coupling, method, name]:g}" for name in ("lambda", "t")]
            chosen += [f"{found[ranker, coupling, method, f'validation {LEADING}']:.4f}"]
        theirs = [paper.get(("yahoo", ranker, coupling, name)) for name in ("lambda", "t")]
        body.append([f"{ranker}, η = {coupling:g}", *chosen, *["" if one is None else f"{one:g}" for one in theirs]])
    by = ("λ by validation", "t", "validation", "λ by clicks", "t", "validation", "paper's λ (Yahoo!)", "t")
    return Table("Table 3: the settings that tuning chose", ("setting", *by), body).html()


def _by_coupling(name: str, rows: Sequence[Row]) -> str:
    couplings = sorted({row.coupling for row in rows})
    found = {(row.ranker, row.method, row.coupling): row for row in rows}
    body = []
    for ranker, method in dict.fromkeys((row.ranker, row.method) for row in rows):
        several = [found.get((ranker, method, coupling)) for coupling in couplings]
        body.append([f"{ranker}: {method}", *["" if row is None else figure(row) for row in several]])
    title = {
        "claims": f"Claims: differences in {LEADING}; the control is η = 0",
        "claims, best epoch": f"Claims, best epoch by labelled validation: differences in {LEADING}",
        "claims, last epoch": f"Claims, last epoch: differences in {LEADING}",
        "regret": f"Regret: {LEADING} lost to the best settings in hindsight, by how they were chosen",
    }[name]
    return Table(title, ["", *[f"η = {coupling:g}" for coupling in couplings]], body).html()


def realised(results: Results) -> str:
    """How strong each coupling came out: seeds side by side."""
    plan, body = results.plan, []
    for coupling in plan.couplings:
        found: list[dict[str, Any]] = []
        for world in plan.worlds(coupling, plan.size.seeds):
            mine = (run for label in plan.labels for run in plan.of(label, next(iter(plan.size.rankers)), coupling))
            results_here = (results.result(run) for run in mine if run.world == world)
            found += [result["coupling"] for result in results_here if result is not None][:1]
        if found:
            cells = [", ".join(f"{one[name]:.2f}" for one in found) for name in ("deviation", "correlation", "floored")]
            body.append([f"η = {coupling:g}", *cells])
    head = ["coupling", "sd of w·x by draw", "correlation of the exponent with the grade", "share that is always seen"]
    return Table("Realised coupling", head, body).html()


def own_choices(results: Results) -> list[str]:
    """The penalties and hidden units that `lbd` chose by held-out clicks: draws side by side."""
    body = []
    for ranker in results.plan.size.rankers:
        for coupling in results.plan.couplings:
            found = results.results("lbd", ranker, coupling) if results.has("lbd", ranker, coupling) else []
            chosen = [_choice(result["chosen"][0]) for result in found if result["chosen"]]
            if chosen:
                body.append([f"{ranker}, η = {coupling:g}", ", ".join(chosen)])
    head = ["setting", "penalty / hidden units of s(x), by draw (0 units: linear)"]
    return [Table("What lbd chose by held-out clicks", head, body).html()] if body else []


def _choice(chosen: Mapping[str, Any]) -> str:
    """What was chosen in one draw."""
    return "curve alone" if chosen["penalty"] == "inf" else f"{chosen['penalty']} / {chosen['hidden']}"


def figure(row: Row) -> str:
    """A cell: mean, standard error, the interval over draws where there is one, mark."""
    return cell(row, signed=row.table.startswith("claims"), interval=row.interval)


def as_text(rows: Sequence[Row]) -> str:
    """Table 1 and the claims for a terminal."""
    lines = []
    for name in ("table 1", "claims"):
        mine = [row for row in rows if row.table == name]
        if mine:
            lines += ["", name.capitalize() + (f", {LEADING} at η = .1" if name == "table 1" else f", {LEADING}")]
            for row in mine:
                where = "" if name == "table 1" else f" η = {row.coupling:g}"
                lines.append(f"  {RANKERS[row.ranker]:14} {row.method:22}{where:9} {figure(row)}")
    return "\n".join([*lines, "", LEGEND]).strip()
