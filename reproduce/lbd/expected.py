"""`expected.csv`: the paper's figures beside those of our last full run."""

from __future__ import annotations

from pathlib import Path

from reproduce.common.expected import Expected

EXPECTED = Expected(
    Path(__file__).with_name("expected.csv"),
    place=("table", "data", "ranker", "method", "coupling", "measure"),
    beside=("lambda", "t"),
    numbers=("coupling", "lambda", "t"),
    kept=("table 1", "table 3", "table 4", "figure 3a", "figure 3b", "figure 3c", "claims"),
)
