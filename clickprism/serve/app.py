"""The HTTP service as an ASGI application: routes, who may ask, limits, and how a request ends.

It is plain ASGI: a table of paths, one structure in and one out by msgspec, errors as problem+json. A request takes its
model once, at its start, so that its scores and its version are of one model whatever is promoted meanwhile.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, final

import msgspec

from clickprism.serve import call as http
from clickprism.serve.answers import HealthAnswer
from clickprism.serve.auth import Authority
from clickprism.serve.call import BUSY, Answer, Call, Gone
from clickprism.serve.intake import Intake
from clickprism.serve.lines import Lines
from clickprism.serve.metrics import CONTENT_TYPE, Metrics
from clickprism.serve.models import Models
from clickprism.serve.openapi import document
from clickprism.serve.page import page_files
from clickprism.serve.page.show import Page
from clickprism.serve.problems import CONTENT_TYPE as PROBLEM
from clickprism.serve.problems import Problem
from clickprism.serve.rank_route import RankRoute
from clickprism.serve.settings import ServeSettings
from clickprism.serve.store import SCHEMES

Handler = Callable[[Call], Awaitable[Answer]]
T = TypeVar("T")
UNSAID: Final = "a model that should be served is not; GET /v1/models says why"
"""To whoever has no token: the reason may name files and servers."""
ENCODE: Final = msgspec.json.Encoder().encode


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

    def __init__(self, source: Path, settings: ServeSettings, *, token: str | None, request_lines: bool) -> None:
        self.settings = settings
        self._token = token
        self.metrics = Metrics()
        self._lines = Lines(requests=request_lines)
        self.models = Models(source, settings, self.metrics, tell=self._lines.line, tell_swaps=request_lines)
        self._authority = Authority(token)
        self._ranking = RankRoute(settings, self.models, self.metrics)
        self._intake = None if settings.log is None else Intake(settings.log, settings)
        self._remote = settings.store is not None and settings.store.startswith(SCHEMES)
        self._waiting = 0
        self.routes: dict[str, Route] = self._routes()

    def _routes(self) -> dict[str, Route]:
        routes = {
            "/v1/rank": Route("rank", {"POST": self._ranking.take}),
            "/v1/events": Route("events", {"POST": self._events}),
            "/v1/models": Route("models", {"GET": self._models}),
            "/v1/shadow": Route("shadow", {"GET": self._shadow}),
            "/metrics": Route("metrics", {"GET": self._metrics}),
            "/healthz": Route("healthz", {"GET": self._healthy}, open=True),
            "/readyz": Route("readyz", {"GET": self._ready}, open=True),
            "/openapi.json": Route("openapi", {"GET": self._openapi}, open=True),
        }
        page = Page(self.settings, self.models, token=self._token)
        routes["/"] = Route("page", {"GET": page.show}, open=True)
        routes["/session"] = Route("page", {"POST": page.enter}, open=True)
        routes["/session/end"] = Route("page", {"POST": page.leave}, open=True)
        for path, answer in page_files().items():
            routes[path] = Route("page", {"GET": _always(answer)}, open=True)
        return routes

    async def start(self) -> None:
        """Load and warm the models beside; go on when they are warm, or after `warm_wait` seconds."""
        if self._intake is not None:
            self._intake.start()
        await self.models.start()

    async def stop(self) -> None:
        """End what runs beside, after the last request."""
        await asyncio.to_thread(self._ranking.close)
        if self._intake is not None:
            await asyncio.to_thread(self._intake.close)
        await self.models.stop()

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
        if call.hosts != 1:
            raise Problem(400, f"the request has {call.hosts} Host headers, not one", kind="malformed")
        self._authority.check_host(call.headers[b"host"])
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

    async def _events(self, call: Call) -> Answer:
        if self._intake is None:
            raise Problem(404, "this service takes no events: it was started without --log", kind="no-events")
        return Answer(ENCODE(await self._intake.take(call)))

    async def _models(self, call: Call) -> Answer:
        return Answer(ENCODE(await self._asking(self.models.answer)))

    async def _shadow(self, call: Call) -> Answer:
        if self.models.shadow is None:
            raise Problem(404, "this service has no shadow: it was started without --shadow", kind="no-shadow")
        return Answer(ENCODE(self.models.shadow.answer()))

    async def _metrics(self, call: Call) -> Answer:
        await self._asking(self.models.stored)
        return Answer(self.metrics.text(), CONTENT_TYPE)

    async def _healthy(self, call: Call) -> Answer:
        return Answer(ENCODE(HealthAnswer("ok")))

    async def _ready(self, call: Call) -> Answer:
        live = self.models.current.live
        problem = None if self.models.problem() is None else UNSAID
        if live is None:
            return Answer(ENCODE(HealthAnswer("starting", problem=problem)), status=503, headers=BUSY)
        return Answer(ENCODE(HealthAnswer("ready", live.version, problem)))

    async def _openapi(self, call: Call) -> Answer:
        return Answer(
            ENCODE(await self._asking(lambda: document(self.settings, self.models, token=self._token is not None)))
        )

    async def _asking(self, work: Callable[[], T]) -> T:
        """Do what asks the store: in a thread where that goes over the network, so that no other request waits."""
        return await asyncio.to_thread(work) if self._remote else work()


def create_app(
    source: Path, settings: ServeSettings, *, token: str | None = None, request_lines: bool = True
) -> Service:
    """Return the service as an ASGI application.

    Args:
        source: a bundle, or a deployment whose current bundle is followed.
        settings: of the service.
        token: what requests must carry as `Authorization: Bearer ...`; None for no authentication.
        request_lines: whether to write a line of JSON for every request.
    """
    return Service(source, settings, token=token, request_lines=request_lines)


def _always(answer: Answer) -> Handler:
    async def handler(_: Call) -> Answer:
        return answer

    return handler
