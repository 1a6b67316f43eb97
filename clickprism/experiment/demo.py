"""The demo: embedded data, biased users, the floor, two ways to debias, the ceiling."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from clickprism.data.synthetic import SyntheticSettings
from clickprism.experiment.compare import Run, compare_methods
from clickprism.experiment.results import Results, results_of, write_results
from clickprism.experiment.settings import DataSettings, ExperimentSettings
from clickprism.experiment.train import MODEL
from clickprism.training.settings import FitSettings

DEBIASED = "dla"
TITLE = "clickprism: a click is relevance times observation"


def demo_settings(*, seed: int = 0, seeds: int = 2) -> ExperimentSettings:
    """The settings of the demo: many test queries for narrow intervals, a small network, one thread a process."""
    return ExperimentSettings(
        data=DataSettings(synthetic=SyntheticSettings(test_queries=10_000)),
        user={"name": "pbm"},
        ranker={"name": "mlp", "hidden": [64, 32]},
        methods={"labels": {}, "ipw": {}, DEBIASED: {}, "click": {}},
        fit=FitSettings(epochs=60, patience=10, threads=1),
        seeds=tuple(range(seed, seed + seeds)),
    )


def run_demo(
    settings: ExperimentSettings, *, out: Path, jobs: int = 2, on_run: Callable[[Run], None] | None = None
) -> Results:
    """Run the demo into a folder: the report, the table, a model a method and seed, and in model/ the debiased one.

    Of the debiased models the one that was best in validation is taken; the test part has no say.
    """
    results = results_of(settings, compare_methods(settings, out=out, jobs=jobs, on_run=on_run))
    write_results(results, out, title=TITLE, next_commands=next_commands(settings, out))
    best = max(results.of(DEBIASED), key=lambda run: max(run.values, default=0.0))
    shutil.rmtree(out / MODEL, ignore_errors=True)
    shutil.copytree(out / f"{DEBIASED}-{best.seed}" / MODEL, out / MODEL)
    return results


def next_commands(settings: ExperimentSettings, out: Path, *, program: str = "clickprism") -> list[str]:
    """What to try after the demo."""
    folder = shlex.quote(str(out))
    return [
        f"{program} evaluate {folder}/click-{settings.seeds[0]} {folder} --measure nDCG@10 --measure MRR",
        f"{program} compare --config {folder}/settings.toml --user ubm --jobs 2 --out runs/ubm",
        f"{program} train --config {folder}/settings.toml --method {DEBIASED} --ranker lambdamart --out runs/trees",
    ]
