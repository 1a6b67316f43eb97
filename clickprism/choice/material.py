"""What every trial of a choice works on: the log with normalised features, as one file that processes share."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from clickprism._util.files import atomic_file
from clickprism.choice.places import Places, places_by_day, places_of
from clickprism.data.logged import Logged
from clickprism.data.normalise import Normaliser
from clickprism.data.normalise import fit as fit_normaliser
from clickprism.errors import DataError
from clickprism.log_model.counts import count
from clickprism.log_model.references import LEAST_CLICKS, Links
from clickprism.types import Clicks, Float64, Lists

FILE: Final = "log.npz"
REMEDY: Final = "Remove it: it is made anew"
ENOUGH: Final = 200.0  # clicks of a query that tell half of what endless ones would
PLACES: Final = ("rows", "places", "clicks", "impressions", "position_of")
COLUMNS: Final = ("offsets", "rows", "positions", "clicks", "impressions")


@final
@dataclass(frozen=True, eq=False)
class Material:
    """A log, merged by what was clicked together where it tells, or else by list; features are quantiles.

    Attributes:
        clicks: the log.
        places: where its documents stood.
    """

    clicks: Clicks
    places: Places

    @classmethod
    def of(cls, logged: Logged) -> Material:
        """That of a log whose features are normalised already."""
        clicks = logged.clicks
        merged = clicks.merge(by="pattern" if clicks.are_patterns else "list")
        return cls(merged, places_of(merged) if logged.days is None else places_by_day(clicks, logged.days))

    @property
    def lists(self) -> Lists:
        """The documents."""
        return self.clicks.lists

    @property
    def weights(self) -> Float64:
        """How much each query tells, from 0 to 1, [lists]: those with few clicks tell more of chance."""
        queries = self.lists.list_of[self.places.rows]
        clicked = np.bincount(queries, weights=self.places.clicks, minlength=len(self.lists))
        return np.asarray(clicked / (clicked + ENOUGH), dtype=np.float64)


def positions_linked(clicks: Clicks) -> bool:
    """Return whether documents shown at several positions link all positions; false if there is one position only."""
    links = Links.of(count(clicks))
    groups = links.groups(np.flatnonzero(links.strength >= LEAST_CLICKS))
    return len(groups) > 1 and bool((groups == 0).all())


def prepared(logged: Logged) -> tuple[Material, Normaliser]:
    """The material of a log, and what makes its features of raw ones."""
    clicks = logged.clicks
    normaliser = fit_normaliser("quantile", clicks.lists)
    lists = clicks.lists.with_features(normaliser(clicks.lists).features)
    return Material.of(replace(logged, clicks=replace(clicks, lists=lists, weights=None, seen=None))), normaliser


def save_arrays(file: Path, **arrays: NDArray[Any]) -> None:
    """Write arrays as a file that appears whole or not at all."""
    with atomic_file(file, parents=True) as draft, draft.open("wb") as opened:
        np.savez(opened, allow_pickle=False, **arrays)


def load_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"cannot be read ({error})", file=file, remedy=REMEDY) from None


def save_material(material: Material, folder: Path) -> None:
    """Write the log into a folder, unless it is there."""
    file, lists = folder / FILE, material.lists
    if file.is_file():
        return
    columns: dict[str, NDArray[Any]] = {name: getattr(material.clicks, name) for name in COLUMNS}
    columns |= {f"place_{name}": value for name, value in vars(material.places).items() if value is not None}
    save_arrays(file, features=lists.features, documents=lists.offsets, **columns)


def load_material(folder: Path) -> Material:
    """The log of a folder; queries have no names there."""
    kept = load_arrays(folder / FILE)
    names = np.arange(len(kept["documents"]) - 1).astype(str)
    lists = Lists(kept["features"], kept["documents"], names)
    clicks = Clicks(lists, *(kept[name] for name in COLUMNS))
    places = {name.removeprefix("place_"): value for name, value in kept.items() if name.startswith("place_")}
    rows, at, clicked, shown, position_of = (places[name] for name in PLACES)
    knows, popularity = bool(places["knows_clicks"]), places.get("popularity")
    return Material(clicks, Places(rows, at, clicked, shown, position_of, knows, popularity))
