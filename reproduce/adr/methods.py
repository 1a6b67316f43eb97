"""The scores of a method for every candidate of a world, at the end of its year."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import clickprism as cp
from clickprism.observation.parameters import ClickParameters
from clickprism.types import Float64
from reproduce.adr.config import CANDIDATES, LEADING
from reproduce.adr.runs import Run
from reproduce.adr.sums import pair_counts
from reproduce.adr.worlds import site_of
from reproduce.adr.year import log_of


def scores_of(run: Run, folder: Path | None) -> tuple[Float64, dict[str, Any]]:
    """Scores, [documents], and what else is to be known."""
    family = CANDIDATES[run.method].family
    if family == "engine":
        site = site_of(run.world, folder)
        best = cp.evaluate(site.judged, site.relevance, LEADING, empty="zero")[LEADING]
        return site.production[-1], {"best": np.round(best, 5).tolist()}
    return {"estimator": estimated}[family](run, folder)


def estimated(run: Run, folder: Path | None) -> tuple[Float64, dict[str, Any]]:
    """An offline estimator on the counts of the last month; what was never shown counts as average."""
    from clickprism.relevance.estimators import ESTIMATORS
    from clickprism.settings import choose

    site, log = site_of(run.world, folder), log_of(run.world, folder)
    settings = dict(run.settings)
    counts = pair_counts(
        log.take(log.months == run.world.months - 1), site, examined=settings.pop("examined", "display")
    )
    parameters = ClickParameters.of_trust(site.theta, site.plus, site.minus)
    imputed = run.needs.arrays()["imputed"].astype(np.float64)
    name = "doubly_robust" if run.method.startswith("doubly_robust") else run.method
    found = choose(ESTIMATORS, {"name": name, **settings}, path="estimator").estimate(counts, parameters, imputed)
    values = np.where(np.isnan(found.values), imputed.mean(), found.values)
    return values, {"imputed_only": float(found.imputed_only.mean())}
