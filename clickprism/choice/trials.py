"""Trials of a choice: each is a file of its folder, made by whichever process comes to it, and never made twice."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from clickprism.choice.candidates import ALIKE, BEND, FORMS, LEARNED, Candidate
from clickprism.choice.exposure import as_it_is, average, by_form, learned
from clickprism.choice.material import Material, load_arrays, load_material, save_arrays
from clickprism.choice.targets import Exposure, targets
from clickprism.choice.training import train
from clickprism.errors import ClickprismError
from clickprism.evaluation.report import write_whole
from clickprism.observation.alike import fit_alike
from clickprism.observation.seen import Form, MovedLines, Seen, fit_form, likelihoods, seen_of
from clickprism.types import Bool, Float64, Int64

HELD_OUT: Final = 0.4
NONE: Final = "none"  # no bias at all, the form that others are compared with
FOLDS: Final = 2
NUMBERS: Final = ".json"


def observation_trial(folder: str, name: str, seed: int) -> str:
    """Fit an observation model of `METHODS`, and keep its targets and how likely it makes held-out queries."""
    place, begun = Path(folder), time.perf_counter()
    file = place / "observations" / f"{name}{NUMBERS}"
    if file.is_file():
        return name
    material = load_material(place)
    told: dict[str, Any] = {"name": name, "refused": ""}
    try:
        exposure, about, gains = _observed(material, name, seed)
        save_arrays(_beside(file), target=targets(exposure, material.lists.documents), gains=gains)
        told |= about
    except ClickprismError as error:
        told["refused"] = str(error)
    told["seconds"] = round(time.perf_counter() - begun, 3)
    write_whole(file, json.dumps(told, indent=1) + "\n")
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
        model = train(material.lists, target, candidate.ranker, queries=(fold >= 0) & (fold != part), seed=seed)
        mine = (fold == part)[material.lists.list_of]
        scores[mine] = model.score(material.lists)[mine]
    save_arrays(_beside(file), scores=scores)
    write_whole(file, json.dumps({"name": name, "seconds": round(time.perf_counter() - begun, 3)}, indent=1) + "\n")
    return name


def final_trial(folder: str, name: str, out: str, seed: int) -> str:
    """Train a candidate on all queries, and keep its model, on normalised features."""
    place, candidate = Path(folder), Candidate.parse(name)
    if (place / out / "model.json").is_file():
        return name
    material = load_material(place)
    everything = np.ones(len(material.lists), dtype=np.bool_)
    train(material.lists, target_of(place, candidate.method), candidate.ranker, queries=everything, seed=seed).save(
        place / out
    )
    return name


def target_of(folder: Path, method: str) -> Float64:
    """The targets that an observation model made, [documents]."""
    return np.asarray(load_arrays(_beside(folder / "observations" / f"{method}{NUMBERS}"))["target"], dtype=np.float64)


def told_of(folder: Path, name: str) -> tuple[dict[str, Any], Float64 | None]:
    """What a trial of an observation model came to, and what it gains on each held-out query, [queries]."""
    file = folder / "observations" / f"{name}{NUMBERS}"
    told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if told["refused"]:
        return told, None
    return told, np.asarray(load_arrays(_beside(file))["gains"], dtype=np.float64)


def scores_of(folder: Path, name: str, queries: int) -> Float64:
    """The scores of a trial of a ranker, each by a model that did not see the query, [documents]."""
    file = folder / "rankers" / f"{name.replace('/', '-')}-{queries}{NUMBERS}"
    return np.asarray(load_arrays(_beside(file))["scores"], dtype=np.float64)


def folds(lists: int, queries: int, seed: int) -> Int64:
    """The part of each query, -1 where it takes no part, [lists]; of many queries so many are drawn."""
    order = np.random.default_rng([seed, 3]).permutation(lists)
    found = np.full(lists, -1, dtype=np.int64)
    found[order[:queries]] = np.arange(min(queries, lists)) % FOLDS
    return found


def held_out(lists: int, seed: int) -> Bool:
    """Which queries compare observation models, [lists]."""
    return np.random.default_rng([seed, 31]).random(lists) < HELD_OUT


def _beside(file: Path) -> Path:
    return file.with_suffix(".npz")


def _observed(material: Material, name: str, seed: int) -> tuple[Exposure, dict[str, Any], Float64]:
    """The exposure, what is told of it, and the gain of log-likelihood on each held-out query."""
    nothing = np.zeros(0)
    if name == "click":
        return as_it_is(material), {}, _unbiased(material, seed)
    if name in FORMS:
        return _formed(material, FORMS[name], seed)
    if name in ALIKE:
        return _alike(material, seed, bend=name != ALIKE[0])
    if name not in LEARNED:
        raise KeyError(name)
    exposure, curve = learned(material, name, seed=seed)
    return exposure, {} if curve is None else {"curve": np.asarray(curve).tolist()}, nothing


def _alike(material: Material, seed: int, *, bend: bool) -> tuple[Exposure, dict[str, Any], Float64]:
    found = fit_alike(material.clicks, bend=bend, seed=seed)
    form, places = Form(bend=BEND if bend else 0.0), material.places
    trusted = np.zeros(material.clicks.max_position)
    seen = Seen(form, found.below[places.position_of], trusted, found.slopes, found.shift)
    about: dict[str, Any] = {"curve": np.exp(found.below).tolist()}
    if bend:
        about["bend"] = {"spread": float(seen.steepness(material.lists).std())}
    return by_form(material, seen), about, found.bent if bend else found.gains


def _unbiased(material: Material, seed: int) -> Float64:
    """The likelihood of held-out queries where nothing is biased, [lists]; none where nothing moved."""
    try:
        data = MovedLines.of(material.places, material.lists, seed=seed)
    except ClickprismError:
        return np.zeros(0)
    held = held_out(len(material.lists), seed)[data.queries]
    form = Form(curve=False)
    check = data.take(held)
    return _by_query(check, likelihoods(check, form, fit_form(data.take(~held), form)), len(material.lists))


def _formed(material: Material, form: Form, seed: int) -> tuple[Exposure, dict[str, Any], Float64]:
    data = MovedLines.of(material.places, material.lists, seed=seed)
    held = held_out(len(material.lists), seed)[data.queries]
    check = data.take(held)
    vector = fit_form(data.take(~held), form)
    values = _by_query(check, likelihoods(check, form, vector), len(material.lists))
    fitted = seen_of(data, form, fit_form(data, form, start=vector))
    about: dict[str, Any] = {"curve": np.exp(average(data.position_of, fitted.below)).tolist()}
    if form.trust:
        about["trust"] = fitted.trusted.tolist()
    if form.bend > 0:
        about["bend"] = {"prior": BEND, "spread": float(fitted.steepness(material.lists).std())}
    return by_form(material, fitted), about, values


def _by_query(data: MovedLines, values: Float64, lists: int) -> Float64:
    return np.bincount(data.queries, weights=values, minlength=lists).astype(np.float64)


def named(folder: Path) -> Mapping[str, float]:
    """The seconds of every trial that was done, by name."""
    files = sorted([*folder.glob(f"observations/*{NUMBERS}"), *folder.glob(f"rankers/*{NUMBERS}")])
    return {file.stem: float(json.loads(file.read_text(encoding="utf-8"))["seconds"]) for file in files}
