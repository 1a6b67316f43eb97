"""Shadow mode: a second model scores each request after its answer is sent, and disagreements are counted."""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING, Final, final

import numpy as np

from clickprism.serve.http.messages import ShadowAnswer
from clickprism.serve.http.metrics import Metrics
from clickprism.serve.http.problems import Problem
from clickprism.serve.http.ranking import Inputs, look_up, order, score
from clickprism.serve.store.base import FeatureStore
from clickprism.types import Float64, Int64

if TYPE_CHECKING:
    from clickprism.serve.http.models import Follower

_LOG = logging.getLogger(__name__)

WAITING: Final = 256
"""Requests that wait for the shadow; more are dropped and counted, so that it never holds up an answer."""


@final
class Shadow:
    """Compares the ranking that was answered with that of a second model, in a thread of its own."""

    def __init__(self, follower: Follower, store: FeatureStore | None, metrics: Metrics) -> None:
        self._follower = follower
        self._store = store
        self._metrics = metrics
        self._queue: queue.Queue[tuple[Inputs, Float64, Int64] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name="clickprism-shadow", daemon=True)
        self._thread.start()

    def offer(self, inputs: Inputs, scores: Float64, ranking: Int64) -> None:
        """Take over a request that was answered; dropped if too many wait."""
        try:
            self._queue.put_nowait((inputs, scores, ranking))
        except queue.Full:
            self._metrics.shadow.labels("dropped").inc()

    def close(self) -> None:
        """Finish those that wait, then end."""
        self._queue.put(None)
        self._thread.join()

    def answer(self) -> ShadowAnswer:
        """The counts so far, over all workers."""
        value = self._metrics.value
        live = self._follower.live
        lists, requests = (
            value("clickprism_shadow_swapped_pairs_count"),
            value("clickprism_shadow_score_difference_count"),
        )
        return ShadowAnswer(
            version=live.version if live is not None else "",
            requests=int(value("clickprism_shadow_requests_total", outcome="scored")),
            dropped=int(value("clickprism_shadow_requests_total", outcome="dropped")),
            failed=int(value("clickprism_shadow_requests_total", outcome="failed")),
            top_differs=int(value("clickprism_shadow_disagreements_total", what="top")),
            order_differs=int(value("clickprism_shadow_disagreements_total", what="order")),
            mean_tau=1 - 2 * value("clickprism_shadow_swapped_pairs_sum") / lists if lists else None,
            mean_difference=value("clickprism_shadow_score_difference_sum") / requests if requests else None,
        )

    def _run(self) -> None:
        while (taken := self._queue.get()) is not None:
            try:
                self._compare(*taken)
            except Problem:
                self._metrics.shadow.labels("failed").inc()
            except Exception:
                self._metrics.shadow.labels("failed").inc()
                _LOG.exception("the shadow could not compare a request")

    def _compare(self, inputs: Inputs, scores: Float64, ranking: Int64) -> None:
        live = self._follower.live
        if live is None:
            raise Problem(503, "the shadow model is not loaded")
        known = inputs if inputs.found is not None else look_up(inputs.request, live, self._store)
        scored = score(known, live, explain=False)
        other = order(scored, live)
        apart = np.abs(scored.scores - scores)
        both = np.isfinite(apart)
        if both.any():
            self._metrics.shadow_difference.observe(float(apart[both].mean()))
        if other[0] != ranking[0]:
            self._metrics.shadow_differs.labels("top").inc()
        if not np.array_equal(other, ranking):
            self._metrics.shadow_differs.labels("order").inc()
        if len(ranking) > 1:
            self._metrics.shadow_swapped.observe(swapped_pairs(ranking, other))
        self._metrics.shadow.labels("scored").inc()  # last: a request that is counted has all its figures


def swapped_pairs(first: Int64, second: Int64) -> float:
    """The share of pairs that two orders of the same things order otherwise, [n] each, n > 1.

    >>> swapped_pairs(np.array([0, 1, 2]), np.array([0, 2, 1]))
    0.3333333333333333
    """
    count = len(first)
    place = np.empty(count, np.int64)
    place[second] = np.arange(count)
    seen = place[first]
    swapped = sum(int((seen[i + 1 :] < seen[i]).sum()) for i in range(count - 1))
    return 2 * swapped / (count * (count - 1))
