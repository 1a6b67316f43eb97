"""What a reproduction leaves behind: summary.json, figures, one page."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from clickprism.evaluation.plots import svg
from clickprism.evaluation.report import flat, versions, write_whole
from reproduce.common.pool import span

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
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {}
    for name, (caption, figure) in figures.items():
        picture = svg(figure, title=caption)
        pictures[caption] = picture, figure.get_figwidth() > WIDE
        write_whole(folder / f"{name}.svg", picture)
        figure.set_layout_engine("none")  # it is laid out
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", dpi=150, facecolor="white")
        (folder / f"{name}.png").write_bytes(drawn.getvalue())
    return pictures


def page(
    title: str,
    *,
    summary: Sequence[str],
    tables: Sequence[str],
    pictures: Mapping[str, tuple[str, bool]],
    settings: Mapping[str, Any],
    seconds: float,
) -> str:
    """One HTML page: tables, figures, settings, timing."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        title=title,
        summary=summary,
        tables=tables,
        pictures=pictures,
        settings=list(flat(settings)),
        seconds=span(seconds),
        versions=versions(),
    )
