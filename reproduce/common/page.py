"""What a reproduction leaves behind: summary.json, figures, one page."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from clickprism._util.files import write_file
from clickprism.evaluation.plots import svg
from clickprism.evaluation.report import flat, versions
from reproduce.common.pool import say, span

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATE = Path(__file__).with_name("report.html.j2")
LEGEND = (
    "± over draws, (t interval over draws, 95 %); * the best baseline; + or - for p < .05, ++ or -- for p < .005, "
    "paired over queries in tables, over draws in claims"
)
WIDE = 7.5  # inches, from which a figure takes a line of the page


class Plain(Protocol):
    """A row of summary.json."""

    def plain(self) -> dict[str, Any]:
        """As in summary.json."""


def summary_text(rows: Sequence[Plain]) -> str:
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
    rows: Sequence[Plain],
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


def conclude(page: Path, text: str, expected: Path | None) -> None:
    """Print the rows, and say what was written."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    if expected is not None:
        say(f"our figures are in {expected.name}")
    say(f"written: {page}, {page.with_name('summary.json')}, {page.with_name('figures')}")
