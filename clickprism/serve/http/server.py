"""Processes that listen: uvicorn's supervisor, which replaces workers that died, and workers that share a socket."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import Config
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from clickprism._util.tables import Table
from clickprism.errors import SettingError
from clickprism.serve.bundle.untrusted import verify_apart
from clickprism.serve.http.app import Service
from clickprism.serve.http.metrics import FOLDER
from clickprism.serve.http.models import Live, load
from clickprism.serve.http.protocol import Protocol
from clickprism.serve.http.request import read_tokens, write_line
from clickprism.serve.settings import TOKEN_VARIABLE, ServeSettings, check_token
from clickprism.serve.store.base import open_store

WAITING: Final = 1024
"""Connections that may wait to be taken."""
HUNG: Final = 60
"""Seconds after which a worker that does not answer its supervisor is replaced."""
LATEST: Final = 2.0
"""Seconds that a worker has to end, after the time for its requests."""
LOGGING: Final = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"lines": {"class": "clickprism.serve.http.request.JsonHandler"}},
    "loggers": {"uvicorn": {"handlers": ["lines"], "level": "ERROR", "propagate": False}},
    "root": {"handlers": ["lines"], "level": "WARNING"},
}


@final
@dataclass(frozen=True)
class Listening:
    """Where a service listens, and what it serves."""

    address: str  # Address for clients
    host: str  # Host that it listens on
    port: int  # Port that it listens on
    pid: int  # Process id of the supervisor; stop the service with SIGINT or SIGTERM
    version: str  # Version of the bundle
    kind: str  # Kind of the ranker
    token: str | None  # Token that was generated for this run; None if there is none, or if it was given
    rerank_depth: int | None = None  # Number of documents of a request that are re-ranked, from the first; None for all

    def tables(self) -> list[Table]:
        """Return the address and the bundle."""
        rows = [["bundle", f"version {self.version} ({self.kind})"], ["process", f"{self.pid}; Ctrl-C stops it"]]
        if self.rerank_depth is not None:
            rows.append(["re-ranks", f"only the first {self.rerank_depth:,} documents of a request"])
        if self.token is not None:
            rows.append(["token of this run", f"{self.token} (set {TOKEN_VARIABLE} to choose it)"])
        return [Table("", ["serving at", self.address], rows)]


def check(source: Path, settings: ServeSettings, *, token: str | None) -> Live:
    """Return the model to serve, after a check of all bundles, the store and the token."""
    if settings.token_file is None:
        check_token(token, host=settings.host)
    else:
        read_tokens(settings.token_file)
    with nullcontext() if settings.store is None else closing(open_store(settings.store)) as store:
        found = [load(each) for each in (source, settings.shadow, settings.interleave) if each]
        for bundle, _ in found:
            verify_apart(bundle.folder)
        models = [Live(*each, store, rerank_depth=settings.rerank_depth) for each in found]
    return models[0]


def run(
    source: Path,
    settings: ServeSettings,
    *,
    token: str | None,
    listening: Callable[[Listening], None],
    generated: bool = False,
    request_lines: bool = True,
    make: Callable[..., Service] = Service,
) -> None:
    """Serve until the process is asked to stop.

    Workers share the socket. One that dies is replaced; those that are asked to stop finish their requests.

    Args:
        source: a bundle, or a deployment whose current bundle is followed.
        settings: of the service.
        token: what requests must carry; None for no authentication.
        listening: receives the address once the service listens, and the token if it was `generated` for this run.
        generated: whether the token was generated for this run.
        request_lines: whether to write a line of JSON for every request.
        make: makes the application of a worker, in a fresh interpreter, from the arguments of `Service`.
    """
    live = check(source, settings, token=token)
    with _bound(settings) as sock, tempfile.TemporaryDirectory(prefix="clickprism-metrics-") as folder:
        os.environ[FOLDER] = folder
        host, port = sock.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        shown = token if generated else None
        about = Listening(address, host, port, os.getpid(), live.version, live.manifest.kind, shown, live.rerank_depth)
        config = Config(
            partial(worker, partial(make, source, settings, token=token, request_lines=request_lines)),
            factory=True,
            workers=settings.workers,
            timeout_worker_healthcheck=HUNG,
            loop="uvloop",
            http=Protocol,
            ws="none",
            lifespan="on",
            log_config=LOGGING,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=max(1, round(settings.drain)),
        )
        del live  # the supervisor needs no model
        workers = Workers(config, [sock])  # from here on, SIGINT and SIGTERM end the service in order
        listening(about)
        workers.run()


@final
class Workers(Multiprocess):
    """The processes that answer: one that dies is replaced, and all finish their requests when they are asked to."""

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died."""
        before = self.processes[:]
        super().keep_subprocess_alive()
        self._forget(before)

    def restart_all(self) -> None:
        """Replace all workers one after the other, on SIGHUP."""
        before = self.processes[:]
        super().restart_all()
        self._forget(before)

    def _forget(self, before: list[Process]) -> None:
        """Remove the gauges of workers that were replaced, and log those that died."""
        for process in set(before) - set(self.processes):
            mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
            if process.exitcode:
                line = {"level": "error", "event": "worker-died", "pid": process.pid}
                write_line(line, exit_code=process.exitcode)

    def join_all(self) -> None:
        """Wait for the workers to end; kill those that take longer than their requests may."""
        end = time.monotonic() + (self.config.timeout_graceful_shutdown or 0) + LATEST
        for each in self.processes:
            each.process.join(max(0.1, end - time.monotonic()))
            each.process.kill()
            each.process.join()


def worker(make: Callable[[], Service]) -> Service:
    """Return the application of this process, which ends when its supervisor does."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    service = make()
    gc.collect()
    gc.freeze()
    return service


def _end_with(sentinel: Any) -> None:
    multiprocessing.connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _bound(settings: ServeSettings) -> socket.socket:
    """Return a socket that listens: from now on a client waits for the first worker and is not turned away."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=WAITING)
    except OSError as error:
        where, reason = f"{settings.host}:{settings.port}", str(error.strerror).partition(" (while")[0]
        raise SettingError("port", where, f"be free to listen on ({reason}); --port 0 chooses a free port") from None
