"""How a reproduction trains: the methods it may name, what is measured meanwhile, and what a process keeps for later.

The epoch is chosen afterwards, by each rule in `RULES`; the curve over epochs shows whether training has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import clickprism as cp
from clickprism.debias import METHODS as PRODUCT
from clickprism.debias.loop import Measured, held_out_likelihood
from clickprism.evaluation.measures import Evaluation
from clickprism.experiments.data import Log, simulate_log
from clickprism.experiments.settings import DataSettings, ExperimentSettings
from clickprism.model import network_scores
from clickprism.rankers import RANKERS
from clickprism.settings import choose
from clickprism.simulation.rankings import Intervention
from clickprism.types import Float64

METHODS: Final[dict[str, str]] = {  # those of clickprism, and published baselines that are not part of it
    **PRODUCT,
    "pair_debias": "reproduce.common.pair_debias:PairDebias",
    "vectorization": "reproduce.lbd.vectorization:Vectorization",
}
RULES: Final = ("clicks", "best", "last")  # the epoch that counts: by held-out clicks, by labels, the last
POINTS: Final = 15  # of a training curve
LIMIT: Final = 4  # values of a kind that a process keeps
_kept: dict[tuple[Any, ...], Any] = {}


def method(name: str, **settings: Any) -> Any:
    """Return the method of this name with these settings.

    >>> method("pair_debias", p=0.0)
    PairDebias(p=0.0, step=0.05, floor=0.01)
    """
    return choose(METHODS, {"name": name, **settings}, path="method")


def keep(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return what was made for this key before, or make it; the oldest of its kind, the key's first entry, is dropped.

    >>> keep(("log", 1), lambda: "made"), keep(("log", 1), lambda: "made again")
    ('made', 'made')
    """
    if key not in _kept:
        alike = [other for other in _kept if other[0] == key[0]]
        if len(alike) >= LIMIT:
            del _kept[alike[0]]
        _kept[key] = make()
    return _kept[key]


def embedded(queries: tuple[int, int, int] | None) -> DataSettings:
    """Return the settings of the embedded data with so many queries to train, validate and test; quantile features."""
    train, validation, test = queries or (3000, 300, 1000)
    made = cp.SyntheticSettings(train_queries=train, validation_queries=validation, test_queries=test)
    return DataSettings(normalise="quantile", synthetic=made)


def simulated(
    dataset: cp.Dataset, user: dict[str, Any], *, sessions: int, seed: int, intervention: Intervention | None = None
) -> Log:
    """Return a log of so many sessions of each query, by a user with these settings."""
    settings = ExperimentSettings(
        user=user,
        sessions=sessions,
        simulation=cp.SimulationSettings(
            frequency="each", merge="pattern", intervention=intervention or Intervention()
        ),
        methods={"click": {}},
    )
    return simulate_log(settings, dataset, seed=seed)


def train(
    clicks: cp.Clicks,
    *,
    method: Any,
    ranker: dict[str, Any],
    watch: Callable[[int, Any], None] | None,
    epochs: int,
    seed: int,
    **settings: Any,
) -> Any:
    """Return what `fit` does, without early stopping, validated at `POINTS` epochs; Ctrl-C is passed on."""
    fitted = cp.fit(
        clicks,
        method=method,
        ranker=choose(RANKERS, ranker, path="ranker"),
        settings=cp.FitSettings(
            epochs=epochs, evaluate_every=max(1, epochs // POINTS), patience=0, threads=1, seed=seed, **settings
        ),
        watch=watch,
        show=False,
    )
    if fitted.stopped == "interrupted":
        raise KeyboardInterrupt
    return fitted


class Recorder:
    """Validates and tests during training.

    Args:
        dataset: whose validation and test parts are scored.
        held_out: clicks on the validation part, by whose likelihood an epoch is chosen without labels.
        measures: on the test part; the first leads.
    """

    def __init__(self, dataset: cp.Dataset, held_out: cp.Clicks, measures: Sequence[str]) -> None:
        self.dataset, self.held_out, self.measures = dataset, held_out, tuple(measures)
        self.epochs: list[int] = []
        self.validated: list[float] = []
        self.likelihoods: list[Measured] = []
        self.tested: list[Evaluation] = []
        self.scores: list[Float64] = []

    def watch(self, epoch: int, learner: Any) -> None:
        """Measure the current learner."""
        judged, leading = self.dataset.validation, self.measures[0]
        self.epochs.append(epoch)
        validated = network_scores(learner.ranker, judged.lists.features)
        self.validated.append(cp.evaluate(judged, validated, leading).mean(leading))
        self.likelihoods.append(held_out_likelihood(learner.click_logits, self.held_out))
        self.scores.append(network_scores(learner.ranker, self.dataset.test.lists.features))
        self.tested.append(cp.evaluate(self.dataset.test, self.scores[-1], self.measures))

    def point(self, rule: str) -> int:
        """Return the index of the validation that a rule chooses."""
        if rule == "last":
            return len(self.epochs) - 1
        if rule == "best":
            return int(np.argmax(self.validated))
        best = 0
        for point, measured in enumerate(self.likelihoods):
            best = point if measured.beats(self.likelihoods[best]) else best
        return best

    def plain(self) -> dict[str, Any]:
        """Return everything as values for JSON."""
        by_rule = {rule: self.tested[self.point(rule)] for rule in RULES}
        return {
            **{rule: evaluation.means for rule, evaluation in by_rule.items()},
            "queries": {rule: by_query(evaluation) for rule, evaluation in by_rule.items()},
            "epochs": self.epochs,
            "chosen_epoch": {rule: self.epochs[self.point(rule)] for rule in RULES},
            "curve": self.validated,
            "test": [evaluation.mean(self.measures[0]) for evaluation in self.tested],
            "validation": {rule: self.validated[self.point(rule)] for rule in RULES},
            "likelihood": max(measured.value for measured in self.likelihoods),
        }


def by_query(evaluation: Evaluation) -> dict[str, list[float | None]]:
    """Return the values of each query, rounded to four decimals; None where a query does not count."""
    rows = zip(evaluation.measures, evaluation.values, strict=True)
    return {str(name): [None if np.isnan(value) else round(value, 4) for value in row.tolist()] for name, row in rows}
