"""Requests that come at the same moment are scored together: a network is called once for all of them.

Calling a network for one short list costs more than the list does. The worker reads all requests that have come, then
scores what they ask in one call; a request that comes alone waits for nobody. What one list has that cannot be scored
is its own problem: then each is scored alone.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias, final

import numpy as np

from clickprism.errors import DataError
from clickprism.serve.live import Live
from clickprism.serve.rank import Inputs, candidates, lost_of, scattered, score, without
from clickprism.serve.scorer import Candidates, Scored
from clickprism.types import Float32

Waiting: TypeAlias = "list[tuple[Float32, asyncio.Future[Scored | None]]]"
MOST: Final = 4096
"""Documents in one call: what comes beyond goes into the next."""
JOINED: Final = frozenset({"mlp", "attention"})
"""Kinds of rankers whose call costs more than a list."""


def joins(live: Live) -> bool:
    """Whether lists are worth scoring together by this model."""
    return live.scorer.kind in JOINED and live.needs_features and not live.needs_texts and not live.needs_clicks


@final
class Together:
    """What waits to be scored, by the model that each request began with."""

    def __init__(self) -> None:
        self._waiting: dict[Live, Waiting] = {}

    async def score(self, inputs: Inputs, live: Live) -> Scored:
        """As `clickprism.serve.rank.score` without explanations, in one call with those that wait beside it."""
        wanted = candidates(inputs, live)
        lost = lost_of(inputs, live, wanted)
        features = (wanted if lost is None else without(wanted, lost)).features
        if features is None or len(features) > MOST:
            return score(inputs, live, explain=False)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Scored | None] = loop.create_future()
        waiting = self._waiting.get(live)
        if waiting is None:
            waiting = self._waiting[live] = []
            loop.call_soon(self._run, live)
        waiting.append((features, future))
        scored = await future
        if scored is None:
            return score(inputs, live, explain=False)
        return scored if lost is None else scattered(scored, lost)

    def _run(self, live: Live) -> None:
        """Score what waits; None tells those who must go alone."""
        waiting = [each for each in self._waiting.pop(live) if not each[1].done()]
        ends = np.cumsum([len(features) for features, _ in waiting])
        if len(waiting) < 2 or ends[-1] > MOST:
            for _, future in waiting:
                future.set_result(None)
            return
        offsets = np.concatenate([[0], ends])
        try:
            scores = live.scorer.score(
                Candidates(features=np.concatenate([features for features, _ in waiting]), offsets=offsets)
            ).scores
        except DataError:
            for _, future in waiting:
                future.set_result(None)
            return
        for (_, future), start, end in zip(waiting, offsets.tolist(), ends.tolist(), strict=False):
            future.set_result(Scored(scores[start:end]))
