"""Growing the trees on cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from clickprism.errors import UnsupportedError
from clickprism.log.schema import BEHAVIOUR
from clickprism.observation.examination.cells import BETWEEN, MISSING, NEGATIVE, POSITIVE, column, matrix
from clickprism.observation.examination.model import lightgbm
from clickprism.observation.examination_settings import MOST_VALUES, ExaminationSettings
from clickprism.types import Bool, Float64, Int64

UNSEEN: dict[str, tuple[str, ...]] = {
    "all": (),
    "others": ("clicked",),
    "none": ("clicked", "clicks_before", "click_distance", "click_below"),
}
"""The features that the trees do not see, by `ExaminationSettings.clicks`."""
WITHOUT = "or compute click features without estimates: clickprism log features LOG --examination none"


def grow(cells: pa.Table, settings: ExaminationSettings) -> str:
    """Trees on the cells of searches that are not held out, as LightGBM's text.

    The loss -1[t > positive] log e - 1[t < negative] log(1 - e) (§6.1.1) is a sum over rows, so a cell weighs as many
    rows as it has: the same objective, gradients and hessians as row by row. Every value of a feature has a bin of its
    own, so the bins are the same too; but LightGBM counts a cell as one row where it counts rows, so a leaf is limited
    by its hessian, not by `min_data_in_leaf`. Gradients are of 32 bits and summed in another order: estimates agree to
    about 1e-8, until two splits are equally good but for that, and either may be taken.

    Args:
        cells: with the columns of `CELLS`.
        settings: of the trees.
    """
    label = column(cells, "label")
    learn = (label >= NEGATIVE) & (column(cells, "held_out") == 0)
    chosen = cells.filter(pa.array(learn))
    return grow_on(matrix(chosen), column(chosen, "label") == POSITIVE, column(chosen, "rows"), settings)


def grow_on(features: Float64, positive: Bool, rows: Int64, settings: ExaminationSettings) -> str:
    """The same on arrays.

    Args:
        features: [cells, features].
        positive: [cells].
        rows: how many rows each cell has, [cells].
        settings: of the trees.
    """
    library = lightgbm()
    seen = np.array([name not in UNSEEN[settings.clicks] for name in BEHAVIOUR])
    parameters: dict[str, Any] = {
        "objective": "binary",
        "learning_rate": settings.learning_rate,
        "num_leaves": settings.leaves,
        "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": settings.min_hessian,
        "max_bin": MOST_VALUES + 5,
        "min_data_in_bin": 1,
        "bin_construct_sample_cnt": max(len(rows), 1),
        "feature_pre_filter": False,
        "seed": settings.seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbosity": -1,
    }
    data = library.Dataset(
        features * seen,  # what is the same in all rows splits nothing
        label=positive.astype(np.float64),
        weight=rows.astype(np.float64),
        feature_name=list(BEHAVIOUR),
        params=parameters,
    )
    booster = library.train(parameters, data, num_boost_round=settings.trees)
    return str(booster.model_to_string(num_iteration=-1))


def check_enough(cells: pa.Table, settings: ExaminationSettings, *, days: str) -> None:
    """Raise a `UnsupportedError` that says what to do, if there is too little to learn from or to measure on.

    Args:
        cells: with the columns of `CELLS`.
        settings: what is enough.
        days: how an error names where the rows are from.
    """
    label, rows, held_out = column(cells, "label"), column(cells, "rows"), column(cells, "held_out") == 1
    if not rows.any():
        raise UnsupportedError(
            f"no row of the sessions of {days} counts", remedy="Choose other days, or relax the robot rules"
        )
    if (label == MISSING).all():
        raise no_display_times(days)
    kinds = (
        (POSITIVE, f"on the screen for more than {settings.positive_ms} ms", "lower --positive-ms"),
        (
            NEGATIVE,
            f"on the screen for less than {settings.negative_ms} ms",
            "raise --negative-ms, or give --missing negative if no time means never on the screen",
        ),
    )
    for kind, what, change in kinds:
        for part, where, least in (
            (~held_out, "to learn from", settings.min_rows),
            (held_out, "held out to measure on", -(-settings.min_rows // 10)),
        ):
            found = int(rows[(label == kind) & part].sum())
            if found < least:
                raise UnsupportedError(
                    f"the sessions of {days} have {found:,} rows {what} {where}, at least {least:,} are needed",
                    remedy=f"Use more days, {change}, {WITHOUT}",
                )


def no_display_times(days: str) -> UnsupportedError:
    """The error of sessions that there is nothing to learn from."""
    remedy = f"Log for how long each document was on the screen, in milliseconds, as display_ms; {WITHOUT}"
    return UnsupportedError(
        f"no row of the sessions of {days} has a display time, from which examination is learned", remedy=remedy
    )


def counts(cells: pa.Table) -> dict[str, int]:
    """How many rows there are, and how many of each label."""
    label, rows = column(cells, "label"), column(cells, "rows")
    named = {"positive": POSITIVE, "negative": NEGATIVE, "between": BETWEEN, "missing": MISSING}
    return {"rows": int(rows.sum())} | {name: int(rows[label == kind].sum()) for name, kind in named.items()}
