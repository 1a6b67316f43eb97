"""LBD on MQ2008, five folds: users whose eye is drawn by the document, at several couplings; 0 is the control.

Needs the real data, as `mq2008` does. Features by quantile, 100 sessions a query, the epoch chosen by held-out clicks.
It prints every method with its paired difference to click, and has no bar: MQ2008 is small, figures are as they are.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.base import Result
from clickprism.evaluation.compare import compare
from clickprism.evaluation.measures import Evaluation
from clickprism.experiments.compare import compare_methods
from clickprism.experiments.results import Run
from clickprism.experiments.settings import DataSettings, EvaluationSettings, ExperimentSettings
from clickprism.training.settings import FitSettings

SEEDS: Final = (0, 1, 2)
COUPLINGS: Final = (0.0, 0.1, 0.3, 0.6)
RANKERS: Final[dict[str, dict[str, Any]]] = {"linear": {"name": "linear"}, "mlp": {"name": "mlp", "hidden": [64, 32]}}
METHODS: Final[dict[str, dict[str, Any]]] = {
    "labels": {},
    "click": {},
    "dla": {},
    "lbd": {},
    "lbd_paper": {},
}


def _collect(found: dict[str, list[Any]], each: Run, evaluation: Evaluation) -> None:
    found.setdefault(each.label, []).append(evaluation)


def run() -> list[Result]:
    """Print a table for each ranker and coupling."""
    folder = Path(os.environ.get("CLICKPRISM_MQ2008", Path(__file__).parents[2] / "shared" / "data" / "mq2008"))
    if not folder.is_dir():
        print("lbd_mq2008: skipped, no data (set CLICKPRISM_MQ2008)", file=sys.stderr)
        return []
    for name, ranker in RANKERS.items():
        for coupling in COUPLINGS:
            settings = ExperimentSettings(
                data=DataSettings(
                    source="mq2008", folder=str(folder), normalise="quantile", drop_without_relevant=True
                ),
                user={"name": "coupled", "eta": coupling},
                ranker=ranker,
                methods=METHODS,
                fit=FitSettings(threads=1),
                evaluation=EvaluationSettings(validation="clicks"),
                runs=len(SEEDS),
            )
            found: dict[str, list[Any]] = {}
            for fold in range(1, 6):
                part = replace(settings, data=replace(settings.data, fold=fold))
                compare_methods(part, jobs=2, on_run=partial(_collect, found))
            table = compare(found, baseline="click", data=f"MQ2008, {name}, coupling {coupling:g}", seeds=SEEDS)
            print(table, file=sys.stderr, flush=True)
    return []
