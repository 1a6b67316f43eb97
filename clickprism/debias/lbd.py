"""LBD in our form: an observation that depends on the document, chosen by held-out clicks or by the log model."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final, final

import numpy as np
import torch
from torch import nn

from clickprism.debias.anchor import position_curve
from clickprism.debias.base import SIMILAR, Declared, DocumentLearner, on_entries, towered
from clickprism.debias.loop import Measured, Standing, batches, run
from clickprism.debias.losses import log_softmax, score, softmax_loss
from clickprism.errors import SettingError, TrainingError
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.types import Batch, Clicks, Float64

log = logging.getLogger(__name__)
ANCHORED_DROP: Final = 0.15
LARGE: Final = 1e3  # features are of the order of 1 where they are normalised
BATCH: Final = 128
LEARNING_RATE: Final = 0.05
CLIP_NORM: Final = 5.0
UNKNOWN: Final = 1.0  # packed, a likelihood that is none: logarithms of probabilities are not above 0
STEP: Final = 0.05  # of the differences that the slope is estimated by
LEAST_LISTS: Final = 10  # with a click, on either side; fewer choose nothing


@final
@dataclass(frozen=True)
class ObservationSettings:
    """How the observation of documents is learned.

    Attributes:
        hidden: units of the hidden layer of s, to choose from; 0 for a linear one.
        companion: those of the relevance that is learned beside, and thrown away.
        penalties: on the mean square of the slope of log o, to choose from.
        curve: try the curve alone too, without any document in it.
        anchor: take the curve of the log model where documents shown at several positions identify it and it finds no
            coupling (`position_curve`).
        held_out: the share of queries whose clicks choose the penalty and when to stop.
        lists: at most so many ranked lists are used, drawn at random.
        epochs: over these, at most.
        patience: stop after so many epochs without a better likelihood of the clicks that were held out.
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
        if not _are_sizes(self.hidden, least=0):
            raise SettingError("hidden", self.hidden, "name at least one size, whole numbers, none below 0")
        if not _are_sizes(self.companion, least=1):
            raise SettingError(
                "companion", self.companion, "name at least one layer, each with whole units, at least one"
            )
        if not all(0 <= penalty < math.inf for penalty in self.penalties):
            raise SettingError("penalties", self.penalties, "be finite and not negative")
        if not (self.penalties or self.curve):
            raise SettingError("penalties", self.penalties, "name at least one where the curve alone is not tried")
        if not 0 < self.held_out < 1:
            raise SettingError("held_out", self.held_out, "be between 0 and 1")
        for name in ("lists", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "be at least 1")


def _are_sizes(sizes: Sequence[object], *, least: int) -> bool:
    return bool(sizes) and all(isinstance(size, int | np.integer) and size >= least for size in sizes)


@final
@dataclass(frozen=True)
class Decoupling(Declared):
    """Softmax cross entropy with every click divided by the observation of its document at its position.

    loss = - sum_i c_i / o_k(x_i) log softmax_i(f(x)),  log o_k(x) = s(x) (log o_1 + b_k)

    It keeps what LBD (Chen et al., 2022) is about, an observation that depends on the document and a Lipschitz penalty
    on it, and changes what the paper's form gets wrong (`lbd_paper`; figures in docs/methods/lbd.md). The observation
    is learned before the ranker, beside a network that may say anything of relevance (`learn_observation`): a ranker
    that is too simple would put what it cannot say into the observation. It is anchored, 0 = b_1: clicks say how the
    observation of a document falls below the first position, not what it is there. The penalty is the one under which
    clicks on queries held out are the most probable; the curve alone, without any document in it, is among the choices.
    Where documents shown at several positions identify the curve and the log model finds no coupling, the observation
    is the log model's curve: joint learning over-corrects the logs of good engines.

    `first` says what no click can: how often the first result is observed. At 1 the ranker learns c_1(x), the click
    probability at the first position, which is what clicks identify. Below 1 the dependence on the document is taken
    to hold at the first position too, and clicks there are weighted by it. The default lies between the two plausible
    ends, always and the .68 of eye tracking. The first result is never assumed to be observed less than the others are
    on average, relative to it: where the log shows no position bias, `first` has no effect.

    Unbiased for relevance when o has this form, the companion can express relevance, documents with similar features
    were shown at different positions, and `first` is right; for c_1 when it is 1.

    Attributes:
        observation: how o is learned.
        first: the observation of the average document at the first position, at least.
        drop: t of LBD's Bernoulli dropping, in expectation: o becomes t + (1 - t) o. 1 is `click`. By default .15
            where the curve is anchored, else 0.
        max_weight: weights above this are cut to it.
    """

    name = "lbd"
    summary = "Weights each click by the inverse observation of its document at its position."
    corrects = ("position", "document")
    needs = SIMILAR
    takes_weights = True
    observation: ObservationSettings = field(default_factory=ObservationSettings)
    first: float = 0.8
    drop: float | None = None
    max_weight: float = 50.0

    def __post_init__(self) -> None:
        if not 0 < self.first <= 1:
            raise SettingError("first", self.first, "be above 0 and at most 1")
        if self.drop is not None and not 0 <= self.drop <= 1:
            raise SettingError("drop", self.drop, "be in [0, 1]")
        if not 1 <= self.max_weight < math.inf:
            raise SettingError("max_weight", self.max_weight, "be at least 1")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> DecoupledLearner:
        """A learner with the observation that the log gives; a doubt about it goes to the log of this module."""
        learner = DecoupledLearner(self, ranker, clicks, *learn_observation(clicks, self.observation))
        if learner.doubt:
            log.warning("%s: %s", self.name, learner.doubt)
        return learner

    def restored(self, ranker: nn.Module, clicks: Clicks, weights: Mapping[str, torch.Tensor]) -> DecoupledLearner:
        """The learner of a checkpoint: the choice is the one that was made, whatever this machine would choose."""
        choices = unpacked(weights["tried"])
        features, positions = clicks.lists.features.shape[1], clicks.max_position
        observed = observation_like(choices[0], features=features, positions=positions)
        return DecoupledLearner(self, ranker, clicks, observed, choices)


@final
class DecoupledLearner(DocumentLearner):
    """The ranker, and an observation that is learned already.

    Attributes:
        choices: the penalties that were tried, the chosen one first.
    """

    scale: torch.Tensor
    log_first: torch.Tensor
    tried: torch.Tensor

    def __init__(
        self,
        settings: Decoupling,
        ranker: nn.Module,
        clicks: Clicks,
        observed: DocumentObservation,
        choices: tuple[Choice, ...],
    ) -> None:
        super().__init__(ranker, clicks)
        self.settings, self.observed, self.choices = settings, observed, choices
        self.register_buffer("scale", observed.steepness(self.sample).detach().mean().clamp_min(1e-3))
        below = observed.below.detach().mean() * self.scale if len(observed.below) else torch.zeros(())
        self.register_buffer("log_first", below.clamp(math.log(settings.first), 0.0))
        self.register_buffer("tried", packed(choices))

    @property
    def doubt(self) -> str:
        """A warning about the choice, with a remedy: the curve alone was chosen, and features are very large."""
        penalties, largest = self.settings.observation.penalties, float(self.sample.abs().max())
        if not penalties or not self.choices or self.choices[0].penalty < math.inf or not largest > LARGE:
            return ""
        return (
            f"the observation is a curve over positions only, and features go up to {largest:.3g}, which may be the "
            "only reason. Normalise the features (data.normalise=quantile, or clickprism.data.normalise)"
        )

    @property
    def unit(self) -> float:
        """The observation of the average document at the first position, after dropping: weights are 1 there."""
        return self.drop + (1 - self.drop) * math.exp(float(self.log_first))

    @property
    def drop(self) -> float:
        """t: as set, or by whether the curve is anchored."""
        if self.settings.drop is not None:
            return self.settings.drop
        return ANCHORED_DROP if bool(self.observed.anchored) else 0.0

    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Log o_k(x), [..., positions]."""
        flat = features.reshape(-1, features.shape[-1])
        at_first = self.log_first * self.observed.steepness(flat) / self.scale
        return self._dropped(self.observed(flat) + at_first[:, None]).reshape(*features.shape[:-1], -1)

    def log_observation_at(self, features: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Log o_k(x) of documents at their positions, [documents], without a table over all positions."""
        below, steepness = self.observed.at(features, positions)
        return self._dropped(below + self.log_first * steepness / self.scale)

    def _dropped(self, logs: torch.Tensor) -> torch.Tensor:
        """Log of t + (1 - t) o."""
        drop = self.drop
        if drop == 0:
            return logs
        kept = torch.log1p(torch.tensor(-drop)) + logs
        return torch.logaddexp(kept, torch.full_like(logs, math.log(drop)))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Softmax cross entropy on the weighted clicks."""
        documents, positions = batch.features[batch.mask], batch.positions[batch.mask]
        with torch.no_grad():
            logs = self.log_observation_at(documents, positions) - math.log(self.unit)
            weights = torch.exp(-logs.clamp_min(-math.log(self.settings.max_weight)))
        weighted = batch.clicks * torch.ones_like(batch.clicks).masked_scatter(batch.mask, weights)
        return {"ranking": softmax_loss(score(self.ranker, batch), weighted, mask=batch.mask)}

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Score + log o, [lists, places]."""
        documents, positions = batch.features[batch.mask], batch.positions[batch.mask]
        scores, logs = score(self.ranker, batch), self.log_observation_at(documents, positions)
        return scores + torch.zeros_like(scores).masked_scatter(batch.mask, logs)

    def exposure(self, clicks: Clicks) -> Float64:
        """Impressions times o_k(x), in units of the average document's at the first position, [entries]."""
        return on_entries(self.log_observation_at, clicks) * clicks.list_impressions / self.unit

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """The ranker's parameters; those of the observation are not trained any more."""
        return [(1.0, list(self.ranker.parameters()))]


@final
class DocumentObservation(nn.Module):
    """Log o_k(x) = s(x) b_k, relative to the first position: a curve, times a factor that depends on the document.

    Attributes:
        below: b at the positions below the first.
        anchored: 1 if b is the curve of the log model.
    """

    anchored: torch.Tensor

    def __init__(self, *, features: int, positions: int, hidden: int, flat: bool) -> None:
        super().__init__()
        self.register_buffer("anchored", torch.zeros(()))
        self.below = nn.Parameter(torch.zeros(positions - 1))
        self.chain = nn.Sequential()
        if not flat and positions > 1:
            network = MLP(hidden=(hidden,)) if hidden else Linear()
            self.chain = towered(network.build(features), "lbd").anew(1)
            for parameter in self.chain[-1].parameters():
                nn.init.zeros_(parameter)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[documents, features] to [documents, positions]."""
        return nn.functional.pad(self.below * self.steepness(features)[:, None], (1, 0))

    def penalised(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The same, and the mean square of its slope over documents and positions, by differences in random directions.

        E ((f(x + s u) - f(x)) / s)^2 over normal u is ||df/dx||^2 for small s: a quarter of the cost of a gradient.
        """
        logs = self(features)
        moved = self(features + STEP * torch.randn_like(features))
        return logs, ((moved - logs) / STEP).square().mean()

    def at(self, features: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log o_k(x) of documents at their positions, and s(x), both [documents], without a table over positions."""
        steepness = self.steepness(features)
        below = nn.functional.pad(self.below, (1, 0))[positions - 1]
        return (below * steepness).masked_fill(positions == 1, 0.0), steepness

    def steepness(self, features: torch.Tensor) -> torch.Tensor:
        """s(x), [documents]; 1 for the curve alone."""
        if len(self.chain) == 0:
            return features.new_ones(len(features))
        raw: torch.Tensor = self.chain(features)
        return (1 + raw[:, 0]).clamp_min(0.0)


@dataclass(frozen=True)
class Choice:
    """What was tried.

    Attributes:
        hidden: units of the hidden layer.
        penalty: on the slope; infinite for the curve alone.
        likelihood: log-likelihood of the clicks held out, a session; nan where none were.
        epochs: after which it was the highest.
    """

    hidden: int
    penalty: float
    likelihood: float
    epochs: int


def packed(choices: Sequence[Choice]) -> torch.Tensor:
    """Choices as a tensor of numbers that are finite, so that a checkpoint holds them, [choices, 4].

    >>> tried = Choice(16, 0.01, -1.5, 3), Choice(0, math.inf, -2.0, 7)
    >>> unpacked(packed(tried)) == tried
    True
    """
    rows = [
        (each.hidden, -1.0 if each.penalty == math.inf else each.penalty, each.likelihood, each.epochs)
        for each in choices
    ]
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, 4).nan_to_num(nan=UNKNOWN)


def unpacked(tensor: torch.Tensor) -> tuple[Choice, ...]:
    """The choices that were packed."""
    return tuple(
        Choice(
            int(hidden),
            math.inf if penalty < 0 else penalty,
            math.nan if likelihood == UNKNOWN else likelihood,
            int(epochs),
        )
        for hidden, penalty, likelihood, epochs in tensor.tolist()
    )


def observation_like(choice: Choice, *, features: int, positions: int) -> DocumentObservation:
    """An observation that the weights of this choice fit into, which nothing trains."""
    flat = choice.penalty == math.inf
    observed = DocumentObservation(features=features, positions=positions, hidden=choice.hidden, flat=flat)
    return _frozen(observed)


@dataclass(frozen=True, eq=False)
class _Found:
    choice: Choice
    observed: DocumentObservation
    likelihoods: Float64


def learn_observation(clicks: Clicks, settings: ObservationSettings) -> tuple[DocumentObservation, tuple[Choice, ...]]:
    """The observation that predicts clicks on queries held out the best.

    maximise  sum_i c_i log softmax_i(u(x_i) + log o_k(x_i)) - penalty * mean ||d log o_k(x) / d x||^2

    over the companion u, a network, and o. What a linear relevance cannot express would go into the observation: so u
    is flexible whatever ranker is trained later. Where the log model knows the curve and finds no coupling, its curve
    is taken and nothing is learned (`position_curve`). Otherwise the curve alone is taken only if its likelihood is
    above that of every candidate that depends on the document by more than a standard error: missing a dependence
    costs a ranker many times what a needless one does. A log too small to hold anything out gets the curve alone, and
    so does one with a single position.

    Randomness is torch's: set its seed for the same result. The generator is left as it was.

    Returns:
        The chosen one, and all that were tried, the chosen first.
    """
    logs = position_curve(clicks) if settings.anchor else None
    anchor = None if logs is None else torch.from_numpy(logs[1:]).float()
    if anchor is not None:
        curve = DocumentObservation(features=0, positions=len(anchor) + 1, hidden=0, flat=True)
        curve.load_state_dict({"below": anchor, "anchored": torch.ones(())})
        return _frozen(curve), (Choice(0, math.inf, math.nan, 0),)
    with torch.random.fork_rng(devices=[]):
        seed = torch.initial_seed() % 2**63
        learn, check = _split(clicks, settings, np.random.default_rng(seed))
        found, coupled = [], check is not None and clicks.max_position > 1
        for hidden, penalty in _candidates(settings, coupled=coupled):
            torch.manual_seed(seed)
            found.append(_learn(learn, check, settings, hidden=hidden, penalty=penalty, positions=clicks.max_position))
    found = [each for each in found if math.isfinite(each.choice.likelihood) and each.observed.below.isfinite().all()]
    if not found:
        raise TrainingError("the observation of documents is not finite. Look for very large features (normalise them)")
    chosen = _chosen(found)
    tried = [chosen.choice, *(each.choice for each in found if each is not chosen)]
    if check is None:
        tried = [replace(choice, likelihood=math.nan) for choice in tried]
    return _frozen(chosen.observed), tuple(tried)


def _candidates(settings: ObservationSettings, *, coupled: bool) -> list[tuple[int, float]]:
    """Hidden units and penalties; the curve alone has an infinite one."""
    found = list(dict.fromkeys(product(settings.hidden, settings.penalties))) if coupled else []
    return [*found, *([(0, math.inf)] if settings.curve or not found else [])]


def _chosen(found: Sequence[_Found]) -> _Found:
    """The most likely; the best that depends on the document unless the curve is better by a standard error."""
    best = max(found, key=lambda each: each.choice.likelihood)
    coupled = [each for each in found if each.choice.penalty < math.inf]
    if best in coupled or not coupled:
        return best
    other = max(coupled, key=lambda each: each.choice.likelihood)
    gap = best.likelihoods - other.likelihoods
    return other if float(gap.mean()) <= float(gap.std()) / math.sqrt(len(gap)) else best


def _frozen(observed: DocumentObservation) -> DocumentObservation:
    """The same with buffers for parameters: nothing that trains it further will move it."""
    for module in list(observed.modules()):
        for name, parameter in list(module.named_parameters(recurse=False)):
            delattr(module, name)
            module.register_buffer(name, parameter.detach())
    return observed.eval()


def _split(clicks: Clicks, settings: ObservationSettings, rng: np.random.Generator) -> tuple[Clicks, Clicks | None]:
    """The ranked lists to learn from and those to check by, of other queries; None where there are too few."""
    kept = clicks.merge().with_clicks()
    if len(kept) > settings.lists:
        kept = kept.take(np.sort(rng.choice(len(kept), settings.lists, replace=False)))
    held = rng.random(len(clicks.lists)) < settings.held_out
    out = held[clicks.lists.list_of[kept.rows[kept.offsets[:-1]]]]
    if min(out.sum(), (~out).sum()) < LEAST_LISTS:
        return kept, None
    return kept.take(~out), kept.take(out)


class _Learning:
    """An observation and its companion as the task of a loop: an epoch a round, measured on the queries held out."""

    def __init__(
        self,
        learn: Clicks,
        check: Clicks | None,
        companion: nn.Module,
        observed: DocumentObservation,
        penalty: float,
    ) -> None:
        self.learn, self.check, self.companion, self.observed = learn, check, companion, observed
        self.penalty, self.likelihoods, self.kept = penalty, np.zeros(0), np.zeros(0)
        groups = [list(companion.parameters()), [observed.below], list(observed.chain.parameters())]
        self.optimiser = torch.optim.Adagrad([{"params": group} for group in groups if group], lr=LEARNING_RATE)
        self.best = observed.state_dict()

    def train(self, number: int) -> None:
        """Go over all lists once."""
        for batch in batches(self.learn, BATCH, shuffle=(int(torch.initial_seed() % 2**32), number)):
            penalised = 0 < self.penalty < math.inf
            logits, slope = _logits(self.companion, self.observed, batch, penalised=penalised)
            loss = softmax_loss(logits, batch.clicks, mask=batch.mask)
            self.optimiser.zero_grad()
            torch.autograd.backward(loss if slope is None else loss + self.penalty * slope)
            for group in self.optimiser.param_groups:
                nn.utils.clip_grad_norm_(group["params"], CLIP_NORM)
            self.optimiser.step()

    def measure(self, number: int) -> Measured:
        """Return the likelihood of the clicks held out; later epochs are better without any."""
        if self.check is None:
            return Measured(float(number))
        self.likelihoods = _likelihoods(self.companion, self.observed, self.check)
        return Measured(float(self.likelihoods.mean()))

    def keep(self) -> None:
        """Remember the observation."""
        self.best = {key: tensor.clone() for key, tensor in self.observed.state_dict().items()}
        self.kept = self.likelihoods

    def report(self, number: int) -> None:
        """Say nothing."""


def _learn(
    learn: Clicks, check: Clicks | None, settings: ObservationSettings, *, hidden: int, penalty: float, positions: int
) -> _Found:
    features, flat = learn.lists.features.shape[1], penalty == math.inf
    companion = MLP(hidden=settings.companion).build(features)
    observed = DocumentObservation(features=features, positions=positions, hidden=hidden, flat=flat)
    task, standing = _Learning(learn, check, companion, observed, penalty), Standing()
    run(task, standing, rounds=settings.epochs, patience=settings.patience)
    observed.load_state_dict(task.best)
    likelihood = -math.inf if standing.best_value is None else standing.best_value
    return _Found(Choice(hidden, penalty, likelihood, standing.best_epoch), observed, task.kept)


def _logits(
    companion: nn.Module, observed: DocumentObservation, batch: Batch, *, penalised: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """u(x) + log o_k(x), [lists, places], and the slope if it is penalised."""
    documents, places = batch.features[batch.mask], batch.positions[batch.mask][:, None] - 1
    logs, slope = observed.penalised(documents) if penalised else (observed(documents), None)
    scores = score(companion, batch)
    return scores + torch.zeros_like(scores).masked_scatter(batch.mask, logs.gather(1, places)[:, 0]), slope


def _likelihoods(companion: nn.Module, observed: DocumentObservation, check: Clicks) -> Float64:
    """Log-likelihood of the clicks on each ranked list, [ranked lists]."""
    found = []
    with torch.no_grad():
        for batch in batches(check, 1024):
            logits, _ = _logits(companion, observed, batch)
            found.append((batch.clicks * log_softmax(logits, batch.mask)).sum(-1))
    return torch.cat(found).double().numpy()
