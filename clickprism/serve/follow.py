"""Following a deployment: a new model is loaded and warmed beside the old one, then one reference changes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

from clickprism.errors import ClickprismError
from clickprism.serve.deployment import Deployment, current_bundle
from clickprism.serve.live import Live, go_live
from clickprism.serve.store import FeatureStore
from clickprism.serve.untrusted import verify_apart

RETRY: Final = 30.0
"""Seconds until a model that is broken is tried again, if the pointer does not change before."""


@final
class Follower:
    """Keeps the model of a bundle or a deployment.

    Attributes:
        live: the model that answers; None until the first is warm. Readers take it once for a request.
        problem: why what is pointed to is not served; None if it is.
    """

    def __init__(
        self,
        source: Path,
        store: Callable[[], FeatureStore | None],
        *,
        changed: Callable[[Follower], None] | None = None,
        rerank_depth: int | None = None,
    ) -> None:
        self.live: Live | None = None
        self.problem: str | None = None
        self._source = source
        self._store = store
        self._rerank_depth = rerank_depth
        self._changed = changed or (lambda _: None)
        self._seen: object = None
        self._verified: set[str] = set()
        self._again = 0.0

    def look(self) -> None:
        """See what is pointed to, and take it over if it is new; a broken one leaves the old where it is."""
        stamp = self._stamp()
        if stamp == self._seen and (self.problem is None or time.monotonic() < self._again):
            return
        self._seen = stamp
        try:
            bundle = current_bundle(self._source)
            if self._verified and bundle.version not in self._verified:  # the command has verified the first
                verify_apart(bundle.folder)
            live = go_live(self._source, self._store(), rerank_depth=self._rerank_depth)
            self._verified.add(live.version)
            self.live, self.problem = live, None
        except (ClickprismError, OSError) as error:
            self.problem = str(error)
        except Exception as error:  # whatever a library raises on a file, the old model answers
            self.problem = f"{type(error).__name__}: {error}"
        self._again = time.monotonic() + RETRY
        self._changed(self)

    def _stamp(self) -> object:
        try:
            about = os.stat(Deployment(self._source).pointer_file)
        except OSError:
            return "bundle"
        return about.st_mtime_ns, about.st_ino


@final
class Watch:
    """A thread that lets followers look, again and again."""

    def __init__(self, followers: Sequence[Follower], *, every: float) -> None:
        self._followers = tuple(followers)
        self._every = every
        self._stop = threading.Event()
        self._first = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clickprism-follow", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until every follower looked once, at most so long."""
        self._first.wait(seconds)

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            for follower in self._followers:
                follower.look()
            self._first.set()
            if self._stop.wait(self._every):
                return
