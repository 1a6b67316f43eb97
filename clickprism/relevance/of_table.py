"""Estimate the relevance of every pair of a log in memory, such as one that was read from a table or from events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file
from clickprism.data.logged import Logged
from clickprism.errors import SettingError
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.log_model.parameters import read_propensities
from clickprism.log_model.value import ClickValue, click_value
from clickprism.relevance.by_log_model import ModelSummary, posterior_estimates
from clickprism.relevance.estimate_files import ESTIMATES, count_written, estimate_columns
from clickprism.relevance.estimates import Estimates
from clickprism.relevance.estimators import EstimateSettings, normal_quantile
from clickprism.relevance.of_log import LogEstimates
from clickprism.types import Int64

TEXTS: Final = b"clickprism.query_ids_are_texts"


def refuse_options(source: str, given: Mapping[str, object]) -> None:
    """Refuse options that need an ingested log."""
    for name, value in given.items():
        if value is not None:
            remedy = f"be omitted: it needs an ingested log. Run: clickprism log ingest {source} --into mylog"
            raise SettingError(name, str(value), remedy)


def estimate_table(
    logged: Logged,
    out: Path,
    settings: EstimateSettings,
    *,
    outcome: str = "click",
    propensities: Path | None = None,
    folder: Path | None = None,
) -> LogEstimates:
    """Estimate the relevance of every pair that a log shows, and write the estimates to a file.

    Args:
        logged: The log; its query ids are texts.
        out: Parquet file to write.
        settings: Depth, confidence and seed.
        outcome: What is estimated: click, another outcome, or a weighted sum of outcomes.
        propensities: File with the known observation at each position.
        folder: Folder to save the model of the log to.
    """
    model = LogModel.fit(
        logged,
        settings=LogModelSettings(depth=settings.depth, confidence=settings.confidence, seed=settings.seed),
        propensities=None if propensities is None else read_propensities(propensities),
    )
    if folder is not None:
        model.save(folder)
    value, found = click_value(logged, outcome), model.relevance
    estimates = posterior_estimates(model)
    if value is not None:
        estimates = times_value(estimates, value, found.rows, settings.confidence)
    columns = {"query_id": pa.array(model.query_ids.tolist()), "document_id": pa.array(model.document_ids.tolist())}
    columns |= estimate_columns(estimates)
    columns |= {"impressions": pa.array(found.impressions.astype(np.int64))}
    columns |= {"clicked": pa.array(found.clicks.astype(np.int64)), "imputation": pa.nulls(len(found), pa.float64())}
    table = pa.table([columns[name] for name in ESTIMATES.names], schema=ESTIMATES)
    table = table.sort_by([("query_id", "ascending"), ("document_id", "ascending")])
    with atomic_file(out, parents=True) as draft:
        pq.write_table(table.replace_schema_metadata({TEXTS: b"1"}), draft, compression="zstd")
    _, _, sources = count_written(out)
    return LogEstimates(
        pairs=len(found),
        sources=sources,
        imputed_only=0,
        suppressed=0,
        below=int(logged.clicks.list_impressions[logged.clicks.positions > len(model.curve)].sum()),
        without_imputation=0,
        estimator="log_model" if value is None else f"log_model, of {outcome}",
        learned=None,
        parameters=model.parameters,
        model=ModelSummary.of(model),
        file=out,
    )


def times_value(estimates: Estimates, value: ClickValue, rows: Int64, confidence: float) -> Estimates:
    """Return c_1 v as a share of the sum of the weights; the intervals combine the errors of both.

    Args:
        estimates: Estimates of c_1, [pairs].
        value: v of each document.
        rows: Document of each pair, [pairs].
        confidence: Confidence level of the intervals.
    """
    full = sum(value.weights.values())
    worth = np.clip(value.values[rows] / full, 0.0, 1.0)
    reach = normal_quantile(confidence) * estimates.values * value.errors[rows] / full
    product = estimates.values * worth
    lower = product - np.hypot(worth * (estimates.values - estimates.lower), reach)
    upper = product + np.hypot(worth * (estimates.upper - estimates.values), reach)
    lower, upper = np.clip(lower, 0.0, product), np.clip(upper, product, 1.0)
    variance = ((upper - lower) / (2 * normal_quantile(confidence))) ** 2
    return replace(estimates, values=product, lower=lower, upper=upper, variance=variance)


def query_ids_are_texts(path: Path) -> bool:
    """Return whether the query ids of a file of estimates are the texts of the queries."""
    return TEXTS in (pq.read_schema(path).metadata or {})
