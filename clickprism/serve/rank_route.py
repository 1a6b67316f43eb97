"""`POST /v1/rank`: a query and its documents in, their ranking out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, final

import numpy as np

from clickprism.evaluation.interleaving import team_draft
from clickprism.serve.answers import Item, RankAnswer
from clickprism.serve.call import BUSY, JSON, Call
from clickprism.serve.live import Live
from clickprism.serve.metrics import Metrics
from clickprism.serve.models import Models
from clickprism.serve.problems import Problem
from clickprism.serve.rank import Ages, Inputs, all_of, items, look_up, order, score
from clickprism.serve.requests import RankRequest, read_rank_request
from clickprism.serve.scorer import Scored
from clickprism.serve.settings import ServeSettings
from clickprism.serve.store import SCHEMES, AgePolicy
from clickprism.serve.together import Together, joins
from clickprism.types import Int64

T = TypeVar("T")
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
        self._together = Together()

    def close(self) -> None:
        """Finish what is under way."""
        self._pool.shutdown()

    async def take(self, call: Call) -> RankAnswer:
        """Read a request and rank."""
        call.check_type(JSON)
        body = await call.body(limit=self._settings.max_body, timeout=self._settings.body_timeout)
        live = self._models.current.live
        if live is None:
            detail = self._models.current.problem or "the model is not loaded yet"
            raise Problem(503, detail, kind="starting", headers=BUSY)
        request = read_rank_request(body, max_documents=self._settings.max_documents)
        if self._settings.log_queries:
            call.notes |= {"query_id": request.query_id, "query": request.query}
        if live.needs_texts or self._remote:
            return await self._beside(lambda: self._answer(request, live, call))
        if joins(live) and not request.explain and self._models.challenger is None:
            inputs = look_up(request, live, self._models.store)
            return self._said(inputs, live, await self._together.score(inputs, live), call)
        return self._answer(request, live, call)

    def _answer(self, request: RankRequest, live: Live, call: Call) -> RankAnswer:
        challenger = None if self._models.challenger is None else self._models.challenger.live
        inputs = look_up(request, live, self._models.store, other=challenger)
        return self._said(inputs, live, score(inputs, live, explain=request.explain), call, challenger=challenger)

    def _said(
        self, inputs: Inputs, live: Live, scored: Scored, call: Call, *, challenger: Live | None = None
    ) -> RankAnswer:
        ranking = order(scored)
        answer = RankAnswer(call.request_id, live.version, 0.0, [])
        if challenger is None:
            answer.items = items(inputs, scored, ranking)
        else:
            answer.items = drafted(inputs, scored, ranking, by=(live, challenger), request_id=call.request_id)
            answer.interleaved = [live.version, challenger.version]
        if inputs.found is not None:
            self._say_age(answer, inputs)
        if "observation" in scored.parts:
            answer.observation = scored.parts["observation"].tolist()
        self._metrics.documents.inc(len(ranking))
        call.notes["documents"], call.notes["model_version"] = len(ranking), live.version
        if self._models.shadow is not None:
            shadow = self._models.shadow
            call.after = lambda: shadow.offer(inputs, scored.scores, ranking)
        answer.took_ms = round((time.perf_counter() - call.started) * 1000, 3)
        return answer

    def _say_age(self, answer: RankAnswer, inputs: Inputs) -> None:
        found = inputs.found
        if found is None:
            return
        answer.feature_version = found.info.version
        answer.feature_as_of, answer.feature_age, answer.stale = self._ages.of(found.info)
        if answer.stale:
            self._metrics.stale.inc()
        if not all_of(found.found):
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
            async with asyncio.timeout(self._settings.answer_timeout):
                return await future
        except TimeoutError:
            detail = f"no answer within {self._settings.answer_timeout:g} s"
            raise Problem(503, detail, kind="timeout", headers=BUSY) from None


def drafted(inputs: Inputs, scored: Scored, ranking: Int64, *, by: tuple[Live, Live], request_id: str) -> list[Item]:
    """The list that two models draft in turns; each item has the score and the version of the one that drafted it.

    A challenger that cannot score the request drafts nothing: all is by the first.
    """
    try:
        theirs = score(inputs, by[1], explain=inputs.request.explain)
        other = order(theirs).tolist()
    except Problem:
        theirs, other = scored, []
    length = None if inputs.request.top is None else int(inputs.request.top)
    draft = team_draft(ranking.tolist(), other, request_id=request_id, length=length)
    places = np.array(draft.documents, np.int64)
    made = items(inputs, scored, places), items(inputs, theirs, places)
    chosen = [made[team][rank] for rank, team in enumerate(draft.teams)]
    for item, team in zip(chosen, draft.teams, strict=True):
        item.ranker = by[team].version
    return chosen
