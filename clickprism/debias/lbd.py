"""LBD in our form: an observation that depends on the document, chosen by held-out clicks or by the log model."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final, final

import numpy as np
import torch
from torch import nn

from clickprism.debias.anchor import Anchor
from clickprism.debias.base import SIMILAR, DocumentLearner, Method, at, dropped, flat, spread, towered
from clickprism.debias.loop import Measured, Standing, batches, likelihoods, run
from clickprism.debias.losses import score, softmax_loss
from clickprism.errors import SettingError, TrainingError
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.settings import check_fields
from clickprism.types import Batch, Clicks, Float64

log = logging.getLogger(__name__)
LARGE: Final = 1e3  # features are of the order of 1 where they are normalised
BATCH: Final = 128
LEARNING_RATE: Final = 0.05
CLIP_NORM: Final = 5.0
STEP: Final = 0.05  # step of the finite differences that estimate the slope
LEAST_LISTS: Final = 10  # lists with a click needed on each side of the split; with fewer nothing is chosen


@final
@dataclass(frozen=True)
class ObservationSettings:
    """How the observation of documents is learned.

    Attributes:
        hidden: Hidden units of s, to choose from; 0 for a linear s.
        companion: Hidden layers of the relevance that is learned at the same time and then discarded.
        penalties: Weights of the mean square of the slope of log o, to choose from.
        curve: Also try a curve over positions that does not depend on the document.
        anchor: Take the curve of the log model if documents shown at several positions identify it and the log model
            finds no coupling (`clickprism.debias.anchor`).
        held_out: Share of queries whose clicks choose the penalty and when to stop.
        lists: Largest number of ranked lists, drawn at random.
        epochs: Largest number of epochs.
        patience: Number of epochs without a better likelihood of held-out clicks after which training stops.
    """

    hidden: tuple[int, ...] = (0, 16)
    companion: tuple[int, ...] = (64, 32)
    penalties: tuple[float, ...] = (0.0, 0.01)
    curve: bool = True
    anchor: bool = True
    held_out: float = 0.2
    lists: int = 30_000
    epochs: int = 200
    patience: int = 6

    def __post_init__(self) -> None:
        for name, least in (("hidden", 0), ("companion", 1)):
            sizes = getattr(self, name)
            if not sizes or not all(isinstance(size, int | np.integer) and size >= least for size in sizes):
                raise SettingError(name, sizes, f"name at least one size, whole numbers from {least}")
        counts = dict.fromkeys(("lists", "epochs", "patience"), "[1, inf)")
        check_fields(self, penalties="[0, inf)", held_out="(0, 1)", **counts)
        if not (self.penalties or self.curve):
            raise SettingError("penalties", self.penalties, "name at least one where the curve alone is not tried")


@final
@dataclass(frozen=True)
class Decoupling(Method):
    """Softmax cross entropy with every click divided by the observation of its document at its position.

    loss = - sum_i c_i / o_k(x_i) log softmax_i(f(x)),  log o_k(x) = s(x) (log o_1 + b_k)

    It keeps what LBD (Chen et al., 2022) is about, an observation that depends on the document and a Lipschitz penalty
    on it, and changes what the paper's form gets wrong (`lbd_paper`; figures in docs/research/methods/lbd.md). The
    observation is learned before the ranker, beside a flexible relevance (`learn_observation`): what a simple ranker
    cannot express would go into the observation. It is anchored, b_1 = 0: clicks identify how the observation of a
    document falls below the first position, not what it is there. Held-out clicks choose the penalty, and whether
    observation depends on the document at all.

    Joint learning over-corrects the logs of good engines. Where documents shown at several positions identify the curve
    and the log model finds no coupling, the observation is therefore the log model's curve, and the ranker learns f in
    softmax_i(f(x) + rho v): v is what the engine's order says beyond the features (`clickprism.debias.anchor`).

    `first` is what no click identifies: how often the first result is observed. At 1 the ranker learns c_1(x), the
    click probability at the first position. Below 1 the dependence on the document holds at the first position too, and
    clicks there are weighted by it. The default lies between the two plausible ends, always and the .68 of eye
    tracking. The first result is never assumed to be observed less than the others are on average, relative to it:
    where the log shows no position bias, `first` has no effect.

    Unbiased for relevance when o has this form, the companion can express relevance, documents with similar features
    were shown at different positions, and `first` is right; for c_1 when it is 1.

    Attributes:
        observation: How o is learned.
        first: Least observation of the average document at the first position.
        drop: t of LBD's Bernoulli dropping, in expectation: o becomes t + (1 - t) o. 1 is `click`.
        max_weight: Weights above this are cut to it.
    """

    name = "lbd"
    summary = "Weights each click by the inverse observation of its document at its position."
    corrects = ("position", "document")
    needs = SIMILAR
    takes_weights = True
    observation: ObservationSettings = field(default_factory=ObservationSettings)
    first: float = 0.8
    drop: float = 0.0
    max_weight: float = 50.0

    def __post_init__(self) -> None:
        check_fields(self, first="(0, 1]", drop="[0, 1]", max_weight="[1, inf)")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> DecoupledLearner:
        """Return a learner with the observation that the log gives; a doubt about it is logged as a warning."""
        anchor = Anchor.of(clicks) if self.observation.anchor else None
        if anchor is None:
            learner = DecoupledLearner(self, ranker, clicks, *learn_observation(clicks, self.observation))
        else:
            observed = DocumentObservation(features=0, positions=len(anchor.curve), hidden=0, flat=True)
            observed.load_state_dict({"below": anchor.curve[1:].log()})
            learner = DecoupledLearner(self, ranker, clicks, _frozen(observed), (GIVEN,), anchor=anchor)
        if learner.doubt:
            log.warning("%s: %s", self.name, learner.doubt)
            learner.observation_model += f". Note: {learner.doubt}"
        return learner


@final
class DecoupledLearner(DocumentLearner):
    """The ranker, and an observation that is learned already.

    Attributes:
        choices: What was tried, the chosen one first.
        anchor: What the log said before; None if the observation was learned.
    """

    scale: torch.Tensor
    log_first: torch.Tensor

    def __init__(
        self,
        settings: Decoupling,
        ranker: nn.Module,
        clicks: Clicks,
        observed: DocumentObservation,
        choices: tuple[Choice, ...],
        *,
        anchor: Anchor | None = None,
    ) -> None:
        super().__init__(ranker, clicks)
        self.settings, self.observed, self.choices, self.anchor = settings, observed, choices, anchor
        self.observation_model = choice_text(choices) if choices else ""
        self.register_buffer("scale", observed.steepness(self.sample).detach().mean().clamp_min(1e-3))
        below = observed.below.detach().mean() * self.scale if len(observed.below) else torch.zeros(())
        self.register_buffer("log_first", below.clamp(math.log(settings.first), 0.0))

    @property
    def doubt(self) -> str:
        """Return a warning, with a remedy, if the curve alone was chosen and features are very large."""
        penalties, largest = self.settings.observation.penalties, float(self.sample.abs().max())
        chosen = bool(penalties and self.choices) and self.anchor is None and self.choices[0].penalty == math.inf
        if not chosen or not largest > LARGE:
            return ""
        return (
            f"the observation is a curve over positions only, and features go up to {largest:.3g}, which may be the "
            "only reason. Normalise the features (data.normalise=quantile, or clickprism.data.normalise)"
        )

    @property
    def unit(self) -> float:
        """Return the observation of the average document at the first position; weights are 1 there."""
        return self.settings.drop + (1 - self.settings.drop) * math.exp(float(self.log_first))

    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Return log o_k(x), [..., positions]."""
        documents = features.reshape(-1, features.shape[-1])
        at_first = self.log_first * self.observed.steepness(documents) / self.scale
        logs = dropped(self.observed(documents) + at_first[:, None], self.settings.drop)
        return logs.reshape(*features.shape[:-1], -1)

    def log_exposure(self, features: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return log o_k(x), relative to that of the average document at the first position, [documents]."""
        return at(self.log_observation(features), positions) - math.log(self.unit)

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the softmax cross entropy on the weighted clicks."""
        with torch.no_grad():
            logs = self.log_exposure(batch.features[batch.mask], batch.positions[batch.mask])
            weights = torch.exp(-logs.clamp_min(-math.log(self.settings.max_weight)))
        weighted = batch.clicks * spread(weights, batch.mask)
        return {"ranking": softmax_loss(self._relevance(batch), weighted, mask=batch.mask)}

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Return the log relevance + log o, [lists, places]."""
        logs = at(self.log_observation(batch.features[batch.mask]), batch.positions[batch.mask])
        return self._relevance(batch) + spread(logs, batch.mask)

    def _relevance(self, batch: Batch) -> torch.Tensor:
        """Return f(x), and rho v of the anchor, [lists, places]."""
        scores = score(self.ranker, batch)
        if self.anchor is None:
            return scores
        beyond = self.anchor.beyond(batch.features[batch.mask], batch.positions[batch.mask])
        return scores + spread(beyond, batch.mask)

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """Return the ranker's parameters; the observation is not trained any more."""
        return [(1.0, list(self.ranker.parameters()))]


@dataclass(frozen=True)
class Choice:
    """An observation model that was tried: its settings and its held-out log-likelihood.

    Attributes:
        hidden: Hidden units of s.
        penalty: Weight of the slope; infinite for the curve alone.
        likelihood: Log-likelihood of the held-out clicks of a session; nan where nothing was held out.
        epochs: The epoch after which it was the highest.
    """

    hidden: int
    penalty: float
    likelihood: float
    epochs: int


GIVEN: Final = Choice(0, math.inf, math.nan, 0)  # the curve of the anchor, without a choice


def choice_text(choices: Sequence[Choice]) -> str:
    """Return what was chosen and why, in a line.

    >>> choice_text([Choice(0, 0.01, -1.4081, 9), Choice(0, math.inf, -1.4161, 7)])
    'observation depends on documents: linear, penalty 0.01 (held-out log-likelihood -1.4081; positions only -1.4161)'
    >>> choice_text([Choice(0, math.inf, -1.5, 7), Choice(16, 0.0, -1.6, 9)])
    'observation depends on positions only (held-out log-likelihood -1.5000; best with documents -1.6000)'
    >>> choice_text([Choice(0, math.inf, math.nan, 60)])
    'observation depends on positions only (too few ranked lists with clicks, or positions, to choose by)'
    >>> choice_text([Choice(0, math.inf, math.nan, 0)])
    'observation is the position curve of the log model, which finds no dependence on documents'
    """
    chosen, curve = choices[0], choices[0].penalty == math.inf
    if chosen.epochs == 0:
        return "observation is the position curve of the log model, which finds no dependence on documents"
    form = f"network of {chosen.hidden} units" if chosen.hidden else "linear"
    what = "depends on positions only" if curve else f"depends on documents: {form}, penalty {chosen.penalty:g}"
    if math.isnan(chosen.likelihood):
        return f"observation {what} (too few ranked lists with clicks, or positions, to choose by)"
    others = [choice.likelihood for choice in choices[1:] if (choice.penalty < math.inf) == curve]
    other = f"; {'best with documents' if curve else 'positions only'} {max(others):.4f}" if others else ""
    return f"observation {what} (held-out log-likelihood {chosen.likelihood:.4f}{other})"


@final
class DocumentObservation(nn.Module):
    """Log o_k(x) = s(x) b_k, relative to the first position: a curve, times a factor that depends on the document.

    Attributes:
        below: b at the positions below the first.
    """

    def __init__(self, *, features: int, positions: int, hidden: int, flat: bool) -> None:
        super().__init__()
        self.below = nn.Parameter(torch.zeros(positions - 1))
        self.chain = nn.Sequential() if flat or positions == 1 else _steepness(features, hidden)

    @classmethod
    def like(cls, choice: Choice, features: int, positions: int) -> DocumentObservation:
        """Return a new observation of the chosen form."""
        return cls(features=features, positions=positions, hidden=choice.hidden, flat=choice.penalty == math.inf)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[documents, features] to [documents, positions]."""
        return nn.functional.pad(self.below * self.steepness(features)[:, None], (1, 0))

    def penalised(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the same, and the mean square of its slope over documents and positions.

        E ((f(x + s u) - f(x)) / s)^2 over normal u is ||df/dx||^2 for small s: a quarter of the cost of a gradient.
        """
        logs = self(features)
        moved = self(features + STEP * torch.randn_like(features))
        return logs, ((moved - logs) / STEP).square().mean()

    def steepness(self, features: torch.Tensor) -> torch.Tensor:
        """Return s(x), [documents]; 1 for the curve alone."""
        if len(self.chain) == 0:
            return features.new_ones(len(features))
        raw: torch.Tensor = self.chain(features)
        return (1 + raw[:, 0]).clamp_min(0.0)


def _steepness(features: int, hidden: int) -> nn.Sequential:
    network = MLP(hidden=(hidden,)) if hidden else Linear()
    return flat(towered(network.build(features), "lbd").new_like(1))


def learn_observation(clicks: Clicks, settings: ObservationSettings) -> tuple[DocumentObservation, tuple[Choice, ...]]:
    """Return the observation that predicts clicks on held-out queries the best, and all that were tried, it first.

    maximise  sum_i c_i log softmax_i(u(x_i) + log o_k(x_i)) - penalty * mean ||d log o_k(x) / d x||^2

    over the companion u, a network, and o. u is flexible whatever ranker is trained later: what a linear relevance
    cannot express would go into the observation. The curve alone is taken only if its likelihood is above that of every
    candidate that depends on the document by more than a standard error: missing a dependence costs a ranker many times
    what a needless one does. A log too small to hold anything out gets the curve alone, and so does one with a single
    position.

    Randomness is torch's: set its seed for the same result. The generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        seed = torch.initial_seed() % 2**63
        learn, check = _split(clicks, settings, np.random.default_rng(seed))
        coupled = check is not None and clicks.max_position > 1
        forms = list(dict.fromkeys(product(settings.hidden, settings.penalties))) if coupled else []
        if settings.curve or not forms:
            forms.append((0, math.inf))
        found = []
        for hidden, penalty in forms:
            torch.manual_seed(seed)
            task = _Learning(learn, check, settings, Choice(hidden, penalty, -math.inf, 0), clicks.max_position)
            found.append(task.learned(settings))
    found = [each for each in found if math.isfinite(each.choice.likelihood) and each.observed.below.isfinite().all()]
    if not found:
        raise TrainingError("the observation of documents is not finite. Look for very large features (normalise them)")
    chosen = _chosen(found)
    tried = [chosen.choice, *(each.choice for each in found if each is not chosen)]
    if check is None:
        tried = [replace(choice, likelihood=math.nan) for choice in tried]
    return _frozen(chosen.observed), tuple(tried)


def _chosen(found: Sequence[_Learning]) -> _Learning:
    """Return the most likely; the best that depends on the document unless the curve is better by a standard error."""
    best = max(found, key=lambda each: each.choice.likelihood)
    coupled = [each for each in found if each.choice.penalty < math.inf]
    if best in coupled or not coupled:
        return best
    other = max(coupled, key=lambda each: each.choice.likelihood)
    gap = best.kept - other.kept
    return other if float(gap.mean()) <= float(gap.std()) / math.sqrt(len(gap)) else best


def _frozen(observed: DocumentObservation) -> DocumentObservation:
    """Return the same with buffers instead of parameters, so that training does not change it."""
    for module in list(observed.modules()):
        for name, parameter in list(module.named_parameters(recurse=False)):
            delattr(module, name)
            module.register_buffer(name, parameter.detach())
    return observed.eval()


def _split(clicks: Clicks, settings: ObservationSettings, rng: np.random.Generator) -> tuple[Clicks, Clicks | None]:
    """Return the ranked lists to learn from and those to check by, of other queries; None if there are too few."""
    kept = clicks.merge().with_clicks()
    if len(kept) > settings.lists:
        kept = kept.take(np.sort(rng.choice(len(kept), settings.lists, replace=False)))
    held = rng.random(len(clicks.lists)) < settings.held_out
    out = held[clicks.lists.list_of[kept.rows[kept.offsets[:-1]]]]
    if min(out.sum(), (~out).sum()) < LEAST_LISTS:
        return kept, None
    return kept.take(~out), kept.take(out)


class _Learning:
    """An observation and its companion as the task of a loop: an epoch a round, measured on held-out queries."""

    def __init__(
        self, learn: Clicks, check: Clicks | None, settings: ObservationSettings, choice: Choice, positions: int
    ) -> None:
        features = learn.lists.features.shape[1]
        self.learn, self.check, self.choice = learn, check, choice
        self.companion = MLP(hidden=settings.companion).build(features)
        self.observed = DocumentObservation.like(choice, features, positions)
        self.likelihoods: Float64 = np.zeros(0)
        self.kept = self.likelihoods
        groups = [self.companion.parameters(), [self.observed.below], self.observed.chain.parameters()]
        listed = [{"params": parameters} for group in groups if (parameters := list(group))]
        self.optimiser = torch.optim.Adagrad(listed, lr=LEARNING_RATE)
        self.best = self.observed.state_dict()

    def learned(self, settings: ObservationSettings) -> _Learning:
        """Train until held-out clicks say stop, and keep the best epoch."""
        standing = Standing()
        for _ in run(self, standing, rounds=settings.epochs, patience=settings.patience):
            pass
        self.observed.load_state_dict(self.best)
        likelihood = -math.inf if standing.best_value is None else standing.best_value
        self.choice = replace(self.choice, likelihood=likelihood, epochs=standing.best_epoch)
        return self

    def train(self, number: int) -> None:
        """Go over all lists once."""
        penalty = self.choice.penalty
        for batch in batches(self.learn, BATCH, shuffle=(int(torch.initial_seed() % 2**32), number)):
            documents = batch.features[batch.mask]
            if 0 < penalty < math.inf:
                logs, slope = self.observed.penalised(documents)
                loss = penalty * slope
            else:
                logs, loss = self.observed(documents), torch.zeros(())
            loss = loss + softmax_loss(self._logits(batch, logs), batch.clicks, mask=batch.mask)
            self.optimiser.zero_grad()
            torch.autograd.backward(loss)
            for group in self.optimiser.param_groups:
                nn.utils.clip_grad_norm_(group["params"], CLIP_NORM)
            self.optimiser.step()

    def _logits(self, batch: Batch, logs: torch.Tensor) -> torch.Tensor:
        """Return u(x) + log o_k(x), [lists, places]."""
        return score(self.companion, batch) + spread(at(logs, batch.positions[batch.mask]), batch.mask)

    def measure(self, number: int) -> Measured:
        """Return the likelihood of held-out clicks; without any, later epochs are better."""
        if self.check is None:
            return Measured(float(number))
        self.likelihoods = likelihoods(
            lambda batch: self._logits(batch, self.observed(batch.features[batch.mask])), self.check
        )
        return Measured(float(self.likelihoods.mean()))

    def keep(self) -> None:
        """Remember the observation."""
        self.best = {key: tensor.clone() for key, tensor in self.observed.state_dict().items()}
        self.kept = self.likelihoods
