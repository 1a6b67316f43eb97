"""The loop for networks: any method, any ranker that learns by gradients."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from clickprism._util.progress import progress_bar
from clickprism.data.clicks import fingerprint
from clickprism.debias.base import Learner, NetworkMethod, RestoringMethod
from clickprism.debias.loop import Measured, Share, Stopped, held_out_likelihood, run, shares
from clickprism.errors import DataError, TrainingError
from clickprism.model import network_scores
from clickprism.rankers.base import NetworkRanker
from clickprism.settings import plain
from clickprism.training import checkpoint
from clickprism.training.distributed import Group, joined, share_of_threads
from clickprism.training.settings import FitSettings, Plain, Progress, Record, Validation
from clickprism.types import Clicks

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
    method: NetworkMethod,
    ranker: NetworkRanker,
    settings: FitSettings,
    validation: Validation | Clicks | None,
    watch: Callable[[int, Learner], None] | None = None,
    out: Path | None,
    resume: bool,
    show: bool | None,
) -> tuple[Learner, Progress, Stopped]:
    """Train a learner; what comes back holds the best weights by validation, or the last without one."""
    with joined() as group, torch_set_for(settings):
        saved = None if out is None else out / "checkpoint.safetensors"
        if not group.first:
            out, show = None, False
        plan = {} if out is None and group.size == 1 else _plan(clicks, method, ranker, settings, validation)
        ends = {"fit.epochs": settings.epochs, "fit.patience": settings.patience, "resume": resume}
        group.check_same({**plan, **ends})
        content, before = b"", None
        if resume:
            content = group.share(lambda: saved.read_bytes() if saved is not None and saved.exists() else b"")
        if content:
            before = checkpoint.load(content, plan=plan, path=saved)
        network = ranker.build(clicks.lists.features.shape[1])
        if before is not None and isinstance(method, RestoringMethod):
            with checkpoint.usable(saved):
                learner = method.restored(network, clicks, before.weights)
        else:
            learner = method.learner(network, clicks)
        _check_depth(learner, clicks, validation)
        optimiser = _optimiser(learner, settings)
        loop = _Loop(learner, optimiser, clicks, settings=settings, validation=validation, group=group)
        if before is not None:
            with checkpoint.usable(saved):
                before.put_into(learner, optimiser)
            loop.progress, loop.best = before.progress, before.best
        checkpoint.start_metrics(out, loop.progress.history)
        title = f"{method.name} · {ranker.name}"
        stopped: Stopped = "epochs"
        with progress_bar(title, show=show) as report:
            report(loop.progress.epoch, settings.epochs)

            def ended(record: Record) -> None:
                if watch is not None and loop.is_due(record.epoch):
                    watch(record.epoch, learner.eval())
                checkpoint.add_metrics(out, record)
                due = record.epoch % settings.checkpoint_every == 0 or record.epoch == settings.epochs
                if due and out is not None and saved is not None:
                    checkpoint.save(saved, learner, optimiser, best=loop.best, progress=loop.progress, plan=plan)
                report(record.epoch, settings.epochs, f"{title}  {record.text()}")

            loop.ended = ended
            try:
                rounds = {"rounds": settings.epochs, "patience": settings.patience}
                stopped = run(loop, loop.progress, **rounds, best=loop.best_so_far())
            except KeyboardInterrupt:
                if loop.progress.epoch == 0 or not group.agreed:
                    raise
                stopped = "interrupted"
        learner.load_state_dict(loop.best)
        learner.train(mode=False)
    return learner, loop.progress, stopped


class _Loop:
    """A learner and a log as the task of a loop, and the best weights so far."""

    def __init__(
        self,
        learner: Learner,
        optimiser: torch.optim.Optimizer,
        clicks: Clicks,
        *,
        settings: FitSettings,
        validation: Validation | Clicks | None,
        group: Group,
    ) -> None:
        self.learner = learner
        self.optimiser = optimiser
        self.clicks = clicks
        self.settings = settings
        self.validation = validation
        self.group = group
        self.progress = Progress()
        self.record = Record(0, 0, {}, 0.0, 0.0, 0.0, None)
        self.ended: Callable[[Record], None] = lambda _: None
        self.best = self._weights()

    def train(self, number: int) -> None:
        """Go over all ranked lists once."""
        settings, progress, start = self.settings, self.progress, time.perf_counter()
        torch.manual_seed(settings.seed * 1_000_003 + number + 2**32 * self.group.rank)
        self.group.copy(self.learner.state_dict().values())
        self.learner.train()
        step, lists, norms = progress.step, 0, 0.0
        sums: dict[str, float] = {}
        part = {"rank": self.group.rank, "processes": self.group.size}
        for share in shares(self.clicks, settings.batch_size, shuffle=(settings.seed, number), **part):
            step += 1
            parts, norm = self._step(share, f"in epoch {number}, step {step}")
            for name, value in parts.items():
                sums[name] = sums.get(name, 0.0) + value * share.lists
            norms += norm * share.lists
            lists += share.lists
        means = {name: value / lists for name, value in sums.items()}
        _check_runaway(means, progress, number, settings)
        seconds = time.perf_counter() - start
        self.record = Record(number, step, means, norms / lists, lists / seconds, seconds, None)
        progress.step = step

    def measure(self, number: int) -> Measured | None:
        """Validate if it is due, in the first process."""
        measured = self._validated() if self.is_due(number) else None
        self.record = replace(self.record, validation=None if measured is None else measured.value)
        self.progress.history.append(self.record)
        return measured

    def keep(self) -> None:
        """Remember the weights as the best."""
        self.best = self._weights()

    def report(self, number: int) -> None:
        """Write what happened."""
        self.ended(self.record)

    def best_so_far(self) -> Measured | None:
        """Return the best validation of a resumed run; that of held-out clicks is measured again."""
        if self.progress.best_value is None:
            return None
        if isinstance(self.validation, Validation):
            return Measured(self.progress.best_value, higher=self.validation.higher_is_better)
        now = {key: value.detach().clone() for key, value in self.learner.state_dict().items()}
        self.learner.load_state_dict(self.best)
        measured = self._validated()
        self.learner.load_state_dict(now)
        return measured

    def is_due(self, epoch: int) -> bool:
        """Whether this epoch is validated."""
        return epoch % self.settings.evaluate_every == 0 or epoch == self.settings.epochs

    def _step(self, share: Share, where: str) -> tuple[dict[str, float], float]:
        """One step by the mean over the whole batch, of which the processes each add their part."""
        batch = replace(share.batch, total=partial(self._total, share)) if self.group.size > 1 else share.batch
        parts = self.learner.loss(batch)
        losses = torch.stack(list(parts.values())) * share.weight
        self.optimiser.zero_grad()
        torch.autograd.backward(losses.sum())
        with torch.no_grad():
            sums = self.learner.statistics(batch)
            if self.group.size > 1:
                losses, sums = self._add(share, losses, sums)
        values = dict(zip(parts, losses.tolist(), strict=True))
        _check_finite(values, where, self.settings)
        limit = self.settings.clip_norm if self.settings.clip_norm > 0 else math.inf
        groups = [group["params"] for group in self.optimiser.param_groups]
        norm = math.hypot(*(float(torch.nn.utils.clip_grad_norm_(group, limit)) for group in groups))
        _check_finite({"gradient": norm}, where, self.settings)
        with torch.no_grad():
            self.optimiser.step()
            if sums is not None:
                self.learner.update(sums)
        return values, norm

    def _add(
        self, share: Share, losses: torch.Tensor, sums: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Make gradients, parts of the loss and statistics those of the whole batch."""
        parameters = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        mine = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
        others = [] if sums is None else [sums * (share.weight > 0)]
        added = self.group.add(*mine, losses, *others)
        for parameter, gradient in zip(parameters, added, strict=False):
            parameter.grad = gradient
        return added[len(mine)], added[-1] if others else None

    def _total(self, share: Share, sums: torch.Tensor) -> torch.Tensor:
        """Sums over the part of this process become sums over the batch."""
        return self.group.add(sums * (share.weight > 0))[0]

    def _validated(self) -> Measured | None:
        """Return what the first process measures, in all of them."""
        validation = self.validation
        if validation is None:
            return None
        self.learner.train(mode=False)
        if isinstance(validation, Validation):
            value = self.group.first_says(
                lambda: validation.of(lambda lists: network_scores(self.learner.ranker, lists.features)).value
            )
            return Measured(value, higher=validation.higher_is_better)

        def likelihoods() -> bytes:
            found = held_out_likelihood(self.learner, validation)
            return np.array([found.value, *(() if found.by_query is None else found.by_query)]).tobytes()

        numbers = np.frombuffer(self.group.share(likelihoods))
        return Measured(float(numbers[0]), numbers[1:])

    def _weights(self) -> checkpoint.Weights:
        weights = {key: value.detach().clone() for key, value in self.learner.state_dict().items()}
        sums = {f"weight {key}": float(value.sum()) for key, value in weights.items()}
        curve = self.learner.observation()
        if curve is not None:
            sums["observation"] = float(curve.sum())
        _check_finite(sums, f"after epoch {self.progress.epoch}", self.settings)
        return weights


def _check_depth(learner: Learner, clicks: Clicks, validation: Validation | Clicks | None) -> None:
    """Held-out clicks must not stand where a learner has no observation; one without any looks at no position."""
    if not isinstance(validation, Clicks) or learner.observation() is None:
        return
    if validation.max_position > clicks.max_position:
        depths = f"{validation.max_position}, the log to {clicks.max_position}"
        raise DataError(f"the clicks that were held out go down to position {depths}")


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
def torch_set_for(settings: FitSettings) -> Iterator[None]:
    """Torch with the seed and threads of the settings and deterministic algorithms; as it was before, afterwards."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        wanted = share_of_threads(settings.threads)
        if wanted:
            torch.set_num_threads(wanted)
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
    return OPTIMISERS[settings.optimiser](groups, lr=settings.learning_rate, fused=True, **own)


def _plan(
    clicks: Clicks,
    method: NetworkMethod,
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
    for extra in (clicks.weights, clicks.seen):
        if extra is not None:
            digest.update(np.ascontiguousarray(extra).data)
    return digest.hexdigest()
