"""How users browse a page, in log space: which documents they see, given what they clicked above.

A browsing model is a small module with two answers about every place of a page: the log odds that it is seen given the
clicks above it (`forward`), and the log of the probability that it is seen before any click is known (`marginal`). With
the first, a click has the probability s(odds) a, a the attraction, and the clicks of a session multiply.

Probabilities are sums of logs; nothing is subtracted that could cancel. What is certain has the log odds `CERTAIN`,
which is finite, so that gradients through it are 0 and not NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

import torch
from torch import nn

from clickprism.debias.pointwise import log_both

CERTAIN: Final = 1e30
ChainName: TypeAlias = Literal["cascade", "dcm", "ccm", "dbn", "sdbn"]
Step: TypeAlias = tuple[torch.Tensor, torch.Tensor]  # log of the probability to go on, and of that to stop


@dataclass(frozen=True, eq=False)
class Page:
    """Ranked lists as a browsing model sees them; each field is [lists, places].

    Attributes:
        mask: True where there is a document.
        positions: from 1.
        attraction: the log odds of a click once seen.
        satisfaction: the log odds that a click ends the search, for the models that have it.
        tilt: what features add to the log odds of the model's observation parameters; 0 where they add nothing.
    """

    mask: torch.Tensor
    positions: torch.Tensor
    attraction: torch.Tensor
    satisfaction: torch.Tensor
    tilt: torch.Tensor


@final
class ByPosition(nn.Module):
    """PBM: seen with the odds of the position; the first is always seen."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.odds = nn.Parameter(torch.zeros(positions))

    def forward(self, page: Page, clicked: torch.Tensor) -> torch.Tensor:
        """The log odds that each place is seen, whatever was clicked, [lists, places]."""
        places = page.positions.clamp_max(len(self.odds)) - 1
        return _first_certain(page.positions, self.odds[places] + page.tilt)

    def marginal(self, page: Page) -> torch.Tensor:
        """Log of the probability that each place is seen, [lists, places]."""
        return log_both(self(page, page.mask))[0]


@final
class ByLastClick(nn.Module):
    """UBM: seen with the odds of the position and of where the last click above was; the first is always seen."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.odds = nn.Parameter(torch.zeros(positions, positions))  # position, then that of the last click, 0 for none

    def forward(self, page: Page, clicked: torch.Tensor) -> torch.Tensor:
        """The log odds that each place is seen given the clicks above, [lists, places]."""
        latest = torch.where(clicked & page.mask, page.positions, 0).cummax(-1).values
        return self._odds(page.positions, nn.functional.pad(latest[:, :-1], (1, 0)), page.tilt)

    def marginal(self, page: Page) -> torch.Tensor:
        """Log of the probability that each place is seen, summed over where the last click may be, [lists, places]."""
        lists, places = page.mask.shape
        attraction = torch.sigmoid(page.attraction)
        clicked_at = nn.functional.pad(page.positions, (1, 0))
        last = attraction.new_zeros(lists, places + 1)  # the probability of each last click, 0 for none
        last[:, 0] = 1.0
        result = []
        for place in range(places):
            above, here = slice(place + 1), slice(place, place + 1)
            odds = self._odds(page.positions[:, here], clicked_at[:, above], page.tilt[:, here])
            seen = last[:, above] * torch.sigmoid(odds)
            result.append(seen.sum(-1))
            clicks = torch.where(page.mask[:, here], seen * attraction[:, here], 0.0)
            last = torch.cat([last[:, above] - clicks, clicks.sum(-1, keepdim=True), last[:, place + 2 :]], dim=-1)
        return torch.stack(result, dim=-1).clamp_min(torch.finfo(attraction.dtype).tiny).log()

    def _odds(self, positions: torch.Tensor, last: torch.Tensor, tilt: torch.Tensor) -> torch.Tensor:
        size = len(self.odds)
        odds = self.odds[positions.clamp_max(size) - 1, last.clamp_max(size - 1)]
        return _first_certain(positions, odds + tilt)


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

    The first document of a list is always seen, the next one is that at the next place of the log: a position that the
    log leaves out is no step.
    """

    def __init__(self, model: ChainName, positions: int) -> None:
        super().__init__()
        self.model = model
        size = {"cascade": 0, "dcm": positions, "ccm": 3, "dbn": 1, "sdbn": 0}[model]
        self.odds = nn.Parameter(torch.zeros(size))

    def forward(self, page: Page, clicked: torch.Tensor) -> torch.Tensor:
        """The log odds that each place is seen given the clicks above, [lists, places].

        After a click they are those of going on. After a skip, by Bayes' rule, with e the probability to be seen:
        e (1 - a) skip to e (1 - a) (1 - skip) + (1 - e), the last for users who had stopped before.
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
        """Log of the probability that each place is seen: the product of going on above it, [lists, places]."""
        (skip, _), (go, _) = self.steps(page)
        attracted, ignored = log_both(page.attraction)
        further = torch.logaddexp(attracted + go, ignored + skip).masked_fill(~page.mask, 0.0)
        return nn.functional.pad(further.cumsum(-1)[:, :-1], (1, 0))

    def steps(self, page: Page) -> tuple[Step, Step]:
        """The step after a skip and that after a click, for every place, each [lists, places]."""
        always = (torch.zeros_like(page.attraction), torch.full_like(page.attraction, -CERTAIN))
        if self.model == "cascade":
            return always, (always[1], always[0])
        if self.model == "dcm":
            return always, log_both(self.odds[page.positions.clamp_max(len(self.odds)) - 1] + page.tilt)
        satisfied, unsatisfied = log_both(page.satisfaction)
        if self.model == "sdbn":
            return always, (unsatisfied, satisfied)
        if self.model == "dbn":
            go, stop = log_both(self.odds + page.tilt)
            return (go, stop), (go + unsatisfied, torch.logaddexp(satisfied, unsatisfied + stop))
        attracted, ignored = log_both(page.attraction)
        skip, low, high = (log_both(odds + page.tilt) for odds in self.odds)
        return skip, (
            torch.logaddexp(ignored + low[0], attracted + high[0]),
            torch.logaddexp(ignored + low[1], attracted + high[1]),
        )


Browsing: TypeAlias = ByPosition | ByLastClick | Chain


def _first_certain(positions: torch.Tensor, odds: torch.Tensor) -> torch.Tensor:
    return torch.where(positions == 1, torch.full_like(odds, CERTAIN), odds)
