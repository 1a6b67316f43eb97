"""The models of a worker: loaded, verified and warmed in a thread, followed, and swapped in one step."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from clickprism.data.encoding import Encoding
from clickprism.errors import ClickprismError, DataError
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.bundle.deployment import Deployment, current_bundle, warmed
from clickprism.serve.bundle.untrusted import verify_apart
from clickprism.serve.http.messages import ModelAnswer, ModelsAnswer
from clickprism.serve.http.metrics import Metrics
from clickprism.serve.http.shadow import Shadow
from clickprism.serve.scoring.evidence import FIELDS
from clickprism.serve.scoring.scorer import Scorer
from clickprism.serve.settings import ServeSettings
from clickprism.serve.store.base import FeatureStore, open_store
from clickprism.types import Int64


@final
@dataclass(frozen=True, eq=False)
class Columns:
    """Where a store's rows have the features, the click vector and the evidence; None where the store lacks some."""

    features: slice | Int64 | None
    clicks: slice | Int64 | None
    evidence: slice | Int64 | None = None


@final
class Live:
    """A model that is verified and warm, with the version that every answer of it carries.

    A request takes one at its start and keeps it to its end, whatever is promoted meanwhile.

    Attributes:
        rerank_depth: number of documents of a request that it re-ranks; None for all.
    """

    def __init__(
        self, bundle: Bundle, scorer: Scorer, *, previous: tuple[str, ...] = (), rerank_depth: int | None = None
    ) -> None:
        self.bundle = bundle
        self.scorer = scorer
        self.version = bundle.version
        self.since = datetime.now(UTC)
        self.previous = previous
        self.rerank_depth = rerank_depth
        self.needs_clicks = "clicks" in scorer.needs
        self.needs_features = "features" in scorer.needs
        self.needs_texts = "texts" in scorer.needs
        self.column = {name: place for place, name in enumerate(scorer.feature_names)}
        self.evidence = bundle.manifest.evidence
        self.encoding = _encoding(bundle)
        self.encoded: dict[str, slice] = {}
        for feature in () if self.encoding is None else self.encoding.features:
            start = max((each.stop for each in self.encoded.values()), default=0)
            self.encoded[feature.name] = slice(start, start + len(feature.names))
        self.refuses_missing = bundle.manifest.missing == "refuse"
        self._columns: tuple[tuple[str, ...], Columns] = ((), Columns(None, None))

    def reranked(self, documents: int) -> int | None:
        """Return how many of these documents it re-ranks; None for all."""
        depth = self.rerank_depth
        return depth if depth is not None and depth < documents else None

    def columns(self, fields: tuple[str, ...]) -> Columns:
        """The columns among these fields, found once for each snapshot."""
        known, columns = self._columns
        if known is not fields:
            wanted = (self.scorer.feature_names, self.scorer.click_fields, FIELDS)
            columns = Columns(*(_columns(fields, names) for names in wanted))
            self._columns = (fields, columns)
        return columns


def _encoding(bundle: Bundle) -> Encoding | None:
    """Return how training encoded the features, if it did and the ranker takes the encoded columns."""
    plain = bundle.manifest.data.get("encoding")
    if plain is None:
        return None
    try:
        encoding = Encoding.of_plain(plain)
    except (DataError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"has an encoding of features that cannot be read ({error})", file=bundle.folder) from None
    return encoding if encoding.names == bundle.manifest.feature_names else None


def enforced_depth(bundle: Bundle, setting: int | None) -> int | None:
    """Return how many documents of a request are re-ranked, None for all: the setting, or the scope of the bundle."""
    if setting is not None:
        return setting or None
    scope = bundle.manifest.scope
    return None if scope is None else scope.rerank_depth


def go_live(source: Path, store: FeatureStore | None, *, rerank_depth: int | None = None) -> Live:
    """Load a bundle, or the current one of a deployment; verify it, warm it, see that the store has its clicks.

    Args:
        source: a bundle or a deployment.
        store: where the click vectors are.
        rerank_depth: that of `ServeSettings`: None takes the scope of the bundle, 0 is no limit.
    """
    deployment = Deployment(source)
    pointer = deployment.pointer() if deployment.exists() else None
    bundle = Bundle.load(source) if pointer is None else deployment.bundle(pointer.version)
    previous, depth = pointer.previous if pointer else (), enforced_depth(bundle, rerank_depth)
    live = Live(bundle, warmed(bundle), previous=previous, rerank_depth=depth)
    if live.needs_clicks:
        if store is None:
            raise DataError("needs click vectors", file=source, remedy="Give the store that has them: --store")
        lacking = [name for name in live.scorer.click_fields if name not in store.info.fields]
        if lacking:
            problem = f"needs click fields that the store does not have: {', '.join(lacking[:5])}"
            raise DataError(problem, file=source, remedy="Publish them: clickprism store publish LOG --to STORE")
    return live


def _columns(fields: tuple[str, ...], wanted: tuple[str, ...]) -> slice | Int64 | None:
    """The places of names among fields: a slice where they are side by side, None where one is missing.

    >>> _columns(("a", "b", "c"), ("b", "c")), _columns(("a", "b", "c"), ("c", "a")), _columns(("a",), ("b",))
    (slice(1, 3, None), array([2, 0]), None)
    """
    places = {name: place for place, name in enumerate(fields)}
    if not all(name in places for name in wanted):
        return None
    found = np.array([places[name] for name in wanted], np.int64)
    if len(found) and np.array_equal(found, np.arange(found[0], found[0] + len(found))):
        return slice(int(found[0]), int(found[0]) + len(found))
    return found


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
class Models:
    """The models and the store of a worker.

    Attributes:
        current: whose ranking is answered.
        challenger: whose ranking is interleaved with it, if one is.
        shadow: that scores after the answer, if one does.
        store: None until it is open, or where there is none.
    """

    def __init__(
        self,
        source: Path,
        settings: ServeSettings,
        metrics: Metrics,
        *,
        tell: Callable[[dict[str, Any]], None],
        tell_swaps: bool,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._tell = tell
        self._tell_swaps = tell_swaps
        self.current = self._follow(source, changed=self._swapped)
        self.challenger = None if settings.interleave is None else self._follow(settings.interleave)
        self._shadowed = None if settings.shadow is None else self._follow(settings.shadow)
        self.shadow: Shadow | None = None
        self.store: FeatureStore | None = None
        named = {"current": self.current, "shadow": self._shadowed, "interleaved": self.challenger}
        self._followers = {role: follower for role, follower in named.items() if follower is not None}
        self._stopping, self._looked = threading.Event(), threading.Event()
        self._watch = threading.Thread(target=self._look, name="clickprism-follow", daemon=True)

    async def start(self) -> None:
        """Load and warm beside; go on when all are warm, or after `warm_wait` seconds."""
        self._watch.start()
        await asyncio.to_thread(self._looked.wait, self._settings.warm_wait)

    def _look(self) -> None:
        """Let all followers look, again and again."""
        while not self._stopping.is_set():
            for follower in self._followers.values():
                follower.look()
            self._looked.set()
            self._stopping.wait(self._settings.follow_every)

    async def stop(self) -> None:
        """End what runs beside, and let go of the store."""
        self._stopping.set()
        await asyncio.to_thread(self._watch.join)
        if self.shadow is not None:
            await asyncio.to_thread(self.shadow.close)
        if self.store is not None:
            self.store.close()

    def problem(self) -> str | None:
        """What is wrong with a model that should be served, though requests may be answered by an older one."""
        return next((each.problem for each in self._followers.values() if each.problem is not None), None)

    def answer(self) -> ModelsAnswer:
        """What is loaded."""
        live = self.current.live
        models = [_model(role, each.live) for role, each in self._followers.items() if each.live is not None]
        return ModelsAnswer(models, list(live.previous) if live else [], self.problem(), self.stored())

    def stored(self) -> dict[str, Any] | None:
        """What the store has; None without one."""
        if self.store is None:
            return None
        try:
            info = self.store.info
        except ClickprismError as error:
            return {"problem": str(error)}
        self._metrics.age.set(info.age())
        told = {"version": info.version, "as_of": f"{info.as_of.isoformat()}Z", "age": round(info.age(), 3)}
        return told | {"pairs": info.pairs, "fields": list(info.fields)}

    def _follow(self, source: Path, *, changed: Callable[[Follower], None] | None = None) -> Follower:
        return Follower(source, self._opened, changed=changed, rerank_depth=self._settings.rerank_depth)

    def _opened(self) -> FeatureStore | None:
        """The store, opened when it is first needed; only the thread that follows calls this."""
        if self.store is None and self._settings.store is not None:
            self.store = open_store(self._settings.store)
        if self.shadow is None and self._shadowed is not None:
            self.shadow = Shadow(self._shadowed, self.store, self._metrics)
        return self.store

    def _swapped(self, follower: Follower) -> None:
        self._metrics.problem.set(follower.problem is not None)
        self._metrics.swaps.labels("failed" if follower.problem else "done").inc()
        if follower.live is not None:
            self._metrics.model(follower.live.version)
        if self._tell_swaps or follower.problem is not None:
            version = follower.live.version if follower.live else None
            self._tell({"event": "model", "model_version": version, "problem": follower.problem})


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
        rerank_depth=live.rerank_depth,
    )
