"""The sessions of a log as cells: each distinct row of behaviour features, with how many rows are like it.

All features are discrete, so the cells are few (thousands) however long the log is. An engine counts them; training,
measures and curves are sums over them, and exact.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from clickprism.log.schema import BEHAVIOUR, SESSIONS, conform
from clickprism.observation.examination_settings import ExaminationSettings
from clickprism.types import Float64, Int64

POSITIVE: Final = 1
NEGATIVE: Final = 0
BETWEEN: Final = -1
MISSING: Final = -2
MOST_CLICKS: Final = 20  # clicks above: more count as so many

_FEATURES: Final = [SESSIONS.field(name).with_nullable(True) for name in BEHAVIOUR]
_KEYS: Final = [*_FEATURES, pa.field("held_out", pa.bool_())]
_ROWS: Final = pa.field("rows", pa.int64())
CELLS: Final = pa.schema([*_KEYS, pa.field("label", pa.int32()), _ROWS])
"""`label` is what the display time says: POSITIVE, NEGATIVE, BETWEEN (the thresholds) or MISSING (no time)."""

TRUTH_CELLS: Final = pa.schema([*_KEYS, pa.field("observed", pa.bool_()), _ROWS])
"""`observed` is what a simulated user truly did."""


def cells(sessions: Any, settings: ExaminationSettings) -> Any:
    """The rows that count of a table of sessions, counted by features, split and label: an expression of ibis.

    Args:
        sessions: with the columns of `SESSIONS`.
        settings: thresholds and split.

    Returns:
        An expression with the columns of `CELLS`.
    """
    import ibis

    time = sessions.display_ms
    label = ibis.cases(
        (time.isnull(), NEGATIVE if settings.missing == "negative" else MISSING),
        (time > settings.positive_ms, POSITIVE),
        (time < settings.negative_ms, NEGATIVE),
        else_=BETWEEN,
    )
    counted = sessions.filter(sessions["filter"].isnull())
    return _count(counted.mutate(label=label.cast("int32")), CELLS, settings)


def truth_cells(sessions: Any, truth: Any, settings: ExaminationSettings) -> Any:
    """The same rows, counted by features, split and what was truly observed.

    Args:
        sessions: with the columns of `SESSIONS`.
        truth: with the columns search_id, document_id, position and observed; rows that it does not know are left out.
        settings: the split.

    Returns:
        An expression with the columns of `TRUTH_CELLS`.
    """
    keys = ["search_id", "document_id", "position"]
    known = truth.group_by(keys).agg(observed=truth.observed.any())
    counted = sessions.filter(sessions["filter"].isnull()).select(*dict.fromkeys([*keys, *BEHAVIOUR]))
    return _count(counted.inner_join(known, keys), TRUTH_CELLS, settings)


def collected(engine: Any, expression: Any, schema: pa.Schema) -> pa.Table:
    """The cells as a table in one fixed order, so that all that is made of them is the same on every engine."""
    table = conform(engine.collect(expression), schema, what="cells")
    return table.sort_by([(name, "ascending") for name in schema.names]).combine_chunks()


def matrix(table: pa.Table | pa.RecordBatch) -> Float64:
    """The features of cells or of any rows with them, [rows, features]."""
    made = np.empty((table.num_rows, len(BEHAVIOUR)))
    for place, name in enumerate(BEHAVIOUR):
        made[:, place] = column(table, name)
    return made


def column(table: pa.Table | pa.RecordBatch, name: str) -> Int64:
    """A column without nulls, as whole numbers; false is 0."""
    values: Int64 = table.column(name).cast(pa.int64()).to_numpy()
    return values


def _count(rows: Any, schema: pa.Schema, settings: ExaminationSettings) -> Any:
    import ibis

    deepest = dict.fromkeys(("position", "click_distance", "page"), settings.max_position)
    most = deepest | {"clicks_before": MOST_CLICKS}
    last = format(int(settings.held_out * 2**32), "08x")
    held_out = (ibis.literal(f"{settings.seed}:") + rows.search_id).hexdigest("sha256") < last
    limited = {name: ibis.least(rows[name], ibis.literal(limit)).cast("int32") for name, limit in most.items()}
    keys = [name for name in schema.names if name != "rows"]
    named = rows.mutate(held_out=held_out, **limited).select(*keys)
    return named.group_by(keys).agg(rows=named.count())
