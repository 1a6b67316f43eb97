"""The summary of a comparison."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clickprism.evaluation.compare import compare
from clickprism.evaluation.measures import Evaluation, Measure
from clickprism.experiments.results import Results, summary_of
from clickprism.experiments.settings import ExperimentSettings


def test_the_share_of_the_way_is_given_only_if_labels_are_better_than_clicks(comparison: Results) -> None:
    settings = ExperimentSettings(methods={"labels": {}, "click": {}, "dla": {}})
    ids = np.array([str(query) for query in range(40)])
    noise = np.tile([0.0, 0.2], 20)

    def summary(labels: NDArray[np.float64]) -> str:
        values = {"labels": labels, "click": np.full(40, 0.5) + noise, "dla": np.full(40, 0.6) + noise}
        measure = Measure.parse("nDCG(exp)@10")
        made = {name: Evaluation((measure,), each[None], ids, "drop") for name, each in values.items()}
        found: Results = replace(comparison, settings=settings, comparison=compare(made, baseline="click"))
        return summary_of(found)

    sure = summary(0.75 + noise / 2)
    assert "labels 0.8000 (the ceiling). Between them: dla 0.7000 (50% of the way)." in sure
    unsure = summary(0.5 + np.tile([0.21, 0.0], 20))
    assert "not significantly better" in unsure
    assert "% of the way" not in unsure
