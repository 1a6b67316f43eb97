"""The HTTP service as an ASGI application: routes, who may ask, limits, and how a request ends.

It is plain ASGI: a table of paths, one structure in and one out by msgspec, errors as problem+json. A request takes its
model once, at its start, so that its scores and its version are of one model whatever is promoted meanwhile.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar, final

import msgspec
import numpy as np

from clickprism.errors import ClickprismError
from clickprism.serve import call as http
from clickprism.serve.answers import HealthAnswer, ModelAnswer, ModelsAnswer, RankAnswer
from clickprism.serve.auth import Authority
from clickprism.serve.call import Answer, Call, Gone
from clickprism.serve.follow import Follower, Watch
from clickprism.serve.intake import Intake
from clickprism.serve.lines import Lines
from clickprism.serve.live import Live
from clickprism.serve.metrics import CONTENT_TYPE, Metrics, forget_dead_workers
from clickprism.serve.page import page_files
from clickprism.serve.problems import CONTENT_TYPE as PROBLEM
from clickprism.serve.problems import Problem
from clickprism.serve.rank import Ages, all_of, items, look_up, order, score
from clickprism.serve.requests import RankRequest, read_rank_request
from clickprism.serve.settings import ServeSettings
from clickprism.serve.shadow import Shadow
from clickprism.serve.store import SCHEMES, AgePolicy, FeatureStore, open_store

T = TypeVar("T")
Handler = Callable[[Call], Awaitable[Answer]]
BUSY: Final = ((b"retry-after", b"1"),)
_ENCODE: Final = msgspec.json.Encoder().encode


@final
@dataclass(frozen=True)
class Route:
    """What answers at a path, by method; `open` needs no token; `label` is its name in the metrics."""

    label: str
    handlers: Mapping[str, Handler]
    open: bool = False


@final
class Service:
    """The application; `start` and `stop` are its lifespan."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.current = Follower(settings.source, self._opened, changed=self._swapped)
        self._lines = Lines(requests=settings.request_lines)
        self._authority = Authority(settings.token)
        self._ages = Ages(AgePolicy(settings.max_feature_age, "refuse" if settings.refuse_stale else "mark"))
        self._store: FeatureStore | None = None
        self._remote = settings.store is not None and settings.store.startswith(SCHEMES)
        self._shadowed = None if settings.shadow is None else Follower(settings.shadow, self._opened)
        self._shadow: Shadow | None = None
        self._challenger = None if settings.interleave is None else Follower(settings.interleave, self._opened)
        self._intake = None if settings.log is None else Intake(settings.log, settings)
        self._watch: Watch | None = None
        self._pool = ThreadPoolExecutor(4, "clickprism-rank")
        self._waiting = 0
        self._queued = 0
        self.routes: dict[str, Route] = self._routes()

    def _routes(self) -> dict[str, Route]:
        routes = {
            "/v1/rank": Route("rank", {"POST": self._rank}),
            "/v1/events": Route("events", {"POST": self._events}),
            "/v1/models": Route("models", {"GET": self._models}),
            "/v1/shadow": Route("shadow", {"GET": self._shadow_counts}),
            "/metrics": Route("metrics", {"GET": self._metrics}),
            "/healthz": Route("healthz", {"GET": self._healthy}, open=True),
            "/readyz": Route("readyz", {"GET": self._ready}, open=True),
            "/openapi.json": Route("openapi", {"GET": self._openapi}, open=True),
        }
        for path, answer in page_files().items():
            routes[path] = Route("page", {"GET": _always(answer)}, open=True)
        return routes

    # the lifespan

    async def start(self) -> None:
        """Load and warm the model beside; go on when it is warm, or after `warm_wait` seconds."""
        forget_dead_workers()
        followers = [each for each in (self.current, self._shadowed, self._challenger) if each is not None]
        self._watch = Watch(followers, every=self.settings.follow_every)
        self._watch.start()
        if self._intake is not None:
            self._intake.start()
        await asyncio.to_thread(self._watch.wait, self.settings.warm_wait)

    async def stop(self) -> None:
        """End what runs beside, after the last request."""
        for each in (self._watch and self._watch.stop, self._shadow and self._shadow.close, self._pool.shutdown):
            if each is not None:
                await asyncio.to_thread(each)
        if self._intake is not None:
            await asyncio.to_thread(self._intake.close)
        if self._store is not None:
            self._store.close()

    def _opened(self) -> FeatureStore | None:
        """The store, opened when it is first needed; only the thread that follows calls this."""
        if self._store is None and self.settings.store is not None:
            self._store = open_store(self.settings.store)
        if self._shadow is None and self._shadowed is not None:
            self._shadow = Shadow(self._shadowed, self._store, self.metrics)
        return self._store

    def _swapped(self, follower: Follower) -> None:
        self.metrics.problem.set(follower.problem is not None)
        self.metrics.swaps.labels("failed" if follower.problem else "done").inc()
        if follower.live is not None:
            self.metrics.model(follower.live.version)
        version = follower.live.version if follower.live else None
        self._lines.line({"event": "model", "model_version": version, "problem": follower.problem})

    # a request

    async def __call__(self, scope: http.Message, receive: http.Receive, send: http.Send) -> None:
        """Answer one request, or run the lifespan."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: http.Message, receive: http.Receive, send: http.Send) -> None:
        call = Call(scope, receive)
        route = self.routes.get(scope["path"])
        self._waiting += 1
        try:
            answer = await self._answer(call, route)
        except Problem as problem:
            answer = Answer(problem.body(call.request_id), PROBLEM, problem.status, problem.headers)
            call.notes["problem"] = problem.kind
        except Gone:
            call.notes["problem"] = "gone"
            self._end(call, route, scope, 499)
            return
        except Exception:
            trace = traceback.format_exc()
            self._lines.line({"level": "error", "request_id": call.request_id, "error": trace})
            failure = Problem(500, "an error of the service; its log says more under this request_id", kind="internal")
            answer = Answer(failure.body(call.request_id), PROBLEM, 500)
        finally:
            self._waiting -= 1
        await call.send(answer, send)
        self._end(call, route, scope, answer.status)

    async def _answer(self, call: Call, route: Route | None) -> Answer:
        if self._waiting > self.settings.max_waiting:
            raise Problem(503, "too many requests are under way", kind="busy", headers=BUSY)
        if route is None or not route.open:
            self._authority.check(call.headers.get(b"authorization"))
        if route is None:
            raise Problem(404, "there is nothing at this path; /openapi.json lists what there is", kind="no-such-path")
        handler = route.handlers.get("GET" if call.method == "HEAD" else call.method)
        if handler is None:
            allowed = ", ".join(route.handlers)
            header = ((b"allow", allowed.encode()),)
            raise Problem(405, f"the path takes {allowed} only", kind="method", headers=header)
        return await handler(call)

    def _end(self, call: Call, route: Route | None, scope: http.Message, status: int) -> None:
        if call.after is not None:
            call.after()
        seconds = time.perf_counter() - call.started
        self.metrics.request("none" if route is None else route.label, status, seconds)
        if self._lines.requests or status >= 500:
            line = {"request_id": call.request_id, "method": call.method, "path": scope["path"][:200], "status": status}
            self._lines.line({**line, "ms": round(seconds * 1000, 3), **call.notes})

    async def _lifespan(self, receive: http.Receive, send: http.Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # what it answers

    async def _rank(self, call: Call) -> Answer:
        call.check_type(http.JSON)
        body = await call.body(limit=self.settings.max_body, timeout=self.settings.body_timeout)
        live = self.current.live
        if live is None:
            detail = self.current.problem or "the model is not loaded yet"
            raise Problem(503, detail, kind="starting", headers=BUSY)
        request = read_rank_request(body, max_documents=self.settings.max_documents)
        if self.settings.log_queries:
            call.notes |= {"query_id": request.query_id, "query": request.query}
        if live.needs_texts or self._remote:
            return Answer(_ENCODE(await self._beside(lambda: self._ranked(request, live, call))))
        return Answer(_ENCODE(self._ranked(request, live, call)))

    def _ranked(self, request: RankRequest, live: Live, call: Call) -> RankAnswer:
        inputs = look_up(request, live, self._store)
        scored = score(inputs, live, explain=request.explain)
        ranking = order(scored)
        answer = RankAnswer(call.request_id, live.version, 0.0, items(inputs, scored, ranking))
        found = inputs.found
        if found is not None:
            answer.feature_version = found.info.version
            answer.feature_as_of, answer.feature_age, answer.stale = self._ages.of(found.info)
            if answer.stale:
                self.metrics.stale.inc()
            if not all_of(found.found):
                answer.not_found = [inputs.ids[place] for place in np.flatnonzero(~found.found)]
                self.metrics.not_found.inc(len(answer.not_found))
        if "observation" in scored.parts:
            answer.observation = scored.parts["observation"].tolist()
        self.metrics.documents.inc(len(ranking))
        call.notes["documents"], call.notes["model_version"] = len(ranking), live.version
        if self._shadow is not None:
            shadow = self._shadow
            call.after = lambda: shadow.offer(inputs, scored.scores, ranking)
        answer.took_ms = round((time.perf_counter() - call.started) * 1000, 3)
        return answer

    async def _beside(self, work: Callable[[], T]) -> T:
        """Do slow work in a thread, within the time limit, if not too much waits already."""
        if self._queued >= self.settings.max_waiting:
            raise Problem(503, "too many requests wait to be scored", kind="busy", headers=BUSY)
        self._queued += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(lambda _: setattr(self, "_queued", self._queued - 1))
        try:
            async with asyncio.timeout(self.settings.answer_timeout):
                return await future
        except TimeoutError:
            detail = f"no answer within {self.settings.answer_timeout:g} s"
            raise Problem(503, detail, kind="timeout", headers=BUSY) from None

    async def _events(self, call: Call) -> Answer:
        if self._intake is None:
            raise Problem(404, "this service takes no events: it was started without --log", kind="no-events")
        return Answer(_ENCODE(await self._intake.take(call)))

    async def _models(self, call: Call) -> Answer:
        live = self.current.live
        followers = {"current": self.current, "shadow": self._shadowed, "interleaved": self._challenger}
        models = [
            _model(role, follower.live)
            for role, follower in followers.items()
            if follower is not None and follower.live is not None
        ]
        return Answer(
            _ENCODE(ModelsAnswer(models, list(live.previous) if live else [], self.problem(), self._stored()))
        )

    def problem(self) -> str | None:
        """What is wrong with a model that should be served, though requests may be answered by an older one."""
        followers = [each for each in (self.current, self._shadowed, self._challenger) if each is not None]
        return next((each.problem for each in followers if each.problem is not None), None)

    def stores(self, live: Live) -> bool:
        """Whether the store has the features of a model, so that a request need not give them."""
        return self._store is not None and live.columns(self._store.info.fields).features is not None

    def _stored(self) -> dict[str, Any] | None:
        if self._store is None:
            return None
        try:
            info = self._store.info
        except ClickprismError as error:
            return {"problem": str(error)}
        self.metrics.age.set(info.age())
        told = {"version": info.version, "as_of": f"{info.as_of.isoformat()}Z", "age": round(info.age(), 3)}
        return told | {"pairs": info.pairs, "fields": list(info.fields)}

    async def _shadow_counts(self, call: Call) -> Answer:
        if self._shadow is None:
            raise Problem(404, "this service has no shadow: it was started without --shadow", kind="no-shadow")
        return Answer(_ENCODE(self._shadow.answer()))

    async def _metrics(self, call: Call) -> Answer:
        self._stored()
        return Answer(self.metrics.text(), CONTENT_TYPE)

    async def _healthy(self, call: Call) -> Answer:
        return Answer(_ENCODE(HealthAnswer("ok")))

    async def _ready(self, call: Call) -> Answer:
        live = self.current.live
        if live is None:
            return Answer(_ENCODE(HealthAnswer("starting", problem=self.problem())), status=503, headers=BUSY)
        return Answer(_ENCODE(HealthAnswer("ready", live.version, self.problem())))

    async def _openapi(self, call: Call) -> Answer:
        from clickprism.serve.openapi import document

        return Answer(_ENCODE(document(self)))


def create_app(settings: ServeSettings) -> Service:
    """The service as an ASGI application."""
    return Service(settings)


def _always(answer: Answer) -> Handler:
    async def handler(_: Call) -> Answer:
        return answer

    return handler


def _model(role: str, live: Live) -> ModelAnswer:
    manifest, scorer = live.bundle.manifest, live.scorer
    return ModelAnswer(
        role=role,
        version=live.version,
        kind=scorer.kind,
        needs=sorted(scorer.needs),
        feature_names=list(scorer.feature_names),
        click_fields=list(scorer.click_fields),
        created=manifest.created,
        since=live.since.isoformat(timespec="milliseconds"),
        method=manifest.method,
        metrics=manifest.metrics,
        data=manifest.data,
    )
