"""A small line chart as an SVG element, styled by the page's own sheet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WIDTH: Final = 320
HEIGHT: Final = 150
LEFT: Final = 34
RIGHT: Final = 8
TOP: Final = 8
BOTTOM: Final = 24


def curve(values: Sequence[float], *, label: str) -> str:
    """Values by position, position 1 first, on an axis from 0; only numbers and `label`, which is ours, go in.

    >>> curve([1.0, 0.5], label="observation").count("<circle")
    2
    """
    top = max(1.0, *values)
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(place: int) -> float:
        return LEFT + across * (place / max(len(values) - 1, 1))

    def y(value: float) -> float:
        return TOP + down * (1 - value / top)

    points = [(x(place), y(value)) for place, value in enumerate(values)]
    lines = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}"/>'
        f'<text x="{LEFT - 5}" y="{y(share) + 3.5:.1f}" text-anchor="end">{share:.2g}</text>'
        for share in (0.0, 0.5 * top, top)
    )
    step = max(1, -(-len(values) // 10))
    ticks = "".join(
        f'<text x="{x(place):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{place + 1}</text>'
        for place in range(0, len(values), step)
    )
    path = " ".join(f"{'L' if place else 'M'}{px:.1f} {py:.1f}" for place, (px, py) in enumerate(points))
    dots = "".join(
        f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3"><title>position {place}: {value:.3f}</title></circle>'
        for place, ((px, py), value) in enumerate(zip(points, values, strict=True), start=1)
    )
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f'{lines}{ticks}<path d="{path}"/>{dots}</svg>'
    )
