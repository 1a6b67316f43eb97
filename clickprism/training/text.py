"""The loop for pairs of texts: a language model learns the clicks of a randomised first slot (Zou et al. 2022, §4)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, final

import numpy as np
import torch
from torch import nn

from clickprism._util.progress import Progress, no_progress
from clickprism.debias.loop import Measured, Standing, Stopped, run
from clickprism.errors import DataError, SettingError, TrainingError
from clickprism.rankers.cross_encoder import CrossEncoderNetwork
from clickprism.rankers.text_tokens import Pairs, by_length
from clickprism.training.calibration import PRIOR, log_loss, log_odds, logistic
from clickprism.training.network import torch_set_for
from clickprism.training.split import CHOOSE, MEASURE, TRAIN, split_queries
from clickprism.training.text_settings import TextFitSettings, TextFitted, TextRecord
from clickprism.types import Float64, Int64

CAUTION: Final = 30.0  # prior strength of calibration, in impressions
FIXED: Final = 1e12  # penalty of a coefficient that is held at 0
Note = Callable[[str], None]


def fit_text(
    network: CrossEncoderNetwork,
    pairs: Pairs,
    clicks: Int64,
    impressions: Int64,
    *,
    settings: TextFitSettings | None = None,
    note: Note = lambda _: None,
    progress: Progress = no_progress,
) -> TextFitted:
    """Fine-tune a cross-encoder: minimise -sum of c log y - (n - c) log(1 - y) over the distinct pairs.

    Queries are split in three: most to learn from, some to choose the best step and to calibrate by, some on which only
    the loss is measured. First the weights of the prior are fitted, then the language model learns the rest. If that
    does not help on the queries that choose, the result is the prior alone, its weights fitted to all clicks. Ctrl-C
    ends training early and keeps the best so far.

    Args:
        network: Changed in place; `CrossEncoder().build(corpus)` makes one.
        pairs: Distinct pairs, by `network.pairs_of_rows`; those of a query share its row.
        clicks: Of each pair in the randomised first slot, [pairs].
        impressions: Of each pair there, [pairs]. Merged counts give the same loss as single impressions.
        settings: Of the loop.
        note: Called with the number of steps before the first epoch, and with the losses after each validation.
        progress: Called after each step.
    """
    settings = TextFitSettings() if settings is None else settings
    if not len(pairs) == len(clicks) == len(impressions):
        raise DataError(f"{len(pairs)} pairs but {len(clicks)} clicks and {len(impressions)} impressions")
    if not ((impressions >= 1) & (clicks >= 0) & (clicks <= impressions)).all():
        raise DataError("a pair that is here was shown, and clicked at most as often")
    if not 0 < int(np.sum(clicks)) < int(np.sum(impressions)):
        what = "no click" if int(np.sum(clicks)) == 0 else "nothing that was not clicked"
        raise DataError(f"there is nothing to learn from: the first slot has {what}")
    if not settings.epochs and network.prior is None:
        raise SettingError("epochs", 0, "be at least 1 where there is no prior")
    with torch_set_for(settings.seed, settings.threads):
        loop = _Loop(network, pairs, clicks, impressions, settings, progress=progress)
        constant, untrained = loop.start()
        stopped: Stopped = "epochs"
        standing = Standing()
        try:
            if settings.epochs:
                before = loop.held_out_loss()
                none = "no queries are held out"
                so_far = none if before is None else f"the loss on held-out queries is {before.value:.4f} so far"
                note(f"{len(loop.learned):,} pairs, at most {loop.steps:,} steps; {so_far}")
                rounds = settings.epochs * settings.validations
                for _ in run(loop, standing, rounds=rounds, patience=settings.patience, best=before):
                    note(f"step {loop.step} of {loop.steps}: {loop.record}")
                stopped = "epochs" if standing.epoch >= rounds else "patience"
        except KeyboardInterrupt:
            stopped = "interrupted"
        best = loop.finish()
    return TextFitted(network, constant, untrained, best, loop.best_step, tuple(loop.history), stopped)


def freeze(network: CrossEncoderNetwork, *, share: float, embeddings: bool) -> None:
    """Switch gradients on for the head and the upper layers, off for the lowest share of the layers."""
    network.requires_grad_(True)
    if share == 0 and not embeddings:
        return
    stack = network.layers()
    layers = round(share * len(stack))
    upper = {id(each) for layer in list(stack)[layers:] for each in layer.parameters()}
    inside = {id(each) for layer in stack for each in layer.parameters()}
    first = True
    for each in network.encoder.parameters():
        first = first and id(each) not in inside
        below = id(each) in inside and id(each) not in upper
        each.requires_grad_(not (below or (first and (embeddings or layers > 0))))


@final
class _Loop:
    """A network and its pairs as the task of a loop, and the best weights so far."""

    def __init__(
        self,
        network: CrossEncoderNetwork,
        pairs: Pairs,
        clicks: Int64,
        impressions: Int64,
        settings: TextFitSettings,
        *,
        progress: Progress,
    ) -> None:
        self.network, self.settings, self.progress = network, settings, progress
        parts = split_queries(pairs.query_rows, (settings.held_out, settings.measured), seed=settings.seed)
        most = settings.most_impressions
        weight = np.minimum(impressions, most) / impressions if most else np.ones(len(pairs))
        self.every = pairs, clicks * weight, impressions * weight
        rows = [np.flatnonzero(parts == part) for part in (TRAIN, CHOOSE, MEASURE)]
        self.learned, self.rest, self.last = (pairs.take(each) for each in rows)
        counts = [(self.every[1][each], self.every[2][each]) for each in rows]
        (self.clicks, self.impressions), self.rest_counts, self.last_counts = counts
        scale = float(self.impressions.mean())
        self.clicked, self.skipped = self.clicks / scale, (self.impressions - self.clicks) / scale
        freeze(network, share=settings.frozen, embeddings=settings.frozen_embeddings)
        self.generator = np.random.default_rng([settings.seed, 11])
        self.order = [self._batches() for _ in range(settings.epochs)]
        self.steps = sum(map(len, self.order))
        self.optimiser = self._optimiser()
        self.history: list[TextRecord] = []
        self.step, self.record = 0, TextRecord(0, 0.0, 0.0, None, 0.0)
        self.best_step, self.best_weights = 0, self._weights()
        self.before = self.best_weights

    def start(self) -> tuple[float, float]:
        """Fit the weights of the prior; return the losses of the click rate and of the prior where it is measured."""
        torch.nn.init.zeros_(self.network.head.weight)
        self._fit_prior(self.learned, self.clicks, self.impressions)
        constant = untrained = float("nan")
        if len(self.last):
            level = log_odds(self.clicks, self.impressions)
            constant = log_loss(np.full(len(self.last), level), *self.last_counts)
            untrained = log_loss(self.network.prior_odds(self.last), *self.last_counts)
        self.before = self._weights()
        self.keep()
        return constant, untrained

    def _fit_prior(self, pairs: Pairs, clicks: Float64, impressions: Float64) -> None:
        """Fit u and b: a logistic regression on the standardised scores."""
        scores = pairs.prior.astype(np.float64)
        mean, spread = scores.mean(axis=0), np.maximum(scores.std(axis=0), 1e-9)
        found = logistic((scores - mean) / spread, clicks, impressions, ridge=PRIOR)
        slopes = found[:-1] / spread
        with torch.no_grad():
            self.network.slopes.copy_(torch.from_numpy(slopes))
            self.network.head.bias.fill_(float(found[-1] - slopes @ mean))

    def train(self, number: int) -> None:
        """Take the steps up to the next validation, of which each epoch has several."""
        epoch, part = divmod(number - 1, self.settings.validations)
        batches = self.order[epoch]
        first, last = (round((part + i) * len(batches) / self.settings.validations) for i in (0, 1))
        loss, pairs, start = 0.0, 0, time.perf_counter()
        for rows in batches[first:last]:
            self.step += 1
            loss += self._step(rows, self.step) * len(rows)
            pairs += len(rows)
            self.progress(self.step, self.steps)
        speed = pairs / max(time.perf_counter() - start, 1e-9)
        self.record = TextRecord(self.step, epoch + last / len(batches), loss / max(pairs, 1), None, speed)

    def measure(self, number: int) -> Measured | None:
        """Measure the loss on the held-out queries."""
        measured = self.held_out_loss()
        self.record = replace(self.record, held_out=None if measured is None else measured.value)
        self.history.append(self.record)
        return measured

    def held_out_loss(self) -> Measured | None:
        """Return the loss on the held-out queries; None without any."""
        if not len(self.rest):
            return None
        value = log_loss(self.network.odds(self.rest), *self.rest_counts)
        if not math.isfinite(value):
            raise TrainingError(f"the loss on held-out queries is {value} at step {self.step}: lower learning_rate")
        return Measured(value, higher=False)

    def keep(self) -> None:
        """Remember the weights as the best."""
        self.best_step, self.best_weights = self.step, self._weights()

    def finish(self) -> float:
        """Restore the best weights and calibrate; return the loss on the measured queries."""
        network = self.network
        network.load_state_dict(self.best_weights, strict=False)
        if network.residual and len(self.rest):
            if self.settings.calibrate:
                self._calibrate()
            if network.slopes.numel() and not self._helps():
                network.load_state_dict(self.before, strict=False)
                self.best_step = 0
        best = log_loss(network.odds(self.last), *self.last_counts) if len(self.last) else float("nan")
        if not network.residual:
            self._fit_prior(*self.every)
        network.requires_grad_(False).eval()
        return best

    def _calibrate(self) -> None:
        """Scale the contribution of the language model by the clicks of the queries that choose.

        A penalty makes a few queries change little; the level was learned from more queries and stays.
        """
        network = self.network
        whole = network.odds(self.rest)
        learned = whole - network.prior_odds(self.rest)
        mean, spread = float(learned.mean()), max(float(learned.std()), 1e-9)
        inputs = ((learned - mean) / spread)[:, None]
        found = logistic(inputs, *self.rest_counts, ridge=np.array([CAUTION, FIXED]), offset=whole)
        factor = max(float(found[0]) / spread, -1.0)
        with torch.no_grad():
            network.head.weight.mul_(1 + factor)
            network.head.bias.sub_(factor * mean)

    def _helps(self) -> bool:
        """Return whether the queries that choose gain by more than one standard error over the prior alone."""
        after = self.network.odds(self.rest)
        now = self._weights()
        self.network.load_state_dict(self.before, strict=False)
        before = self.network.prior_odds(self.rest)
        self.network.load_state_dict(now, strict=False)
        clicks, shown = self.rest_counts
        gain = clicks * (after - before) - shown * (np.logaddexp(0, after) - np.logaddexp(0, before))
        by_query = np.bincount(np.unique(self.rest.query_rows, return_inverse=True)[1], weights=gain)
        spread = by_query.std() * math.sqrt(len(by_query))
        return bool(by_query.sum() > spread)

    def _step(self, rows: Int64, step: int) -> float:
        settings, network = self.settings, self.network
        network.train()
        share = settings.rate(step, self.steps)
        for group in self.optimiser.param_groups:
            group["lr"] = group["most"] * share
        self.optimiser.zero_grad()
        loss = self._loss(rows)
        torch.autograd.backward(loss)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingError(f"the loss is {value} at step {step}: lower learning_rate")
        if settings.clip_norm:
            nn.utils.clip_grad_norm_([each for each in network.parameters() if each.requires_grad], settings.clip_norm)
        self.optimiser.step()
        return value

    def _loss(self, rows: Int64) -> torch.Tensor:
        odds = self.network(*self.network.batch(self.learned.take(rows)))
        clicked, skipped = (torch.from_numpy(each[rows]).to(odds.dtype) for each in (self.clicked, self.skipped))
        return cross_entropy(odds, clicked, skipped).mean()

    def _batches(self) -> list[Int64]:
        settings = self.settings
        sizes = {"budget": settings.batch_tokens, "most": settings.batch_pairs}
        return list(by_length(self.learned.lengths, **sizes, shuffle=self.generator))

    def _optimiser(self) -> torch.optim.Optimizer:
        settings, head = self.settings, {id(each) for each in self.network.head.parameters()}
        trained = [each for each in self.network.parameters() if each.requires_grad]
        body = [each for each in trained if id(each) not in head]
        heads = [self.network.head.weight, self.network.head.bias]
        groups: list[dict[str, Any]] = [{"params": heads, "most": settings.head_rate, "weight_decay": 0.0}]
        for decays in (True, False):
            chosen = [each for each in body if (each.ndim > 1) == decays]
            decay = settings.weight_decay if decays else 0.0
            if chosen:
                groups.append({"params": chosen, "most": settings.learning_rate, "weight_decay": decay})
        kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
        return kind(groups, lr=settings.learning_rate)

    def _weights(self) -> dict[str, torch.Tensor]:
        return {name: each.detach().clone() for name, each in self.network.named_parameters() if each.requires_grad}


def cross_entropy(odds: torch.Tensor, clicked: torch.Tensor, skipped: torch.Tensor) -> torch.Tensor:
    """Return -c log y - (n - c) log(1 - y) of each pair, y = sigmoid(odds), in log space, [pairs].

    >>> round(cross_entropy(torch.tensor([0.0]), torch.tensor([2.0]), torch.tensor([1.0])).item() / math.log(2), 6)
    3.0
    """
    softplus = nn.functional.softplus
    return clicked * softplus(-odds) + skipped * softplus(odds)
