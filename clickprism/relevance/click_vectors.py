"""Click vectors: the click features of pairs, from a snapshot of a log or from counts, as the input of a network."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, final

import numpy as np

from clickprism.errors import DataError
from clickprism.relevance.pairs import FirstSlot, distinct_pairs, find_pairs, ids_of
from clickprism.types import Bool, Float32, Float64, Int64, Text, check

if TYPE_CHECKING:
    from clickprism.log.features.snapshots import Snapshot

RATIOS: Final = {
    "clicked": "impressions",
    "clicks": "impressions",
    "examination": "impressions",
    "skips": "impressions",
    "dwell": "dwells",
    "display": "displays",
}
EXPECTED: Final = (1.0, 4.0, 16.0, 64.0)
"""Numbers of clicks, as many as expected, that are added to the observed ones to smooth their ratio."""
LARGEST: Final = 8.0
"""Limit of the inputs of a network, in standard deviations of the training pairs."""


@final
@dataclass(frozen=True, eq=False)
class ClickVectors:
    """The click vector of each pair, as of one time."""

    query_ids: Text  # Query id of each pair
    document_ids: Text  # Document id of each pair
    x: Float32  # Sums, described in `clickprism.log.schema`, [pairs, L]
    fields: tuple[str, ...]  # Names of the L entries, such as "month.clicked@3"
    empty: Float32  # Vector of a pair that was never shown, [L]: 0, and the length of the window for the age of a click
    as_of: datetime | None = None  # Time of the vectors (UTC): x contains nothing later. None if unknown

    def __post_init__(self) -> None:
        check(self.x.ndim == 2, f"x must be a matrix, got {self.x.ndim} dimensions")
        pairs, width = self.x.shape
        check(len(self.fields) == width, f"x has {width} columns, but there are {len(self.fields)} fields")
        check(len(self.query_ids) == pairs, f"{pairs} vectors but {len(self.query_ids)} query ids")
        first, _ = distinct_pairs(self.query_ids, self.document_ids)
        check(len(first) == pairs, "each pair must have one click vector")

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> ClickVectors:
        """Read the vectors of a snapshot of a log."""
        table = snapshot.read(["query_id", "document_id", "x"])
        width = len(snapshot.fields)
        x = table["x"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
        empty = empty_vector(snapshot)
        return cls(*ids_of(table), x.astype(np.float32), snapshot.fields, empty, as_of=snapshot.as_of)

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return f"ClickVectors({len(self)} pairs, {len(self.fields)} fields, as of {self.as_of})"

    def of(self, query_ids: Text, document_ids: Text) -> Float32:
        """Return the vectors of these pairs, `empty` for those without one, [pairs, L]."""
        rows = find_pairs((self.query_ids, self.document_ids), (query_ids, document_ids))
        return np.where((rows >= 0)[:, None], self.x[rows] if len(self) else self.empty, self.empty)

    def before(self, slot: FirstSlot) -> Float32:
        """Return the vector of each pair of `slot`; raise `DataError` if it may contain a click to predict.

        A network that finds the click to predict in its input learns to read it there, and is wrong on later
        impressions. Excluding each click from its own vector does not help: clicked impressions would then have fewer
        clicks left in x, and a network could learn that. So x must end before the first click that it predicts. If
        neither has a time, as with simulated counts, the caller must know.
        """
        if (self.as_of is None) != (slot.since is None):
            known = "first-slot clicks" if self.as_of is None else "click vectors"
            raise DataError(
                f"the time of the {known} is known, but not that of the others: some of the clicks to predict may be "
                "in the vectors",
                remedy="Give as_of of the click vectors and since of the first-slot clicks, or neither",
            )
        if self.as_of is not None and slot.since is not None and self.as_of > slot.since:
            raise DataError(
                f"the click vectors are as of {self.as_of}, the first-slot clicks from {slot.since} on: "
                "some of the clicks to predict may be in the vectors",
                remedy="Take a snapshot as of an earlier time, or first-slot clicks since a later one",
            )
        return self.of(slot.query_ids, slot.document_ids)


def most_shown(x: Float32, fields: tuple[str, ...]) -> Float64:
    """Return the impressions of each pair in the window with the most impressions, [pairs]."""
    shown = [column for column, name in enumerate(fields) if name.partition(".")[2] == "impressions"]
    if not shown:
        raise DataError("no field of the click vectors counts impressions", remedy="Name one such as month.impressions")
    return np.asarray(np.nan_to_num(x[:, shown].astype(np.float64)).max(axis=1))


def empty_vector(snapshot: Snapshot) -> Float32:
    """Return the vector of a pair that was never shown in a snapshot, [L]."""
    from clickprism.log.features.schedule import schedule
    from clickprism.log.schema import no_clicks

    examined = "day.examination" in snapshot.fields
    windows = [no_clicks(window.hours, examination=examined) for window in schedule(snapshot.as_of)]
    return np.concatenate(windows).astype(np.float32)


@final
@dataclass(frozen=True, eq=False)
class VectorScale:
    """Turns click vectors into the standardised inputs of a network, which are always finite.

    The inputs are log(1 + x) of each field; the ratios of `RATIOS` in each window and at each position, as sum / (1 +
    count) (of seconds: the log of 1 + that); and for each window, with the expected clicks e = sum_k n_k rate_k by the
    click rates of the training pairs: log(1 + e), clicks over expected clicks (Chapelle and Zhang 2009) as
    log((c + m) / (e + m)) for several m, and (c - e) / sqrt(e + 1). Each is standardised by the training pairs and
    limited to 8 deviations. A value that is not finite is replaced by that of a pair that was never shown.

    A raw scale (`fit_raw`) has the fields themselves as inputs, standardised and not limited: a linear map, which the
    first layer of a network can undo. Without it counts of thousands saturate tanh.
    """

    fields: tuple[str, ...]  # Fields of the vectors
    empty: Float64  # Vector of a pair that was never shown, [L]
    rates: Float64  # Click rate of the training pairs for each field of impressions at a position, else 0, [L]
    mean: Float64  # Mean of each input over the training pairs, [inputs]
    factor: Float64  # 1 / deviation; 0 for a constant input, [inputs]

    def __post_init__(self) -> None:
        width = len(self.fields)
        inputs = width
        if not self.raw:
            inputs += len(_ratios(self.fields)[0]) + (len(EXPECTED) + 2) * len(_by_position(self.fields))
        for name, wanted in (("empty", width), ("rates", width), ("mean", inputs), ("factor", inputs)):
            values = getattr(self, name)
            valid = values.shape == (wanted,) and bool(np.isfinite(values).all())
            check(valid, f"{name} of the scale of click vectors must be {wanted} finite numbers")

    @classmethod
    def fit(cls, x: Float32, fields: tuple[str, ...], empty: Float32) -> VectorScale:
        """Fit click rates, means and deviations to the training pairs, [pairs, L]."""
        if len(x) == 0:
            raise DataError("there is no pair to fit the scale of click vectors to")
        hollow = np.asarray(empty, np.float64)
        sums = _finite(x, hollow).sum(axis=0)
        rates = np.zeros(len(fields))
        for shown, clicked in _by_position(fields).values():
            overall = sums[clicked].sum() / max(sums[shown].sum(), 1.0)
            rates[shown] = (sums[clicked] + overall) / (sums[shown] + 1.0)
        return cls(fields, hollow, rates, *_standard(_inputs(_finite(x, hollow), fields, rates)))

    @classmethod
    def fit_raw(cls, x: Float32, fields: tuple[str, ...], empty: Float32) -> VectorScale:
        """Fit means and deviations of the fields themselves to the training pairs, [pairs, L]."""
        hollow = np.asarray(empty, np.float64)
        return cls(fields, hollow, np.zeros(len(fields)), *_standard(_finite(x, hollow)))

    @property
    def raw(self) -> bool:
        """Return whether the inputs are the fields themselves."""
        return len(self.mean) == len(self.fields)

    @property
    def width(self) -> int:
        """Return the number of inputs of a network."""
        return len(self.mean)

    def __call__(self, x: Float32) -> Float32:
        """Return the inputs of these vectors, [pairs, width]."""
        if x.ndim != 2 or x.shape[1] != len(self.fields):
            raise DataError(f"click vectors must have the {len(self.fields)} fields of training, got {list(x.shape)}")
        sums = _finite(x, self.empty)
        if self.raw:
            return ((sums - self.mean) * self.factor).astype(np.float32)
        scaled = (_inputs(sums, self.fields, self.rates) - self.mean) * self.factor
        return np.clip(scaled, -LARGEST, LARGEST).astype(np.float32)


def _standard(inputs: Float64) -> tuple[Float64, Float64]:
    """Return mean and 1 / deviation of each input; 0 for the latter of a constant one."""
    deviation = inputs.std(axis=0)
    return inputs.mean(axis=0), np.divide(1.0, deviation, out=np.zeros(len(deviation)), where=deviation > 1e-9)


def _finite(x: Float32, empty: Float64) -> Float64:
    sums = np.asarray(x, dtype=np.float64)
    return np.maximum(np.where(np.isfinite(sums), sums, empty), 0.0)


def _inputs(sums: Float64, fields: tuple[str, ...], rates: Float64) -> Float64:
    """Return the inputs before they are standardised, [pairs, inputs]."""
    above, below, seconds = _ratios(fields)
    ratios = sums[:, above] / (1 + sums[:, below])
    ratios[:, seconds] = np.log1p(ratios[:, seconds])
    parts = [np.log1p(sums), ratios]
    for shown, clicked in _by_position(fields).values():
        expected, clicks = sums[:, shown] @ rates[shown], sums[:, clicked].sum(axis=1)
        over = [np.log((clicks + more) / (expected + more)) for more in EXPECTED]
        beyond = (clicks - expected) / np.sqrt(expected + 1)
        parts.append(np.stack([*over, beyond, np.log1p(expected)], axis=1))
    return np.concatenate(parts, axis=1)


@lru_cache(maxsize=64)
def _by_position(fields: tuple[str, ...]) -> dict[str, tuple[Int64, Int64]]:
    """Return, by window, the fields of impressions at a position, and those of clicks there."""
    columns = {name: column for column, name in enumerate(fields)}
    found: dict[str, list[tuple[int, int]]] = {}
    for name, column in columns.items():
        window, _, field = name.partition(".")
        clicked = columns.get(f"{window}.{field.replace('impressions@', 'clicked@')}")
        if field.startswith("impressions@") and clicked is not None:
            found.setdefault(window, []).append((column, clicked))
    return {window: (np.array(pairs)[:, 0], np.array(pairs)[:, 1]) for window, pairs in found.items()}


@lru_cache(maxsize=64)
def _ratios(fields: tuple[str, ...]) -> tuple[Int64, Int64, Bool]:
    """Return which fields are divided by which, and whether the ratio is in seconds."""
    columns = {name: column for column, name in enumerate(fields)}
    above, below, seconds = [], [], []
    for name, column in columns.items():
        window, _, field = name.partition(".")
        kind, at, position = field.partition("@")
        count = columns.get(f"{window}.{RATIOS.get(kind, '')}{at}{position}")
        if count is not None:
            above.append(column)
            below.append(count)
            seconds.append(kind in ("dwell", "display"))
    return np.array(above, np.int64), np.array(below, np.int64), np.array(seconds, np.bool_)
