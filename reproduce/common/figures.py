"""What all figures share: a grid of axes, a look a method."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from clickprism.evaluation.plots import GRID

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Drawn(Protocol):
    """A row of summary.json."""

    @property
    def seeds(self) -> int:
        """Over how many draws."""


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


def draws_of(mine: Iterable[Drawn], rows: Iterable[Drawn]) -> str:
    """How many draws a line is of, where others have more: it may lie higher or lower for that alone."""
    few = min(row.seeds for row in mine)
    return "" if few == max(row.seeds for row in rows) else f" ({few} draw{'s' * (few > 1)})"
