"""All that a worker answers by: the current model, a shadow, a challenger, the store; loaded and followed beside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from clickprism.errors import ClickprismError
from clickprism.serve.answers import ModelAnswer, ModelsAnswer
from clickprism.serve.follow import Follower, Watch
from clickprism.serve.live import Live
from clickprism.serve.metrics import Metrics
from clickprism.serve.settings import ServeSettings
from clickprism.serve.shadow import Shadow
from clickprism.serve.store import FeatureStore, open_store


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
        self._watch = Watch(list(self._followers.values()), every=settings.follow_every)

    async def start(self) -> None:
        """Load and warm beside; go on when all are warm, or after `warm_wait` seconds."""
        self._watch.start()
        await asyncio.to_thread(self._watch.wait, self._settings.warm_wait)

    async def stop(self) -> None:
        """End what runs beside, and let go of the store."""
        await asyncio.to_thread(self._watch.stop)
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

    def stores(self, live: Live) -> bool:
        """Whether the store has the features of a model, so that a request need not give them."""
        try:
            return self.store is not None and live.columns(self.store.info.fields).features is not None
        except ClickprismError:
            return False

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
