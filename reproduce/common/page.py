"""What a reproduction writes: summary.json, figures, one page; and what all figures share."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from clickprism._util.files import write_file
from clickprism.evaluation.plots import GRID, svg
from clickprism.evaluation.report import flat, versions
from reproduce.common.cli import How
from reproduce.common.expected import Expected
from reproduce.common.expected import Figure as Row
from reproduce.common.pool import say, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEMPLATE = Path(__file__).with_name("report.html.j2")
LEGEND = (
    "± over draws, (t interval over draws, 95 %); * the best baseline; + or - for p < .05, ++ or -- for p < .005, "
    "paired over queries in tables, over draws in claims"
)
R = TypeVar("R", bound=Row)
HOW_TO_READ = (
    "± is the standard error over draws. Marks are of a paired t-test over queries, each averaged over draws, against "
    "the best baseline (*) of that measure: + or - for p < .05, ++ or -- for p < .005. Claims are marked by a paired "
    "t-test over draws instead, with its 95 % interval: a draw has its own users or initial ranker, so its queries "
    "say nothing about the next draw. summary.json has both p-values."
)
WIDE = 7.5  # inches, from which a figure takes a line of the page


def summary_text(rows: Sequence[Row]) -> str:
    """The rows as a JSON array, one a line."""
    return "[\n" + ",\n".join(json.dumps(row.plain(), allow_nan=False) for row in rows) + "\n]\n"


def write_pictures(figures: Mapping[str, tuple[str, Figure]], folder: Path) -> dict[str, tuple[str, bool]]:
    """Write each figure as SVG and PNG; returns, by caption, the SVG and whether it is wide."""
    pictures = {}
    for name, (caption, figure) in figures.items():
        picture = svg(figure, title=caption)
        pictures[caption] = picture, figure.get_figwidth() > WIDE
        write_file(folder / f"{name}.svg", picture, durable=False)
        figure.set_layout_engine("none")  # it is laid out
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", dpi=150, facecolor="white")
        write_file(folder / f"{name}.png", drawn.getvalue(), durable=False)
    return pictures


def leave(
    out: Path,
    rows: Sequence[Row],
    *,
    title: str,
    summary: Sequence[str],
    tables: Sequence[str],
    figures: Mapping[str, tuple[str, Figure]],
    settings: Mapping[str, Any],
    seconds: float,
) -> Path:
    """Write summary.json, figures/ and report.html into the folder of the runs; returns the page's path.

    Args:
        out: that folder.
        rows: of summary.json.
        title: of the page.
        summary: what the reader has to know, a paragraph each.
        tables: as HTML.
        figures: caption and figure by file name.
        settings: of the size.
        seconds: that the runs took on one core.
    """
    from jinja2 import Environment, StrictUndefined

    write_file(out / "summary.json", summary_text(rows))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        title=title,
        summary=summary,
        tables=tables,
        pictures=write_pictures(figures, out / "figures"),
        settings=list(flat(settings)),
        seconds=span(seconds),
        versions=versions(),
    )
    write_file(out / "report.html", page)
    return out / "report.html"


def cell(row: Row, *, signed: bool = False, interval: tuple[float | None, float | None] | None = None) -> str:
    """A figure in a table: mean, standard error, interval over draws, mark."""
    low, high = interval or (None, None)
    error = "" if row.se is None else f" ± {row.se:.4f}"
    ends = "" if low is None or high is None else f" ({low:+.3f} to {high:+.3f})"
    mark = "" if not row.mark else " *" if row.mark == "best baseline" else f" {row.mark}"
    return (f"{row.mean:+.4f}" if signed else f"{row.mean:.4f}") + error + ends + mark


def publish(
    rows: Sequence[R],
    how: How,
    expected: Expected,
    *,
    write: Callable[[list[R], list[dict[str, Any]]], Path],
    text: Callable[[list[R]], str],
) -> list[R]:
    """Put the paper's figures beside ours, write the page (and `expected.csv` if asked), and print the rows."""
    paper = expected.load()
    known = expected.with_paper(rows, paper)
    page = write(known, paper)
    if how.write_expected:
        expected.write(expected.merged(paper, known))
        say(f"our figures are in {expected.file.name}")
    sys.stdout.write((summary_text(known) if how.as_json else text(known)).rstrip("\n") + "\n")
    say(f"written: {page}, {page.with_name('summary.json')}, {page.with_name('figures')}")
    return known


class Look(NamedTuple):
    """How a candidate is drawn, in every figure alike."""

    colour: str
    marker: str
    line: str = "-"


def panels_of(width: float, height: float, lines: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of so many inches and its axes, line by line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    panels = [figure.add_subplot(lines, columns, place + 1) for place in range(lines * columns)]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color=GRID, alpha=0.3, linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, panels


def draws_of(mine: Iterable[Row], rows: Iterable[Row]) -> str:
    """How many draws a line is of, where others have more: it may lie higher or lower for that alone."""
    few = min(row.seeds for row in mine)
    return "" if few == max(row.seeds for row in rows) else f" ({few} draw{'s' * (few > 1)})"
