"""Several processes that grow one ensemble of trees, in LightGBM's distributed mode."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from clickprism.errors import SettingError, TrainingError
from clickprism.rankers.boosting import Boosting
from clickprism.types import Float64, Int64

Derivatives: TypeAlias = Callable[[Float64], tuple[Float64, Float64]]
ALONE: Final = {
    "tree_learner": "serial",
    "num_machines": 1,
    "machines": "",
    "local_listen_port": 12400,
    "time_out": 120,
}


@dataclass(frozen=True)
class Machines:
    """The processes that grow one ensemble together, each on its share of the groups.

    Each finds the best splits of some of the features, from histograms that are summed over all processes, and all
    take the best of these: the trees are those of one process but for the counts of rows in a leaf, which LightGBM
    then estimates from its weight.

    Attributes:
        rank: the number of this process, from 0.
        addresses: of every process, `host:port`, each with a free port for LightGBM.
        minutes: how long to wait for the others.
        add: adds an array up over the processes.
    """

    rank: int
    addresses: tuple[str, ...]
    minutes: int
    add: Callable[[Float64], Float64]

    def rows(self, lengths: Int64) -> Int64:
        """The rows of this process: whole groups, one after the other, so that all have about as many rows.

        >>> Machines(1, ("a:1", "b:1"), 1, lambda sums: sums).rows(np.array([3, 1, 2, 2]))
        array([4, 5, 6, 7])
        """
        ends = np.cumsum(lengths)
        owner = (ends - lengths / 2) * len(self.addresses) // ends[-1]
        if len(np.unique(owner)) < len(self.addresses):
            must = f"be lower: there are too few lists ({len(lengths)}) for every process to have one"
            raise SettingError("WORLD_SIZE", len(self.addresses), must)
        return np.flatnonzero(np.repeat(owner == self.rank, lengths))

    def share(self, boosting: Boosting) -> tuple[Derivatives | None, Int64]:
        """The objective and the rows of this process.

        An objective of one's own wants the scores of all rows: they are gathered, and every process works out all
        derivatives, so it costs what it costs one process.
        """
        if boosting.positions is not None:
            why = "which each process would learn for itself (start it without torchrun)"
            must = f"be 1 for LightGBM's own position bias, {why}"
            raise SettingError("WORLD_SIZE", len(self.addresses), must)
        mine, whole = self.rows(boosting.lengths), boosting.objective
        if whole is None:
            return None, mine

        def objective(scores: Float64) -> tuple[Float64, Float64]:
            every = np.zeros(len(boosting.rows))
            every[mine] = scores
            first, second = whole(self.add(every))
            return first[mine], second[mine]

        return objective, mine

    def parameters(self) -> dict[str, Any]:
        """What LightGBM must know of the others."""
        return {
            "tree_learner": "data",
            "num_machines": len(self.addresses),
            "machines": ",".join(self.addresses),
            "local_listen_port": int(self.addresses[self.rank].rpartition(":")[2]),
            "time_out": self.minutes,
        }

    @contextmanager
    def connected(self, failure: type[Exception]) -> Iterator[None]:
        """While LightGBM talks to the others: what it prints goes to standard error, for results are on the other.

        It tells that it listens whatever its verbosity.
        """
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
        try:
            yield
        except failure as error:
            raise TrainingError(f"LightGBM cannot go on with the other processes ({error})") from None
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def placeless(text: str) -> str:
    r"""A model as one process writes it, without the addresses of the processes that made it.

    >>> placeless("[learning_rate: 0.1]\n[machines: 10.0.0.1:5000,10.0.0.2:5000]")
    '[learning_rate: 0.1]\n[machines: ]'
    """
    for key, value in ALONE.items():
        text = re.sub(rf"^\[{key}: .*\]$", f"[{key}: {value}]", text, flags=re.MULTILINE)
    return text
