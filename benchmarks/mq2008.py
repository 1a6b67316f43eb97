"""MQ2008, five folds: what labels reach, and what debiasing wins over raw clicks.

Needs the real data: the folder `../shared/data/mq2008`, or the one that CLICKPRISM_MQ2008 names. Queries without a
relevant document are dropped, gain is exponential. Every query is in the test part of one fold; figures are means over
all of them. Clicks: position-based users, 100 sessions a query, ranked by the usual ranking SVM on 1% of the labels.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.base import Result
from clickprism.evaluation.compare import Comparison, Row, compare
from clickprism.evaluation.measures import Measure
from clickprism.experiments.compare import Measured, compare_methods
from clickprism.experiments.settings import DataSettings, ExperimentSettings
from clickprism.training.settings import FitSettings

MEASURE = Measure.parse("nDCG(exp)@10")
LABELS = 0.69
GAIN = 0.01
ERROR = 0.15
RANKERS: dict[str, dict[str, Any]] = {
    "linear": {"name": "linear"},
    "mlp": {"name": "mlp"},
    "lambdamart": {"name": "lambdamart", "trees": 500, "learning_rate": 0.03, "leaves": 8},
}


def run() -> list[Result]:
    """The bars of the foundation: .69 on labels, .01 of DLA over click, propensity ratios within 15%."""
    folder = Path(os.environ.get("CLICKPRISM_MQ2008", Path(__file__).parents[2] / "shared" / "data" / "mq2008"))
    if not folder.is_dir():
        print("mq2008: skipped, no data (set CLICKPRISM_MQ2008)", file=sys.stderr)
        return []
    results = []
    for name, ranker in RANKERS.items():
        runs = five_folds(folder, ranker=ranker, methods={"labels": {}}, runs=1)
        table = compare(_by_label(runs), data="mq2008, five folds", seeds=(0,))
        mean = _row(table, "labels").mean
        results.append(Result(f"mq2008 labels {name} {MEASURE}", mean, LABELS, 1.0, "limit: .69"))
    for name, ranker in {"linear": RANKERS["linear"], "mlp 64-32": {"name": "mlp", "hidden": [64, 32]}}.items():
        runs = five_folds(folder, ranker=ranker, methods={"click": {}, "dla": {}}, runs=3)
        table = compare(_by_label(runs), baseline="click", data="mq2008, five folds", seeds=(0, 1, 2))
        print(table, file=sys.stderr)
        gain = _row(table, "dla").difference or 0.0
        results.append(Result(f"mq2008 {name}: dla - click {MEASURE}", gain, GAIN, 1.0, "limit: .01, paired"))
        ratios = np.mean([run.observation / run.truth for run, _ in runs if run.observation is not None], axis=0)
        print(f"{name}: dla observation over truth by position: {np.round(ratios, 3).tolist()}", file=sys.stderr)
        error = float(np.abs(ratios - 1).max())
        title = f"mq2008 {name}: dla propensity, worst position"
        results.append(Result(title, error, ERROR, 1.0, "limit: 15% off the truth", higher_is_better=False))
    return results


def five_folds(
    folder: Path, *, ranker: dict[str, Any], methods: dict[str, dict[str, Any]], runs: int
) -> list[Measured]:
    """Every method on every fold and seed."""
    settings = ExperimentSettings(
        data=DataSettings(source="mq2008", folder=str(folder), drop_without_relevant=True),
        ranker=ranker,
        methods=methods,
        fit=FitSettings(threads=1),
        runs=runs,
    )
    found: list[Measured] = []
    for fold in range(1, 6):
        data = replace(settings.data, fold=fold)
        compare_methods(replace(settings, data=data), jobs=2, on_run=lambda *each: found.append(each))
    return found


def _by_label(runs: list[Measured]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for run, evaluation in runs:
        found.setdefault(run.label, []).append(evaluation)
    return found


def _row(table: Comparison, method: str) -> Row:
    return next(row for row in table.of(MEASURE) if row.method == method)
