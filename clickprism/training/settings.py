"""How to train: the settings of the loop, what it validates by, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from clickprism.debias.loop import Measured, Standing, Stopped
from clickprism.errors import DataError
from clickprism.model import Model
from clickprism.settings import check_fields
from clickprism.types import Float64, Lists

if TYPE_CHECKING:
    from clickprism.debias.base import Learner

Scorer: TypeAlias = Callable[[Lists], Float64]
Plain: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of the training loop, without a random seed.

    Attributes:
        epochs: Maximum number of passes over the distinct ranked lists (of trees: see the ranker).
        batch_size: Number of ranked lists in a training step.
        optimiser: Optimiser. Adagrad is what most papers of the field use, with a learning rate of 0.05.
        learning_rate: Step size of the optimiser.
        weight_decay: L2 penalty on the weights of the ranker (decoupled in adamw), not on the observation model.
        clip_norm: Maximum norm of the gradient, for the ranker and the observation model separately; 0 disables it.
        evaluate_every: Number of epochs between two validations.
        patience: Number of validations without an improvement after which training stops; 0 never stops early.
        threads: Number of threads of PyTorch and LightGBM; 0 uses all cores.
    """

    epochs: int = 100
    batch_size: int = 64
    optimiser: Literal["adagrad", "adam", "adamw", "sgd"] = "adagrad"
    learning_rate: float = 0.05
    weight_decay: float = 0.0
    clip_norm: float = 5.0
    evaluate_every: int = 1
    patience: int = 20
    threads: int = 0

    def __post_init__(self) -> None:
        check_fields(
            self,
            **dict.fromkeys(("epochs", "batch_size", "evaluate_every"), "[1, inf)"),
            **dict.fromkeys(("patience", "threads"), "[0, inf)"),
            **dict.fromkeys(("weight_decay", "clip_norm"), "[0, 1e6]"),
            learning_rate="(0, 1e6]",
        )


@dataclass(frozen=True, kw_only=True)
class FitSettings(TrainingSettings):
    """Settings of `fit`.

    Attributes:
        seed: Random seed. The same seed and the same number of threads give the same model.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, seed=f"[0, {2**32})")


@dataclass(frozen=True)
class Validation:
    """What chooses the best epoch: a measure of any scorer, such as nDCG on lists that were judged."""

    name: str
    measure: Callable[[Scorer], float]
    higher_is_better: bool = True

    def of(self, score: Scorer) -> Measured:
        """Return the measure of this scorer; a value that is not a finite number is an error."""
        value = float(self.measure(score))
        if not math.isfinite(value):
            remedy = "Check that the validation part has a relevant document"
            raise DataError(f"validation by {self.name} gave {value}", remedy=remedy)
        return Measured(value, higher=self.higher_is_better)


@dataclass(frozen=True)
class Record:
    """A line of metrics.jsonl: the mean loss of an epoch by part, the gradient's mean norm, speed, validation."""

    epoch: int
    step: int
    loss: dict[str, float]
    gradient_norm: float
    lists_per_second: float
    seconds: float
    validation: float | None

    def text(self) -> str:
        """Return the losses, the validation and the speed as one line."""
        values = self.loss if self.validation is None else {**self.loss, "validation": self.validation}
        parts = [f"{name} {value:.4f}" for name, value in values.items()]
        return "  ".join([*parts, f"{self.lists_per_second:,.0f} lists/s"])


@dataclass(frozen=True)
class Fitted:
    """A trained model and how it was trained.

    Attributes:
        model: The best by validation, or the last without one.
        observation: By position relative to the first, as the method learned it or was given it; None if it has none.
        history: One record for each epoch (for trees: for each validation).
        best_epoch: The epoch (for trees: the number of trees) that the model is from.
        best_value: Its validation; None without one.
        stopped: Why training ended: "epochs", "patience" or "interrupted".
        learner: What was trained, with the observation model; None if the method defines `boosting`. It is not
            saved.
    """

    model: Model
    observation: Float64 | None
    history: tuple[Record, ...]
    best_epoch: int
    best_value: float | None
    stopped: Stopped
    learner: Learner | None = field(default=None, repr=False)


@dataclass
class Progress(Standing):
    """Progress of the training loop: everything in a checkpoint except the weights."""

    step: int = 0
    history: list[Record] = field(default_factory=list)
