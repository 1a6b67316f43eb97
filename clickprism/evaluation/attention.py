"""What the attention ranker looks at: a heat map of feature pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.plots import styled
from clickprism.model import Model
from clickprism.rankers.attention import Attention, attention_map
from clickprism.types import Float64, Lists

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCUMENTS: Final = 10_000
LONGEST: Final = 24  # characters of a name along an axis
NAMED: Final = 50  # features; of more, so many at most are named along an axis


def model_attention(model: Model, lists: Lists, *, documents: int = DOCUMENTS) -> Float64:
    """How much each feature looks at each other, on average over documents and heads; rows sum to 1.

    Features that share a token share its weight evenly.

    Args:
        model: of the attention ranker.
        lists: with features as the model takes them.
        documents: at most so many, evenly spread over the data.

    Returns:
        [features, features]; a row is the feature that looks, a column one that is looked at.
    """
    import torch

    if model.ranker.name != Attention.name:
        raise SettingError("ranker", model.ranker.name, "be attention to show it")
    if lists.features.shape[1] != model.features:
        raise DataError(f"the model takes {model.features} features, the data has {lists.features.shape[1]}")
    if lists.documents == 0:
        raise DataError("there is no document to look at")
    features = lists.features if model.normaliser is None else model.normaliser(lists).features
    chosen = np.linspace(0, len(features) - 1, min(documents, len(features)), dtype=np.int64)
    return attention_map(model.network, torch.from_numpy(np.array(features[chosen], dtype=np.float32))).numpy()


@styled
def attention_heat_map(attention: Float64, *, names: Sequence[str] | None = None) -> Figure:
    """The map as a picture: white where a feature is looked at as much as all are on average, 1 / N.

    Args:
        attention: [features, features], rows sum to 1.
        names: of the features; their numbers from 1 by default.
    """
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.figure import Figure

    count = len(attention)
    if attention.shape != (count, count) or count == 0:
        raise DataError(f"an attention map has as many rows as columns, this one is {attention.shape}")
    if names is not None and len(names) != count:
        raise DataError(f"the map has {count} features, {len(names)} have names")
    times = attention * count
    most = max(float(np.quantile(times, 0.995)), 1.01)
    figure = Figure(figsize=(7.4, 6.4), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(
        times, cmap="RdBu_r", norm=TwoSlopeNorm(1.0, vmin=0.0, vmax=most), interpolation="nearest", aspect="equal"
    )
    places = list(range(0, count, -(-count // NAMED)))
    labels = [shorten(names[place]) if names is not None else str(place + 1) for place in places]
    size = 6 if len(places) > 25 else 8
    axes.set_xticks(places, labels, rotation=90, fontsize=size)
    axes.set_yticks(places, labels, fontsize=size)
    axes.set_xlabel("feature that is looked at")
    axes.set_ylabel("feature that looks")
    bar = figure.colorbar(image, ax=axes, shrink=0.85, extend="max" if times.max() > most else "neither")
    bar.set_label("attention, times that of even attention")
    return figure


def shorten(name: str) -> str:
    """A name as an axis shows it: not too long, and a dollar is no formula.

    >>> shorten("section=" + "x" * 40)
    'section=xxxxxxxxxxxxxxx…'
    """
    return (name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…").replace("$", r"\$")


@styled
def save_picture(figure: Figure, file: Path) -> None:
    """Write a figure in the form that the name of the file ends in."""
    figure.savefig(file, dpi=150, bbox_inches="tight")
