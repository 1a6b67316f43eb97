"""Methods of the registry as candidates: those that correct a bias which the model of the log found.

LBD and InfoRank learn an observation that depends on the document. They are tried if the log shows one, or if users
prefer what was clicked before. They are compared with the other candidates by the same held-out clicks. Their ranker is
linear: away from the shown documents it is steadier than InfoRank's attention (nDCG .71 to .79 against .59 to .73 in
five simulated worlds).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism.debias import METHODS
from clickprism.settings import resolve
from clickprism.types import Bool, Clicks, Lists

if TYPE_CHECKING:
    from clickprism.log_model.model import LogModel
    from clickprism.model import Model

FINDINGS: Final = {"coupling": "document", "popularity": "document"}  # tests of the model, and the bias that they show
EPOCHS: Final = 15
BATCH: Final = 256  # ranked lists
MOST_LISTS: Final = 5_000  # distinct ranked lists to learn from while candidates are compared


@final
@dataclass(frozen=True)
class MethodCandidate:
    """A method of the registry that can be trained on a part of the queries.

    Attributes:
        name: Its name in the registry.
        summary: What it does.
        train: Returns the ranker trained without some queries, or on all of them (None); takes which queries to hold
            out, [lists of the log].
    """

    name: str
    summary: str
    train: Callable[[Bool | None], Model]


def method_candidates(clicks: Clicks, lists: Lists, model: LogModel, *, seed: int = 0) -> list[MethodCandidate]:
    """Return the methods that correct a bias which the tests of the model found present.

    Args:
        clicks: The log.
        lists: Its documents with normalised features.
        model: The fitted model of the log.
        seed: Random seed.
    """
    found = {bias for test, bias in FINDINGS.items() if test in model.tests and model.tests[test].verdict == "present"}
    if not found:
        return []
    log = replace(clicks, lists=lists).merge()
    made = []
    for name in METHODS:
        cls = resolve(METHODS, name, path="method")
        if found & set(cls.corrects) and not getattr(cls, "published", False):
            made.append(MethodCandidate(name, cls.summary, _Training(cls, log, seed)))
    return made


@final
@dataclass(frozen=True, eq=False)
class _Training:
    """Trains one method on the log."""

    method: Any
    clicks: Clicks
    seed: int

    def __call__(self, held_out: Bool | None) -> Model:
        from clickprism.rankers.linear import Linear
        from clickprism.training.fit import fit
        from clickprism.training.settings import FitSettings

        clicks = self.clicks
        if held_out is not None:
            query = clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]]
            own = np.flatnonzero(~held_out[query])
            rng = np.random.default_rng([self.seed, 57])
            clicks = clicks.take(np.sort(rng.permutation(own)[:MOST_LISTS]))
        settings = FitSettings(epochs=EPOCHS, batch_size=BATCH, threads=1, seed=self.seed)
        return fit(clicks, method=self.method(), ranker=Linear(), settings=settings, show=False).model
