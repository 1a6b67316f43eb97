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
"""Requests that wait for the shadow; more are dropped and counted, so that it never delays an answer."""


@final
class Shadow:
    """Compares the ranking that was answered with that of a second model, in a separate thread."""

    def __init__(self, follower: Follower, store: FeatureStore | None, metrics: Metrics) -> None:
        self._follower, self._store, self._metrics = follower, store, metrics
        self._queue: queue.Queue[tuple[Inputs, Float64, Int64] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name="clickprism-shadow", daemon=True)
        self._thread.start()

    def offer(self, inputs: Inputs, scores: Float64, ranking: Int64) -> None:
        """Take over a request that was answered; drop it if too many wait."""
        try:
            self._queue.put_nowait((inputs, scores, ranking))
        except queue.Full:
            self._metrics.shadow.labels("dropped").inc()

    def close(self) -> None:
        """Finish the requests that wait, then end."""
        self._queue.put(None)
        self._thread.join()

    def answer(self) -> ShadowAnswer:
        """Return the counts so far, over all workers."""
        value, live = self._metrics.value, self._follower.live
        lists = value("clickprism_shadow_swapped_pairs_count")
        requests = value("clickprism_shadow_score_difference_count")
        scored, dropped, failed = (
            int(value("clickprism_shadow_requests_total", outcome=name)) for name in ("scored", "dropped", "failed")
        )
        top, order = (int(value("clickprism_shadow_disagreements_total", what=name)) for name in ("top", "order"))
        return ShadowAnswer(
            version="" if live is None else live.version,
            requests=scored,
            dropped=dropped,
            failed=failed,
            top_differs=top,
            order_differs=order,
            mean_tau=1 - 2 * value("clickprism_shadow_swapped_pairs_sum") / lists if lists else None,
            mean_difference=value("clickprism_shadow_score_difference_sum") / requests if requests else None,
        )

    def _run(self) -> None:
        while (taken := self._queue.get()) is not None:
            try:
                self._compare(*taken)
            except Exception as error:
                self._metrics.shadow.labels("failed").inc()
                if not isinstance(error, Problem):
                    _LOG.exception("the shadow could not compare a request")

    def _compare(self, inputs: Inputs, scores: Float64, ranking: Int64) -> None:
        live = self._follower.live
        if live is None:
            raise Problem(503, "the shadow model is not loaded")
        known = inputs if inputs.found is not None else look_up(inputs.request, live, self._store)
        scored = score(known, live, explain=False)
        other = order(scored.scores, live.rerank_depth)
        difference = np.abs(scored.scores - scores)
        both = np.isfinite(difference)
        if both.any():
            self._metrics.shadow_difference.observe(float(difference[both].mean()))
        if other[0] != ranking[0]:
            self._metrics.shadow_differs.labels("top").inc()
        if not np.array_equal(other, ranking):
            self._metrics.shadow_differs.labels("order").inc()
        if len(ranking) > 1:
            self._metrics.shadow_swapped.observe(swapped_pairs(ranking, other))
        self._metrics.shadow.labels("scored").inc()  # last: a request that is counted has all its values


def swapped_pairs(first: Int64, second: Int64) -> float:
    """Return the share of pairs that two orders of the same things order differently, [n] each, n > 1.

    >>> swapped_pairs(np.array([0, 1, 2]), np.array([0, 2, 1]))
    0.3333333333333333
    """
    count = len(first)
    ranks = np.argsort(second)[first]
    return float(np.triu(ranks[:, None] > ranks[None, :]).sum()) * 2 / (count * (count - 1))
