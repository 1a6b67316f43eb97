"""`expected.csv`: the paper's figures beside those of our last full run."""

from __future__ import annotations

from pathlib import Path

from reproduce.common.expected import Expected

EXPECTED = Expected(
    Path(__file__).with_name("expected.csv"),
    place=("table", "data", "user", "ranker", "method", "eta", "at", "measure"),
    numbers=("eta", "at"),
    kept=(
        "table 2",
        "table 3",
        "figure 3 left",
        "figure 3 right",
        "figure 4",
        "figure 5 left",
        "figure 5 right",
        "figure 6",
        "figure 7",
        "claims",
    ),
)
