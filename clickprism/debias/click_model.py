"""Click models by gradients: attraction, satisfaction and observation as functions of features."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias, final, get_args

import numpy as np
import torch
from torch import nn

from clickprism.debias.base import Bias, Learner
from clickprism.debias.browsing import Browsing, ByLastClick, ByPosition, Chain, ChainName, Page
from clickprism.debias.listwise import score
from clickprism.debias.pointwise import count_loss, log_both, log_click
from clickprism.errors import DataError, SettingError
from clickprism.model import network_scores
from clickprism.types import Batch, Bool, Clicks, Float64, Int64

ModelName: TypeAlias = Literal["pbm", "ubm", "cascade", "dcm", "ccm", "dbn", "sdbn"]
SATISFIED: Final = ("dbn", "sdbn")
SAMPLE: Final = 4096  # ranked lists of the log that the mean observation is taken over
CHUNK: Final = 16_384  # ranked lists padded at a time
LEAST: Final = 1e-9


@final
@dataclass(frozen=True)
class NeuralClickModel:
    """The exact likelihood of the clicks of a session, with a network for the attraction a(x).

    loss = - sum_k [c_k log(e_k a_k) + (1 - c_k) log(1 - e_k a_k)],  a = sigmoid(f(x) + constant)

    with e_k the probability that position k is seen given the clicks above it, by the chosen model: pbm (Richardson et
    al. 2007), a number a position; ubm (Dupret and Piwowarski 2008), one for each position and last click; cascade
    (Craswell et al. 2008); dcm (Guo, Liu and Wang 2009), to go on after a click, by position; ccm (Guo et al. 2009),
    three numbers; dbn (Chapelle and Zhang 2009), a satisfaction s(x) and one perseverance; sdbn, the same with a
    perseverance of 1. For the cascade family e_k is summed exactly over where the user may have stopped.

    The first document is always seen, e_1 = 1. So the score is the log odds of a click in the first slot, up to a
    constant: clicks identify that, but not which part of it is relevance. Unbiased when users browse as the model says
    and documents that look alike stand at different positions (pbm, ubm) or below other documents (the rest).

    The cascade model has no second click: of a session with several it takes all down to the first. Except for pbm (of
    which `pal` is the form for merged logs) the clicks of a session are joined, so the method needs patterns.

    Attributes:
        model: how users browse.
        satisfaction: of dbn and sdbn: "network", a second network of the ranker's shape on the features; or "constant".
        observation_features: let features move the observation too: another network of the ranker's shape is added to
            the log odds of the observation parameters (for dcm, ccm and dbn: of going on below the document). The first
            position stays certain for every document.
        observation_rate: the learning rate of the observation parameters, as a multiple of the ranker's; networks learn
            at the ranker's.

    >>> import clickprism as cp
    >>> data = cp.synthetic(cp.SyntheticSettings(train_queries=50, validation_queries=20, test_queries=20))
    >>> by_pattern = cp.SimulationSettings(merge="pattern")
    >>> log = cp.simulate(data.train, cp.PositionUser(), sessions=500, seed=0, settings=by_pattern).clicks
    >>> settings = cp.FitSettings(epochs=2, threads=1)
    >>> cp.fit(log, method=NeuralClickModel(model="ubm"), ranker=cp.Linear(), settings=settings).observation.shape
    (10,)
    """

    name: ClassVar[str] = "click_model"
    summary: ClassVar[str] = "Neural click model: observation depends on the clicks and documents above."
    corrects: ClassVar[tuple[Bias, ...]] = ("position", "interaction")
    needs: ClassVar[tuple[str, ...]] = ("single sessions",)
    learns_observation: ClassVar[bool] = True
    needs_patterns: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = False
    model: ModelName = "ubm"
    satisfaction: Literal["network", "constant"] = "network"
    observation_features: bool = False
    observation_rate: float = 10.0

    def __post_init__(self) -> None:
        if self.model not in get_args(ModelName):
            raise SettingError("model", self.model, f"be one of {', '.join(get_args(ModelName))}")
        if self.satisfaction not in ("network", "constant"):
            raise SettingError("satisfaction", self.satisfaction, "be one of network, constant")
        if self.observation_features and self.model in ("cascade", "sdbn"):
            must = f"be off for {self.model}, which has no observation to learn"
            raise SettingError("observation_features", self.observation_features, must)
        if not 0 < self.observation_rate < math.inf:
            raise SettingError("observation_rate", self.observation_rate, "be above 0")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> ClickModelLearner:
        """A learner with the observation parameters for the positions of the log, all one half at the start."""
        return ClickModelLearner(self, ranker, clicks)


@final
class ClickModelLearner(Learner):
    """The ranker, which is the attraction, the browsing model, and the networks beside them."""

    def __init__(self, settings: NeuralClickModel, ranker: nn.Module, clicks: Clicks) -> None:
        super().__init__(ranker)
        self.settings = settings
        self.positions = clicks.max_position
        self.browsing = _browsing(settings.model, self.positions)
        self.constant: nn.Parameter | None = None
        self.satisfaction: nn.Module | None = None
        self.tilt = fresh_copy(ranker) if settings.observation_features else None
        if settings.model in SATISFIED and settings.satisfaction == "network":
            self.satisfaction = fresh_copy(ranker)
        elif settings.model in SATISFIED:
            self.constant = nn.Parameter(torch.zeros(1))
        self.odds = _first_slot_odds(clicks)
        self._log = _sample(clicks)

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Minus the log-likelihood of the sessions."""
        page, clicked = self._page(batch), batch.clicks > 0
        log_clicked, log_skipped = log_click(page.attraction, *log_both(self.browsing(page, clicked)))
        if self.settings.model == "cascade":
            first = clicked.cumsum(-1) - clicked.long() == 0
            log_clicked, log_skipped = torch.where(first, log_clicked, 0.0), torch.where(first, log_skipped, 0.0)
        return {"clicks": count_loss(batch, log_clicked, log_skipped)}

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Log of the probability of a click before any other is known, [lists, places]."""
        page = self._page(batch)
        return self.browsing.marginal(page) + log_both(page.attraction)[0]

    def observation(self) -> Float64:
        """The mean over the log of the probability to be seen, by position relative to the first.

        Except for pbm it depends on the documents: on what stands above. It is the mean over 4096 ranked lists of the
        log at most, spread evenly over it. A position that is never shown has the value of that above it.
        """
        seen, places = self._seen(self._log), self._log.positions - 1
        shown = np.bincount(places, weights=self._log.list_impressions, minlength=self.positions)
        total = np.bincount(places, weights=seen * self._log.list_impressions, minlength=self.positions)
        known = np.maximum.accumulate(np.where(shown > 0, np.arange(self.positions), 0))
        curve = np.where(shown > 0, total / np.maximum(shown, 1), 1.0)[known]
        return np.asarray(curve / curve[0], dtype=np.float64)

    def exposure(self, clicks: Clicks) -> Float64:
        """Impressions times the probability to be seen before any click is known: E[clicks] = a x exposure.

        The probability given the session's own clicks would be biased: what was clicked was seen for certain.
        """
        return np.asarray(clicks.list_impressions * np.maximum(self._seen(clicks), LEAST))

    def click_probability(self, clicks: Clicks) -> Float64:
        """The probability of a click on each entry before anything of the session is known, [entries]."""
        return self._by_entry(clicks, lambda page, _: self.browsing.marginal(page) + log_both(page.attraction)[0])

    def conditional_probability(self, clicks: Clicks) -> Float64:
        """The probability of a click on each entry given the clicks above it, [entries]."""
        if not clicks.are_patterns:
            remedy = 'Give it the sessions one by one, or merged by clicks.merge(by="pattern")'
            raise DataError("a merged log forgets which clicks were above", remedy=remedy)

        def clicked_too(page: Page, clicked: torch.Tensor) -> torch.Tensor:
            return log_both(self.browsing(page, clicked))[0] + log_both(page.attraction)[0]

        return self._by_entry(clicks, clicked_too)

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """The ranker's group, that of the other networks, and that of the observation parameters."""
        networks = [network for network in (self.satisfaction, self.tilt) if network is not None]
        own = [*self.browsing.parameters(), *([] if self.constant is None else [self.constant])]
        beside = [parameter for network in networks for parameter in network.parameters()]
        groups = [(1.0, list(self.ranker.parameters())), (1.0, beside), (self.settings.observation_rate, own)]
        return [(rate, group) for rate, group in groups if group]

    def _page(self, batch: Batch) -> Page:
        attraction = score(self.ranker, batch) + self.odds
        nothing = torch.zeros_like(attraction)
        satisfaction = nothing if self.satisfaction is None else score(self.satisfaction, batch)
        if self.constant is not None:
            satisfaction = nothing + self.constant
        tilt = nothing if self.tilt is None else score(self.tilt, batch)
        return Page(batch.mask, batch.positions, attraction, satisfaction, tilt)

    def _seen(self, clicks: Clicks) -> Float64:
        """The probability that each entry is seen before any click is known, [entries]."""
        return self._by_entry(clicks, lambda page, _: self.browsing.marginal(page))

    def _by_entry(self, clicks: Clicks, log: Callable[[Page, torch.Tensor], torch.Tensor]) -> Float64:
        """The probability whose log is a function of a page and of what was clicked on it, [entries]."""
        result = np.empty(len(clicks.rows))
        with torch.no_grad():
            for page, mask, entries in self._pages(clicks):
                clicked = torch.from_numpy((clicks.clicks > 0)[entries] & mask)
                result[entries[mask]] = log(page, clicked).exp().numpy()[mask]
        return result

    def _pages(self, clicks: Clicks) -> Iterator[tuple[Page, Bool, Int64]]:
        """The lists in padded parts, with the entry of each place; every document is scored once, in double."""
        rows, document = np.unique(clicks.rows, return_inverse=True)
        features = clicks.lists.features[rows]

        def scores(network: nn.Module | None) -> Float64:
            return np.zeros(len(rows)) if network is None else network_scores(network, features)

        columns = [scores(network)[document] for network in (self.ranker, self.satisfaction, self.tilt)]
        columns[0] = columns[0] + self.odds
        if self.constant is not None:
            columns[1] = columns[1] + float(self.constant.detach())
        lengths = np.diff(clicks.offsets)
        for start in range(0, len(clicks), CHUNK):
            part = lengths[start : start + CHUNK]
            places = np.arange(int(part.max(initial=0)))
            mask = places < part[:, None]
            if not mask.any():
                continue
            entries = np.where(mask, clicks.offsets[start : start + CHUNK][: len(part), None] + places, 0)
            positions = torch.from_numpy(np.where(mask, clicks.positions[entries], 1).astype(np.int64))
            padded = [torch.from_numpy(np.where(mask, column[entries], 0.0)) for column in columns]
            yield Page(torch.from_numpy(mask), positions, *padded), mask, entries


def fresh_copy(network: nn.Module) -> nn.Module:
    """A network of the same shape with new weights, from torch's generator."""
    copied = copy.deepcopy(network)
    for module in copied.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
    return copied


def _browsing(model: ModelName, positions: int) -> Browsing:
    if model == "pbm":
        return ByPosition(positions)
    if model == "ubm":
        return ByLastClick(positions)
    name: ChainName = model
    return Chain(name, positions)


def _first_slot_odds(clicks: Clicks) -> float:
    """The log odds of a click on the first document of a list: what the attraction starts from."""
    first = clicks.offsets[:-1][np.diff(clicks.offsets) > 0]
    rate = clicks.clicks[first].sum() / max(float(clicks.list_impressions[first].sum()), 1.0)
    rate = min(max(float(rate), 1e-3), 1 - 1e-3)
    return math.log(rate / (1 - rate))


def _sample(clicks: Clicks) -> Clicks:
    merged = clicks.merge()
    return merged.take(np.unique(np.linspace(0, len(merged) - 1, min(len(merged), SAMPLE)).astype(np.int64)))
