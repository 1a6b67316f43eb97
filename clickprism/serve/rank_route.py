"""`POST /v1/rank`: a query and its documents in, their ranking out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar, final

import msgspec
import numpy as np

from clickprism.evaluation.interleaving import team_draft
from clickprism.serve.answers import Item, RankAnswer
from clickprism.serve.call import BUSY, JSON, Answer, Call
from clickprism.serve.live import Live
from clickprism.serve.metrics import Metrics
from clickprism.serve.models import Models
from clickprism.serve.problems import Problem
from clickprism.serve.rank import Ages, Inputs, Ranking, items, look_up, order, rank, score
from clickprism.serve.requests import RankRequest, read_rank_request
from clickprism.serve.settings import ServeSettings
from clickprism.serve.store import SCHEMES, AgePolicy, Found

T = TypeVar("T")
ENCODE: Final = msgspec.json.Encoder().encode
THREADS: Final = 4
"""Of a worker, for what would hold up other requests: language models, and stores over the network."""


@final
class RankRoute:
    """Answers requests to rank, each by the model that was current when it came."""

    def __init__(self, settings: ServeSettings, models: Models, metrics: Metrics) -> None:
        self._settings = settings
        self._models = models
        self._metrics = metrics
        self._ages = Ages(AgePolicy(settings.max_feature_age, "refuse" if settings.refuse_stale else "mark"))
        self._remote = settings.store is not None and settings.store.startswith(SCHEMES)
        self._pool = ThreadPoolExecutor(THREADS, "clickprism-rank")
        self._queued = 0

    def close(self) -> None:
        """Finish what is under way."""
        self._pool.shutdown()

    async def take(self, call: Call) -> Answer:
        """Read a request and rank."""
        call.check_type(JSON)
        body = await call.body(limit=self._settings.max_body, timeout=self._settings.timeout)
        live = self._models.current.live
        if live is None:
            detail = self._models.current.problem or "the model is not loaded yet"
            raise Problem(503, detail, kind="starting", headers=BUSY)
        request = read_rank_request(body, max_documents=self._settings.max_documents)
        if self._settings.log_queries:
            call.notes |= {"query_id": request.query_id, "query": request.query}
        if live.needs_texts or self._remote:
            return await self._beside(lambda: self._answer(request, live, call))
        return self._answer(request, live, call)

    def _answer(self, request: RankRequest, live: Live, call: Call) -> Answer:
        challenger = None if self._models.challenger is None else self._models.challenger.live
        inputs = look_up(request, live, self._models.store, other=challenger)
        ranking = rank(inputs, live)
        answer = RankAnswer(call.request_id, live.version, 0.0, [])
        if challenger is None:
            answer.items, answer.reranked = items(inputs, ranking), live.reranked(len(inputs.ids))
        else:
            by = live, challenger
            answer.items, answer.reranked = drafted(inputs, ranking, by=by, request_id=call.request_id)
            answer.interleaved = [live.version, challenger.version]
        if inputs.found is not None:
            self._say_age(answer, inputs, inputs.found)
        if request.explain and "observation" in ranking.scored.parts:
            answer.observation = ranking.scored.parts["observation"].tolist()
        count = len(inputs.ids)
        self._metrics.documents.inc(count)
        call.notes["documents"], call.notes["model_version"] = count, live.version
        shadow = self._models.shadow
        if shadow is not None:
            call.after = lambda: shadow.offer(inputs, ranking.scored.scores, ranking.places)
        answer.took_ms = round((time.perf_counter() - call.started) * 1000, 3)
        return Answer(ENCODE(answer))

    def _say_age(self, answer: RankAnswer, inputs: Inputs, found: Found) -> None:
        answer.feature_version = found.info.version
        answer.feature_as_of, answer.feature_age, answer.stale = self._ages.of(found.info)
        if answer.stale:
            self._metrics.stale.inc()
        if not found.whole:
            answer.not_found = [inputs.ids[place] for place in np.flatnonzero(~found.found)]
            self._metrics.not_found.inc(len(answer.not_found))

    async def _beside(self, work: Callable[[], T]) -> T:
        """Do slow work in a thread, within the time limit, if not too much waits already."""
        if self._queued >= self._settings.max_waiting:
            raise Problem(503, "too many requests wait to be scored", kind="busy", headers=BUSY)
        self._queued += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(lambda _: setattr(self, "_queued", self._queued - 1))
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await future
        except TimeoutError:
            detail = f"no answer within {self._settings.timeout:g} s"
            raise Problem(503, detail, kind="timeout", headers=BUSY) from None


def drafted(
    inputs: Inputs, ranking: Ranking, *, by: tuple[Live, Live], request_id: str
) -> tuple[list[Item], int | None]:
    """Return the list that two models draft in turns, and how many documents they re-ranked, None for all.

    Each item has the score and the version of the model that drafted it. Each model re-ranks to its own depth, so
    documents below both depths are last, in the order of the request. A challenger that cannot score the request drafts
    nothing: all is by the first.
    """
    scored = theirs = ranking.scored
    other: list[int] = []
    depths = [by[0].reranked(len(inputs.ids))]
    with suppress(Problem):
        theirs = score(inputs, by[1], explain=inputs.request.explain)
        other = order(theirs, by[1]).tolist()
        depths.append(by[1].reranked(len(inputs.ids)))
    length = None if inputs.request.top is None else int(inputs.request.top)
    draft = team_draft(ranking.places.tolist(), other, request_id=request_id, length=length)
    places = np.array(draft.documents, np.int64)
    made = [items(inputs, Ranking(places, each.scores[places], each)) for each in (scored, theirs)]
    chosen = [made[team][rank] for rank, team in enumerate(draft.teams)]
    for item, team in zip(chosen, draft.teams, strict=True):
        item.ranker = by[team].version
    limits = [depth for depth in depths if depth is not None]
    return chosen, max(limits) if len(limits) == len(depths) else None
