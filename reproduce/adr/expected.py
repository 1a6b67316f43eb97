"""`expected.csv`: the paper's figures beside those of our last run."""

from __future__ import annotations

from pathlib import Path

from reproduce.common.expected import Expected

PAPER = "baidu"  # the data of the paper's figures
EXPECTED = Expected(
    Path(__file__).with_name("expected.csv"),
    place=("table", "data", "bucket", "method", "at", "measure"),
    numbers=("at",),
    kept=(
        "table 2",
        "table 3",
        "table 4",
        "good same bad",
        "section 7.8",
        "figure 4 (a)",
        "figure 4 (b)",
        "costs, uniform",
        "costs, thompson",
        "bars",
        "methods",
    ),
)
