"""Session rows counted by features and label: the training data of the examination model.

All features are discrete, so a log of any length has only thousands of distinct rows ("cells"). The engine counts them;
training, measures and curves are exact sums over the counts.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from clickprism.errors import UnsupportedError
from clickprism.examination.settings import ExaminationSettings
from clickprism.log.schema import BEHAVIOUR, SESSIONS, conform
from clickprism.types import Float64, Int64

POSITIVE: Final = 1
NEGATIVE: Final = 0
BETWEEN: Final = -1
MISSING: Final = -2
MOST_CLICKS: Final = 20  # more clicks above a document are treated as this many

_KEYS: Final = [*(SESSIONS.field(name).with_nullable(True) for name in BEHAVIOUR), pa.field("held_out", pa.bool_())]
_ROWS: Final = pa.field("rows", pa.int64())
CELLS: Final = pa.schema([*_KEYS, pa.field("label", pa.int32()), _ROWS])
"""`label` is POSITIVE, NEGATIVE, BETWEEN (the thresholds) or MISSING (no display time)."""

TRUTH_CELLS: Final = pa.schema([*_KEYS, pa.field("observed", pa.bool_()), _ROWS])
"""`observed` says whether the simulated user observed the document."""

WITHOUT: Final = "or compute click features without estimates: clickprism log features LOG --examination none"


def cells(sessions: Any, settings: ExaminationSettings) -> Any:
    """Return an ibis expression that counts session rows by features, split and label, with the columns of `CELLS`.

    Args:
        sessions: Table with the columns of `SESSIONS`; rows of robots are ignored.
        settings: Thresholds and split.
    """
    import ibis

    time = sessions.display_ms
    label = ibis.cases(
        (time.isnull(), NEGATIVE if settings.missing == "negative" else MISSING),
        (time > settings.positive_ms, POSITIVE),
        (time < settings.negative_ms, NEGATIVE),
        else_=BETWEEN,
    )
    rows = sessions.filter(sessions["filter"].isnull())
    return _count(rows.mutate(label=label.cast("int32")), CELLS, settings)


def truth_cells(sessions: Any, truth: Any, settings: ExaminationSettings) -> Any:
    """Return an ibis expression that counts the same rows by true observation, with the columns of `TRUTH_CELLS`.

    Args:
        sessions: Table with the columns of `SESSIONS`.
        truth: Table with the columns search_id, document_id, position and observed; rows that it lacks are ignored.
        settings: Split.
    """
    keys = ["search_id", "document_id", "position"]
    known = truth.group_by(keys).agg(observed=truth.observed.any())
    rows = sessions.filter(sessions["filter"].isnull()).select(*dict.fromkeys([*keys, *BEHAVIOUR]))
    return _count(rows.inner_join(known, keys), TRUTH_CELLS, settings)


def collected(engine: Any, expression: Any, schema: pa.Schema) -> pa.Table:
    """Return the cells as a sorted table, so that all results are the same on every engine."""
    table = conform(engine.collect(expression), schema, what="cells")
    return table.sort_by([(name, "ascending") for name in schema.names]).combine_chunks()


def matrix(table: pa.Table | pa.RecordBatch) -> Float64:
    """Return the features of cells or session rows, [rows, features]."""
    return np.stack([column(table, name) for name in BEHAVIOUR], axis=1).astype(np.float64)


def column(table: pa.Table | pa.RecordBatch, name: str) -> Int64:
    """Return a column without nulls as integers; false is 0."""
    values: Int64 = table.column(name).cast(pa.int64()).to_numpy()
    return values


def counts(cells: pa.Table) -> dict[str, int]:
    """Return the number of session rows in all, and with each label."""
    label, rows = column(cells, "label"), column(cells, "rows")
    labels = {"positive": POSITIVE, "negative": NEGATIVE, "between": BETWEEN, "missing": MISSING}
    return {"rows": int(rows.sum())} | {name: int(rows[label == kind].sum()) for name, kind in labels.items()}


def check_enough(cells: pa.Table, settings: ExaminationSettings, *, days: str) -> None:
    """Raise UnsupportedError if there are too few rows to train or to measure a model; `days` says which were read."""
    label, rows, held_out = column(cells, "label"), column(cells, "rows"), column(cells, "held_out") == 1
    if not rows.any():
        raise UnsupportedError(
            f"the robot rules exclude all session rows of {days}", remedy="Choose other days, or relax the robot rules"
        )
    if (label == MISSING).all():
        raise no_display_times(days)
    kinds = (
        (POSITIVE, f"displayed for more than {settings.positive_ms} ms", "lower --positive-ms"),
        (
            NEGATIVE,
            f"displayed for less than {settings.negative_ms} ms",
            "raise --negative-ms, give --missing negative if a document without a time was never displayed",
        ),
    )
    for kind, what, change in kinds:
        for part, purpose, fewest in (
            (~held_out, "train on", settings.min_rows),
            (held_out, "measure on", -(-settings.min_rows // 10)),
        ):
            found = int(rows[(label == kind) & part].sum())
            if found < fewest:
                raise UnsupportedError(
                    f"the sessions of {days} have {found:,} rows {what} to {purpose}; at least {fewest:,} are needed",
                    remedy=f"Use more days, {change}, {WITHOUT}",
                )


def no_display_times(days: str) -> UnsupportedError:
    """Return the error for sessions without display times."""
    return UnsupportedError(
        f"no session row of {days} has a display time, which the examination model is trained on",
        remedy=f"Log how long each document was displayed, in milliseconds, as display_ms, {WITHOUT}",
    )


def _count(rows: Any, schema: pa.Schema, settings: ExaminationSettings) -> Any:
    import ibis

    limits = dict.fromkeys(("position", "click_distance", "page"), settings.max_position)
    limits["clicks_before"] = MOST_CLICKS
    last = format(int(settings.held_out * 2**32), "08x")
    held_out = (ibis.literal(f"{settings.seed}:") + rows.search_id).hexdigest("sha256") < last
    limited = {name: ibis.least(rows[name], ibis.literal(limit)).cast("int32") for name, limit in limits.items()}
    keys = [name for name in schema.names if name != "rows"]
    chosen = rows.mutate(held_out=held_out, **limited).select(*keys)
    return chosen.group_by(keys).agg(rows=chosen.count())
