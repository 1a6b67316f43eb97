"""Trials of a choice: each is a file of its folder, made by whichever process comes to it, and never made twice."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from clickprism._util.files import read_json, write_file
from clickprism.choice.candidates import LEARNED, METHODS, MOVED, POOLED, Candidate
from clickprism.choice.criterion import moved_likelihood
from clickprism.choice.exposure import as_it_is, average, by_places, by_trust, learned
from clickprism.choice.material import REMEDY, Material, load_arrays, load_material, save_arrays
from clickprism.choice.moved import SCALES, MovedSettings, fit_moved
from clickprism.choice.pooled import fit_pooled
from clickprism.choice.targets import Exposure, targets
from clickprism.choice.training import train
from clickprism.click_models.pbm import count
from clickprism.click_models.trust import fit_trust
from clickprism.errors import ClickprismError
from clickprism.types import Float64, Int64

FOLDS: Final = 2
NUMBERS: Final = ".json"


def observation_trial(folder: str, name: str, seed: int) -> str:
    """Fit an observation model of `METHODS`, and keep its targets and how likely it makes clicks."""
    place, begun = Path(folder), time.perf_counter()
    file = place / "observations" / f"{name}{NUMBERS}"
    if file.is_file():
        return name
    material = load_material(place)
    told: dict[str, Any] = {"name": name, "refused": ""}
    try:
        exposure, about, told_by = _observed(material, name, seed)
        target, moved = targets(exposure, material.lists.documents), moved_likelihood(exposure, material.lists)
        save_arrays(_beside(file), target=target, moved=moved, gains=told_by[0], more=told_by[1])
        told |= about
    except ClickprismError as error:
        told["refused"] = str(error)
    told["seconds"] = round(time.perf_counter() - begun, 3)
    write_file(file, json.dumps(told, indent=1) + "\n")
    return name


def ranker_trial(folder: str, name: str, seed: int, queries: int) -> str:
    """Train a candidate on each half of some queries, and keep its scores of the other half."""
    place, begun = Path(folder), time.perf_counter()
    file = place / "rankers" / f"{name.replace('/', '-')}-{queries}{NUMBERS}"
    if file.is_file():
        return name
    candidate, material = Candidate.parse(name), load_material(place)
    target = target_of(place, candidate.method)
    fold = folds(len(material.lists), queries, seed)
    scores = np.full(material.lists.documents, np.nan)
    for part in range(FOLDS):
        model = train(
            material.lists,
            target,
            candidate.ranker,
            queries=(fold >= 0) & (fold != part),
            seed=seed,
            weights=material.weights,
        )
        mine = (fold == part)[material.lists.list_of]
        scores[mine] = model.score(material.lists)[mine]
    save_arrays(_beside(file), scores=scores)
    write_file(file, json.dumps({"name": name, "seconds": round(time.perf_counter() - begun, 3)}, indent=1) + "\n")
    return name


def final_trial(folder: str, name: str, out: str, seed: int) -> str:
    """Train a candidate on all queries, and keep its model, on normalised features."""
    place, candidate = Path(folder), Candidate.parse(name)
    if (place / out / "model.json").is_file():
        return name
    material = load_material(place)
    everything = np.ones(len(material.lists), dtype=np.bool_)
    model = train(
        material.lists,
        target_of(place, candidate.method),
        candidate.ranker,
        queries=everything,
        seed=seed,
        weights=material.weights,
    )
    model.method = {"name": candidate.method, "learns": METHODS[candidate.method]}  # and not that of the loss
    model.save(place / out)
    return name


def target_of(folder: Path, method: str) -> Float64:
    """The targets that an observation model made, [documents]."""
    return np.asarray(load_arrays(_beside(folder / "observations" / f"{method}{NUMBERS}"))["target"], dtype=np.float64)


@final
@dataclass(frozen=True, eq=False)
class Tried:
    """What a trial of an observation model came to.

    Attributes:
        about: its numbers; `refused` says why there are none.
        moved: log-likelihood of where clicks on documents that moved fell, by query, [lists].
        gains: `Pooled.gains`, by query, [lists]; empty for others.
        more: `Pooled.more`; empty for others.
    """

    about: dict[str, Any]
    moved: Float64
    gains: Float64
    more: Float64


def tried_of(folder: Path, name: str) -> Tried:
    """The trial of an observation model."""
    file = folder / "observations" / f"{name}{NUMBERS}"
    about = read_json(file, remedy=REMEDY)
    if about["refused"]:
        return Tried(about, np.zeros(0), np.zeros(0), np.zeros(0))
    kept = load_arrays(_beside(file))
    return Tried(about, kept["moved"], kept["gains"], kept["more"])


def scores_of(folder: Path, name: str, queries: int) -> Float64:
    """The scores of a trial of a ranker, each by a model that did not see the query, [documents]."""
    file = folder / "rankers" / f"{name.replace('/', '-')}-{queries}{NUMBERS}"
    return np.asarray(load_arrays(_beside(file))["scores"], dtype=np.float64)


def unseen_scores(folder: Path, name: str, queries: int) -> Float64 | None:
    """The same, of all documents; None where the candidate was not tried on all queries."""
    if not (folder / "rankers" / f"{name.replace('/', '-')}-{queries}{NUMBERS}").is_file():
        return None
    scores = scores_of(folder, name, queries)
    return None if np.isnan(scores).any() else scores


def folds(lists: int, queries: int, seed: int) -> Int64:
    """The part of each query, -1 where it takes no part, [lists]; of many queries so many are drawn."""
    order = np.random.default_rng([seed, 3]).permutation(lists)
    found = np.full(lists, -1, dtype=np.int64)
    found[order[:queries]] = np.arange(min(queries, lists)) % FOLDS
    return found


def _beside(file: Path) -> Path:
    return file.with_suffix(".npz")


def _observed(material: Material, name: str, seed: int) -> tuple[Exposure, dict[str, Any], tuple[Float64, Float64]]:
    """The exposure, what is told of it, and `Tried.gains` and `Tried.more`."""
    nothing = np.zeros(0), np.zeros(0)
    if name == "click":
        return as_it_is(material), {}, nothing
    if name == "trust":
        fitted = fit_trust(count(material.clicks))
        about = {"curve": fitted.alpha.tolist(), "trust": fitted.beta.tolist()}
        return by_trust(material, fitted), about, nothing
    if name in MOVED:
        return *_moved(material, name, seed), nothing
    if name in POOLED:
        return _pooled(material, seed, bend=name != POOLED[0])
    if name not in LEARNED:
        raise KeyError(name)
    exposure, curve = learned(material, name, seed=seed)
    return exposure, {} if curve is None else {"curve": np.asarray(curve).tolist()}, nothing


def _pooled(material: Material, seed: int, *, bend: bool) -> tuple[Exposure, dict[str, Any], tuple[Float64, Float64]]:
    """By all documents."""
    found = fit_pooled(material.clicks, bend=bend, places=material.places, seed=seed)
    about: dict[str, Any] = {
        "curve": np.exp(average(material.places.position_of, found.below - found.below[0])).tolist(),
        "browsing": found.browsing,
        "popular": found.popular,
    }
    if bend:
        about["bend"] = {"spread": float(found.bends.std())}
    steep = found.steepness(material.places) if bend or found.popular else None
    exposure = by_places(material, found.below, steep)
    return exposure, about, (found.gains, found.more)


def _moved(material: Material, name: str, seed: int) -> tuple[Exposure, dict[str, Any]]:
    """By documents that stood at several positions."""
    scales = SCALES if name == "bend" else ()
    settings = MovedSettings(scales=scales, browsing=name == "browsing", seed=seed)
    found = fit_moved(material.clicks, settings, places=material.places)
    about: dict[str, Any] = {"curve": np.exp(average(material.places.position_of, found.below)).tolist()}
    steep = found.steepness(material.lists)[material.places.rows] if found.scale > 0 else None
    if steep is not None:
        about["bend"] = {"spread": float(steep.std())}
    return by_places(material, found.below, steep), about


def named(folder: Path) -> Mapping[str, float]:
    """The seconds of every trial that was done, by name."""
    files = sorted([*folder.glob(f"observations/*{NUMBERS}"), *folder.glob(f"rankers/*{NUMBERS}")])
    return {file.stem: float(read_json(file, remedy=REMEDY)["seconds"]) for file in files}
