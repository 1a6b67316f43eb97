"""Every row of the tables: a score of each candidate by each method, in one world."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from clickprism.log.engines.base import connect
from clickprism.relevance.approximation import HELD_OUT, THREADS, descend, new_network, split
from clickprism.relevance.approximation_settings import ApproximateSettings
from clickprism.relevance.click_vectors import VectorScale
from clickprism.relevance.estimators import Affine, DoublyRobust, InversePropensity
from clickprism.training.network import torch_set_for
from clickprism.types import Float32, Float64
from reproduce.adr.encoders import METHODS, Encoded, Loss, fit_encoder, lower_layers, training_data
from reproduce.adr.pipeline import Counts, Pipeline
from reproduce.adr.world import Size, World, make_world

MIXED: Final = ("no_correction", "display_filtering", "rand")
ORACLES: Final = ("oracle: labels", "oracle: affine with true parameters")
BASE: Final = "no_correction"
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Draw:
    """One world and what every method makes of it.

    Attributes:
        world: The world.
        scores: Scores of the candidates by name of the method, [rows].
        facts: Counts, click parameters, quality of the examination model, and other numbers.
    """

    world: World
    scores: dict[str, Float64]
    facts: dict[str, Any]


def draw(folder: Path, size: Size, *, seed: int, texts: Path | None, say: Say) -> Draw:
    """Simulate a world, and run the product and all competitors on its raw log."""
    start = time.perf_counter()

    def note(text: str) -> None:
        say(f"draw {seed}, {time.perf_counter() - start:.0f} s: {text}")

    world = make_world(folder / "raw", size, seed=seed, texts=texts)
    note(f"{world.raw.searches:,} searches simulated")
    with connect("duckdb", threads=1) as engine:
        run = Pipeline.run(world.raw.folder / "events", folder, engine, world.pairs, truth=world.raw.folder / "truth")
        note("raw log ingested, sessions built, examination model trained")
        before, after = (
            {kind: run.counts(*span, randomised=kind == "rand") for kind in ("log", "rand")}
            for span in ((run.start, run.middle), (run.middle, run.end))
        )
        lower = lower_layers(world, tokens=size.tokens)
        encoded: dict[str, Encoded] = {}
        for method in METHODS:
            data = training_data(method, before["log"], before["rand"], theta(run))
            encoded[method] = fit_encoder(lower, *data, epochs=size.epochs, seed=seed)
            note(f"cross encoder {method} fine-tuned")
        scores: dict[str, Float64] = {name: each.relevance for name, each in encoded.items()}
        vectors = run.vectors(run.middle), run.vectors(run.end)
        x = [each.of(*world.pairs) for each in vectors]
        scale = VectorScale.fit_raw(x[0], vectors[0].fields, vectors[0].empty)
        clicks = scale(x[0]), scale(x[1])
        for method in MIXED:
            data = training_data(method, after["log"], after["rand"], theta(run))
            mixed = _mixture(world, encoded[method].representation, clicks, data, seed=seed)
            scores[f"vanilla_mix + {method}"] = mixed
        data = training_data("display_filtering", after["log"], after["rand"], theta(run))
        words = torch.stack([lower.words, lower.cosine], dim=1).numpy()
        scores["bag of words mix + display_filtering"] = _mixture(world, words, clicks, data, seed=seed)
        note("mixtures trained")
        imputation = run.write_imputation(encoded["rand"].relevance, "imputation")
        for preset in ("published", "default"):
            fitted, scores[f"approximated doubly robust, {preset}"] = run.approximate(
                imputation, "published" if preset == "published" else "default", seed=seed
            )
            scores[f"approximated affine, {preset}"] = fitted.affine(x[1])
        note("approximations fitted and applied")
        scores["ipw of counts"] = run.estimates(InversePropensity(), imputation)
        scores["affine"] = run.estimates(Affine(), imputation)
        scores["doubly robust, Eq. 4"] = run.estimates(DoublyRobust(beta_1=run.level), imputation)
        scores["log_model"] = run.log_model(imputation)
        oracle = world.truth.parameters
        scores[ORACLES[1]] = run.estimates(Affine(), imputation, parameters=oracle)
        scores[ORACLES[0]] = world.truth.judged.grades.astype(np.float64)
        scores["clicks of counts"] = _click_rate(after["log"])
        scores["engine"] = _mean_rank(after["log"])
        note("estimates computed")
        facts = _facts(world, run, before, after)
    return Draw(world, {name: np.nan_to_num(each, nan=-9.0) for name, each in scores.items()}, facts)


def theta(run: Pipeline) -> Float64:
    """Return the propensities by randomised first results, [positions]."""
    found = run.parameters.theta
    return run.parameters.alpha if found is None else found


def _mixture(
    world: World,
    representation: Float32,
    clicks: tuple[Float32, Float32],
    data: tuple[Float64, Float64, Loss],
    *,
    seed: int,
) -> Float64:
    """Return the scores of Vanilla-Mix: an MLP on h and x, as of before the clicks to learn and as of the end."""
    clicked, shown, loss = data
    settings = ApproximateSettings(preset="published", seed=seed)
    deviation = np.maximum(representation.std(axis=0), 1e-6)
    h = (representation - representation.mean(axis=0)) / deviation
    inputs = [torch.from_numpy(np.concatenate([h, x], axis=1)).float() for x in clicks]
    rows = np.flatnonzero(shown.sum(axis=1) > 0)
    given = [torch.from_numpy(each[rows]).float() for each in (clicked, shown)]
    known = inputs[0][torch.from_numpy(rows)]
    parts = split(world.pairs[0][rows], HELD_OUT, seed=seed)
    with torch_set_for(seed, THREADS):
        network = new_network(settings, known.shape[1])

        def entropy(output: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
            return loss(output, given[0][chosen], given[1][chosen], torch.zeros(0))

        descend(network, known, entropy, weights=given[1].sum(1), parts=parts, settings=settings, seed=seed)
        with torch.inference_mode():
            return np.asarray(network(inputs[1]).double().numpy())


def _click_rate(counts: Counts) -> Float64:
    return np.asarray((counts.clicked.sum(axis=1) + 0.01) / (counts.impressions.sum(axis=1) + 1.0))


def _mean_rank(counts: Counts) -> Float64:
    """Return minus the mean position; a candidate that was not shown comes last."""
    shown = counts.impressions.sum(axis=1)
    total = counts.impressions @ np.arange(1, counts.impressions.shape[1] + 1)
    return -np.where(shown > 0, total / np.maximum(shown, 1), 99.0)


def _facts(world: World, run: Pipeline, before: dict[str, Counts], after: dict[str, Counts]) -> dict[str, Any]:
    """Return the numbers of Table 1, the click parameters beside the true ones, and the examination model."""
    true, found, judged = world.truth.parameters, run.parameters, world.truth.judged
    both = {name: before[name].impressions.sum(axis=1) + after[name].impressions.sum(axis=1) for name in before}
    list_of = judged.lists.list_of
    table = {
        name: {
            "queries": len(np.unique(list_of[shown > 0])),
            "pairs": int((shown > 0).sum()),
            "impressions": int(shown.sum()),
        }
        for name, shown in both.items()
    }
    rand = before["rand"].clicked.sum() + after["rand"].clicked.sum()
    table["manual"] = {"queries": len(judged.lists.query_ids), "pairs": judged.lists.documents, "impressions": 0}
    first = true.theta[0] if true.theta is not None else 1.0
    return {
        "table 1": table,
        "searches": world.raw.searches,
        "first-slot click rate": float(rand / both["rand"].sum()),
        "alpha": found.alpha.tolist(),
        "true alpha": true.alpha.tolist(),
        "beta": found.beta.tolist(),
        "true beta": true.beta.tolist(),
        "theta": theta(run).tolist(),
        "true theta": [] if true.theta is None else (true.theta / first).tolist(),
        "beta_1": run.level,
        "examination auc": run.quality.quality.auc,
        "examination auc against truth": None if run.quality.truth is None else run.quality.truth.quality.auc,
        "losses": {name: dict(each.losses.values) for name, each in run.approximations.items()},
    }
