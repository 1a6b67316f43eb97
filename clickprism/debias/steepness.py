"""How fast the observation of each document falls with its position, learned from the log before a ranker is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, Literal, final, get_args

import numpy as np
import torch
from torch import nn

from clickprism.debias.batches import batches
from clickprism.debias.document import at, towered
from clickprism.debias.listwise import log_softmax, score, softmax_loss
from clickprism.errors import SettingError, TrainingError
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.types import Batch, Clicks, Float64

Shape = Literal["steepness", "positions"]
BATCH: Final = 128
LEARNING_RATE: Final = 0.05
CLIP_NORM: Final = 5.0
UNKNOWN: Final = 1.0  # packed, a likelihood that is none: logarithms of probabilities are not above 0
STEP: Final = 0.05  # of the differences that the slope is estimated by
SURE: Final = 3.0  # standard errors by which features must improve the observation
LEAST_LISTS: Final = 10  # with a click, on either side; fewer choose nothing


@final
@dataclass(frozen=True)
class ObservationSettings:
    """How the observation of documents is learned.

    Attributes:
        shape: "steepness" is log o_k(x) = s(x) b_k, a curve over positions that each document bends by a factor;
            "positions" is log o_k(x) = b_k + d_k(x), a deviation for each position but the first.
        hidden: units of the hidden layer of s or d, to choose from; 0 for a linear one.
        companion: those of the relevance that is learned beside, and thrown away.
        penalties: on the mean square of the slope of log o, to choose from.
        curve: try the curve alone too, without any document in it.
        anchor: take the curve of the log model where documents shown at several positions identify it and it finds no
            coupling (`anchor_of`).
        held_out: the share of queries whose clicks choose the penalty and when to stop.
        lists: at most so many ranked lists are used, drawn at random.
        epochs: over these, at most.
        patience: stop after so many epochs without a better likelihood of the clicks that were held out.
    """

    shape: Shape = "steepness"
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
        if self.shape not in get_args(Shape):
            raise SettingError("shape", self.shape, f"be one of {', '.join(get_args(Shape))}")
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
class DocumentObservation(nn.Module):
    """Log o_k(x) relative to the first position, 0 there: the curve b, and how documents bend it or leave it.

    Attributes:
        below: b at the positions below the first.
        anchored: 1 if b is the curve of the log model.
    """

    anchored: torch.Tensor

    def __init__(self, shape: Shape, *, features: int, positions: int, hidden: int, flat: bool) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("anchored", torch.zeros(()))
        self.below = nn.Parameter(torch.zeros(positions - 1))
        outputs = 1 if shape == "steepness" else positions - 1
        self.chain = nn.Sequential()
        if not flat and positions > 1:
            network = MLP(hidden=(hidden,)) if hidden else Linear()
            self.chain = towered(network.build(features), "lbd").anew(outputs)
            for parameter in self.chain[-1].parameters():
                nn.init.zeros_(parameter)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[documents, features] to [documents, positions]."""
        return self._logs(self.chain(features) if len(self.chain) else None, len(features))

    def penalised(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The same, and the mean square of its slope over documents and positions, by differences in random directions.

        E ((f(x + s u) - f(x)) / s)^2 over normal u is ||df/dx||^2 for small s: a quarter of the cost of a gradient.
        """
        logs = self(features)
        moved = self(features + STEP * torch.randn_like(features))
        return logs, ((moved - logs) / STEP).square().mean()

    def _logs(self, raw: torch.Tensor | None, documents: int) -> torch.Tensor:
        below = self.below.expand(documents, -1)
        if raw is not None:
            below = self.below * (1 + raw).clamp_min(0.0) if self.shape == "steepness" else self.below + raw
        return nn.functional.pad(below, (1, 0))

    def at(self, features: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log o_k(x) where each document stood, and s(x), both [documents], without a table over positions."""
        steepness = self.steepness(features)
        if self.shape == "positions":
            return at(self(features), positions), steepness
        below = nn.functional.pad(self.below, (1, 0))[positions - 1]
        return (below * steepness).masked_fill(positions == 1, 0.0), steepness

    def steepness(self, features: torch.Tensor) -> torch.Tensor:
        """s(x), [documents]; 1 where documents do not bend the curve."""
        if self.shape == "positions" or len(self.chain) == 0:
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


def observation_like(choice: Choice, shape: Shape, *, features: int, positions: int) -> DocumentObservation:
    """An observation that the weights of this choice fit into, which nothing trains."""
    flat = choice.penalty == math.inf
    observed = DocumentObservation(shape, features=features, positions=positions, hidden=choice.hidden, flat=flat)
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
    is taken and nothing is learned (`anchor_of`). Else the curve alone is taken only if its likelihood is above that of
    every bend by more than a standard error: too stiff an observation costs a ranker many times what too loose a one
    does. A log too small to hold anything out gets the curve alone, and so does one with a single position.

    Randomness is torch's: set its seed for the same result. The generator is left as it was.

    Returns:
        The chosen one, and all that were tried, the chosen first.
    """
    anchor = anchor_of(clicks) if settings.anchor else None
    if anchor is not None:
        curve = DocumentObservation(settings.shape, features=0, positions=len(anchor) + 1, hidden=0, flat=True)
        curve.load_state_dict({"below": anchor, "anchored": torch.ones(())})
        return _frozen(curve), (Choice(0, math.inf, math.nan, 0),)
    with torch.random.fork_rng(devices=[]):
        seed = torch.initial_seed() % 2**63
        learn, check = _split(clicks, settings, np.random.default_rng(seed))
        found, bent = [], check is not None and clicks.max_position > 1
        for hidden, penalty in _candidates(settings, bent=bent):
            torch.manual_seed(seed)
            found.append(_learn(learn, check, settings, hidden=hidden, penalty=penalty, positions=clicks.max_position))
    found = [each for each in found if each.choice.likelihood > -math.inf and each.observed.below.isfinite().all()]
    if not found:
        raise TrainingError("the observation of documents is not finite. Look for very large features (normalise them)")
    chosen = _chosen(found)
    tried = [chosen.choice, *(each.choice for each in found if each is not chosen)]
    if check is None:
        tried = [replace(choice, likelihood=math.nan) for choice in tried]
    return _frozen(chosen.observed), tuple(tried)


def anchor_of(clicks: Clicks) -> torch.Tensor | None:
    """Return the curve that documents shown at several positions identify, if observation does not depend on documents.

    It is the curve of the log model with a prior by features and first-shown position. Joint learning, which compares
    documents with similar features, takes what the engine knows and the features do not for observation: with good
    engines its curve is too steep.

    Returns:
        Log observation below the first position, [positions - 1]. None if some position is not linked to the first by
        enough clicks, if clicks carry weights, or if the log model finds coupling: if features in the observation
        improve the likelihood of held-out clicks by three standard errors.
    """
    from clickprism.log_model.counts import count
    from clickprism.log_model.fit import fit_form, gain, multiplied
    from clickprism.log_model.model import DEEPEST
    from clickprism.log_model.references import LEAST_CLICKS, Links
    from clickprism.log_model.terms import Covariates, Form, Scaler, with_query_means

    if clicks.weights is not None or not 1 < clicks.max_position <= DEEPEST:
        return None
    counts = count(clicks)
    links = Links.of(counts)
    tree = links.tree()
    linked = links.groups(tree[links.strength[tree] >= LEAST_CLICKS]) == 0
    if counts.positions < clicks.max_position or not linked.all():
        return None
    own = Scaler.of(counts.features)(counts.features)
    fit = fit_form(counts, Form(features="linear"), Covariates(own=own, features=with_query_means(own, counts.query)))
    coupled = fit_form(counts, fit.form.with_part("coupling"), multiplied(fit), start=fit)
    better, error = gain(coupled, fit)
    if better > max(SURE * error, 0.0):
        return None
    curve = np.asarray(multiplied(fit).curve)
    return torch.from_numpy(curve[1:] - curve[0]).float()


def _candidates(settings: ObservationSettings, *, bent: bool) -> list[tuple[int, float]]:
    """Hidden units and penalties; the curve alone has an infinite one."""
    bends = list(dict.fromkeys(product(settings.hidden, settings.penalties))) if bent else []
    return [*bends, *([(0, math.inf)] if settings.curve or not bends else [])]


def _chosen(found: Sequence[_Found]) -> _Found:
    """The most likely; the best of those that bend the curve unless the curve is better by a standard error."""
    best = max(found, key=lambda each: each.choice.likelihood)
    bent = [each for each in found if each.choice.penalty < math.inf]
    if best in bent or not bent:
        return best
    other = max(bent, key=lambda each: each.choice.likelihood)
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


def _learn(
    learn: Clicks, check: Clicks | None, settings: ObservationSettings, *, hidden: int, penalty: float, positions: int
) -> _Found:
    features = learn.lists.features.shape[1]
    companion = MLP(hidden=settings.companion).build(features)
    observed = DocumentObservation(
        settings.shape, features=features, positions=positions, hidden=hidden, flat=penalty == math.inf
    )
    groups = [list(companion.parameters()), [observed.below], list(observed.chain.parameters())]
    optimiser = torch.optim.Adagrad([{"params": group} for group in groups if group], lr=LEARNING_RATE)
    found = _Found(Choice(hidden, penalty, -math.inf, 0), observed, np.zeros(0))
    best, waited = observed.state_dict(), 0
    for epoch in range(1, settings.epochs + 1):
        for batch in batches(learn, BATCH, shuffle=(int(torch.initial_seed() % 2**32), epoch)):
            logits, slope = _logits(companion, observed, batch, penalised=0 < penalty < math.inf)
            loss = softmax_loss(logits, batch.clicks, mask=batch.mask) + (penalty * slope if slope is not None else 0)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            for group in optimiser.param_groups:
                nn.utils.clip_grad_norm_(group["params"], CLIP_NORM)
            optimiser.step()
        likelihoods = np.full(1, epoch, dtype=np.float64) if check is None else _likelihoods(companion, observed, check)
        if likelihoods.mean() > found.choice.likelihood:
            best = {key: tensor.clone() for key, tensor in observed.state_dict().items()}
            found = _Found(Choice(hidden, penalty, float(likelihoods.mean()), epoch), observed, likelihoods)
            waited = 0
        elif (waited := waited + 1) >= settings.patience:
            break
    observed.load_state_dict(best)
    return found


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
