"""The loop for networks: any method, any ranker that learns by gradients."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from clickprism.data.clicks import fingerprint
from clickprism.debias.base import Learner, Method
from clickprism.debias.listwise import softmax_loss
from clickprism.errors import TrainingError
from clickprism.model import network_scores
from clickprism.rankers.base import NetworkRanker
from clickprism.settings import plain
from clickprism.training import checkpoint, journal
from clickprism.training.batches import batches
from clickprism.training.display import bar
from clickprism.training.settings import FitSettings, Plain, Progress, Record, Stopped, Validation
from clickprism.types import Batch, Clicks

RUNAWAY: Final = 1e3
OPTIMISERS: Final[dict[str, Callable[..., torch.optim.Optimizer]]] = {
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


def train(
    clicks: Clicks,
    *,
    method: Method,
    ranker: NetworkRanker,
    settings: FitSettings,
    validation: Validation | Clicks | None,
    out: Path | None,
    resume: bool,
    show: bool | None,
) -> tuple[Learner, Progress, Stopped]:
    """Train a learner; what comes back holds the best weights by validation, or the last without one."""
    with _torch_set_for(settings):
        learner = method.learner(ranker.build(clicks.lists.features.shape[1]), clicks)
        loop = _Loop(learner, _optimiser(learner, settings), clicks, settings, validation)
        plan = {} if out is None else _plan(clicks, method, ranker, settings, validation)
        saved = out / "checkpoint.safetensors" if out is not None else None
        if resume and saved is not None and saved.exists():
            loop.progress, loop.best = checkpoint.load(saved, learner, loop.optimiser, plan=plan)
        journal.start(out, loop.progress.history)
        title = f"{method.name} · {ranker.name}"
        stopped: Stopped = "epochs"
        with bar(title, settings.epochs, done=loop.progress.epoch, show=show) as display:
            try:
                while loop.progress.epoch < settings.epochs:
                    if settings.patience and loop.progress.waited >= settings.patience:
                        stopped = "patience"
                        break
                    record = loop.epoch()
                    journal.add(out, record)
                    if saved is not None and (
                        record.epoch % settings.checkpoint_every == 0 or record.epoch == settings.epochs
                    ):
                        checkpoint.save(
                            saved, learner, loop.optimiser, best=loop.best, progress=loop.progress, plan=plan
                        )
                    display(record)
            except KeyboardInterrupt:
                if loop.progress.epoch == 0:
                    raise
                stopped = "interrupted"
        learner.load_state_dict(loop.best)
        learner.train(mode=False)
    return learner, loop.progress, stopped


class _Loop:
    """What one run works on, and the best weights so far."""

    def __init__(
        self,
        learner: Learner,
        optimiser: torch.optim.Optimizer,
        clicks: Clicks,
        settings: FitSettings,
        validation: Validation | Clicks | None,
    ) -> None:
        self.learner = learner
        self.optimiser = optimiser
        self.clicks = clicks
        self.settings = settings
        self.validation = validation
        self.progress = Progress()
        self.best = self._weights()

    def epoch(self) -> Record:
        """Go over all ranked lists once, validate where it is due, and keep the best."""
        settings, progress, start = self.settings, self.progress, time.perf_counter()
        epoch = progress.epoch + 1
        torch.manual_seed(settings.seed * 1_000_003 + epoch)
        self.learner.train()
        step, lists, norms = progress.step, 0, 0.0
        sums: dict[str, float] = {}
        for batch in batches(self.clicks, settings.batch_size, shuffle=(settings.seed, epoch)):
            step += 1
            parts, norm = self._step(batch, f"in epoch {epoch}, step {step}")
            for name, part in parts.items():
                sums[name] = sums.get(name, 0.0) + part * len(batch.clicks)
            norms += norm * len(batch.clicks)
            lists += len(batch.clicks)
        means = {name: value / lists for name, value in sums.items()}
        _check_runaway(means, progress, epoch, settings)
        seconds = time.perf_counter() - start
        due = epoch % settings.evaluate_every == 0 or epoch == settings.epochs
        value = self._validate() if due else None
        record = Record(epoch, step, means, norms / lists, lists / seconds, seconds, value)
        progress.epoch, progress.step = epoch, step
        progress.history.append(record)
        if progress.is_best(value, self.validation):
            progress.best_epoch, progress.best_value, progress.waited = epoch, value, 0
            self.best = self._weights()
        elif value is not None:
            progress.waited += 1
        return record

    def _step(self, batch: Batch, where: str) -> tuple[dict[str, float], float]:
        parts = self.learner.loss(batch)
        values = {name: float(part.detach()) for name, part in parts.items()}
        _check_finite(values, where, self.settings)
        self.optimiser.zero_grad()
        torch.autograd.backward(torch.stack(list(parts.values())).sum())
        limit = self.settings.clip_norm if self.settings.clip_norm > 0 else math.inf
        groups = [group["params"] for group in self.optimiser.param_groups]
        norm = math.hypot(*(float(torch.nn.utils.clip_grad_norm_(group, limit)) for group in groups))
        _check_finite({"gradient": norm}, where, self.settings)
        with torch.no_grad():
            sums = self.learner.statistics(batch)
            self.optimiser.step()
            if sums is not None:
                self.learner.update(sums)
        return values, norm

    def _validate(self) -> float | None:
        if self.validation is None:
            return None
        self.learner.train(mode=False)
        if isinstance(self.validation, Validation):
            return self.validation.of(lambda lists: network_scores(self.learner.ranker, lists.features))
        total, lists = 0.0, 0
        with torch.no_grad():
            for batch in batches(self.validation, max(self.settings.batch_size, 1024)):
                loss = softmax_loss(self.learner.click_logits(batch), batch.clicks, mask=batch.mask)
                total, lists = total - float(loss) * len(batch.clicks), lists + len(batch.clicks)
        return total / max(lists, 1)

    def _weights(self) -> checkpoint.Weights:
        weights = {key: value.detach().clone() for key, value in self.learner.state_dict().items()}
        sums = {f"weight {key}": float(value.sum()) for key, value in weights.items()}
        curve = self.learner.observation()
        if curve is not None:
            sums["observation"] = float(curve.sum())
        _check_finite(sums, f"after epoch {self.progress.epoch}", self.settings)
        return weights


def _check_finite(values: dict[str, float], where: str, settings: FitSettings) -> None:
    broken = ", ".join(f"{name} is {value}" for name, value in values.items() if not math.isfinite(value))
    if not broken:
        return
    raise TrainingError(
        f"training is not finite {where} ({broken}). Look for features that are not finite or "
        f"very large (normalise them), lower fit.learning_rate (now {settings.learning_rate}), "
        f"or set fit.clip_norm (now {settings.clip_norm}); a limit on weights (max_weight, floor) helps some methods"
    )


def _check_runaway(means: dict[str, float], progress: Progress, epoch: int, settings: FitSettings) -> None:
    if not progress.history:
        return
    first, now = sum(progress.history[0].loss.values()), sum(means.values())
    if abs(now) > RUNAWAY * (1 + abs(first)):
        raise TrainingError(
            f"the loss ran away: {now:.4g} in epoch {epoch} after {first:.4g} in the first. Lower fit.learning_rate "
            f"(now {settings.learning_rate}), or limit the weights of the method (max_weight, floor)"
        )


@contextmanager
def _torch_set_for(settings: FitSettings) -> Iterator[None]:
    """Torch with the seed and threads of the settings and deterministic algorithms; as it was before, afterwards."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        if settings.threads:
            torch.set_num_threads(settings.threads)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
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
    own: dict[str, Any] = {}
    if settings.optimiser == "sgd":
        own = {"momentum": settings.momentum}
    elif settings.optimiser in ("adam", "adamw"):
        own = {"betas": settings.betas}
    return OPTIMISERS[settings.optimiser](groups, lr=settings.learning_rate, **own)


def _plan(
    clicks: Clicks,
    method: Method,
    ranker: NetworkRanker,
    settings: FitSettings,
    validation: Validation | Clicks | None,
) -> Plain:
    """What two runs must share for one to continue the other; how long to train is not part of it."""
    fit = {f"fit.{key}": value for key, value in plain(settings).items()}
    for free in ("epochs", "patience", "checkpoint_every", "threads"):
        del fit[f"fit.{free}"]
    by = validation.name if isinstance(validation, Validation) else "clicks" if validation else "none"
    return {
        "method.name": method.name,
        "ranker.name": ranker.name,
        **{f"method.{key}": value for key, value in plain(method).items()},
        **{f"ranker.{key}": value for key, value in plain(ranker).items()},
        **fit,
        "validation": by,
        "log": _fingerprint(clicks),
    }


def _fingerprint(clicks: Clicks) -> str:
    digest = hashlib.blake2b(fingerprint(clicks.lists).encode(), digest_size=16)
    for column in (clicks.offsets, clicks.rows, clicks.positions, clicks.clicks, clicks.impressions):
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()
