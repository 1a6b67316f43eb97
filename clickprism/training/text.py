"""The loop for pairs of texts: a language model learns the clicks of a randomised first slot (Zou et al. 2022, §4)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, final

import numpy as np
import torch
from torch import nn

from clickprism.errors import DataError, TrainingError
from clickprism.rankers.cross_encoder import CrossEncoderNetwork, probabilities
from clickprism.rankers.text_tokens import Pairs, by_length
from clickprism.training.calibration import Calibration, log_loss, log_odds, logistic
from clickprism.training.settings import Stopped
from clickprism.training.text_settings import TextCost, TextFitSettings, TextFitted, TextRecord
from clickprism.types import Bool, Float64, Int64

MEASURED: Final = 3  # steps whose time is taken beforehand
RIDGE: Final = 30.0  # on the weights of the last layer when it is fitted alone, inputs of length 1
Note = Callable[[str], None]
Show = Callable[[int, int, TextRecord | None], None]


def silent(step: int, steps: int, record: TextRecord | None) -> None:
    """Show nothing of a step."""


def fit_text(
    network: CrossEncoderNetwork,
    pairs: Pairs,
    clicks: Int64,
    impressions: Int64,
    *,
    teacher: Float64 | None = None,
    settings: TextFitSettings | None = None,
    note: Note = lambda _: None,
    show: Show = silent,
) -> TextFitted:
    """Fine-tune a cross-encoder: minimise -sum of c log y - (n - c) log(1 - y) over the distinct pairs.

    Args:
        network: changed in place; `CrossEncoder().build()` makes one.
        pairs: distinct, by `network.pairs_of_rows`; those of a query share its row.
        clicks: of each pair in the randomised first slot, [pairs].
        impressions: of each pair there, [pairs]. Merged counts give the same loss as single impressions.
        teacher: scores of the pairs that the network first learns to rank by, on any scale, [pairs]; None for none.
        settings: of the loop.
        note: is told what an epoch will cost, before the first.
        show: is told of every step, of how many, and of the validation after it if there was one.

    Returns:
        The network with the best weights by held-out queries. Ctrl-C ends training early and keeps the best so far.
    """
    settings = TextFitSettings() if settings is None else settings
    if not len(pairs) == len(clicks) == len(impressions):
        raise DataError(f"{len(pairs)} pairs but {len(clicks)} clicks and {len(impressions)} impressions")
    if not ((impressions >= 1) & (clicks >= 0) & (clicks <= impressions)).all():
        raise DataError("a pair that is here was shown, and clicked at most as often")
    if not 0 < int(np.sum(clicks)) < int(np.sum(impressions)):
        what = "no click" if int(np.sum(clicks)) == 0 else "nothing that was not clicked"
        raise DataError(f"there is nothing to learn from: the first slot has {what}")
    with _torch_set_for(settings):
        cost = _Loop(network, pairs, clicks, impressions, settings).cost()
        before = settings.imitate if teacher is not None else 0
        note(f"{cost}; at most {settings.epochs} of clicks" + (f", after {before} of imitation" if before else ""))
        if teacher is not None and before:
            _imitate(network, pairs, teacher, settings, show)
        loop = _Loop(network, pairs, clicks, impressions, settings)
        loop.warm_head()
        untrained = loop.validate(0, float("nan"), 0.0)
        stopped: Stopped = "epochs"
        try:
            stopped = loop.run(show)
        except KeyboardInterrupt:
            stopped = "interrupted"
        best = loop.finish()
    constant = float("nan")
    if loop.held_out.any():
        kept, rate = loop.held_out, log_odds(clicks[~loop.held_out], impressions[~loop.held_out])
        constant = log_loss(np.full(int(kept.sum()), rate), clicks[kept], impressions[kept])
    return TextFitted(network, cost, constant, untrained, best, loop.best_step, tuple(loop.history), stopped)


def _imitate(
    network: CrossEncoderNetwork, pairs: Pairs, teacher: Float64, settings: TextFitSettings, show: Show
) -> None:
    """Train the network to rank as the teacher does: cross entropy with sigmoid(2 z), z its standardised scores."""
    scores = (teacher - teacher.mean()) / max(float(teacher.std()), 1e-9)
    alone = replace(settings, epochs=settings.imitate, held_out=0.0, balance=0.0, most_impressions=0, validations=1)
    loop = _Loop(network, pairs, probabilities(2 * scores), np.ones(len(pairs)), alone)
    loop.warm_head()
    loop.run(lambda step, steps, _: show(step, steps, None))


def held_out_queries(queries: Int64, share: float, *, seed: int) -> Bool:
    """Which pairs are of held-out queries: whole queries, at least one and not all where the share is above 0."""
    distinct = np.unique(queries)
    if share == 0 or len(distinct) < 2:
        return np.zeros(len(queries), dtype=np.bool_)
    count = min(max(round(share * len(distinct)), 1), len(distinct) - 1)
    chosen = np.random.default_rng([seed, 7]).permutation(distinct)[:count]
    return np.isin(queries, chosen)


def freeze(network: CrossEncoderNetwork, *, share: float, embeddings: bool) -> None:
    """Let only what is to be trained have gradients: the head, and the layers above the lowest share of them."""
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
    """What one run works on, and the best weights so far."""

    def __init__(
        self,
        network: CrossEncoderNetwork,
        pairs: Pairs,
        clicks: Int64 | Float64,
        impressions: Int64 | Float64,
        settings: TextFitSettings,
    ) -> None:
        self.network, self.settings = network, settings
        self.held_out = held_out_queries(pairs.query_rows, settings.held_out, seed=settings.seed)
        kept = np.flatnonzero(~self.held_out)
        self.rest, self.train = pairs.take(np.flatnonzero(self.held_out)), pairs.take(kept)
        self.rest_counts = clicks[self.held_out], impressions[self.held_out]
        self.clicks, self.impressions = clicks[kept], impressions[kept]
        most = settings.most_impressions
        weight = np.minimum(self.impressions, most) / self.impressions if most else np.ones(len(kept))
        ratio = float(np.sum((self.impressions - self.clicks) * weight) / max(np.sum(self.clicks * weight), 0.5))
        self.shift = settings.balance * math.log(ratio)
        self.clicked = self.clicks * weight * math.exp(self.shift)
        self.skipped = (self.impressions - self.clicks) * weight
        scale = float((self.clicked + self.skipped).mean())
        self.clicked, self.skipped = self.clicked / scale, self.skipped / scale
        freeze(network, share=settings.frozen, embeddings=settings.frozen_embeddings)
        self.generator = np.random.default_rng([settings.seed, 11])
        self.order = [self._batches() for _ in range(settings.epochs)]
        self.steps = sum(map(len, self.order))
        self.optimiser = self._optimiser()
        self.history: list[TextRecord] = []
        self.best, self.best_step, self.best_weights = math.inf, 0, self._weights()
        self.waited = 0

    def warm_head(self) -> None:
        """Fit the last layer alone, as a logistic regression with a penalty, on a sample of the pairs."""
        count = min(self.settings.probe, len(self.train))
        head = self.network.head
        if count == 0:
            with torch.no_grad():
                if not head.weight.any():
                    head.bias.fill_(log_odds(self.clicked, self.clicked + self.skipped))
            self._keep()
            return
        chosen = np.sort(self.generator.permutation(len(self.train))[:count])
        states = self.network.represent_pairs(self.train.take(chosen)).astype(np.float64)
        length = math.sqrt(float((states**2).sum(axis=1).mean())) or 1.0
        start = head.weight.detach().double().numpy()[0]
        along = states @ start
        spread = float(along.std()) or 1.0
        inputs = np.concatenate([((along - along.mean()) / spread)[:, None], states / length], axis=1)
        ridge = np.concatenate([[1e-3], np.full(states.shape[1], RIDGE)])
        shown = self.clicked[chosen] + self.skipped[chosen]
        found = logistic(inputs, self.clicked[chosen], shown, ridge=ridge)
        slope = max(float(found[0]), 0.1 if start.any() else 0.0) / spread
        with torch.no_grad():
            head.weight.copy_(torch.from_numpy(slope * start + found[1:-1] / length)[None])
            head.bias.fill_(float(found[-1]) - slope * float(along.mean()))
        self._keep()

    def cost(self) -> TextCost:
        """The time of an epoch, by a few steps forward and backward, after which the weights are as before."""
        batches = self.order[0]
        tokens = [int(self.train.lengths[rows].max()) * len(rows) for rows in batches]
        middle = np.argsort(tokens)[len(tokens) // 2 :][:MEASURED].tolist()
        start, worked = time.perf_counter(), 0
        state = torch.get_rng_state()
        self.network.train()
        for place in middle:
            torch.autograd.backward(self._loss(batches[place]))
            worked += tokens[place]
        self.optimiser.zero_grad()
        torch.set_rng_state(state)
        seconds = (time.perf_counter() - start) / worked * sum(tokens)
        return TextCost(len(self.train), sum(tokens), len(batches), seconds)

    def run(self, show: Show) -> Stopped:
        """All steps, until there are no more, or the held-out queries say that it gets no better."""
        settings, step = self.settings, 0
        for epoch, batches in enumerate(self.order):
            due = {round((i + 1) * len(batches) / settings.validations) for i in range(settings.validations)} - {0}
            loss, pairs, start = 0.0, 0, time.perf_counter()
            for place, rows in enumerate(batches, start=1):
                step += 1
                loss += self._step(rows, step) * len(rows)
                pairs += len(rows)
                if place not in due:
                    show(step, self.steps, None)
                    continue
                speed = pairs / (time.perf_counter() - start)
                self.validate(step, loss / pairs, speed, epoch=epoch + place / len(batches))
                show(step, self.steps, self.history[-1])
                if settings.patience and self.waited >= settings.patience:
                    return "patience"
                loss, pairs, start = 0.0, 0, time.perf_counter()
        return "epochs"

    def validate(self, step: int, loss: float, speed: float, *, epoch: float = 0.0) -> float:
        """Measure on the held-out queries, and keep the weights if they are the best."""
        value = float("nan")
        if len(self.rest):
            odds = self.network.odds(self.rest) - self.shift
            value = log_loss(odds, *self.rest_counts)
            if not math.isfinite(value):
                raise TrainingError(f"the loss on held-out queries is {value} at step {step}: lower learning_rate")
        if step:
            self.history.append(TextRecord(step, epoch, loss, value if len(self.rest) else None, speed))
        if not len(self.rest) or value < self.best:
            self.best, self.best_step, self.waited = value, step, 0
            self._keep()
        else:
            self.waited += 1
        return value

    def finish(self) -> float:
        """Put the best weights in, take off what balancing added, calibrate; the held-out loss after that."""
        network, settings = self.network, self.settings
        network.load_state_dict(self.best_weights, strict=False)
        with torch.no_grad():
            network.head.bias.sub_(self.shift)
            if len(self.rest) and settings.calibrate and 0 < self.rest_counts[0].sum() < self.rest_counts[1].sum():
                odds = network.odds(self.rest)
                fitted = Calibration.fit(odds, *self.rest_counts)
                if fitted.slope > 0:
                    network.head.weight.mul_(fitted.slope)
                    network.head.bias.mul_(fitted.slope).add_(fitted.intercept)
                    self.best = log_loss(fitted(odds), *self.rest_counts)
        network.requires_grad_(False).eval()
        return self.best

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
        odds = self.network(*self.network.batch(self.train.take(rows)))
        clicked, skipped = (torch.from_numpy(each[rows]).to(odds.dtype) for each in (self.clicked, self.skipped))
        return cross_entropy(odds, clicked, skipped).mean()

    def _batches(self) -> list[Int64]:
        settings = self.settings
        sizes = {"budget": settings.batch_tokens, "most": settings.batch_pairs}
        return list(by_length(self.train.lengths, **sizes, shuffle=self.generator))

    def _optimiser(self) -> torch.optim.Optimizer:
        settings, head = self.settings, {id(each) for each in self.network.head.parameters()}
        trained = [each for each in self.network.parameters() if each.requires_grad]
        body = [each for each in trained if id(each) not in head]
        groups: list[dict[str, Any]] = [
            {"params": list(self.network.head.parameters()), "most": settings.head_rate, "weight_decay": 0.0}
        ]
        for decays in (True, False):
            chosen = [each for each in body if (each.ndim > 1) == decays]
            decay = settings.weight_decay if decays else 0.0
            if chosen:
                groups.append({"params": chosen, "most": settings.learning_rate, "weight_decay": decay})
        kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
        return kind(groups, lr=settings.learning_rate)

    def _keep(self) -> None:
        self.best_weights = self._weights()

    def _weights(self) -> dict[str, torch.Tensor]:
        return {name: each.detach().clone() for name, each in self.network.named_parameters() if each.requires_grad}


def cross_entropy(odds: torch.Tensor, clicked: torch.Tensor, skipped: torch.Tensor) -> torch.Tensor:
    """-c log y - (n - c) log(1 - y) of each pair, y = sigmoid(odds), without ever leaving log space, [pairs].

    >>> round(cross_entropy(torch.tensor([0.0]), torch.tensor([2.0]), torch.tensor([1.0])).item() / math.log(2), 6)
    3.0
    """
    softplus = nn.functional.softplus
    return clicked * softplus(-odds) + skipped * softplus(odds)


@contextmanager
def _torch_set_for(settings: TextFitSettings) -> Iterator[None]:
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        if settings.threads:
            torch.set_num_threads(settings.threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
