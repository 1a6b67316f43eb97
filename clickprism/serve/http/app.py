"""The HTTP service as an ASGI application: routes, guards, lifespan.

Starlette finds the route. Each route is an `Endpoint`, which checks who asks, calls the handler, and writes errors as
problem+json, the log line and the metrics. A request takes its model once, at its start, so its scores and its version
are of one model whatever is promoted meanwhile.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from clickprism.serve.http.events import Intake
from clickprism.serve.http.messages import HealthAnswer, document
from clickprism.serve.http.metrics import CONTENT_TYPE as METRICS
from clickprism.serve.http.metrics import Metrics
from clickprism.serve.http.models import Models
from clickprism.serve.http.problems import CONTENT_TYPE as PROBLEM
from clickprism.serve.http.problems import Problem
from clickprism.serve.http.ranking import RankRoute
from clickprism.serve.http.request import BUSY, Answer, Call, Guard, write_line
from clickprism.serve.page.page import Page, page_files
from clickprism.serve.settings import ServeSettings
from clickprism.serve.store.base import is_remote

Handler = Callable[[Call], Awaitable[Answer]]
T = TypeVar("T")
NOT_SERVED: Final = "a model that should be served is not; GET /v1/models says why"
"""To clients without a token: the reason may name files and servers."""
ENCODE: Final = msgspec.json.Encoder().encode


@final
class Service:
    """The application; `start` and `stop` are its lifespan.

    It serves a bundle, or follows the current bundle of a deployment. Without a token, and a file of tokens in the
    settings, requests need none.
    """

    def __init__(self, source: Path, settings: ServeSettings, *, token: str | None, request_lines: bool = True) -> None:
        self.settings, self.request_lines = settings, request_lines
        self.metrics = Metrics()
        self.models = Models(source, settings, self.metrics, log_swaps=request_lines)
        self.waiting = 0
        self.guard = Guard(token, settings.token_file)
        self._ranking = RankRoute(settings, self.models, self.metrics)
        self._intake = None if settings.log is None else Intake(settings.log, settings)
        self._remote = is_remote(settings.store)
        page = Page(settings, self.models, self.guard)
        self.router = Router(redirect_slashes=False, default=Endpoint(self, "none", {}), lifespan=self._lifespan)
        self.add("/v1/rank", "rank", POST=self._ranking.take)
        self.add("/v1/events", "events", POST=self._events)
        self.add("/v1/models", "models", GET=self._models)
        self.add("/v1/shadow", "shadow", GET=self._shadow)
        self.add("/metrics", "metrics", GET=self._metrics)
        self.add("/healthz", "healthz", open_to_all=True, GET=_always(Answer(ENCODE(HealthAnswer("ok")))))
        self.add("/readyz", "readyz", open_to_all=True, GET=self._ready)
        openapi = Answer(ENCODE(document(settings, token=self.guard.needs_token)))
        self.add("/openapi.json", "openapi", open_to_all=True, GET=_always(openapi))
        self.add("/", "page", open_to_all=True, GET=page.show)
        self.add("/session", "page", open_to_all=True, POST=page.enter)
        self.add("/session/end", "page", open_to_all=True, POST=page.leave)
        for path, answer in page_files().items():
            self.add(path, "page", open_to_all=True, GET=_always(answer))

    def add(self, path: str, label: str, *, open_to_all: bool = False, **handlers: Handler) -> None:
        """Answer requests to a path by these handlers, by method; `label` is its name in the metrics."""
        self.router.routes.append(Route(path, Endpoint(self, label, handlers, open_to_all=open_to_all)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the lifespan."""
        await self.router(scope, receive, send)

    async def start(self) -> None:
        """Load and warm the models in a thread; go on when they are warm, or after some seconds."""
        if self._intake is not None:
            self._intake.start()
        await self.models.start()

    async def stop(self) -> None:
        """End all threads, after the last request."""
        await asyncio.to_thread(self._ranking.close)
        if self._intake is not None:
            await asyncio.to_thread(self._intake.close)
        await self.models.stop()

    @asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        await self.start()
        yield
        await self.stop()

    async def _events(self, call: Call) -> Answer:
        if self._intake is None:
            raise Problem(404, "this service takes no events: it was started without --log", kind="no-events")
        return Answer(ENCODE(await self._intake.take(call)), status=202)

    async def _models(self, _: Call) -> Answer:
        return Answer(ENCODE(await self._asking(self.models.answer)))

    async def _shadow(self, _: Call) -> Answer:
        if self.models.shadow is None:
            raise Problem(404, "this service has no shadow: it was started without --shadow", kind="no-shadow")
        return Answer(ENCODE(self.models.shadow.answer()))

    async def _metrics(self, _: Call) -> Answer:
        await self._asking(self.models.stored)
        return Answer(self.metrics.text(), METRICS)

    async def _ready(self, _: Call) -> Answer:
        live, problem = self.models.current.live, None if self.models.problem() is None else NOT_SERVED
        if live is None:
            return Answer(ENCODE(HealthAnswer("starting", problem=problem)), status=503, headers=BUSY)
        return Answer(ENCODE(HealthAnswer("ready", live.version, problem)))

    async def _asking(self, work: Callable[[], T]) -> T:
        """Call what asks the store: in a thread if that goes over the network, so that no other request waits."""
        return await asyncio.to_thread(work) if self._remote else work()


@final
class Endpoint:
    """Handlers of one path by HTTP method, with guards, log line and metrics."""

    def __init__(
        self, service: Service, label: str, handlers: Mapping[str, Handler], *, open_to_all: bool = False
    ) -> None:
        self._service, self._label, self._handlers, self._open = service, label, handlers, open_to_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        service, call = self._service, Call(scope, receive)
        service.waiting += 1
        try:
            answer = await self._answer(call)
        except Problem as problem:
            answer = Answer(problem.body(call.request_id), PROBLEM, problem.status, problem.headers)
            call.notes["problem"] = problem.kind
        except ClientDisconnect:
            call.notes["problem"] = "gone"
            self._end(call, 499)
            return
        except Exception:
            write_line({"level": "error", "request_id": call.request_id, "error": traceback.format_exc()})
            failure = Problem(500, "an error of the service; its log says more under this request_id", kind="internal")
            answer = Answer(failure.body(call.request_id), PROBLEM, 500)
        finally:
            service.waiting -= 1
        await call.send(answer, send)
        self._end(call, answer.status)

    async def _answer(self, call: Call) -> Answer:
        service = self._service
        if service.waiting > service.settings.max_waiting:
            raise Problem(503, "too many requests are under way", kind="busy", headers=BUSY)
        service.guard.check_host(call)
        if not self._open:
            service.guard.check_token(call.fields.get(b"authorization"))
        if not self._handlers:
            raise Problem(404, "there is nothing at this path; /openapi.json lists what there is", kind="no-such-path")
        handler = self._handlers.get("GET" if call.method == "HEAD" else call.method)
        if handler is None:
            allowed = ", ".join(self._handlers)
            header = ((b"allow", allowed.encode()),)
            raise Problem(405, f"the path takes {allowed} only", kind="method", headers=header)
        return await handler(call)

    def _end(self, call: Call, status: int) -> None:
        if call.after is not None:
            call.after()
        seconds = time.perf_counter() - call.started
        self._service.metrics.request(self._label, status, seconds)
        if self._service.request_lines or status >= 500:
            line = {"request_id": call.request_id, "method": call.method, "path": call.scope["path"][:200]}
            write_line(line, status=status, ms=round(seconds * 1000, 3), **call.notes)


def _always(answer: Answer) -> Handler:
    async def handler(_: Call) -> Answer:
        return answer

    return handler
