"""The competitors of the approximated doubly robust estimate (§7.3), by the project's own methods.

| name | learns from | how |
|---|---|---|
| `no_correction` | the log | `click`: clicks as they are |
| `pal` | the log | `pal`: what is seen at each position is learned beside the ranker |
| `tal` | the log | `pal` with trust, Eq. 1 |
| `ipw` | the log | `ipw`, by propensities that are given, or harvested from the log |
| `display_filtering` | what of the log was displayed | `click` |
| `rand` | the randomised first slot | cross entropy, as the affine part of the approximation |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, final, get_args

import numpy as np
import torch
from torch import nn

from clickprism.debias import method
from clickprism.errors import DataError, SettingError
from clickprism.rankers.mlp import MLP
from clickprism.relevance.approximate_settings import DescentSettings
from clickprism.relevance.descent import cross_entropy, descend, split, torch_for
from clickprism.relevance.mixture import Backbone
from clickprism.relevance.pairs import find_pairs
from clickprism.relevance.randomised import FirstSlot
from clickprism.settings import suggest
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings, Fitted
from clickprism.types import Clicks, Float64

Competitor: TypeAlias = Literal["no_correction", "pal", "tal", "ipw", "display_filtering", "rand"]
COMPETITORS: Final[tuple[str, ...]] = get_args(Competitor)


@final
@dataclass(frozen=True)
class CompetitorSettings:
    """Of all competitors alike.

    Attributes:
        hidden: units of the hidden layers over the features of a pair.
        held_out: the share of queries whose clicks choose the epoch.
        fit: of the loop over the log.
        slot: of the loop over the first slot (`rand`).
        floor: propensities below this are raised to it (`ipw`).
        seed: of everything random.
    """

    hidden: tuple[int, ...] = (64, 32, 16)
    held_out: float = 0.1
    fit: FitSettings = field(default_factory=lambda: FitSettings(epochs=30, batch_size=256, patience=5, threads=1))
    slot: DescentSettings = field(default_factory=DescentSettings)
    floor: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.held_out <= 0.9:
            raise SettingError("held_out", self.held_out, "be from 0 to .9")

    def ranker(self) -> MLP:
        """The network over the features of a pair."""
        return MLP(hidden=self.hidden, activation="relu", layer_norm="none")


def competitor(
    name: str,
    backbone: Backbone,
    *,
    log: Clicks | None = None,
    slot: FirstSlot | None = None,
    propensities: Sequence[float] = (),
    settings: CompetitorSettings | None = None,
) -> Float64:
    """The scores that a competitor gives to every pair of the backbone, higher first, [documents].

    Args:
        name: one of `COMPETITORS`.
        backbone: `cross_encoder(...)` or `vanilla_mix(...)`.
        log: clicks on the lists of the backbone; for `display_filtering` with `seen`, 0 or all impressions of an entry.
        slot: clicks in the randomised first slot, for `rand`.
        propensities: by position, for `ipw`; without any they are harvested from the log (AllPairs).
        settings: of all competitors alike.
    """
    settings = CompetitorSettings() if settings is None else settings
    if name not in COMPETITORS:
        raise SettingError("competitor", name, f"be a known name ({suggest(name, COMPETITORS)})")
    if name == "rand":
        if slot is None:
            raise DataError("rand learns from the randomised first slot, of which there is none")
        return _rand(backbone, slot, settings)
    fitted, _ = _fitted(name, backbone, log, propensities, settings)
    return fitted.model.score(backbone.ranked)


def as_first_slot(
    name: str,
    backbone: Backbone,
    *,
    log: Clicks | None = None,
    propensities: Sequence[float] = (),
    settings: CompetitorSettings | None = None,
) -> FirstSlot:
    """The clicks of a log as a competitor sees them, as if all had been in the first slot: what a text model can learn.

    A method that corrects by position says how much exposure each impression had, in units of the first slot, and how
    many clicks came without relevance. The sums of both over the impressions of a pair, in whole numbers, stand for
    impressions and clicks there: `fit_imputation` fine-tunes a cross-encoder on them end to end, and so makes the
    competitor whose text model was trained by this method. What a method must learn, it learns on the backbone.

    Args:
        name: one of `COMPETITORS`, but `rand`: its clicks are of the first slot.
        backbone: as for `competitor`.
        log: as for `competitor`.
        propensities: as for `competitor`.
        settings: as for `competitor`.
    """
    settings = CompetitorSettings() if settings is None else settings
    if name not in COMPETITORS or name == "rand":
        known = tuple(each for each in COMPETITORS if each != "rand")
        raise SettingError("competitor", name, f"be a known name ({suggest(name, known)})")
    fitted, whole = _fitted(name, backbone, log, propensities, settings)
    if fitted.learner is None:
        raise DataError(f"{name} left no learner to say what was exposed")
    sums = [
        np.bincount(whole.rows, weights=values, minlength=whole.lists.documents)
        for values in (whole.clicks - fitted.learner.background(whole), fitted.learner.exposure(whole))
    ]
    shown = np.rint(np.maximum(sums[1], sums[0])).astype(np.int64)
    clicks = np.clip(np.rint(sums[0]), 0, shown).astype(np.int64)
    return FirstSlot.of(*backbone.pairs, clicks, impressions=shown)


def _fitted(
    name: str,
    backbone: Backbone,
    log: Clicks | None,
    propensities: Sequence[float],
    settings: CompetitorSettings,
) -> tuple[Fitted, Clicks]:
    """A method that was trained on the log, and the log over the features of the backbone."""
    if log is None:
        raise DataError(f"{name} learns from a log, of which there is none")
    if log.lists.documents != backbone.learned.documents:
        raise DataError(f"the log has {log.lists.documents} pairs, the backbone {backbone.learned.documents}")
    if name == "display_filtering":
        log = displayed(log)
    whole = replace(log, lists=backbone.learned, seen=None)
    part, aside = _parts(whole, settings)
    fitted = fit(
        part,
        method=_method(name, propensities, settings),
        ranker=settings.ranker(),
        settings=replace(settings.fit, seed=settings.seed),
        validation=aside,
        show=False,
    )
    return fitted, whole


def _method(name: str, propensities: Sequence[float], settings: CompetitorSettings) -> Any:
    if name in ("pal", "tal"):
        return method("pal", trust=name == "tal")
    if name == "ipw":
        given = [float(each) for each in propensities]
        return method("ipw", propensities=given, floor=settings.floor, estimate="none" if given else "allpairs")
    return method("click")


def displayed(log: Clicks) -> Clicks:
    """The entries of a log that were displayed, by `log.seen`; lists of which nothing was are left out.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> log = Clicks(lists, np.array([0, 2]), np.array([1, 0]), np.array([1, 2], np.int32), np.array([3, 0]),
    ...     np.array([5]), seen=np.array([5, 0]))
    >>> displayed(log).rows.tolist()
    [1]
    """
    if log.seen is None:
        remedy = "Ingest display times, and give those above 0 as seen"
        raise DataError("the log does not tell what was displayed", remedy=remedy)
    kept = log.seen > 0
    if not (log.seen[kept] == log.list_impressions[kept]).all():
        remedy = "Merge only sessions of which the same places were displayed"
        raise DataError("the log has joined sessions of which one displayed a place and another did not", remedy=remedy)
    lengths = np.add.reduceat(np.append(kept, False), log.offsets[:-1]) * (np.diff(log.offsets) > 0)
    entries, offsets = np.flatnonzero(kept), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    part = Clicks(
        log.lists,
        offsets,
        log.rows[entries],
        log.positions[entries],
        log.clicks[entries],
        log.impressions,
        None if log.weights is None else log.weights[entries],
        log.seen[entries],
    )
    return part.take(lengths > 0)


def _parts(log: Clicks, settings: CompetitorSettings) -> tuple[Clicks, Clicks | None]:
    """The ranked lists to learn from, and those of the queries that are held out; None where those have no click."""
    filled = log.take(np.diff(log.offsets) > 0)
    query = filled.lists.list_of[filled.rows[filled.offsets[:-1]]]
    order = np.random.default_rng(settings.seed).permutation(len(filled.lists))
    aside = np.isin(query, order[: round(settings.held_out * len(order))])
    held_out, part = filled.take(aside), filled.take(~aside)
    if not len(held_out) or not held_out.clicks.any() or held_out.max_position > part.max_position:
        return filled, None
    return part, held_out


def _rand(backbone: Backbone, slot: FirstSlot, settings: CompetitorSettings) -> Float64:
    rows = find_pairs(backbone.pairs, (slot.query_ids, slot.document_ids))
    known = slot.take(rows >= 0)
    if len(known) == 0:
        remedy = "The ids of queries and documents must be those of the lists"
        raise DataError("none of the pairs with first-slot clicks is in the lists", remedy=remedy)
    inputs = torch.from_numpy(backbone.learned.features[rows[rows >= 0]])
    clicks, skips = settings.slot.counts(known)
    with torch_for(settings.slot, seed=settings.seed):
        network: nn.Module = settings.ranker().build(inputs.shape[1])

        def loss(rows: torch.Tensor) -> torch.Tensor:
            return cross_entropy(network(inputs[rows]), clicks[rows], skips[rows])

        parts = split(known.query_ids, settings.slot.held_out, seed=settings.seed)
        descend(network, loss, weights=clicks + skips, parts=parts, settings=settings.slot, seed=settings.seed)
        with torch.inference_mode():
            scores = network(torch.from_numpy(backbone.ranked.features))
    return np.asarray(scores.double().numpy())
