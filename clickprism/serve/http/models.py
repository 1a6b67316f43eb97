"""The models of a worker: loaded, verified and warmed in a thread, followed, and swapped in one step."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from clickprism._util.files import stamp
from clickprism.data.encoding import Encoding
from clickprism.errors import ClickprismError, DataError
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.bundle.deployment import Deployment, Pointer
from clickprism.serve.bundle.rollout import rollout_folder
from clickprism.serve.bundle.untrusted import verify_apart
from clickprism.serve.http.messages import ModelAnswer, ModelsAnswer
from clickprism.serve.http.metrics import Metrics
from clickprism.serve.http.request import write_line
from clickprism.serve.http.shadow import Shadow
from clickprism.serve.scoring.evidence import FIELDS
from clickprism.serve.scoring.scorer import open_scorer
from clickprism.serve.settings import ServeSettings
from clickprism.serve.store.base import FeatureStore, open_store
from clickprism.types import Int64

FOLLOW_SECONDS: Final = 0.2  # between two looks for a newly promoted bundle
WARM_SECONDS: Final = 10.0  # until a worker listens without being ready
RETRY: Final = 30.0
"""Seconds until a broken model is tried again, if the pointer does not change before."""


@final
class Live:
    """A model that is verified and warm, with the version that every answer of it carries.

    A request takes one at its start and keeps it to its end, whatever is promoted meanwhile.
    """

    def __init__(
        self, bundle: Bundle, pointer: Pointer | None, store: FeatureStore | None, *, rerank_depth: int | None = None
    ) -> None:
        self.bundle, self.manifest, self.version, self.since = (
            bundle,
            bundle.manifest,
            bundle.version,
            datetime.now(UTC),
        )
        self.previous, self.share = ((), 1.0) if pointer is None else (pointer.previous, pointer.share)
        scope = self.manifest.scope
        self.rerank_depth = (scope and scope.rerank_depth) if rerank_depth is None else rerank_depth or None
        self.scorer = scorer = open_scorer(bundle)
        scorer.warm()
        self.needs_clicks, self.needs_features, self.needs_texts = (
            name in scorer.needs for name in ("clicks", "features", "texts")
        )
        apart = scorer.kind != "attention" and not self.manifest.within_list
        self.pointwise = scorer.needs == {"features"} and apart
        self.refuses_missing = self.manifest.missing == "refuse"
        self.evidence = self.manifest.evidence
        self.column = {name: place for place, name in enumerate(scorer.feature_names)}
        self.encoding, self.encoded = _encoding(bundle), dict[str, slice]()
        for feature in () if self.encoding is None else self.encoding.features:
            start = max((each.stop for each in self.encoded.values()), default=0)
            self.encoded[feature.name] = slice(start, start + len(feature.names))
        self._columns: tuple[tuple[str, ...], dict[str, slice | Int64 | None]] = ((), {})
        if self.needs_clicks:
            self._check_clicks(store)

    def _check_clicks(self, store: FeatureStore | None) -> None:
        file = self.bundle.folder
        if store is None:
            raise DataError("needs click vectors", file=file, remedy="Give the store that has them: --store")
        lacking = [name for name in self.scorer.click_fields if name not in store.info.fields]
        if lacking:
            problem = f"needs click fields that the store does not have: {', '.join(lacking[:5])}"
            raise DataError(problem, file=file, remedy="Publish them: clickprism store publish LOG --to STORE")

    def reranked(self, documents: int) -> int | None:
        """Return how many of these documents it re-ranks; None for all."""
        depth = self.rerank_depth
        return depth if depth is not None and depth < documents else None

    def columns(self, fields: tuple[str, ...]) -> dict[str, slice | Int64 | None]:
        """Return where a store has the features, the click vector and the evidence; None for what it lacks."""
        known, columns = self._columns
        if known is not fields:
            wanted = {"features": self.scorer.feature_names, "clicks": self.scorer.click_fields, "evidence": FIELDS}
            columns = {name: _columns(fields, names) for name, names in wanted.items()}
            self._columns = fields, columns
        return columns

    def answer(self, role: str) -> ModelAnswer:
        """Return the description of the model."""
        manifest, scorer = self.manifest, self.scorer
        return ModelAnswer(
            role,
            self.version,
            scorer.kind,
            sorted(scorer.needs),
            list(scorer.feature_names),
            list(scorer.click_fields),
            manifest.created,
            self.since.isoformat(timespec="milliseconds"),
            manifest.method,
            manifest.metrics,
            {name: value for name, value in manifest.data.items() if name != "encoding"},
            list(self.encoded) or None,
            self.rerank_depth,
        )


def load(source: Path) -> tuple[Bundle, Pointer | None]:
    """Return the bundle in a folder, or the current bundle of a deployment with its pointer."""
    deployment = Deployment(source)
    if not deployment.exists():
        return Bundle.load(source), None
    pointer = deployment.pointer()
    return deployment.bundle(pointer.version), pointer


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


def _columns(fields: tuple[str, ...], wanted: tuple[str, ...]) -> slice | Int64 | None:
    """Return the places of names among fields: a slice if they are side by side, None if one is missing.

    >>> _columns(("a", "b", "c"), ("b", "c")), _columns(("a", "b", "c"), ("c", "a")), _columns(("a",), ("b",))
    (slice(1, 3, None), array([2, 0]), None)
    """
    if not set(wanted) <= set(fields):
        return None
    found = np.array([fields.index(name) for name in wanted], np.int64)
    if len(found) and np.array_equal(found, np.arange(found[0], found[0] + len(found))):
        return slice(int(found[0]), int(found[0]) + len(found))
    return found


@final
class Follower:
    """Keeps the model of a bundle or a deployment."""

    def __init__(
        self,
        source: Path,
        store: Callable[[], FeatureStore | None],
        *,
        changed: Callable[[Follower], None] = lambda _: None,
        rerank_depth: int | None = None,
        optional: bool = False,
    ) -> None:
        self.live: Live | None = None  # the model that answers, once the first is warm
        self.problem: str | None = None  # why the model that is pointed to is not served
        self._source, self._store, self._changed = source, store, changed
        self._rerank_depth, self._optional = rerank_depth, optional
        self._seen: object = "nothing yet"
        self._verified: set[str] = set()
        self._again = 0.0

    def look(self) -> None:
        """Take over the model that is pointed to if it is new; if it is broken, keep the old one."""
        seen = stamp(Deployment(self._source).pointer_file)
        if seen == self._seen and (self.problem is None or time.monotonic() < self._again):
            return
        self._seen = seen
        if self._optional and seen is None:  # there is no rollout
            self.live = self.problem = None
            return
        try:
            bundle, pointer = load(self._source)
            if self._verified and bundle.version not in self._verified:  # the command has verified the first
                verify_apart(bundle.folder)
            live = Live(bundle, pointer, self._store(), rerank_depth=self._rerank_depth)
            self._verified.add(live.version)
            self.live, self.problem = live, None
        except (ClickprismError, OSError) as error:
            self.problem = str(error)
        except Exception as error:  # whatever a library raises on a file, the old model answers
            self.problem = f"{type(error).__name__}: {error}"
        self._again = time.monotonic() + RETRY
        self._changed(self)


@final
class Models:
    """The models and the store of a worker: the current one, one that is interleaved with it, and a shadow."""

    def __init__(self, source: Path, settings: ServeSettings, metrics: Metrics, *, log_swaps: bool) -> None:
        self._settings, self._metrics, self._log_swaps = settings, metrics, log_swaps
        self.current = self._follow(source, changed=self._swapped)
        self.challenger: Follower | None = None
        if settings.interleave is not None:
            self.challenger = self._follow(settings.interleave)
        elif Deployment(source).exists():
            self.challenger = self._follow(rollout_folder(Deployment(source)).folder, optional=True)
        self._shadowed = None if settings.shadow is None else self._follow(settings.shadow)
        self.shadow: Shadow | None = None
        self.store: FeatureStore | None = None
        named = {"current": self.current, "shadow": self._shadowed, "interleaved": self.challenger}
        self._followers = {role: follower for role, follower in named.items() if follower is not None}
        self._stopping, self.warm = threading.Event(), threading.Event()
        self._watch = threading.Thread(target=self._look, name="clickprism-follow", daemon=True)

    async def start(self) -> None:
        """Load and warm in a thread; go on when all are warm, or after `WARM_SECONDS`."""
        self._watch.start()
        await asyncio.to_thread(self.warm.wait, WARM_SECONDS)

    def _look(self) -> None:
        while not self._stopping.is_set():
            for follower in self._followers.values():
                follower.look()
            self.warm.set()
            self._stopping.wait(FOLLOW_SECONDS)

    async def stop(self) -> None:
        """End the threads, and close the store."""
        self._stopping.set()
        await asyncio.to_thread(self._watch.join)
        if self.shadow is not None:
            await asyncio.to_thread(self.shadow.close)
        if self.store is not None:
            self.store.close()

    def problem(self) -> str | None:
        """Return why a model that should be served is not, though requests may be answered by an older one."""
        return next((each.problem for each in self._followers.values() if each.problem is not None), None)

    def answer(self) -> ModelsAnswer:
        """Return a description of the loaded model."""
        live = self.current.live
        models = [each.live.answer(role) for role, each in self._followers.items() if each.live is not None]
        return ModelsAnswer(models, list(live.previous) if live else [], self.problem(), self.stored())

    def stored(self) -> dict[str, Any] | None:
        """Return a description of the store; None without a store."""
        if self.store is None:
            return None
        try:
            info = self.store.info
        except ClickprismError as error:
            return {"problem": str(error)}
        self._metrics.age.set(info.age())
        known = {"version": info.version, "as_of": info.as_of_text, "age": round(info.age(), 3)}
        known |= {"pairs": info.pairs, "fields": list(info.fields)}
        problem = self.store.problem
        return known if problem is None else known | {"problem": f"the newest version cannot be used: {problem}"}

    def _follow(self, source: Path, **more: Any) -> Follower:
        return Follower(source, self._opened, rerank_depth=self._settings.rerank_depth, **more)

    def _opened(self) -> FeatureStore | None:
        """Return the store, which is opened when it is first needed; only the thread that follows calls this."""
        if self.store is None and self._settings.store is not None:
            self.store = open_store(self._settings.store)
        if self.shadow is None and self._shadowed is not None:
            self.shadow = Shadow(self._shadowed, self.store, self._metrics)
        return self.store

    def _swapped(self, follower: Follower) -> None:
        version = None if follower.live is None else follower.live.version
        self._metrics.problem.set(follower.problem is not None)
        self._metrics.swaps.labels("failed" if follower.problem else "done").inc()
        if version is not None:
            self._metrics.model(version)
        if self._log_swaps or follower.problem is not None:
            write_line({"event": "model", "model_version": version, "problem": follower.problem})
