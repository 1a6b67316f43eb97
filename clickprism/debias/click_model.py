"""Click models by gradients: attraction, satisfaction and observation as functions of features.

A browsing model is a module that returns two things for every place of a page: the log odds that it is observed given
the clicks above it (`forward`), and the log probability that it is observed before any click is known (`marginal`).
With the first, a click has the probability s(odds) a, a the attraction, and the clicks of a session multiply.

Probabilities are sums of logs. What is certain has the log odds `CERTAIN`, which is finite, so that gradients through
it are 0 and not NaN.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

import numpy as np
import torch
from torch import nn

from clickprism.debias.base import Learner, Method
from clickprism.debias.losses import count_loss, log_both, log_click, score
from clickprism.errors import DataError
from clickprism.model import network_scores
from clickprism.settings import check_fields
from clickprism.types import Batch, Bool, Clicks, Float64, Int64

CERTAIN: Final = 1e30
ChainName: TypeAlias = Literal["cascade", "dcm", "ccm", "dbn", "sdbn"]
Step: TypeAlias = tuple[torch.Tensor, torch.Tensor]  # log of the probability to go on, and of that to stop
ModelName: TypeAlias = Literal["pbm", "ubm", "cascade", "dcm", "ccm", "dbn", "sdbn"]
SATISFIED: Final = ("dbn", "sdbn")
SAMPLE: Final = 4096  # ranked lists of the log that the mean observation is taken over
CHUNK: Final = 16_384  # ranked lists padded at a time
LEAST: Final = 1e-9


@final
@dataclass(frozen=True)
class NeuralClickModel(Method):
    """The exact likelihood of the clicks of a session, with a network for the attraction a(x).

    loss = - sum_k [c_k log(e_k a_k) + (1 - c_k) log(1 - e_k a_k)],  a = sigmoid(f(x) + constant)

    with e_k the probability that position k is observed given the clicks above it, by the chosen model: pbm (Richardson
    et al. 2007), a number for each position; ubm (Dupret and Piwowarski 2008), one for each position and last click;
    cascade (Craswell et al. 2008); dcm (Guo, Liu and Wang 2009), going on after a click, by position; ccm (Guo et al.
    2009), three numbers; dbn (Chapelle and Zhang 2009), a satisfaction s(x) and one perseverance; sdbn, the same with a
    perseverance of 1. For the cascade family e_k is summed exactly over where the user may have stopped.

    The first document is always observed, e_1 = 1, so the score is the log odds of a click at the first position, up to
    a constant: clicks identify that, but not which part of it is relevance. Unbiased when users browse as the model
    says and documents with similar features have different positions (pbm, ubm) or below other documents (the rest).

    The cascade model has no second click: of a session with several clicks it uses everything down to the first.

    Attributes:
        model: How users browse.
        observation_rate: Learning rate of the observation parameters, as a multiple of the ranker's.

    >>> import clickprism as cp
    >>> data = cp.synthetic(cp.SyntheticSettings(train_queries=50, validation_queries=20, test_queries=20))
    >>> by_pattern = cp.SimulationSettings(merge="pattern")
    >>> log = cp.simulate(data.train, cp.PositionUser(), sessions=500, seed=0, settings=by_pattern).clicks
    >>> settings = cp.FitSettings(epochs=2, threads=1)
    >>> cp.fit(log, method=NeuralClickModel(model="ubm"), ranker=cp.Linear(), settings=settings).observation.shape
    (10,)
    """

    name = "click_model"
    summary = "Neural click model: observation depends on the clicks and documents above."
    corrects = ("position", "interaction")
    needs = ("single sessions",)
    learns_observation = True
    needs_patterns = True
    model: ModelName = "ubm"
    observation_rate: float = 10.0

    def __post_init__(self) -> None:
        check_fields(self, observation_rate="(0, inf)")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> ClickModelLearner:
        """Return a learner with the observation parameters for the positions of the log, all one half at the start."""
        return ClickModelLearner(self, ranker, clicks)


@final
class ClickModelLearner(Learner):
    """The ranker, which is the attraction, the browsing model, and the networks beside them."""

    def __init__(self, settings: NeuralClickModel, ranker: nn.Module, clicks: Clicks) -> None:
        super().__init__(ranker)
        self.settings = settings
        self.positions = clicks.max_position
        self.browsing = _browsing(settings.model, self.positions)
        self.satisfaction = fresh_copy(ranker) if settings.model in SATISFIED else None
        self.odds = _first_slot_odds(clicks)
        self._log = _sample(clicks)

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return minus the log-likelihood of the sessions."""
        page, clicked = self._page(batch), batch.clicks > 0
        log_clicked, log_skipped = log_click(page.attraction, *log_both(self.browsing(page, clicked)))
        if self.settings.model == "cascade":
            first = clicked.cumsum(-1) - clicked.long() == 0
            log_clicked, log_skipped = torch.where(first, log_clicked, 0.0), torch.where(first, log_skipped, 0.0)
        return {"clicks": count_loss(batch, log_clicked, log_skipped)}

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Return the log probability of a click before any other is known, [lists, places]."""
        page = self._page(batch)
        return self.browsing.marginal(page) + log_both(page.attraction)[0]

    def observation(self) -> Float64:
        """Return the mean probability of being observed over the log, by position relative to the first.

        Except for pbm it depends on the documents above. It is the mean over at most 4096 ranked lists, spread evenly
        over the log. A position that is never shown has the value of the one above it.
        """
        seen, places = self._seen(self._log), self._log.positions - 1
        shown = np.bincount(places, weights=self._log.list_impressions, minlength=self.positions)
        total = np.bincount(places, weights=seen * self._log.list_impressions, minlength=self.positions)
        known = np.maximum.accumulate(np.where(shown > 0, np.arange(self.positions), 0))
        curve = np.where(shown > 0, total / np.maximum(shown, 1), 1.0)[known]
        return np.asarray(curve / curve[0], dtype=np.float64)

    def exposure(self, clicks: Clicks) -> Float64:
        """Return impressions times the probability of being observed before any click is known.

        The probability given the session's own clicks would be biased: what was clicked was certainly observed.
        """
        return np.asarray(clicks.list_impressions * np.maximum(self._seen(clicks), LEAST))

    def click_probability(self, clicks: Clicks) -> Float64:
        """Return the probability of a click on each entry before anything of the session is known, [entries]."""
        return self._by_entry(clicks, lambda page, _: self.browsing.marginal(page) + log_both(page.attraction)[0])

    def conditional_probability(self, clicks: Clicks) -> Float64:
        """Return the probability of a click on each entry given the clicks above it, [entries]."""
        if not clicks.are_patterns:
            remedy = 'Give it the sessions one by one, or merged by clicks.merge(by="pattern")'
            raise DataError("a merged log does not record which clicks were above", remedy=remedy)
        return self._by_entry(
            clicks, lambda page, clicked: log_both(self.browsing(page, clicked))[0] + log_both(page.attraction)[0]
        )

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """Return the ranker's group, that of the satisfaction, and that of the observation parameters."""
        beside = [] if self.satisfaction is None else list(self.satisfaction.parameters())
        own = list(self.browsing.parameters())
        groups = [(1.0, list(self.ranker.parameters())), (1.0, beside), (self.settings.observation_rate, own)]
        return [(rate, group) for rate, group in groups if group]

    def _page(self, batch: Batch) -> Page:
        attraction = score(self.ranker, batch) + self.odds
        satisfaction = torch.zeros_like(attraction)
        if self.satisfaction is not None:
            satisfaction = score(self.satisfaction, batch)
        return Page(batch.mask, batch.positions, attraction, satisfaction)

    def _seen(self, clicks: Clicks) -> Float64:
        """Return the probability that each entry is observed before any click is known, [entries]."""
        return self._by_entry(clicks, lambda page, _: self.browsing.marginal(page))

    def _by_entry(self, clicks: Clicks, log: Callable[[Page, torch.Tensor], torch.Tensor]) -> Float64:
        """Return the probability whose log is a function of a page and of what was clicked on it, [entries]."""
        result = np.empty(len(clicks.rows))
        with torch.no_grad():
            for page, mask, entries in self._pages(clicks):
                clicked = torch.from_numpy((clicks.clicks > 0)[entries] & mask)
                result[entries[mask]] = log(page, clicked).exp().numpy()[mask]
        return result

    def _pages(self, clicks: Clicks) -> Iterator[tuple[Page, Bool, Int64]]:
        """Yield the lists in padded parts, with the entry of each place; every document is scored once."""
        rows, document = np.unique(clicks.rows, return_inverse=True)
        features = clicks.lists.features[rows]
        attraction = network_scores(self.ranker, features) + self.odds
        satisfaction = np.zeros(len(rows))
        if self.satisfaction is not None:
            satisfaction = network_scores(self.satisfaction, features)
        columns = attraction[document], satisfaction[document]
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
    """Return a network of the same shape with new weights, from torch's generator."""
    copied = copy.deepcopy(network)
    for module in copied.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
    return copied


def _browsing(model: ModelName, positions: int) -> Browsing:
    if model == "pbm":
        return ByPosition(positions)
    return ByLastClick(positions) if model == "ubm" else Chain(model, positions)


def _first_slot_odds(clicks: Clicks) -> float:
    """Return the log odds of a click on the first document of a list, from which the attraction starts."""
    first = clicks.offsets[:-1][np.diff(clicks.offsets) > 0]
    rate = clicks.clicks[first].sum() / max(float(clicks.list_impressions[first].sum()), 1.0)
    rate = min(max(float(rate), 1e-3), 1 - 1e-3)
    return math.log(rate / (1 - rate))


def _sample(clicks: Clicks) -> Clicks:
    merged = clicks.merge()
    return merged.take(np.unique(np.linspace(0, len(merged) - 1, min(len(merged), SAMPLE)).astype(np.int64)))


@dataclass(frozen=True, eq=False)
class Page:
    """Ranked lists as the input of a browsing model; each field is [lists, places]."""

    mask: torch.Tensor  # True where there is a document
    positions: torch.Tensor  # from 1
    attraction: torch.Tensor  # log odds of a click once observed
    satisfaction: torch.Tensor  # log odds that a click ends the search, for the models that have it


@final
class ByPosition(nn.Module):
    """PBM: observed with the odds of the position; the first is always observed."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.odds = nn.Parameter(torch.zeros(positions))

    def forward(self, page: Page, clicked: torch.Tensor) -> torch.Tensor:
        """Return the log odds that each place is observed, whatever was clicked, [lists, places]."""
        places = page.positions.clamp_max(len(self.odds)) - 1
        return _first_certain(page.positions, self.odds.to(page.attraction.dtype)[places])

    def marginal(self, page: Page) -> torch.Tensor:
        """Return the log probability that each place is observed, [lists, places]."""
        return log_both(self(page, page.mask))[0]


@final
class ByLastClick(nn.Module):
    """UBM: observed with the odds of the position and the last click above; the first is always observed."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.odds = nn.Parameter(torch.zeros(positions, positions))  # position, then that of the last click, 0 for none

    def forward(self, page: Page, clicked: torch.Tensor) -> torch.Tensor:
        """Return the log odds that each place is observed given the clicks above, [lists, places]."""
        latest = torch.where(clicked & page.mask, page.positions, 0).cummax(-1).values
        return self._at(self.odds.to(page.attraction.dtype), page.positions, nn.functional.pad(latest[:, :-1], (1, 0)))

    def marginal(self, page: Page) -> torch.Tensor:
        """Return the log probability that each place is observed, summed over the last click, [lists, places]."""
        lists, places = page.mask.shape
        attraction = torch.sigmoid(page.attraction)
        clicked_at = nn.functional.pad(page.positions, (1, 0))
        last = attraction.new_zeros(lists, places + 1)  # the probability of each last click, 0 for none
        last[:, 0] = 1.0
        result = []
        for place in range(places):
            above, here = slice(place + 1), slice(place, place + 1)
            odds = self._at(self.odds.to(attraction.dtype), page.positions[:, here], clicked_at[:, above])
            seen = last[:, above] * torch.sigmoid(odds)
            result.append(seen.sum(-1))
            clicks = torch.where(page.mask[:, here], seen * attraction[:, here], 0.0)
            last = torch.cat([last[:, above] - clicks, clicks.sum(-1, keepdim=True), last[:, place + 2 :]], dim=-1)
        return torch.stack(result, dim=-1).clamp_min(torch.finfo(attraction.dtype).tiny).log()

    @staticmethod
    def _at(odds: torch.Tensor, positions: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        size = len(odds)
        return _first_certain(positions, odds[positions.clamp_max(size) - 1, last.clamp_max(size - 1)])


@final
class Chain(nn.Module):
    """The cascade family: from the top down; after each document the user goes on to the next, or stops for good.

    | model   | goes on after a skip | goes on after a click      |
    |---------|----------------------|----------------------------|
    | cascade | always               | never                      |
    | dcm     | always               | lambda_k                   |
    | ccm     | tau_1                | tau_2 (1 - a) + tau_3 a    |
    | dbn     | gamma                | gamma (1 - s)              |
    | sdbn    | always               | 1 - s                      |

    The first document of a list is always observed; a position without a document is skipped.
    """

    def __init__(self, model: ChainName, positions: int) -> None:
        super().__init__()
        self.model = model
        size = {"cascade": 0, "dcm": positions, "ccm": 3, "dbn": 1, "sdbn": 0}[model]
        self.odds = nn.Parameter(torch.zeros(size))

    def forward(self, page: Page, clicked: torch.Tensor) -> torch.Tensor:
        """Return the log odds that each place is observed given the clicks above, [lists, places].

        After a click they are those of going on. After a skip, by Bayes' rule, with e the probability of being
        observed: e (1 - a) skip to e (1 - a) (1 - skip) + (1 - e), the last for users who had stopped before.
        """
        (skip, skip_stop), (go, stop) = (tuple(each.unbind(-1) for each in step) for step in self.steps(page))
        ignored = log_both(page.attraction)[1].unbind(-1)
        odds = page.attraction.new_full(page.mask.shape[:1], CERTAIN)
        result = [odds]
        for place in range(page.mask.shape[1] - 1):
            seen, unseen = log_both(odds)
            passed = seen + ignored[place]
            after_skip = passed + skip[place] - torch.logaddexp(passed + skip_stop[place], unseen)
            following = torch.where(clicked[:, place], go[place] - stop[place], after_skip)
            odds = torch.where(page.mask[:, place], following, odds)
            result.append(odds)
        return torch.stack(result, dim=-1)

    def marginal(self, page: Page) -> torch.Tensor:
        """Return the log probability that each place is observed: of going on everywhere above, [lists, places]."""
        (skip, _), (go, _) = self.steps(page)
        attracted, ignored = log_both(page.attraction)
        further = torch.logaddexp(attracted + go, ignored + skip).masked_fill(~page.mask, 0.0)
        return nn.functional.pad(further.cumsum(-1)[:, :-1], (1, 0))

    def steps(self, page: Page) -> tuple[Step, Step]:
        """Return the step after a skip and that after a click, for every place, each [lists, places]."""
        always = (torch.zeros_like(page.attraction), torch.full_like(page.attraction, -CERTAIN))
        odds = self.odds.to(page.attraction.dtype)
        if self.model == "cascade":
            return always, (always[1], always[0])
        if self.model == "dcm":
            return always, log_both(odds[page.positions.clamp_max(len(odds)) - 1])
        satisfied, unsatisfied = log_both(page.satisfaction)
        if self.model == "sdbn":
            return always, (unsatisfied, satisfied)
        if self.model == "dbn":
            go, stop = log_both(odds.expand_as(page.attraction))
            return (go, stop), (go + unsatisfied, torch.logaddexp(satisfied, unsatisfied + stop))
        attracted, ignored = log_both(page.attraction)
        skip, low, high = (log_both(each.expand_as(page.attraction)) for each in odds)
        return skip, (
            torch.logaddexp(ignored + low[0], attracted + high[0]),
            torch.logaddexp(ignored + low[1], attracted + high[1]),
        )


Browsing: TypeAlias = ByPosition | ByLastClick | Chain


def _first_certain(positions: torch.Tensor, odds: torch.Tensor) -> torch.Tensor:
    return torch.where(positions == 1, torch.full_like(odds, CERTAIN), odds)
