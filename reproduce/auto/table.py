"""The table over worlds: what was chosen, what it reached, what the best in hindsight and raw clicks reach."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from clickprism._util.files import write_file

EXPECTED: Final = Path(__file__).parent / "expected.csv"
HEADER: Final = (
    *("seed", "browsing", "severity", "trust", "coupling", "attention", "policy", "queries", "features", "sessions"),
    *("chosen", "ndcg", "click", "best_click", "best", "best_ndcg", "regret", "above_click", "above_best_click"),
    "cpu_seconds",
)
MEAN_REGRET, WORST_REGRET, BELOW_CLICK = 0.005, 0.015, 0.003


@dataclass(frozen=True)
class Summary:
    """The bars: mean and worst regret, and how far the worst world is below raw clicks, by one ranker and by any."""

    worlds: int
    mean: float
    worst: float
    below_click: float
    above_click: float
    below_best_click: float

    @property
    def text(self) -> str:
        """Each figure beside its bar."""
        return "\n".join(
            [
                f"{self.worlds} worlds",
                f"mean regret        {self.mean:+.4f}  bar {MEAN_REGRET:.3f}  {_mark(self.mean <= MEAN_REGRET)}",
                f"worst regret       {self.worst:+.4f}  bar {WORST_REGRET:.3f}  {_mark(self.worst <= WORST_REGRET)}",
                f"most below click   {self.below_click:+.4f}  bar {BELOW_CLICK:.3f}  "
                f"{_mark(self.below_click <= BELOW_CLICK)}",
                f"mean above click   {self.above_click:+.4f}",
                f"most below the best ranker on clicks  {self.below_best_click:+.4f}",
            ]
        )


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A world as a row of the table.

    Raw clicks are those of the ranker of the chosen candidate; best_click is the best ranker on raw clicks; the best is
    the best of all candidates.

    >>> world = {name: 0 for name in HEADER[1:10]}
    >>> reached = {"click/linear": 0.7, "dla/linear": 0.75, "dla/mlp": 0.76}
    >>> made = flat({"seed": 1, "world": world, "chosen": "dla/linear", "ndcg": 0.75, "candidates": reached,
    ...              "cpu_seconds": 9})
    >>> made["best"], made["regret"], made["above_click"]
    ('dla/mlp', 0.01, 0.05)
    """
    reached: Mapping[str, float] = row["candidates"]
    click = reached[f"click/{row['chosen'].partition('/')[2]}"]
    best_click = max(value for name, value in reached.items() if name.startswith("click/"))
    best = max(reached, key=lambda name: reached[name])
    world = {name: _short(value) for name, value in row["world"].items()}
    return {
        "seed": row["seed"],
        **{name: world[name] for name in HEADER[1:10]},
        "chosen": row["chosen"],
        "ndcg": round(row["ndcg"], 4),
        "click": round(click, 4),
        "best_click": round(best_click, 4),
        "best": best,
        "best_ndcg": round(reached[best], 4),
        "regret": round(reached[best] - row["ndcg"], 4),
        "above_click": round(row["ndcg"] - click, 4),
        "above_best_click": round(row["ndcg"] - best_click, 4),
        "cpu_seconds": row["cpu_seconds"],
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> Summary:
    """Of the rows of `flat`."""
    regret = np.array([row["regret"] for row in rows])
    above = np.array([row["above_click"] for row in rows])
    best = np.array([row["above_best_click"] for row in rows])
    below = float(-above.min()), float(above.mean()), float(-best.min())
    return Summary(len(rows), float(regret.mean()), float(regret.max()), *below)


def write_expected(rows: Sequence[Mapping[str, Any]], file: Path = EXPECTED) -> None:
    """Write expected.csv."""
    text = io.StringIO()
    writer = csv.DictWriter(text, HEADER, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(file, text.getvalue())


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """For docs/auto.md."""
    shown = (
        *("seed", "browsing", "trust", "coupling", "attention", "policy", "sessions"),
        *("chosen", "ndcg", "click", "best_click", "best", "best_ndcg", "regret"),
    )
    lines = [f"| {' | '.join(shown)} |", f"|{'---|' * len(shown)}"]
    lines += [f"| {' | '.join(_cell(row[name]) for name in shown)} |" for row in rows]
    return "\n".join(lines)


def library_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """What methods of the library reach, a row a world.

    >>> print(library_table([{"seed": 3, "dla": 0.75}]))
    | seed | dla |
    |---|---|
    | 3 | .7500 |
    """
    names = list(rows[0])
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return "\n".join([*lines, *(f"| {' | '.join(_cell(row[name]) for name in names)} |" for row in rows)])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return (
            "0"
            if value == 0
            else f"{value:.4f}".rstrip("0")
            if abs(value) >= 1
            else f"{value:.4f}".replace("0.", ".", 1)
        )
    return f"{value:,}" if isinstance(value, int) else str(value)


def _short(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


def _mark(holds: bool) -> str:
    return "ok" if holds else "short"
