"""The loop for networks: any method, any ranker that learns by gradients."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch

from clickprism._util.progress import progress_bar
from clickprism.data.clicks import fingerprint
from clickprism.debias.base import Learner, Method
from clickprism.debias.loop import Measured, Stopped, batches, held_out_likelihood, run
from clickprism.errors import DataError, TrainingError
from clickprism.model import network_scores
from clickprism.rankers.base import NetworkRanker
from clickprism.settings import plain
from clickprism.training import checkpoint
from clickprism.training.settings import FitSettings, Plain, Progress, Record, Validation
from clickprism.types import Batch, Clicks

RUNAWAY: Final = 1e3
FREE: Final = ("epochs", "patience", "threads")  # settings that a resumed run may change


def train(
    clicks: Clicks,
    *,
    method: Method,
    ranker: NetworkRanker,
    settings: FitSettings,
    validation: Validation | Clicks | None,
    watch: Callable[[int, Learner], None] | None = None,
    out: Path | None,
    resume: bool,
    show: bool | None,
) -> tuple[Learner, Progress, Stopped]:
    """Train a learner and return it with the best weights by validation, or the last without one."""
    with torch_set_for(settings.seed, settings.threads):
        saved = None if out is None else out / "checkpoint.safetensors"
        plan = {} if out is None else _plan(clicks, method, ranker, settings, validation)
        before = None
        if resume and saved is not None and saved.exists():
            before = checkpoint.load(saved, plan=plan)
        learner = method.learner(ranker.build(clicks.lists.features.shape[1]), clicks)
        _check_depth(learner, clicks, validation)
        loop = Loop(learner, _optimiser(learner, settings), clicks, settings, validation)
        if before is not None and saved is not None:
            with checkpoint.usable(saved):
                before.put_into(learner, loop.optimiser)
            loop.progress, loop.best = before.progress, before.best
        checkpoint.start_metrics(out, loop.progress.history)
        title, epochs = f"{method.name} · {ranker.name}", settings.epochs
        with progress_bar(title, show=show) as report:
            report(loop.progress.epoch, epochs)
            try:
                so_far = loop.best_so_far()
                for epoch in run(loop, loop.progress, rounds=epochs, patience=settings.patience, best=so_far):
                    if watch is not None and loop.is_due(epoch):
                        watch(epoch, learner.eval())
                    checkpoint.add_metrics(out, loop.record)
                    if saved is not None:
                        checkpoint.save(
                            saved, learner, loop.optimiser, best=loop.best, progress=loop.progress, plan=plan
                        )
                    report(epoch, epochs, f"{title}  {loop.record.text()}")
                stopped: Stopped = "epochs" if loop.progress.epoch >= epochs else "patience"
            except KeyboardInterrupt:
                if loop.progress.epoch == 0:
                    raise
                stopped = "interrupted"
        learner.load_state_dict(loop.best)
        learner.eval()
    return learner, loop.progress, stopped


@dataclass(eq=False)
class Loop:
    """A learner and a log as the task of a loop, and the best weights so far."""

    learner: Learner
    optimiser: torch.optim.Optimizer
    clicks: Clicks
    settings: FitSettings
    validation: Validation | Clicks | None
    progress: Progress = field(default_factory=Progress)
    record: Record = field(init=False)
    best: checkpoint.Weights = field(init=False)

    def __post_init__(self) -> None:
        self.keep()

    def train(self, number: int) -> None:
        """Go over all ranked lists once."""
        settings, progress, start = self.settings, self.progress, time.perf_counter()
        torch.manual_seed(settings.seed * 1_000_003 + number)
        self.learner.train()
        step, lists, norms = progress.step, 0, 0.0
        sums: dict[str, float] = {}
        shuffled = batches(self.clicks, settings.batch_size, shuffle=(settings.seed, number))
        for step, batch in enumerate(shuffled, start=progress.step + 1):
            parts, norm = self.step(batch, f"in epoch {number}, step {step}")
            sums = {name: sums.get(name, 0.0) + value * len(batch.mask) for name, value in parts.items()}
            norms += norm * len(batch.mask)
            lists += len(batch.mask)
        means = {name: value / lists for name, value in sums.items()}
        first = sum(progress.history[0].loss.values()) if progress.history else math.inf
        now, seconds = sum(means.values()), time.perf_counter() - start
        if abs(now) > RUNAWAY * (1 + abs(first)):
            raise TrainingError(
                f"the loss ran away: {now:.4g} in epoch {number} after {first:.4g} in the first. Lower "
                f"fit.learning_rate (now {settings.learning_rate}), or limit the weights of the method "
                "(max_weight, floor)"
            )
        progress.step = step
        self.record = Record(number, step, means, norms / lists, lists / seconds, seconds, None)

    def measure(self, number: int) -> Measured | None:
        """Validate if it is due."""
        measured = self._validated() if self.is_due(number) else None
        self.record = replace(self.record, validation=None if measured is None else measured.value)
        self.progress.history.append(self.record)
        return measured

    def keep(self) -> None:
        """Remember the weights as the best."""
        self.best = checkpoint.copied(self.learner)
        sums = {f"weight {key}": float(value.sum()) for key, value in self.best.items()}
        curve = self.learner.observation()
        if curve is not None:
            sums["observation"] = float(curve.sum())
        self._check_finite(sums, f"after epoch {self.progress.epoch}")

    def best_so_far(self) -> Measured | None:
        """Return the best validation of a resumed run; that of held-out clicks is measured again."""
        if self.progress.best_value is None:
            return None
        if isinstance(self.validation, Validation):
            return Measured(self.progress.best_value, higher=self.validation.higher_is_better)
        now = checkpoint.copied(self.learner)
        self.learner.load_state_dict(self.best)
        measured = self._validated()
        self.learner.load_state_dict(now)
        return measured

    def is_due(self, epoch: int) -> bool:
        """Return whether this epoch is validated."""
        return epoch % self.settings.evaluate_every == 0 or epoch == self.settings.epochs

    def step(self, batch: Batch, where: str) -> tuple[dict[str, float], float]:
        """Take one step; return the parts of the loss, and the norm of the gradient."""
        parts = self.learner.loss(batch)
        losses = torch.stack(list(parts.values()))
        self.optimiser.zero_grad()
        torch.autograd.backward(losses.sum())
        with torch.no_grad():
            sums = self.learner.statistics(batch)
        values = dict(zip(parts, losses.tolist(), strict=True))
        self._check_finite(values, where)
        limit = self.settings.clip_norm if self.settings.clip_norm > 0 else math.inf
        groups = [group["params"] for group in self.optimiser.param_groups]
        norm = math.hypot(*(float(torch.nn.utils.clip_grad_norm_(group, limit)) for group in groups))
        self._check_finite({"gradient": norm}, where)
        with torch.no_grad():
            self.optimiser.step()
            if sums is not None:
                self.learner.update(sums)
        return values, norm

    def _validated(self) -> Measured | None:
        validation, learner = self.validation, self.learner
        if validation is None:
            return None
        learner.eval()
        if isinstance(validation, Validation):
            return validation.of(lambda lists: network_scores(learner.ranker, lists.features))
        return held_out_likelihood(learner.click_logits, validation)

    def _check_finite(self, values: dict[str, float], where: str) -> None:
        broken = ", ".join(f"{name} is {value}" for name, value in values.items() if not math.isfinite(value))
        if broken:
            raise TrainingError(
                f"training is not finite {where} ({broken}). Look for features that are not finite or very large "
                f"(normalise them), lower fit.learning_rate (now {self.settings.learning_rate}), or set fit.clip_norm "
                f"(now {self.settings.clip_norm}); a limit on weights (max_weight, floor) helps some methods"
            )


def _check_depth(learner: Learner, clicks: Clicks, validation: Validation | Clicks | None) -> None:
    """Refuse held-out clicks at positions for which the learner has no observation."""
    if not isinstance(validation, Clicks) or learner.observation() is None:
        return
    if validation.max_position > clicks.max_position:
        depths = f"{validation.max_position}, the log to {clicks.max_position}"
        raise DataError(f"the clicks that were held out go down to position {depths}")


@contextmanager
def torch_set_for(seed: int, threads: int) -> Iterator[None]:
    """Set torch's seed, threads and deterministic algorithms; restore them afterwards."""
    before, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if threads:
            torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.set_num_threads(before)
            torch.use_deterministic_algorithms(deterministic)


def _optimiser(learner: Learner, settings: FitSettings) -> torch.optim.Optimizer:
    ranker = {id(parameter) for parameter in learner.ranker.parameters()}
    groups = [
        {
            "params": group,
            "lr": settings.learning_rate * rate,
            "weight_decay": settings.weight_decay if ranker.intersection(map(id, group)) else 0.0,
        }
        for rate, group in learner.rates()
    ]
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adagrad": torch.optim.Adagrad,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "sgd": torch.optim.SGD,
    }
    return kinds[settings.optimiser](groups, lr=settings.learning_rate, fused=True)


def _plan(
    clicks: Clicks,
    method: Method,
    ranker: NetworkRanker,
    settings: FitSettings,
    validation: Validation | Clicks | None,
) -> Plain:
    """Return what two runs must have in common for one to continue the other; how long to train is not part of it."""
    by = validation.name if isinstance(validation, Validation) else "clicks" if validation else "none"
    digest = hashlib.blake2b(fingerprint(clicks.lists).encode(), digest_size=16)
    columns = (clicks.offsets, clicks.rows, clicks.positions, clicks.clicks, clicks.impressions)
    for column in (*columns, clicks.weights, clicks.seen):
        if column is not None:
            digest.update(np.ascontiguousarray(column).data)
    return {
        "method.name": method.name,
        "ranker.name": ranker.name,
        **{f"method.{key}": value for key, value in plain(method).items()},
        **{f"ranker.{key}": value for key, value in plain(ranker).items()},
        **{f"fit.{key}": value for key, value in plain(settings).items() if key not in FREE},
        "validation": by,
        "log": digest.hexdigest(),
    }
