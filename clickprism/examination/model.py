"""The examination model: gradient boosted trees, how they are trained, applied, saved and loaded.

Loading runs no code: settings and trees are checked against a fingerprint, and LightGBM reads the trees as data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, final

import msgspec
import numpy as np
import pyarrow as pa

from clickprism._util.files import read_json, write_file
from clickprism.errors import DataError, MissingExtraError, SettingError, UnsupportedError
from clickprism.examination.settings import MOST_VALUES, ExaminationSettings
from clickprism.log.schema import BEHAVIOUR, EXAMINATION_UNIT, SESSIONS, conform
from clickprism.settings import build, plain
from clickprism.types import Bool, Float64, Int64

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

FORMAT: Final = "clickprism examination model"
VERSION: Final = 1
SAVED: Final = 10  # models in a folder; older ones are deleted
PREFIX: Final = "examination-"
AGAIN: Final = "Train the model again: clickprism bias examination LOG"
UNUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "all": (),
    "others": ("clicked",),
    "none": ("clicked", "clicks_before", "click_distance", "click_below"),
}
"""Features that the trees do not use, by `ExaminationSettings.clicks`."""


def cells(sessions: Any, settings: ExaminationSettings) -> Any:
    """Return an ibis expression that counts session rows by features, split and label, with the columns of `CELLS`.

    Rows of robots are ignored.
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

    The truth has the columns search_id, document_id, position and observed; session rows that it lacks are ignored.
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
    longer = "raise --negative-ms, give --missing negative if a document without a time was never displayed"
    for kind, what, change in (
        (POSITIVE, f"displayed for more than {settings.positive_ms} ms", "lower --positive-ms"),
        (NEGATIVE, f"displayed for less than {settings.negative_ms} ms", longer),
    ):
        tenth = -(-settings.min_rows // 10)
        for part, purpose, fewest in ((~held_out, "train on", settings.min_rows), (held_out, "measure on", tenth)):
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


@final
@dataclass(frozen=True)
class ExaminationModel:
    """Trees that estimate e_k = P(examined | behaviour of the user around position k) (§6.1.1)."""

    text: str  # The trees in LightGBM's text format
    settings: ExaminationSettings  # Settings of the model
    # Days that it was trained on, each with a fingerprint of its files
    sessions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # Measures on held-out searches, by name
    quality: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of everything that estimates depend on, 32 hexadecimal digits."""
        settings = plain(self.settings)
        if settings["clicks"] == "all":
            del settings["clicks"]  # models were saved without it before there was a choice
        parts = {"version": VERSION, "features": list(BEHAVIOUR), "unit": EXAMINATION_UNIT, "settings": settings}
        parts["trees"] = hashlib.sha256(self.text.encode()).hexdigest()
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]

    def estimate(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return session rows, which have the columns `BEHAVIOUR`, with a column `examination` in units of 2^-20."""
        missing = [name for name in BEHAVIOUR if name not in batch.schema.names]
        if missing:
            raise DataError(f"the examination model needs the column {missing[0]!r}", remedy="Pass rows of sessions")
        return batch.append_column("examination", pa.array(self.units(batch), type=pa.int64()))

    def units(self, rows: pa.Table | pa.RecordBatch) -> Int64:
        """Return the estimates of cells or session rows in units of 2^-20, rounded half to even, [rows]."""
        if rows.num_rows == 0:
            return np.zeros(0, dtype=np.int64)
        estimates = np.asarray(self.booster.predict(matrix(rows), num_threads=1), dtype=np.float64)
        units: Int64 = np.rint(estimates * EXAMINATION_UNIT).astype(np.int64)
        return units

    @cached_property
    def booster(self) -> Any:
        """Return the trees as a LightGBM booster."""
        library = _lightgbm()
        try:
            booster = library.Booster(model_str=self.text)
        except library.basic.LightGBMError as error:
            raise DataError(f"the trees are not a LightGBM model: {error}", remedy=AGAIN) from None
        if booster.feature_name() != list(BEHAVIOUR):
            raise DataError(f"the trees have other features: {', '.join(booster.feature_name())}", remedy=AGAIN)
        return booster

    def importance(self) -> dict[str, float]:
        """Return the share of each feature in the gain of all splits, largest first."""
        gains = np.asarray(self.booster.feature_importance("gain"), dtype=np.float64)
        shares = gains / gains.sum() if gains.any() else gains
        named = dict(zip(BEHAVIOUR, shares.tolist(), strict=True))
        return dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text only; the workers of an engine parse the trees themselves."""
        return ExaminationModel, (self.text, self.settings, dict(self.sessions), dict(self.quality))


def train_model(
    cells: pa.Table, settings: ExaminationSettings, *, sessions: Mapping[str, str] | None = None
) -> ExaminationModel:
    """Train a model on the `CELLS` of searches that are not held out; `sessions` are fingerprints of files by day."""
    chosen = cells.filter(pa.array((column(cells, "label") >= NEGATIVE) & (column(cells, "held_out") == 0)))
    text = grow(matrix(chosen), column(chosen, "label") == POSITIVE, column(chosen, "rows"), settings)
    return ExaminationModel(text, settings, sessions or {})


def grow(features: Float64, positive: Bool, rows: Int64, settings: ExaminationSettings) -> str:
    """Return trees that minimise -1[t > 5 s] log e - 1[t < 1 s] log(1 - e) (§6.1.1), in LightGBM's text format.

    The loss is a sum over rows, so a cell is weighted by its number of rows. Each value of a feature has its own bin.
    Cells therefore give the same objective, gradients, hessians and bins as single rows. LightGBM would count a cell
    as one row, so the size of a leaf is limited by its hessian and not by `min_data_in_leaf`. Gradients have 32 bits
    and are summed in another order: estimates agree to about 1e-8 until two splits are equally good up to rounding.
    """
    library = _lightgbm()
    used = np.array([name not in UNUSED[settings.clicks] for name in BEHAVIOUR])
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
        features * used,  # a feature that is 0 in all rows is never split on
        label=positive.astype(np.float64),
        weight=rows.astype(np.float64),
        feature_name=list(BEHAVIOUR),
        params=parameters,
    )
    booster = library.train(parameters, data, num_boost_round=settings.trees)
    return str(booster.model_to_string(num_iteration=-1))


def save_model(model: ExaminationModel, folder: Path) -> Path:
    """Save a model as the newest of a folder, unless it already is, and return its JSON file.

    The trees are a second file of the same name, with the suffix .txt. The JSON file is written last, so that a model
    is complete or absent. Hold the log's lock if several processes may save. Only the last ten models are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    described = {"format": FORMAT, "version": VERSION, "fingerprint": model.fingerprint}
    described |= {"settings": plain(model.settings), "sessions": dict(model.sessions), "quality": dict(model.quality)}
    about = json.dumps(described, indent=1, sort_keys=True) + "\n"
    before = _files(folder)
    if before and before[-1].read_text(encoding="utf-8") == about and before[-1].with_suffix(".txt").exists():
        return before[-1]
    path = folder / f"{PREFIX}{1 + (_number(before[-1]) if before else 0):06d}.json"
    write_file(path.with_suffix(".txt"), model.text)
    write_file(path, about)
    for old in before[: -(SAVED - 1)]:
        old.unlink(missing_ok=True)
        old.with_suffix(".txt").unlink(missing_ok=True)
    return path


def newest_model(folder: Path) -> ExaminationModel | None:
    """Return the current model of a folder; None if there is none."""
    files = _files(folder)
    return load_model(files[-1]) if files else None


def chosen_model(folder: Path, name: str | None) -> ExaminationModel | None:
    """Return the model of a JSON file, None for the name "none", or the current model of the folder if name is None."""
    if name == "none":
        return None
    return newest_model(folder) if name is None else load_model(Path(name))


class TrainingRecord(msgspec.Struct):
    """What the JSON file of a model records about its training."""

    sessions: dict[str, str]
    quality: dict[str, float]


def load_model(path: Path) -> ExaminationModel:
    """Return the model of a JSON file and the .txt file of its trees; raise DataError if either was changed."""
    about = read_json(path, remedy=AGAIN)
    trees = path.with_suffix(".txt")
    if not trees.is_file():
        raise DataError("is missing", file=trees, remedy=AGAIN)
    for name, value in (("format", FORMAT), ("version", VERSION)):
        if about.get(name) != value:
            raise DataError(f"has {name} {about.get(name)!r}, not {value!r}", file=path, remedy=AGAIN)
    try:
        text = trees.read_text(encoding="utf-8")
        settings = build(ExaminationSettings, about.get("settings", {}), path="settings")
        training = msgspec.convert(about, TrainingRecord)
    except (SettingError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise DataError(f"does not describe an examination model ({error})", file=path, remedy=AGAIN) from None
    model = ExaminationModel(text, settings, training.sessions, training.quality)
    if about.get("fingerprint") != model.fingerprint:
        raise DataError(f"has another fingerprint than its settings and {trees.name}", file=path, remedy=AGAIN)
    _ = model.booster
    return model


def _files(folder: Path) -> list[Path]:
    """Return the JSON files of the models of a folder, the newest last."""
    files = [path for path in folder.glob(f"{PREFIX}*.json") if path.stem.removeprefix(PREFIX).isdecimal()]
    return sorted(files, key=_number)


def _number(path: Path) -> int:
    return int(path.stem.removeprefix(PREFIX))


def _lightgbm() -> Any:
    """Return the library LightGBM; raise an error that says how to install it if it is missing."""
    try:
        import lightgbm
    except ImportError:
        raise MissingExtraError("trees", "the examination model") from None
    return lightgbm
