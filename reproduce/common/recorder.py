"""What is measured while a method trains, so that the epoch can be chosen afterwards, and the plateau be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import clickprism as cp
from clickprism.debias.loop import Measured, held_out_likelihood
from clickprism.evaluation.measures import Evaluation
from clickprism.model import network_scores
from clickprism.types import Float64

RULES: Final = ("clicks", "best", "last")  # the epoch that counts: by held-out clicks, by labels, the last


class Recorder:
    """Validates and tests as training goes on.

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
        """Measure the learner as it stands."""
        judged, leading = self.dataset.validation, self.measures[0]
        self.epochs.append(epoch)
        validated = network_scores(learner.ranker, judged.lists.features)
        self.validated.append(cp.evaluate(judged, validated, leading).mean(leading))
        self.likelihoods.append(held_out_likelihood(learner, self.held_out))
        self.scores.append(network_scores(learner.ranker, self.dataset.test.lists.features))
        self.tested.append(cp.evaluate(self.dataset.test, self.scores[-1], self.measures))

    def point(self, rule: str) -> int:
        """The validation that a rule takes."""
        if rule == "last":
            return len(self.epochs) - 1
        if rule == "best":
            return int(np.argmax(self.validated))
        best = 0
        for point, measured in enumerate(self.likelihoods):
            best = point if measured.beats(self.likelihoods[best]) else best
        return best

    def plain(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
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
    """Four decimals a query, enough for a test of the mean; None where a query does not count."""
    rows = zip(evaluation.measures, evaluation.values, strict=True)
    return {str(name): [None if np.isnan(value) else round(value, 4) for value in row.tolist()] for name, row in rows}
