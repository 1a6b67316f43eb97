"""What a benchmark returns: our figure, the peer's or the limit's on the same work in the same run, and the bar."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One line of the benchmark table.

    The ratio is written so that more is better: `ours / peer` where higher figures are better, `peer / ours` where
    lower ones are. The bar is the least ratio that is good enough.
    """

    name: str
    ours: float
    peer: float
    bar: float
    unit: str
    higher_is_better: bool = True

    @property
    def ratio(self) -> float:
        """How many times better than the peer, or what share of the limit."""
        return self.ours / self.peer if self.higher_is_better else self.peer / self.ours

    @property
    def ok(self) -> bool:
        """Whether the bar is reached."""
        return self.ratio >= self.bar


def seconds(work: Callable[[], object], *, repeats: int = 3) -> float:
    """The least wall time of several runs of the same work."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
