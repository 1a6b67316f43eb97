"""What every trial of a choice works on: the log with normalised features, as one file that processes share."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from clickprism.data.logged import Logged
from clickprism.data.normalise import Normaliser
from clickprism.data.normalise import fit as fit_normaliser
from clickprism.errors import DataError
from clickprism.observation.places import Places, places_of
from clickprism.types import Clicks, Float64, Lists, concatenate

FILE: Final = "log.npz"
COLUMNS: Final = ("offsets", "rows", "positions", "clicks", "impressions")


@final
@dataclass(frozen=True, eq=False)
class Material:
    """A log, merged by what was clicked together where it tells, or else by list; features are quantiles.

    Attributes:
        clicks: the log.
        places: where its documents stood.
        daily: the log merged by list within each day, if its engine heeds past clicks; else None.
        past: the clicks of each entry of `daily` on the days before, [entries].
    """

    clicks: Clicks
    places: Places
    daily: Clicks | None = None
    past: Float64 | None = None

    @classmethod
    def of(cls, logged: Logged) -> Material:
        """That of a log whose features are normalised already."""
        clicks = logged.clicks
        merged = clicks.merge(by="pattern" if clicks.are_patterns else "list")
        if logged.days is None or not heeds_clicks(logged):
            return cls(merged, places_of(merged))
        parts, pasts, before = [], [], np.zeros(clicks.lists.documents)
        for day in np.unique(logged.days):
            today = clicks.take(logged.days == day).merge()
            parts.append(today)
            pasts.append(before[today.rows])
            before = before + np.bincount(today.rows, weights=today.clicks, minlength=len(before))
        return cls(merged, places_of(merged), concatenate(parts), np.concatenate(pasts))

    @property
    def lists(self) -> Lists:
        """The documents."""
        return self.clicks.lists


def prepared(logged: Logged) -> tuple[Material, Normaliser]:
    """The material of a log, and what makes its features of raw ones."""
    clicks = logged.clicks
    normaliser = fit_normaliser("quantile", clicks.lists)
    lists = clicks.lists.with_features(normaliser(clicks.lists).features)
    return Material.of(replace(logged, clicks=replace(clicks, lists=lists, weights=None, seen=None))), normaliser


def heeds_clicks(logged: Logged) -> bool:
    """Whether the engine that made a log moved up what was clicked on days before, by `clickprism.diagnosis`."""
    from clickprism.diagnosis.popularity import popularity

    engine: Any = popularity(logged).details.get("engine")
    return engine is not None and engine["answers"] == "yes"


def save_arrays(file: Path, **arrays: NDArray[Any]) -> None:
    """Write arrays as a file that appears whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}.npz")
    try:
        np.savez(draft, allow_pickle=False, **arrays)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def load_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file."""
    try:
        with np.load(file, allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"cannot be read ({error})", file=file, remedy="Remove it: it is made anew") from None


def save_material(material: Material, folder: Path) -> None:
    """Write the log into a folder, unless it is there."""
    file, lists = folder / FILE, material.lists
    if file.is_file():
        return
    arrays: dict[str, NDArray[Any]] = {
        "features": lists.features,
        "documents": lists.offsets,
        **_columns(material.clicks, ""),
    }
    if material.daily is not None and material.past is not None:
        arrays |= {**_columns(material.daily, "daily_"), "past": material.past}
    save_arrays(file, **arrays)


def _columns(clicks: Clicks, prefix: str) -> dict[str, NDArray[Any]]:
    return {f"{prefix}{name}": getattr(clicks, name) for name in COLUMNS}


def load_material(folder: Path) -> Material:
    """The log of a folder; queries have no names there."""
    kept = load_arrays(folder / FILE)
    names = np.arange(len(kept["documents"]) - 1).astype(str)
    lists = Lists(kept["features"], kept["documents"], names)
    clicks = Clicks(lists, *(kept[name] for name in COLUMNS))
    if "past" not in kept:
        return Material(clicks, places_of(clicks))
    return Material(
        clicks, places_of(clicks), Clicks(lists, *(kept[f"daily_{name}"] for name in COLUMNS)), kept["past"]
    )
