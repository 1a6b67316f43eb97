"""The competitors of the approximated doubly robust estimate (§7.3), trained by the package's own methods.

| name | data | method |
|---|---|---|
| `no_correction` | the log | `click`: clicks without correction |
| `pal` | the log | `pal`: observation at each position is learned together with the ranker |
| `tal` | the log | `pal` with trust bias, Eq. 1 |
| `ipw` | the log | `ipw`, with given propensities, or with those that AllPairs estimates from the log |
| `display_filtering` | the displayed documents of the log | `click` |
| `rand` | the randomised first slot | cross entropy, like the affine part of the approximation |

Each is trained on a `Backbone`: the text of a pair (`cross_encoder`), or its text and its clicks (`vanilla_mix`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, final, get_args

import numpy as np
import torch
from torch import nn

from clickprism.data.normalise import fit as fit_normalisation
from clickprism.debias import method
from clickprism.errors import DataError, SettingError
from clickprism.rankers.mlp import MLP
from clickprism.relevance.approximation import cross_entropy, descend, split, torch_for
from clickprism.relevance.approximation_settings import DescentSettings
from clickprism.relevance.click_vectors import ClickVectors, VectorScale
from clickprism.relevance.pairs import FirstSlot, find_pairs
from clickprism.settings import suggest
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Float32, Float64, Lists, Text

Competitor: TypeAlias = Literal["no_correction", "pal", "tal", "ipw", "display_filtering", "rand"]
COMPETITORS: Final[tuple[str, ...]] = get_args(Competitor)


@final
@dataclass(frozen=True, eq=False)
class Backbone:
    """The features of every pair, at the time of its clicks and at the time of ranking.

    Attributes:
        learned: features that a method is trained on.
        ranked: features that its model then scores; the same pairs in the same order.
    """

    learned: Lists
    ranked: Lists

    def __post_init__(self) -> None:
        if len(self.learned.features) != len(self.ranked.features):
            raise DataError("a backbone must have the same pairs for training and for ranking")

    @property
    def pairs(self) -> tuple[Text, Text]:
        """Return the query id and the document id of each pair."""
        return pair_ids(self.learned)


def cross_encoder(lists: Lists, representation: Float32) -> Backbone:
    """Return the standardised representation h of each document for its query, [documents, width]."""
    features = _standardised(lists, representation)
    return Backbone(features, features)


def vanilla_mix(lists: Lists, representation: Float32, *, before: ClickVectors, now: ClickVectors) -> Backbone:
    """Return the representation joined with the click vector (Vanilla-Mix): [h, x].

    Args:
        lists: documents of each query, with ids.
        representation: of each document for its query, [documents, width].
        before: click vectors that end before the training clicks; otherwise a click would be part of its own features.
        now: click vectors at the time of ranking.
    """
    h = _standardised(lists, representation)
    then, later = (vectors.of(*pair_ids(lists)) for vectors in (before, now))
    scale = VectorScale.fit(then, before.fields, before.empty)
    learned, ranked = (np.concatenate([h.features, scale(x)], axis=1) for x in (then, later))
    return Backbone(lists.with_features(learned), lists.with_features(ranked))


def pair_ids(lists: Lists) -> tuple[Text, Text]:
    """Return the query id and the document id of each document."""
    if lists.document_ids is None:
        raise DataError("the lists have no document ids", remedy="Add them: clicks of a log are joined by ids")
    return lists.query_ids[lists.list_of], lists.document_ids


def _standardised(lists: Lists, representation: Float32) -> Lists:
    if representation.shape[:1] != (lists.documents,):
        raise DataError(f"{lists.documents} documents but representations of shape {representation.shape}")
    raw = lists.with_features(np.asarray(representation, dtype=np.float32))
    return fit_normalisation("standard", raw)(raw)


@final
@dataclass(frozen=True)
class CompetitorSettings:
    """Settings that all competitors share.

    Attributes:
        hidden: sizes of the hidden layers over the features of a pair.
        held_out: share of queries whose clicks choose the epoch.
        fit: settings of training on the log.
        slot: settings of training on the first slot (`rand`).
        floor: smaller propensities are raised to this value (`ipw`).
        seed: random seed.
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
        """Return the network over the features of a pair."""
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
    """Return the score of every pair of the backbone by a competitor, [documents]; higher is better.

    Args:
        name: one of `COMPETITORS`.
        backbone: `cross_encoder(...)` or `vanilla_mix(...)`.
        log: clicks on the lists of the backbone; `display_filtering` needs `seen`, 0 or all impressions of an entry.
        slot: clicks in the randomised first slot, for `rand`.
        propensities: by position, for `ipw`; if empty, AllPairs estimates them from the log.
        settings: settings that all competitors share.
    """
    settings = CompetitorSettings() if settings is None else settings
    if name not in COMPETITORS:
        raise SettingError("competitor", name, f"be a known name ({suggest(name, COMPETITORS)})")
    if name == "rand":
        if slot is None:
            raise DataError("rand is trained on the randomised first slot; none was given")
        return _rand(backbone, slot, settings)
    if log is None:
        raise DataError(f"{name} is trained on a log; none was given")
    if log.lists.documents != backbone.learned.documents:
        raise DataError(f"the log has {log.lists.documents} pairs, the backbone {backbone.learned.documents}")
    shown = displayed(log) if name == "display_filtering" else log
    part, held_out = _parts(replace(shown, lists=backbone.learned, seen=None), settings)
    fitted = fit(
        part,
        method=_method(name, propensities, settings),
        ranker=settings.ranker(),
        settings=replace(settings.fit, seed=settings.seed),
        validation=held_out,
        show=False,
    )
    return fitted.model.score(backbone.ranked)


def _method(name: str, propensities: Sequence[float], settings: CompetitorSettings) -> Any:
    if name in ("pal", "tal"):
        return method("pal", trust=name == "tal")
    if name == "ipw":
        given = [float(each) for each in propensities]
        return method("ipw", propensities=given, floor=settings.floor, estimate="none" if given else "allpairs")
    return method("click")


def displayed(log: Clicks) -> Clicks:
    """Return the entries of a log that were displayed (`log.seen`), without the lists of which nothing was."""
    if log.seen is None:
        remedy = "Ingest display times, and set `seen` where they are above 0"
        raise DataError("the log does not say which documents were displayed", remedy=remedy)
    kept = log.seen > 0
    if not (log.seen[kept] == log.list_impressions[kept]).all():
        remedy = "Merge only sessions that displayed the same positions"
        raise DataError("the log merges sessions that displayed a position with sessions that did not", remedy=remedy)
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
    """Return the lists to train on and the held-out ones (by query), or all and None if no click is held out."""
    filled = log.take(np.diff(log.offsets) > 0)
    query = filled.lists.list_of[filled.rows[filled.offsets[:-1]]]
    order = np.random.default_rng(settings.seed).permutation(len(filled.lists))
    is_held_out = np.isin(query, order[: round(settings.held_out * len(order))])
    held_out, part = filled.take(is_held_out), filled.take(~is_held_out)
    if not len(held_out) or not held_out.clicks.any() or held_out.max_position > part.max_position:
        return filled, None
    return part, held_out


def _rand(backbone: Backbone, slot: FirstSlot, settings: CompetitorSettings) -> Float64:
    rows = find_pairs(backbone.pairs, (slot.query_ids, slot.document_ids))
    known = slot.take(rows >= 0)
    if len(known) == 0:
        remedy = "Use the ids of queries and documents that the lists have"
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
