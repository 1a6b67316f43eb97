"""Figures of the service for Prometheus, right over several workers.

Workers write theirs into files of a folder that they share (`PROMETHEUS_MULTIPROC_DIR`, which `clickprism serve` makes
before it starts them), and whichever is asked adds them up; so the figures of a worker that was killed stay.
"""

from __future__ import annotations

import os
from typing import Final, final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
DIFFERENCES: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
SHARES: Final = (0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)


@final
class Metrics:
    """What is counted; the names stand in docs/serving.md."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self._requests = Counter(
            "clickprism_requests", "Requests, by route and status", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "clickprism_request_seconds", "Seconds to answer, by route", ["route"], registry=registry, buckets=SECONDS
        )
        self._by_status: dict[tuple[str, int], Counter] = {}
        self._by_route: dict[str, Histogram] = {}
        self.documents = Counter("clickprism_documents", "Documents that were ranked", registry=registry)
        self.not_found = Counter(
            "clickprism_documents_not_found", "Documents that the store does not have", registry=registry
        )
        self.stale = Counter("clickprism_stale_requests", "Requests by features that are too old", registry=registry)
        self.swaps = Counter("clickprism_model_swaps", "New models, by outcome", ["outcome"], registry=registry)
        self.problem = Gauge(
            "clickprism_model_problem",
            "Workers whose deployment points to a model that cannot be served",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.ready = Gauge("clickprism_ready", "Workers that can rank", registry=registry, multiprocess_mode="livesum")
        self._model = Gauge(
            "clickprism_model",
            "Workers that answer by a model, by its version",
            ["version"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.age = Gauge(
            "clickprism_feature_age_seconds",
            "Age of what the store has",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self.shadow = Counter(
            "clickprism_shadow_requests", "Requests that the shadow took, by outcome", ["outcome"], registry=registry
        )
        self.shadow_differs = Counter(
            "clickprism_shadow_disagreements",
            "Requests that the shadow ranks otherwise: top, order",
            ["what"],
            registry=registry,
        )
        self.shadow_swapped = Histogram(
            "clickprism_shadow_swapped_pairs",
            "Share of the pairs of a request that the shadow orders otherwise; Kendall's tau is 1 - 2 x this",
            registry=registry,
            buckets=SHARES,
        )
        self.shadow_difference = Histogram(
            "clickprism_shadow_score_difference",
            "Mean absolute difference of the scores of a request",
            registry=registry,
            buckets=DIFFERENCES,
        )
        self._version: str | None = None

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        counter = self._by_status.get((route, status))
        if counter is None:
            counter = self._by_status[route, status] = self._requests.labels(route, str(status))
        counter.inc()
        histogram = self._by_route.get(route)
        if histogram is None:
            histogram = self._by_route[route] = self._seconds.labels(route)
        histogram.observe(seconds)

    def model(self, version: str) -> None:
        """Say by which model this worker answers from now on."""
        if self._version is not None:
            self._model.labels(self._version).set(0)
        self._version = version
        self._model.labels(version).set(1)
        self.ready.set(1)

    def text(self) -> bytes:
        """All figures of all workers, as Prometheus reads them."""
        return generate_latest(self._all())

    def value(self, name: str, **labels: str) -> float:
        """One figure over all workers; 0 where nothing was counted."""
        return self._all().get_sample_value(name, labels) or 0.0

    def _all(self) -> CollectorRegistry:
        if FOLDER not in os.environ:
            return self._registry
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return registry
