"""How a text ranker is trained: the settings of the loop, the step size by step, and the results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, final

from clickprism.debias.loop import Stopped
from clickprism.settings import check_fields

if TYPE_CHECKING:
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork

LONGEST: Final = 1 << 20


@final
@dataclass(frozen=True, kw_only=True)
class TextFitSettings:
    """How a language model is trained on pairs of texts; the defaults suit ten thousand pairs, `paper()` ten million.

    Attributes:
        epochs: Maximum number of epochs. 0 does not train the language model: clicks then only weight the scores of the
            untrained one, in seconds. Measurements found no gain from an epoch.
        optimiser: Optimiser: adamw, or adam as in the paper.
        learning_rate: Largest learning rate of the language model.
        head_rate: Largest learning rate of the last layer.
        schedule: Learning rate after the warm-up: falls to 0 (linear), or with the square root of the step (vaswani,
            the paper).
        warm_up: Number of steps of the warm-up; below 1 a share of all steps.
        weight_decay: Weight decay of the language model, decoupled with adamw.
        clip_norm: Maximum norm of the gradient; 0 for no limit.
        batch_pairs: Maximum number of pairs per step.
        batch_tokens: Maximum number of tokens per step, including padding.
        frozen: Share of the layers, from the lowest, that are not trained.
        frozen_embeddings: Do not train the embeddings; they are never trained if a layer is frozen.
        most_impressions: Maximum number of impressions that a pair counts for, at its own click rate; 0 for no limit.
        held_out: Share of the queries that choose the best step and calibrate; 0 uses the last step.
        measured: Share of the queries on which only the final loss is measured.
        validations: Number of validations per epoch.
        patience: Stop after this number of validations without a better one; 0 never stops early.
        calibrate: Set the scale and the level of the log odds by the held-out clicks.
        threads: Number of threads of torch; 0 uses all cores.
        seed: Random seed.
    """

    epochs: int = 0
    optimiser: Literal["adamw", "adam"] = "adamw"
    learning_rate: float = 2e-5
    head_rate: float = 1e-4
    schedule: Literal["linear", "vaswani"] = "linear"
    warm_up: float = 0.1
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    batch_pairs: int = 32
    batch_tokens: int = 8192
    frozen: float = 0.5
    frozen_embeddings: bool = True
    most_impressions: int = 50
    held_out: float = 0.1
    measured: float = 0.1
    validations: int = 3
    patience: int = 3
    calibrate: bool = True
    threads: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(
            self,
            **dict.fromkeys(("batch_pairs", "batch_tokens", "validations"), f"[1, {LONGEST}]"),
            **dict.fromkeys(("epochs", "most_impressions", "patience", "threads"), "[0, inf)"),
            **dict.fromkeys(("learning_rate", "head_rate"), "(0, 1]"),
            **dict.fromkeys(("weight_decay", "clip_norm", "warm_up"), "[0, inf)"),
            **dict.fromkeys(("held_out", "measured"), "[0, 0.45]"),
            frozen="[0, 1]",
            seed=f"[0, {2**32})",
        )

    @classmethod
    def paper(cls) -> TextFitSettings:
        """Return the paper's: Adam, 4000 steps of warm-up to 2e-6, then falling with the root of the step (§7.4)."""
        return cls(
            epochs=1,
            optimiser="adam",
            learning_rate=2e-6,
            head_rate=2e-6,
            schedule="vaswani",
            warm_up=4000,
            weight_decay=0.0,
            frozen=0.0,
            frozen_embeddings=False,
            most_impressions=0,
            calibrate=False,
        )

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step (from 1), as a share of the largest.

        >>> [TextFitSettings(warm_up=2).rate(step, 6) for step in (1, 2, 4, 6)]
        [0.5, 1.0, 0.6, 0.2]
        >>> [TextFitSettings(warm_up=4, schedule="vaswani").rate(step, 99) for step in (2, 4, 16)]
        [0.5, 1.0, 0.5]
        """
        warm = max(self.warm_up * steps if self.warm_up < 1 else self.warm_up, 1.0)
        if step < warm:
            return step / warm
        if self.schedule == "linear":
            return (steps + 1 - step) / max(steps + 1 - warm, 1.0)
        return math.sqrt(warm / step)


@final
@dataclass(frozen=True)
class TextRecord:
    """One validation: the step, the mean training loss since the last one, and the loss on held-out queries."""

    step: int
    epoch: float
    loss: float
    held_out: float | None
    pairs_per_second: float

    def __str__(self) -> str:
        """Return one line."""
        held_out = "" if self.held_out is None else f"  held-out {self.held_out:.4f}"
        return f"loss {self.loss:.4f}{held_out}  {self.pairs_per_second:,.0f} pairs/s"


@final
@dataclass(frozen=True, eq=False)
class TextFitted:
    """A trained text ranker and how it was trained.

    Attributes:
        network: The best by held-out queries, or the last without them.
        constant: Loss of the click rate alone on the measured queries; nan without such queries, as the next two.
        untrained: Loss of the network before training: of its prior, if it has one.
        best: Loss of the network.
        best_step: The step that it is from; 0 if training did not help.
        history: One record for each validation.
        stopped: Why training ended.
    """

    network: CrossEncoderNetwork
    constant: float
    untrained: float
    best: float
    best_step: int
    history: tuple[TextRecord, ...]
    stopped: Stopped
