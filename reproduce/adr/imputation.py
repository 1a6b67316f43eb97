"""The imputation of a world, learned from explored first slots of its earlier months, for every candidate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import clickprism as cp
from clickprism.relevance.imputation import FeatureImputation
from clickprism.relevance.pairs import FirstSlot, find_pairs
from clickprism.training.calibration import Calibration
from clickprism.training.settings import Validation
from clickprism.types import Bool, Float32, Float64, Int64, Lists
from reproduce.adr.config import TUNED
from reproduce.adr.parameters import parameters_of
from reproduce.adr.searches import Log
from reproduce.adr.worlds import Site, World, site_of
from reproduce.adr.year import log_of
from reproduce.common.pool import say

HELD_OUT = 0.15  # of the queries, by whose clicks the epoch is chosen
HIDDEN = (64, 32)
RATE, PATIENCE = 0.02, 8
MOST = 30  # impressions that a document counts for at most: else a few documents of head queries would be all there is


def imputed(world: World, folder: Path | None, *, epochs: int) -> tuple[dict[str, Float64 | Float32], dict[str, Any]]:
    """The imputation of each candidate, [documents], and its representation, [documents, width]."""
    site, log = site_of(world, folder), log_of(world, folder)
    slot = slot_of(world, site, log, log.months < world.split)
    if world.data == "embedded":
        values, notes = by_features(site, slot, epochs=epochs, seed=world.seed)
        representation = site.judged.lists.features
    else:
        values, representation, notes = by_texts(site, slot, folder, epochs=int(world.data == TUNED), seed=world.seed)
    notes["correlation"] = float(np.corrcoef(values, site.first_slot)[0, 1])
    notes["impressions"] = int(slot.impressions.sum())
    notes["lost"] = lost(log, site.judged.lists.list_of)
    parameters, error = parameters_of(site, log)
    notes["rate_error"] = error
    arrays: dict[str, Float64 | Float32] = {"imputed": values, "representation": representation}
    return arrays | {"alpha": parameters.alpha, "beta": parameters.beta}, notes


def lost(log: Log, query_of: Int64) -> float:
    """The share of clicks in the first slot that exploration costs: in each query, what it shows against what it hides.

    sum over queries of n_e (rate - rate_e) / sum of (n + n_e) rate, with n_e explored searches of rate_e
    """
    first = log.take(log.places == 0)
    queries = int(query_of.max()) + 1
    shown, clicked, explored, explored_clicked = (
        np.bincount(query_of[first.rows[of]], weights=values[of], minlength=queries)
        for of in (~first.randomised, first.randomised)
        for values in (first.impressions, first.clicked)
    )
    both = (shown > 0) & (explored > 0)
    rate = clicked / np.maximum(shown, 1)
    gone = (explored * rate - explored_clicked)[both].sum()
    return float(gone / max(((shown + explored) * rate).sum(), 1.0))


def slot_of(world: World, site: Site, log: Log, chosen: Bool) -> FirstSlot:
    """The clicks in first slots of some entries of a log.

    Explored ones; in a world without exploration all, which the production ranker filled.
    """
    first = log.take(chosen & (log.places == 0) & (log.randomised | (world.randomised == 0)))
    queries, documents = site.pairs
    return FirstSlot.of(queries[first.rows], documents[first.rows], first.clicked, impressions=first.impressions)


def by_features(site: Site, slot: FirstSlot, *, epochs: int, seed: int) -> tuple[Float64, dict[str, Any]]:
    """A network on the features, fitted to clicks in the first slot; the epoch by those of held-out queries."""
    lists = site.judged.lists
    aside = np.isin(slot.query_ids, lists.query_ids[np.random.default_rng(seed).random(len(lists)) < HELD_OUT])
    learned, held_out = slot.take(~aside), slot.take(aside)
    rows = find_pairs(site.pairs, (learned.query_ids, learned.document_ids))
    order = np.argsort(rows)
    rows, shown = rows[order], np.minimum(learned.impressions, MOST)[order]
    clicks = np.minimum(np.rint(learned.clicks[order] * shown / learned.impressions[order]), shown).astype(np.int64)
    single = cp.Clicks(lists, np.arange(len(rows) + 1), rows, np.ones(len(rows), np.int32), clicks, shown)
    other = find_pairs(site.pairs, (held_out.query_ids, held_out.document_ids))

    def likelihood(score: Callable[[Lists], Float64]) -> float:
        scores = score(lists)
        odds = Calibration.fit(scores[rows], clicks, shown)(scores[other])
        weight = np.minimum(held_out.impressions, MOST) / held_out.impressions
        skips = held_out.impressions - held_out.clicks
        of = -held_out.clicks * np.logaddexp(0, -odds) - skips * np.logaddexp(0, odds)
        return float((weight * of).sum() / (weight * held_out.impressions).sum())

    fitted = cp.fit(
        single,
        method=cp.method("pal"),
        ranker=cp.MLP(hidden=HIDDEN),
        settings=cp.FitSettings(
            epochs=epochs, batch_size=256, learning_rate=RATE, patience=PATIENCE, threads=1, seed=seed
        ),
        validation=Validation("the likelihood of held-out first-slot clicks", likelihood),
        show=False,
    )
    made = FeatureImputation.fit(fitted.model, lists, slot)
    return made.impute(*site.pairs), {"best_epoch": fitted.best_epoch}


def by_texts(
    site: Site, slot: FirstSlot, folder: Path | None, *, epochs: int, seed: int
) -> tuple[Float64, Float32, dict[str, Any]]:
    """The imputation by texts, and the representation of each pair that it rests on, [documents, width + scores].

    Without epochs the language model reads each text once, in a process: the product of the states of query and
    document is the representation. Tuned, it reads every pair. The scores of the prior stand beside either.
    """
    from clickprism.relevance.imputation import fit_imputation, pairs_of
    from clickprism.training.text_settings import TextFitSettings
    from reproduce.adr.texts import collection, prior_of

    found, settings = collection(folder), TextFitSettings(epochs=epochs, threads=1, seed=seed)
    known = prior_of(folder)
    made = fit_imputation(slot, found.queries, found.documents, settings=settings, known=known, note=say)
    network, fitted = made.imputation.network, made.fitted
    values = made.imputation.impute(*site.pairs)
    pairs = pairs_of(network, found.queries, found.documents, *site.pairs)
    if network.residual:
        states = network.represent_pairs(pairs)
    else:
        sides = zip((found.queries, found.documents), site.pairs, strict=True)
        query, document = (known.similarity.embed(texts.of_ids(ids)) for texts, ids in sides)
        states = network.width * query * document
    notes = {"pairs": len(slot), "best_step": fitted.best_step, "slopes": network.slopes.tolist(), **made.losses}
    return values, np.concatenate([states, pairs.prior], axis=1), notes
