"""Networks that approximate the doubly robust estimate from click vectors, fast enough to rank by (Zou et al., §6.2).

Two networks on the click vector x of a pair: the affine part a = sigmoid(MLP(x)), and the trade-off zeta in (-1, 1),
which says how much of the imputation i is added. Neither i nor a gets a gradient from zeta.

| preset | inputs | zeta | estimate | loss of zeta |
|---|---|---|---|---|
| `default` | logs and ratios of x | tanh(start + MLP(x)) | sigmoid(logit a + zeta (logit i - mean)) | cross entropy |
| `published` | x | tanh(MLP(x)) | zeta i + a | Eq. 5: mean of - (2c - 1) log of the estimate |

`published` has what the paper says: hidden layers of 64, 32 and 16 units, Adam, batches of 128, one network. Ours are
standardised inputs (`VectorScale`), the best epoch on held-out queries, gradients of a norm of at most 5, and a value
of at least .01 in the logarithm of Eq. 5: zeta i may be below - a, and a negative number has no logarithm. Eq. 5 is not
a proper score: its minimum is 0 if the click rate is below one half, and as large as possible above.

The default starts zeta at k / (k + n) for a pair with n impressions: an imputation is equivalent to k impressions, and
k is fitted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import betaincinv, gammaln
from torch import nn

from clickprism._util.manifest import Manifest
from clickprism.debias.loop import Measured, Standing, run
from clickprism.errors import DataError, TrainingError
from clickprism.rankers.mlp import MLP, MLPNetwork
from clickprism.relevance.approximation_settings import ApproximateSettings
from clickprism.relevance.click_vectors import ClickVectors, VectorScale, most_shown
from clickprism.relevance.estimates import Estimates
from clickprism.relevance.pairs import FirstSlot
from clickprism.settings import build, check_fields, plain
from clickprism.training.checkpoint import copied
from clickprism.training.network import torch_set_for
from clickprism.training.text import cross_entropy
from clickprism.types import Float32, Float64, Int64, Text

Split: TypeAlias = tuple[torch.Tensor, torch.Tensor]
RowLoss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # output and rows -> loss of each row

FORMAT: Final = 4
FILES: Final = re.compile(r"networks-[0-9a-f]{16}\.safetensors")
FIT: Final = "Name a folder that was written by: clickprism relevance approximate fit"
MANIFEST: Final = Manifest("approximation.json", FILES, "the manifest of an approximation", FIT)
SCALE: Final = ("empty", "rates", "mean", "factor")
KS: Final = tuple(10 ** (tenth / 10) for tenth in range(-10, 51))  # candidates for k, from .1 to 100,000
LOW: Final = 0.01
SEEN: Final = 1e-3
TINY: Final = 1e-6
CERTAINTY: Final = (np.log(10.0), np.log(0.1), np.log(0.01))  # prior means of the logarithms of `Certainty`
CERTAINTY_DEVIATION: Final = 2.0  # and their prior standard deviation
CERTAINTY_PAIRS: Final = 20_000
HELD_OUT: Final = 0.2  # share of the queries that choose the best epoch
LEARNING_RATE: Final = 1e-3
PATIENCE: Final = 8  # epochs without a better loss on held-out queries
LARGEST_GRADIENT: Final = 5.0
THREADS: Final = 1


@final
@dataclass(frozen=True)
class Certainty:
    """How far the truth may be from an approximated estimate, learned from clicks on held-out queries.

    The disagreement of the networks measures how well they are fitted, not how far the truth may be. So the truth of a
    pair is modelled as Beta-distributed around its estimate m, with the variance m (1 - m) rho(n) after n impressions
    in the click vector,

        rho(n) = 1 / (1 + prior + each n) + floor

    The clicks of a pair are then beta-binomial, and the likelihood of held-out clicks chooses the three numbers.
    """

    prior: float  # Equivalent number of impressions at position 1 of a pair that was never shown
    each: float  # Equivalent number of impressions at position 1 that an impression anywhere adds
    floor: float  # 1 / the largest equivalent number of impressions

    def __post_init__(self) -> None:
        check_fields(self, prior=(1e-12, 1e12), each=(1e-12, 1e12), floor=(1e-12, 1e12))

    @classmethod
    def fit(cls, values: Float64, clicks: Int64, impressions: Int64, shown: Float64) -> Certainty:
        """Fit to first-slot clicks that were not used for the estimates; `shown` are impressions in the click vector.

        Only pairs with several impressions are informative.
        """
        several = np.flatnonzero(impressions >= 2)
        several = several[:: max(1, len(several) // CERTAINTY_PAIRS)]
        m, n, c = np.clip(values[several], TINY, 1 - TINY), impressions[several], clicks[several]

        def loss(logs: Float64) -> float:
            s = 1 / cls(*np.exp(np.clip(logs, -20.0, 20.0)).tolist()).share(shown[several]) - 1
            a, b = s * m, s * (1 - m)
            likelihood = gammaln(c + a) - gammaln(a) + gammaln(n - c + b) - gammaln(b) - gammaln(n + s) + gammaln(s)
            return float(((logs - CERTAINTY) ** 2).sum() / (2 * CERTAINTY_DEVIATION**2) - likelihood.sum())

        best = minimize(loss, np.array(CERTAINTY), method="Nelder-Mead", options={"xatol": 1e-2, "fatol": 1e-2})
        return cls(*np.exp(np.clip(best.x, -20.0, 20.0)).tolist())

    def share(self, shown: Float64) -> Float64:
        """Return rho, the variance as a share of m (1 - m), [pairs]."""
        return np.minimum(1 / (1 + self.prior + self.each * shown) + self.floor, 0.999)

    def estimates(self, values: Float64, shown: Float64, spread: Float64, *, confidence: float = 0.95) -> Estimates:
        """Return the estimates with intervals from Beta distributions, [pairs].

        A value below 0 or above 1 gets the interval and variance of 0 or 1. `shown` is the number of impressions in
        the click vector, `spread` is the standard deviation of the estimate over the networks.

        >>> found = Certainty(24.0, 0.5, 1e-9).estimates(np.array([0.5]), np.array([151.0]), np.zeros(1))
        >>> found.lower.round(3).tolist(), found.upper.round(3).tolist(), found.weight.tolist()
        ([0.402], [0.598], [75.5])
        """
        m = np.clip(values, TINY, 1 - TINY)
        variance = m * (1 - m) * self.share(shown) + spread**2
        size = np.maximum(m * (1 - m) / variance - 1, TINY)
        tail = (1 - confidence) / 2
        lower, upper = (np.asarray(betaincinv(size * m, size * (1 - m), end), np.float64) for end in (tail, 1 - tail))
        return Estimates(values, lower, upper, variance, self.each * shown, shown <= 0)


@final
@dataclass(frozen=True, eq=False)
class Parts:
    """An approximated estimate and its parts, to explain it; all [pairs]."""

    estimate: Float64  # Estimate of c_1
    affine: Float64  # Estimate from the click vector alone
    trade_off: Float64  # How much of the imputation is added, from -1 to 1
    imputed: Float64  # The imputation
    spread: Float64  # Standard deviation of the estimate over the networks


@final
class Approximation:
    """The fitted networks: click vectors and imputations in, estimates of c_1 out.

    `fit_approximation` returns one, and `Approximation.load` reads one.
    """

    def __init__(
        self,
        settings: ApproximateSettings,
        scale: VectorScale,
        members: Sequence[nn.ModuleDict],
        *,
        means: tuple[float, float],
        k: float,
        certainty: Certainty,
    ) -> None:
        self.settings = settings
        self.scale = scale
        self.members = tuple(member.requires_grad_(False).eval() for member in members)
        self.means = means  # mean imputation in training, and mean of its logits
        self.k = k
        self.certainty = certainty

    def __repr__(self) -> str:
        return f"Approximation({self.settings.preset}, {len(self.scale.fields)} fields, {len(self.members)} members)"

    def affine(self, x: Float32) -> Float64:
        """Return the affine part alone, in (0, 1), [pairs]."""
        return _mean_of(self._networks(x)[0])

    def trade_off(self, x: Float32) -> Float64:
        """Return zeta, [pairs]; by default about 1 for a pair that was never shown."""
        return _mean_of(self._networks(x)[1])

    def estimate(self, x: Float32, imputed: Float64) -> Float64:
        """Return the approximated doubly robust estimate, [pairs]; that of the preset published may leave (0, 1).

        Pairs that were never shown have the same click vector, so they rank as imputed. `imputed` is in (0, 1).
        """
        return self.parts(x, imputed).estimate

    def parts(self, x: Float32, imputed: Float64) -> Parts:
        """Return the estimate with its parts."""
        checked = _checked(imputed, len(x))
        affine, zeta = self._networks(x)
        known = torch.from_numpy(checked).float()
        values = _blend(self.settings, zeta, known, affine, mean=self.means[1])
        spread = np.asarray(values.double().std(0, correction=0).numpy())
        return Parts(_mean_of(values), _mean_of(affine), _mean_of(zeta), checked, spread)

    def estimates(self, x: Float32, imputed: Float64, *, confidence: float = 0.95) -> Estimates:
        """Return the estimates with intervals, see `Certainty`."""
        parts, shown = self.parts(x, imputed), most_shown(x, self.scale.fields)
        return self.certainty.estimates(parts.estimate, shown, parts.spread, confidence=confidence)

    def _networks(self, x: Float32) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the affine part and the trade-off of each network, both [networks, pairs]."""
        inputs = torch.from_numpy(self.scale(x))
        start = begin(torch.from_numpy(most_shown(x, self.scale.fields)).float(), k=self.k)
        with torch.inference_mode():
            affine = torch.stack([torch.sigmoid(member["affine"](inputs)) for member in self.members])
            zeta = torch.stack([torch.tanh(start + member["trade_off"](inputs)) for member in self.members])
        return affine, zeta

    def save(self, folder: Path | str) -> None:
        """Write weights, scale and settings into a folder; an older approximation there is replaced in one step."""
        from safetensors.torch import save

        scale = {f"scale.{name}": torch.from_numpy(getattr(self.scale, name)) for name in SCALE}
        nets = {f"{i}.{name}": value for i, net in enumerate(self.members) for name, value in net.state_dict().items()}
        about = {"format": FORMAT, "settings": plain(self.settings), "fields": list(self.scale.fields)}
        about |= {"means": list(self.means), "k": self.k, "certainty": plain(self.certainty)}
        MANIFEST.save(Path(folder), about, {"networks.safetensors": save(scale | nets)})

    @classmethod
    def load(cls, folder: Path | str) -> Approximation:
        """Read what `save` wrote; every file is checked against its hash, and no code in it is run."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        def read(about: dict[str, Any], contents: dict[str, tuple[Path, bytes]]) -> Approximation:
            path, content = contents["networks"]
            settings = build(ApproximateSettings, about["settings"])
            try:
                tensors = load(content)
                arrays = {name: tensors.pop(f"scale.{name}").double().numpy() for name in SCALE}
                scale = VectorScale(fields=tuple(str(name) for name in about["fields"]), **arrays)
                numbers = range(settings.training.members)
                members = [_restored(settings, scale.width, tensors, f"{i}.") for i in numbers]
            except (SafetensorError, RuntimeError, KeyError, DataError) as error:
                raise DataError(f"does not fit the settings of the manifest ({error})", file=path) from None
            first, second = (float(mean) for mean in about["means"])
            k, certainty = float(about["k"]), build(Certainty, about["certainty"])
            return cls(settings, scale, members, means=(first, second), k=k, certainty=certainty)

        return MANIFEST.load(Path(folder), FORMAT, read)


def fit_approximation(
    slot: FirstSlot, vectors: ClickVectors, imputed: Float64, *, settings: ApproximateSettings | None = None
) -> Approximation:
    """Fit the affine part, then the trade-off, to clicks on randomised first results (§6.2).

    The trade-off of a query is fitted with the affine part of the networks that were not fitted to the query. On their
    own training clicks, networks are better than on later ones, and the imputation would seem to add little.

    Args:
        slot: The clicks.
        vectors: Click vectors as of a time before those clicks (see `ClickVectors.before`).
        imputed: Imputation of each pair of `slot`, in (0, 1), [pairs].
        settings: Settings of the networks.
    """
    settings = settings or ApproximateSettings()
    if len(slot) == 0:
        raise DataError("there is no randomised first result to learn from")
    x = vectors.before(slot)
    scale = (VectorScale.fit_raw if settings.published else VectorScale.fit)(x, vectors.fields, vectors.empty)
    inputs, known = torch.from_numpy(scale(x)), torch.from_numpy(_checked(imputed, len(slot))).float()
    means = float(known.double().mean()), float(logit(known).double().mean())
    clicks, skips = _counts(slot, settings.training.most)
    weights, shown = clicks + skips, most_shown(x, vectors.fields)
    seeds = [settings.seed + 7919 * i for i in range(settings.training.members)]
    parts = [split(slot.query_ids, HELD_OUT, seed=settings.seed, part=i) for i in range(len(seeds))]
    rate = float(clicks.sum() / weights.sum())
    descent = partial(descend, weights=weights, settings=settings)

    def affine_loss(odds: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return cross_entropy(odds, clicks[rows], skips[rows])

    members = []
    for seed, part in zip(seeds, parts, strict=True):
        with torch_set_for(seed, THREADS):
            members.append(_member(settings, inputs.shape[1], rate=rate))
            descent(members[-1]["affine"], inputs, affine_loss, parts=part, seed=seed)
    with torch.no_grad():
        affines = _held_out_mean([torch.sigmoid(member["affine"](inputs)) for member in members], parts)

    def zeta_loss(zeta: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        if settings.published:
            return published_loss(zeta, known[rows], affines[rows], clicks[rows], skips[rows])
        odds = blended_odds(zeta, known[rows], affines[rows], mean=means[1])
        return cross_entropy(odds, clicks[rows], skips[rows])

    often, every, k = torch.from_numpy(shown).float(), torch.arange(len(slot)), 0.0
    if not settings.published:
        k = min(KS, key=lambda each: float(zeta_loss(torch.tanh(begin(often, k=each)), every).double().sum()))
    starts = begin(often, k=k)

    def trade_off_loss(output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return zeta_loss(torch.tanh(starts[rows] + output), rows)

    for seed, part, member in zip(seeds, parts, members, strict=True):
        with torch_set_for(seed, THREADS):
            descent(member["trade_off"], inputs, trade_off_loss, parts=part, seed=seed)
    with torch.no_grad():
        zetas = _held_out_mean([torch.tanh(starts + member["trade_off"](inputs)) for member in members], parts)
        values = _blend(settings, zetas, known, affines, mean=means[1]).double().numpy()
    certainty = Certainty.fit(values, slot.clicks, slot.impressions, shown)
    return Approximation(settings, scale, members, means=means, k=k, certainty=certainty)


def _counts(slot: FirstSlot, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the clicks and skips of each pair, scaled to at most `most` impressions; each [pairs]."""
    shown = slot.impressions.astype(np.float64)
    weight = np.minimum(shown, most) / shown if most else np.ones(len(shown))
    clicks, skips = slot.clicks * weight, (slot.impressions - slot.clicks) * weight
    return torch.from_numpy(clicks).float(), torch.from_numpy(skips).float()


def new_network(settings: ApproximateSettings, inputs: int, *, start: float = 0.0) -> nn.Module:
    """Return a new network, [pairs, inputs] to [pairs].

    Its initial output is `start` for every pair; that of the published one is random.
    """
    network = MLPNetwork(MLP(hidden=settings.hidden, activation="relu", layer_norm="none"), inputs)
    if not settings.published:
        nn.init.zeros_(network.last().weight)
        nn.init.constant_(network.last().bias, start)
    return network


def _member(settings: ApproximateSettings, inputs: int, *, rate: float = 0.5) -> nn.ModuleDict:
    """Return two networks; by default the affine part is the click rate at first, and the trade-off its start."""
    rate = min(max(rate, 1e-4), 1 - 1e-4)
    odds = math.log(rate / (1 - rate))
    affine = new_network(settings, inputs, start=odds)
    return nn.ModuleDict({"affine": affine, "trade_off": new_network(settings, inputs)})


def _restored(
    settings: ApproximateSettings, inputs: int, tensors: Mapping[str, torch.Tensor], start: str
) -> nn.ModuleDict:
    with torch.device("meta"):
        member = _member(settings, inputs)
    own = {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
    member.load_state_dict(own, assign=True)
    return member


def _held_out_mean(values: list[torch.Tensor], parts: list[Split]) -> torch.Tensor:
    """Return the mean of each row over the networks that held out its query; over all if no network did."""
    stacked = torch.stack(values)
    held_out = torch.zeros_like(stacked)
    for own, (_, rows) in zip(held_out, parts, strict=True):
        own[rows] = 1.0
    held_out[:, held_out.sum(0) == 0] = 1.0
    return (stacked * held_out).sum(0) / held_out.sum(0)


def _mean_of(values: torch.Tensor) -> Float64:
    """Return the mean over networks, [networks, pairs] to [pairs]."""
    return np.asarray(values.double().mean(0).numpy())


def _checked(imputed: Float64, pairs: int) -> Float64:
    values = np.asarray(imputed, dtype=np.float64)
    if values.shape != (pairs,):
        raise DataError(f"{pairs} pairs need as many imputed values, got an array of shape {values.shape}")
    if not ((values > 0) & (values < 1)).all():
        raise DataError("imputed values must be between 0 and 1", remedy="They are click probabilities")
    return values


def logit(share: torch.Tensor) -> torch.Tensor:
    """Return the log odds of shares, which are limited to 1e-6 from 0 and 1."""
    return torch.logit(share, eps=TINY)


def begin(shown: torch.Tensor, *, k: float) -> torch.Tensor:
    """Return the start of the trade-off before tanh: tanh of it is k / (k + n) after n impressions, [pairs].

    >>> torch.tanh(begin(torch.tensor([0.0, 5.0, 15.0]), k=5.0)).round(decimals=3).tolist()
    [1.0, 0.5, 0.25]
    """
    return torch.zeros_like(shown) if k == 0 else torch.log1p(2 * (k / shown.clamp_min(SEEN))) / 2


def blended_odds(zeta: torch.Tensor, imputed: torch.Tensor, affine: torch.Tensor, *, mean: float) -> torch.Tensor:
    """Return the log odds of the default estimate, [pairs]; `mean` is the mean logit of the imputations in training."""
    return logit(affine) + zeta * (logit(imputed) - mean)


def _blend(
    settings: ApproximateSettings, zeta: torch.Tensor, imputed: torch.Tensor, affine: torch.Tensor, *, mean: float
) -> torch.Tensor:
    """Return the estimate of the preset, [pairs]."""
    if settings.published:
        return published_blend(zeta, imputed, affine)
    return torch.sigmoid(blended_odds(zeta, imputed, affine, mean=mean))


def published_blend(zeta: torch.Tensor, imputed: torch.Tensor, affine: torch.Tensor) -> torch.Tensor:
    """Return zeta i + a of each pair (§6.2.2), which may leave (0, 1), [pairs]."""
    return zeta * imputed + affine


def published_loss(
    zeta: torch.Tensor, imputed: torch.Tensor, affine: torch.Tensor, clicks: torch.Tensor, skips: torch.Tensor
) -> torch.Tensor:
    """Return Eq. 5 summed over the impressions of each pair: - (2c - 1) log(zeta i + a), [pairs].

    >>> half, one, none = torch.tensor([0.5]), torch.ones(1), torch.zeros(1)
    >>> published_loss(half, half, half, one, none).exp().mul(3).round().item()  # 3 / (.5 x .5 + .5)
    4.0
    """
    return -(clicks - skips) * torch.log(published_blend(zeta, imputed, affine).clamp_min(LOW))


def split(query_ids: Text, share: float, *, seed: int, part: int = 0) -> Split:
    """Return the training rows and the held-out rows, with this share of the queries, all rows of a query together.

    Other parts of the same seed hold out other queries, as long as there are any.
    """
    queries, query = np.unique(query_ids, return_inverse=True)
    held_out = np.zeros(len(queries), dtype=bool)
    size = round(share * len(queries))
    held_out[np.roll(np.random.default_rng(seed).permutation(len(queries)), -part * size)[:size]] = True
    return torch.from_numpy(np.flatnonzero(~held_out[query])), torch.from_numpy(np.flatnonzero(held_out[query]))


def descend(
    network: nn.Module,
    inputs: torch.Tensor,
    loss: RowLoss,
    *,
    weights: torch.Tensor,
    parts: Split,
    settings: ApproximateSettings,
    seed: int,
) -> None:
    """Fit a network with Adam, and leave it with the weights that are best on the held-out queries.

    Args:
        network: The network.
        inputs: Its inputs, [rows, inputs].
        loss: Returns the loss of some rows, summed over the impressions of each, given their outputs; [rows].
        weights: Number of impressions of each row, [rows].
        parts: Training rows and held-out rows, from `split`; without held-out rows the last weights are kept.
        settings: Settings of the networks.
        seed: Random seed of the order of the rows.
    """
    if len(parts[0]) == 0 or float(weights[parts[0]].sum()) == 0:
        raise DataError("there is no click to learn from", remedy="Use a longer log, or hold out less")
    descent = _Descent(network, inputs, loss, weights=weights, parts=parts, settings=settings, seed=seed)
    for _ in run(descent, Standing(), rounds=settings.epochs, patience=PATIENCE, best=descent.measure(0)):
        pass
    network.load_state_dict(descent.best)
    network.eval()


@final
class _Descent:
    """A network that is fitted with Adam, and its best weights so far (see `clickprism.debias.loop.Task`)."""

    def __init__(
        self,
        network: nn.Module,
        inputs: torch.Tensor,
        loss: RowLoss,
        *,
        weights: torch.Tensor,
        parts: Split,
        settings: ApproximateSettings,
        seed: int,
    ) -> None:
        self.network, self.inputs, self.loss, self.weights = network, inputs, loss, weights
        (self.rows, self.held_out), self.training = parts, settings.training
        decay = self.training.weight_decay
        self.optimiser = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=decay, fused=True)
        self.generator = torch.Generator().manual_seed(seed)
        self.best = copied(network)

    def train(self, number: int) -> None:
        """Take the steps of an epoch."""
        self.network.train()
        order = self.rows[torch.randperm(len(self.rows), generator=self.generator)]
        scale = float(self.weights[self.rows].mean())
        for batch in torch.split(order, self.training.batch_size):
            self.optimiser.zero_grad()
            torch.autograd.backward(self.loss(self.network(self.inputs[batch]), batch).mean() / scale)
            nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST_GRADIENT)
            self.optimiser.step()
        self.network.eval()

    def measure(self, number: int) -> Measured | None:
        """Return the loss per impression on the held-out queries; None without any."""
        rows = self.held_out if len(self.held_out) else self.rows
        with torch.no_grad():
            loss = self.loss(self.network(self.inputs[rows]), rows)
            value = float(loss.double().sum() / self.weights[rows].double().sum())
        if not np.isfinite(value):
            raise TrainingError(f"the loss is {value} in epoch {number}; use another seed")
        return Measured(value, higher=False) if len(self.held_out) else None

    def keep(self) -> None:
        """Remember the weights as the best."""
        self.best = copied(self.network)
