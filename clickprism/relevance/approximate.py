"""The network that approximates the doubly robust estimate from click vectors, fast enough to rank by (§6.2)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from torch import nn

from clickprism._util.manifest import Manifest
from clickprism.errors import DataError
from clickprism.relevance.approximate_settings import ApproximateSettings, Form
from clickprism.relevance.certainty import Certainty
from clickprism.relevance.click_vectors import ClickVectors, VectorScale, most_shown, never_shown
from clickprism.relevance.descent import Split, cross_entropy, descend, split, torch_for
from clickprism.relevance.estimates import Estimates
from clickprism.relevance.randomised import FirstSlot
from clickprism.relevance.tradeoff import begin, blend, blend_loss, blend_mean, logit
from clickprism.settings import build, plain
from clickprism.types import Float32, Float64

FORMAT: Final = 2
FILES: Final = re.compile(r"networks-[0-9a-f]{16}\.safetensors")
MANIFEST: Final = Manifest("approximation.json", FILES, "the manifest of an approximation")
SCALE: Final = ("empty", "rates", "mean", "factor")
PRIOR: Final = 10.0
START: Final = 1.0
WORTH: Final = tuple(10 ** (tenth / 10) for tenth in range(-10, 51))
"""The impressions that an imputation may be worth, k: from a tenth to a hundred thousand."""


@final
@dataclass(frozen=True, eq=False)
class Parts:
    """What an approximated estimate is made of, for each pair, [pairs].

    Attributes:
        estimate: of c_1: the blend of what follows.
        affine: what the click vector says.
        trade_off: how much of the imputation is added to it, from -1 to 1; 1 for a pair that was never shown.
        imputed: as given.
        spread: the standard deviation of the estimate over the members.
    """

    estimate: Float64
    affine: Float64
    trade_off: Float64
    imputed: Float64
    spread: Float64


@final
class Approximation:
    """Both networks, fitted: click vectors and imputed values in, estimates of c_1 out.

    Make one by `fit_approximation`, or read one by `Approximation.load`.
    """

    def __init__(
        self,
        settings: ApproximateSettings,
        scale: VectorScale,
        members: Sequence[nn.ModuleDict],
        *,
        means: tuple[float, float],
        prior: float,
        k: float,
        certainty: Certainty,
    ) -> None:
        self.settings = settings
        self.scale = scale
        self.members = tuple(member.requires_grad_(False).eval() for member in members)
        self.means = means
        self.prior = prior
        self.k = k
        self.certainty = certainty

    def __repr__(self) -> str:
        return f"Approximation({self.settings.form}, {len(self.scale.fields)} fields, {len(self.members)} members)"

    def affine(self, x: Float32) -> Float64:
        """The approximated affine estimate alone, s(MLP(x)), in (0, 1), [pairs]."""
        return self._mean(self._affine(x))

    def trade_off(self, x: Float32) -> Float64:
        """Zeta = tanh(start + MLP(x)); 1 for a pair that was never shown, [pairs]."""
        zeta = self._mean(self._trade_offs(x))
        return np.where(never_shown(x, self.scale.fields), 1.0, zeta)

    def estimate(self, x: Float32, imputed: Float64) -> Float64:
        """The approximated doubly robust estimate, in (0, 1) but for `reward`, [pairs].

        Of a pair that was never shown the affine part is the prior and the trade-off 1: such pairs rank as imputed.

        Args:
            x: click vectors with the fields of training, [pairs, L].
            imputed: in (0, 1), [pairs].
        """
        return self._mean(self._estimates(x, imputed))

    def spread(self, x: Float32, imputed: Float64) -> Float64:
        """The standard deviation of the estimate over the members, [pairs]; 0 of a single one."""
        return np.asarray(torch.stack(self._estimates(x, imputed)).double().std(0, correction=0).numpy())

    def parts(self, x: Float32, imputed: Float64) -> Parts:
        """The estimate with all that it is made of, to explain it."""
        unseen = never_shown(x, self.scale.fields)
        affine = np.where(unseen, self.prior, self.affine(x))
        known = np.asarray(imputed, np.float64)
        return Parts(self.estimate(x, imputed), affine, self.trade_off(x), known, self.spread(x, imputed))

    def estimates(self, x: Float32, imputed: Float64, *, confidence: float = 0.95) -> Estimates:
        """The estimates with intervals, as the offline estimators have them; see `Certainty` for what they rest on."""
        values, spread = self.estimate(x, imputed), self.spread(x, imputed)
        return self.certainty.estimates(values, most_shown(x, self.scale.fields), spread, confidence=confidence)

    def _estimates(self, x: Float32, imputed: Float64) -> list[torch.Tensor]:
        known = torch.from_numpy(_checked(imputed, len(x))).float()
        unseen = torch.from_numpy(never_shown(x, self.scale.fields))
        as_imputed = torch.sigmoid(logit(torch.tensor(self.prior)) + logit(known) - self.means[1])
        mean = self.means[self.settings.form == "logit"]
        pairs = zip(self._affine(x), self._trade_offs(x), strict=True)
        form = self.settings.form
        blended = [blend(zeta, known, affine, form=form, mean=mean) for affine, zeta in pairs]
        return [torch.where(unseen, as_imputed, each) for each in blended]

    def _affine(self, x: Float32) -> list[torch.Tensor]:
        return [torch.sigmoid(odds) for odds in self._outputs("affine", x)]

    def _trade_offs(self, x: Float32) -> list[torch.Tensor]:
        begin = _start(x, self.scale.fields, k=self.k, form=self.settings.form)
        return [torch.tanh(begin + odds) for odds in self._outputs("trade_off", x)]

    def _outputs(self, name: str, x: Float32) -> list[torch.Tensor]:
        inputs = torch.from_numpy(self.scale(x))
        with torch.inference_mode():
            return [member[name](inputs) for member in self.members]

    def save(self, folder: Path | str) -> None:
        """Write weights, scale and settings into a folder, and no code; an older one is replaced in one step."""
        from safetensors.torch import save

        scale = {f"scale.{name}": torch.from_numpy(getattr(self.scale, name)) for name in SCALE}
        nets = {f"{i}.{name}": value for i, net in enumerate(self.members) for name, value in net.state_dict().items()}
        about = {
            "format": FORMAT,
            "settings": plain(self.settings),
            "fields": list(self.scale.fields),
            "means": list(self.means),
            "prior": self.prior,
            "k": self.k,
            "certainty": plain(self.certainty),
        }
        MANIFEST.save(Path(folder), about, {"networks.safetensors": save(scale | nets)})

    @classmethod
    def load(cls, folder: Path | str) -> Approximation:
        """Read it back; every file is checked against its hash, and nothing in them is run."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        def made(about: dict[str, Any], contents: dict[str, tuple[Path, bytes]]) -> Approximation:
            path, content = contents["networks"]
            settings = build(ApproximateSettings, about["settings"])
            try:
                tensors = load(content)
                arrays = {name: tensors.pop(f"scale.{name}").double().numpy() for name in SCALE}
                scale = VectorScale(fields=tuple(str(name) for name in about["fields"]), **arrays)
                members = [_restored(settings, scale.width, tensors, f"{i}.") for i in range(settings.members)]
            except (SafetensorError, RuntimeError, KeyError, DataError) as error:
                raise DataError(f"does not fit the settings of the manifest ({error})", file=path) from None
            first, second = (float(mean) for mean in about["means"])
            prior, k, certainty = float(about["prior"]), float(about["k"]), build(Certainty, about["certainty"])
            return cls(settings, scale, members, means=(first, second), prior=prior, k=k, certainty=certainty)

        return MANIFEST.load(Path(folder), FORMAT, made)

    @staticmethod
    def _mean(parts: list[torch.Tensor]) -> Float64:
        return np.asarray(torch.stack(parts).double().mean(0).numpy())


def fit_approximation(
    slot: FirstSlot,
    vectors: ClickVectors,
    imputed: Float64,
    *,
    settings: ApproximateSettings | None = None,
) -> Approximation:
    """Fit the affine part, then the trade-off, to clicks in the randomised first slot.

    affine: - sum c log a + (n - c) log(1 - a), a = s(MLP(x)); trade-off: the loss of `settings.form` on the blend of a
    and the imputed, neither of which gets a gradient from it (§6.2). The a that it learns by is of the members that did
    not learn from the query: on their own clicks networks are better than on any to come, and the imputation would seem
    to be worth little.

    Args:
        slot: the clicks.
        vectors: click vectors as of a time before those clicks (see `ClickVectors.before`).
        imputed: for each pair of `slot`, in (0, 1), [pairs].
        settings: of the networks and the loop.

    >>> import numpy as np
    >>> from clickprism.relevance.counts import PairCounts
    >>> ids = np.array([f"q{i // 4}" for i in range(80)]), np.array([f"d{i}" for i in range(80)])
    >>> month = PairCounts(np.full((80, 1), 50), np.tile([[5], [10], [20], [30]], (20, 1)))
    >>> vectors = ClickVectors.of_counts(*ids, {"month": month})
    >>> slot = FirstSlot.of(*ids, np.tile([1, 2, 4, 6], 20), impressions=np.full(80, 10))
    >>> fitted = fit_approximation(slot, vectors, np.full(80, 0.3))
    >>> scores = fitted.estimate(vectors.x, np.full(80, 0.3))[:4]
    >>> bool((np.diff(scores) > 0).all())
    True
    """
    settings = ApproximateSettings() if settings is None else settings
    if len(slot) == 0:
        raise DataError("there is no first-slot click to learn from")
    x = vectors.before(slot)
    scale = VectorScale.fit(x, vectors.fields, vectors.empty)
    inputs, known = torch.from_numpy(scale(x)), torch.from_numpy(_checked(imputed, len(slot))).float()
    members, k, certainty = _fit_members(slot, inputs, known, settings, most_shown(x, vectors.fields))
    unseen = never_shown(x, vectors.fields)
    clicked, shown = slot.clicks[unseen].sum(), slot.impressions[unseen].sum()
    prior = float((clicked + PRIOR * slot.rate) / (shown + PRIOR))
    means = blend_mean("likelihood", known), blend_mean("logit", known)
    prior = min(max(prior, 1e-6), 1 - 1e-6)
    return Approximation(settings, scale, members, means=means, prior=prior, k=k, certainty=certainty)


def _member(settings: ApproximateSettings, inputs: int, *, rate: float = 0.5, start: float = 0.0) -> nn.ModuleDict:
    """Two networks at their start: the affine part at the click rate, the trade-off at `start`."""
    rate = min(max(rate, 1e-4), 1 - 1e-4)
    odds = math.log(rate / (1 - rate))
    return nn.ModuleDict(
        {"affine": settings.network(inputs, start=odds), "trade_off": settings.network(inputs, start=start)}
    )


def _restored(
    settings: ApproximateSettings, inputs: int, tensors: Mapping[str, torch.Tensor], start: str
) -> nn.ModuleDict:
    with torch.device("meta"):
        member = _member(settings, inputs)
    own = {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
    member.load_state_dict(own, assign=True)
    return member


def _fit_members(
    slot: FirstSlot, inputs: torch.Tensor, known: torch.Tensor, settings: ApproximateSettings, shown: Float64
) -> tuple[list[nn.ModuleDict], float, Certainty]:
    """The members, k, and how sure they are."""
    form, count = settings.form, settings.members
    with_k = settings.evidence and form != "reward"
    clicks, skips = settings.fit.counts(slot)
    weights, mean = clicks + skips, blend_mean(form, known)
    parts = [split(slot.query_ids, settings.fit.held_out, seed=settings.seed, part=i) for i in range(count)]
    seeds = [settings.seed + 7919 * i for i in range(count)]
    rate, start = float(clicks.sum() / weights.sum()), 0.0 if with_k or form == "convex" else START
    members = []
    for part, seed in zip(parts, seeds, strict=True):
        with torch_for(settings.fit, seed=seed):
            members.append(_member(settings, inputs.shape[1], rate=rate, start=start))
            affine = members[-1]["affine"]

            def affine_loss(rows: torch.Tensor, affine: nn.Module = affine) -> torch.Tensor:
                return cross_entropy(affine(inputs[rows]), clicks[rows], skips[rows])

            descend(affine, affine_loss, weights=weights, parts=part, settings=settings.fit, seed=seed)
    with torch.no_grad():
        stopped = _by_others([torch.sigmoid(member["affine"](inputs)) for member in members], parts)

    def loss(zeta: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return blend_loss(zeta, known[rows], stopped[rows], (clicks[rows], skips[rows]), form=form, mean=mean)

    often, every = torch.from_numpy(shown).float(), torch.arange(len(slot))

    def loss_of_k(k: float) -> float:
        return float(loss(torch.tanh(begin(often, k=k, form=form)), every).double().sum())

    k = min(WORTH, key=loss_of_k) if with_k else 0.0
    starts = begin(often, k=k, form=form)
    for member, part, seed in zip(members, parts, seeds, strict=True):
        with torch_for(settings.fit, seed=seed):
            trade_off = member["trade_off"]

            def blended_loss(rows: torch.Tensor, trade_off: nn.Module = trade_off) -> torch.Tensor:
                return loss(torch.tanh(starts[rows] + trade_off(inputs[rows])), rows)

            descend(trade_off, blended_loss, weights=weights, parts=part, settings=settings.fit, seed=seed)
    with torch.no_grad():
        zetas = [torch.tanh(starts + member["trade_off"](inputs)) for member in members]
        values = blend(_by_others(zetas, parts), known, stopped, form=form, mean=mean).double().numpy()
    return members, k, Certainty.fit(values, slot.clicks, slot.impressions, shown)


def _by_others(values: list[torch.Tensor], parts: list[Split]) -> torch.Tensor:
    """The mean value of each row by the members that did not learn from its query; by all where there is none."""
    shares = torch.stack(values)
    aside = torch.zeros_like(shares)
    for own, (_, rows) in zip(aside, parts, strict=True):
        own[rows] = 1.0
    aside[:, aside.sum(0) == 0] = 1.0
    return (shares * aside).sum(0) / aside.sum(0)


def _start(x: Float32, fields: tuple[str, ...], *, k: float, form: Form) -> torch.Tensor:
    return begin(torch.from_numpy(most_shown(x, fields)).float(), k=k, form=form)


def _checked(imputed: Float64, pairs: int) -> Float64:
    values = np.asarray(imputed, dtype=np.float64)
    if values.shape != (pairs,):
        raise DataError(f"{pairs} pairs need as many imputed values, got an array of shape {values.shape}")
    if not ((values > 0) & (values < 1)).all():
        raise DataError("imputed values must be between 0 and 1", remedy="They are probabilities of a click")
    return values
