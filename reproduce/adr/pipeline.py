"""The product on a raw log: ingest, sessions, examination, parameters, features, estimates and approximation.

Every step is the function that the command calls; nothing here knows the truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clickprism.examination.examine import Examination, examine, make_current
from clickprism.examination.model import ExaminationModel
from clickprism.examination.settings import ExaminationSettings
from clickprism.log.engines.base import Engine
from clickprism.log.features.windows import windows
from clickprism.log.ingest import ingest
from clickprism.log.sessions import update_sessions
from clickprism.log.settings import WindowSettings
from clickprism.log.store import LogStore
from clickprism.log_model.results import ClickParameters
from clickprism.relevance.approximate_log import ApproximationSummary, apply_log, fit_log
from clickprism.relevance.approximation import Approximation
from clickprism.relevance.approximation_settings import ApproximateSettings, Preset
from clickprism.relevance.click_vectors import ClickVectors
from clickprism.relevance.estimate import estimate_log, estimate_relevance
from clickprism.relevance.estimates import read_estimates
from clickprism.relevance.estimators import Estimator
from clickprism.relevance.pairs import FirstSlot, find_pairs, read_first_slot
from clickprism.relevance.randomised import first_intercept, log_slot_parameters
from clickprism.types import Float64, Int64, Text
from reproduce.adr.world import MONTH, SHOWN

WINDOWS = WindowSettings(k=0)  # no k-anonymity: it would exclude the tail


@dataclass(frozen=True, eq=False)
class Counts:
    """What a span of the log says about each candidate, [rows, positions] each.

    Attributes:
        impressions: Number of impressions.
        clicked: Number of those with a click.
        displayed: Number of impressions with a display time above 0.
    """

    impressions: Int64
    clicked: Int64
    displayed: Int64


@dataclass(eq=False)
class Pipeline:
    """An ingested log and what the product made of it.

    Attributes:
        folder: Folder of the log and of all results.
        store: The log.
        engine: Engine of the log.
        pairs: Query and document ids of the candidates.
        start: First day of the log.
        examination: Examination model as published, which sees the click on the document too.
        quality: How good it is.
    """

    folder: Path
    store: LogStore
    engine: Engine
    pairs: tuple[Text, Text]
    start: datetime
    examination: ExaminationModel
    quality: Examination
    approximations: dict[str, ApproximationSummary] = field(default_factory=dict)

    @classmethod
    def run(cls, raw: Path, folder: Path, engine: Engine, pairs: tuple[Text, Text], *, truth: Path) -> Pipeline:
        """Ingest a raw log, build its sessions and train the examination model; `truth` only measures the latter."""
        ingest([raw], folder / "log", threads=1)
        store = LogStore.open(folder / "log")
        update_sessions(store, engine)
        model, quality = examine(store, engine, settings=ExaminationSettings(clicks="all"), truth=truth)
        make_current(store, model)
        day = store.table("sessions").days()[0]
        return cls(folder, store, engine, pairs, datetime(day.year, day.month, day.day), model, quality)

    @property
    def middle(self) -> datetime:
        """Return the end of the first month: imputations learn before it, the approximation after it."""
        return self.start + timedelta(days=MONTH)

    @property
    def end(self) -> datetime:
        """Return the end of the second month, as of which documents are ranked."""
        return self.start + timedelta(days=2 * MONTH)

    def counts(self, since: datetime, until: datetime, *, randomised: bool) -> Counts:
        """Return what the sessions of a span say about the candidates: only first slots, or all but those."""
        import duckdb

        query = """
            SELECT query_id, document_id, position, count(*) AS shown, count(*) FILTER (clicked) AS clicked,
                count(*) FILTER (display_ms > 0 OR display_ms IS NULL) AS displayed
            FROM read_parquet($files, hive_partitioning = false)
            WHERE filter IS NULL AND time >= $since AND time < $until AND randomised = $randomised
            GROUP BY ALL
        """
        given: dict[str, Any] = {"files": list(self.store.table("sessions").files()), "randomised": randomised}
        with duckdb.connect(config={"threads": 1}) as connection:
            table = connection.sql(query, params=given | {"since": since, "until": until}).to_arrow_table()
        ids = [np.array(table[name].to_pylist(), dtype=np.str_) for name in ("query_id", "document_id")]
        first = find_pairs(self.pairs, (ids[0], ids[1]))
        position = table["position"].to_numpy().astype(np.int64) - 1
        inside = (first >= 0) & (position < SHOWN)
        sums = []
        for name in ("shown", "clicked", "displayed"):
            sums.append(np.zeros((len(self.pairs[0]), SHOWN), np.int64))
            sums[-1][first[inside], position[inside]] = table[name].to_numpy()[inside]
        return Counts(*sums)

    def slot(self, since: datetime, until: datetime) -> FirstSlot:
        """Return the clicks on randomised first results of a span."""
        return read_first_slot(self.store, since=since, until=until)

    @cached_property
    def parameters(self) -> ClickParameters:
        """Return alpha, beta and propensities by the randomised first results of the whole log."""
        return log_slot_parameters(self.store, self.engine, depth=SHOWN)

    @property
    def level(self) -> float:
        """Return beta_1 of Eq. 4."""
        return first_intercept(self.parameters)

    def estimates(
        self, estimator: Estimator, imputation: Path, *, parameters: ClickParameters | None = None
    ) -> Float64:
        """Return the estimates of the candidates by the second month; nan if there is none."""
        days = [self.middle.date() + timedelta(days=day) for day in range(MONTH)]
        out = self.folder / f"{estimator.name}.parquet"
        estimate_log(
            self.store,
            self.engine,
            out,
            estimator=estimator,
            parameters=self.parameters if parameters is None else parameters,
            imputation=imputation,
            days=days,
            k=0,
            examiner=self.examination,
        )
        return self.read(out)

    def log_model(self, imputation: Path) -> Float64:
        """Return the estimates of the model of the log, the default of the product, by the second month."""
        from clickprism.relevance.estimators import EstimateSettings

        days = [self.middle.date() + timedelta(days=day) for day in range(MONTH)]
        out = self.folder / "log_model.parquet"
        settings = EstimateSettings(min_users=0)
        estimate_relevance(self.store, self.engine, out, settings, imputation=imputation, days=days)
        return self.read(out)

    def read(self, file: Path) -> Float64:
        """Return the estimates of a file for the candidates."""
        table, _, found = read_estimates(file)
        ids = [np.array(table[name].to_pylist(), dtype=np.str_) for name in ("query_id", "document_id")]
        rows = find_pairs((ids[0], ids[1]), self.pairs)
        return np.where(rows >= 0, found.values[rows], np.nan)

    def write_imputation(self, values: Float64, name: str) -> Path:
        """Write predictions of the candidates as the file that `--imputation` takes."""
        out = self.folder / f"{name}.parquet"
        ids = {"query_id": self.pairs[0].tolist(), "document_id": self.pairs[1].tolist()}
        pq.write_table(pa.table(ids | {"imputation": values}), out)
        return out

    def vectors(self, as_of: datetime) -> ClickVectors:
        """Return the click vectors of a time, with the examination of the model as published."""
        made = windows(self.store, self.engine, as_of, examiner=self.examination, settings=WINDOWS, refresh=False)
        return ClickVectors.from_snapshot(made.snapshot)

    def approximate(self, imputation: Path, preset: Preset, *, seed: int) -> tuple[Approximation, Float64]:
        """Fit the networks to the first slots of the second month, and apply them as of its end."""
        networks, out = self.folder / f"networks-{preset}", self.folder / f"approximation-{preset}.parquet"
        settings = ApproximateSettings(preset=preset, seed=seed)
        given: Any = {"examiner": self.examination, "window_settings": WINDOWS}
        self.approximations[preset] = fit_log(
            self.store, self.engine, imputation, networks, since=self.middle, settings=settings, **given
        )
        fitted = Approximation.load(networks)
        apply_log(self.store, self.engine, fitted, out, imputation=imputation, as_of=self.end, **given)
        return fitted, self.read(out)
