"""The scores of a method for every candidate of a world, at the end of its year."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import clickprism as cp
from clickprism.log.schema import WINDOWS, click_fields, no_clicks
from clickprism.log_model.parameters import ClickParameters
from clickprism.relevance.click_vectors import ClickVectors
from clickprism.relevance.pairs import find_pairs
from clickprism.types import Float32, Float64
from reproduce.adr.config import CANDIDATES, LEADING, ONLINE
from reproduce.adr.imputation import slot_of
from reproduce.adr.lists import display_log, list_log
from reproduce.adr.runs import Run
from reproduce.adr.searches import Log
from reproduce.adr.sums import HOURS, click_vectors, pair_counts
from reproduce.adr.worlds import BUCKETS, Site, site_of
from reproduce.adr.year import log_of
from reproduce.common.kept import keep

COMPETING = {"ipw_learned": "ipw", ONLINE: "display_filtering"}


def scores_of(run: Run, folder: Path | None) -> tuple[Float64, dict[str, Any]]:
    """Scores, [documents], and what else is to be known."""
    family = CANDIDATES[run.method].family
    if family == "engine":
        site = site_of(run.world, folder)
        best = cp.evaluate(site.judged, site.relevance, LEADING, empty="zero")[LEADING]
        return site.production[-1], {"best": np.round(best, 5).tolist()}
    if family == "bound":
        from reproduce.adr.bound import bounded

        return bounded(run, folder)
    makers = {"estimator": estimated, "approximation": approximated, "competitor": competing, "mixture": competing}
    return makers[family](run, folder)


def estimated(run: Run, folder: Path | None) -> tuple[Float64, dict[str, Any]]:
    """An offline estimator on the counts of the last month; what was never shown counts as average."""
    from clickprism.relevance.estimators import ESTIMATORS
    from clickprism.settings import choose

    site, log = site_of(run.world, folder), log_of(run.world, folder)
    settings = dict(run.settings)
    counts = pair_counts(
        log.take(log.months == run.world.months - 1), site, examined=settings.pop("examined", "display")
    )
    known = {name: values.astype(np.float64) for name, values in run.needs.arrays().items() if values.ndim == 1}
    imputed, parameters = known["imputed"], ClickParameters(known["alpha"], known["beta"], site.theta)
    name = "doubly_robust" if run.method.startswith("doubly_robust") else run.method
    known_estimators = {**ESTIMATORS, "shrunk": "reproduce.adr.shrinkage:Shrunk"}
    estimator = choose(known_estimators, {"name": name, **settings}, path="estimator")
    found = estimator.estimate(counts, parameters, imputed)
    values = np.where(np.isnan(found.values), imputed.mean(), found.values)
    return values, {"imputed_only": float(found.imputed_only.mean())}


def approximated(run: Run, folder: Path | None) -> tuple[Float64, dict[str, Any]]:
    """The networks of §6.2: fitted to the first slots of the later half by vectors before it, applied to those now."""
    from clickprism.relevance.approximation import Approximation, fit_approximation
    from clickprism.relevance.approximation_settings import ApproximateSettings

    world, site, log = run.world, site_of(run.world, folder), log_of(run.world, folder)
    imputed = run.needs.arrays()["imputed"].astype(np.float64)
    now = vectors_of(site, log, world.months - 1)
    settings = ApproximateSettings(seed=world.seed, **run.settings)

    def fitted_now() -> Approximation:
        slot = slot_of(world, site, log, log.months >= world.split)
        rows = find_pairs(site.pairs, (slot.query_ids, slot.document_ids))
        return fit_approximation(slot, vectors_of(site, log, world.split - 1), imputed[rows], settings=settings)

    fitted: Approximation = keep(("approximation", run.needs.key, settings), fitted_now)
    notes: dict[str, Any] = {}
    if run.method == "approximate_affine":
        return fitted.affine(now.x), notes
    zeta = fitted.trade_off(now.x)
    query = site.judged.lists.list_of
    by_bucket = {bucket: float(zeta[site.in_bucket(bucket)[query]].mean()) for bucket in BUCKETS}
    return fitted.estimate(now.x, imputed), notes | {"trade_off": by_bucket}


def vectors_of(site: Site, log: Log, month: int) -> ClickVectors:
    """The click vector of every candidate as of the end of a month."""
    fields = click_fields(examination=True)
    empty = np.concatenate([no_clicks(HOURS[window], examination=True) for window in WINDOWS]).astype(np.float32)
    return ClickVectors(*site.pairs, click_vectors(log, site, month=month), fields, empty)


def competing(run: Run, folder: Path | None) -> tuple[Float64, dict[str, Any]]:
    """A competitor of §7.3 on the representation, or on the mixture of that and the click vector.

    All learn from the later half of the year, and mixtures by click vectors as of its beginning.
    """
    from reproduce.adr.competitors import CompetitorSettings, competitor, cross_encoder, vanilla_mix

    world, site, log = run.world, site_of(run.world, folder), log_of(run.world, folder)
    lists, representation = site.judged.lists, run.needs.arrays()["representation"]
    name = COMPETING.get(run.method, run.method.removeprefix("vanilla_mix_"))
    if CANDIDATES[run.method].family == "competitor":
        backbone = cross_encoder(lists, representation)
    else:
        before, now = (vectors_of(site, log, month) for month in (world.split - 1, world.months - 1))
        h = weak(site, representation) if run.method == ONLINE else representation
        backbone = vanilla_mix(lists, h, before=before, now=now)
    later = log.take(log.months >= world.split)
    settings = CompetitorSettings(seed=world.seed, fit=cp.FitSettings(epochs=run.epochs, patience=5, threads=1))
    given: dict[str, Any] = {}
    if name == "rand":
        given["slot"] = slot_of(world, site, later, np.ones(len(later), dtype=np.bool_))
    elif name == "display_filtering":
        given["log"] = display_log(site, later, seed=world.seed)
    else:
        given["log"] = list_log(site, later)
    if name == "ipw":
        given["propensities"] = tuple((site.theta / site.theta[0]).tolist())
    return competitor(name, backbone, settings=settings, **given), {}


def weak(site: Site, representation: Float32) -> Float32:
    """A poorer representation, as that of words or of a small network was before a language model (Table 3).

    Every other feature; of texts, what words say.
    """
    features = site.judged.lists.features
    return representation[:, ::2] if representation.shape[1] == features.shape[1] else features
