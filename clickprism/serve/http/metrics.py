"""Metrics of the service for Prometheus, added up over its workers.

Each worker writes its values to files in a folder that all share (`PROMETHEUS_MULTIPROC_DIR`, which `clickprism serve`
creates); the worker that is asked adds them up. The values of a worker that was killed stay.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Final, final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
DIFFERENCES: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
SHARES: Final = (0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)


@final
class Metrics:
    """What is counted; docs/reference/serving.md lists the names."""

    def __init__(self) -> None:
        registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"clickprism_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"clickprism_{name}", text, labels, registry=registry, buckets=buckets)

        def gauge(name: str, text: str, *labels: str, mode: Any = "livesum") -> Gauge:
            return Gauge(f"clickprism_{name}", text, labels, registry=registry, multiprocess_mode=mode)

        self._registry = registry
        self._version: str | None = None
        requests = counter("requests", "Requests, by route and status", "route", "status")
        seconds = histogram("request_seconds", "Seconds to answer, by route", "route", buckets=SECONDS)
        self._requests = lru_cache(1000)(lambda route, status: requests.labels(route, str(status)))
        self._seconds = lru_cache(1000)(seconds.labels)
        self.documents = counter("documents", "Documents that were ranked")
        self.not_found = counter("documents_not_found", "Documents that the store does not have")
        self.stale = counter("stale_requests", "Requests answered with features that are too old")
        self.swaps = counter("model_swaps", "New models, by outcome", "outcome")
        self.problem = gauge("model_problem", "Workers whose deployment points to a model that cannot be served")
        self.ready = gauge("ready", "Workers that can rank")
        self._model = gauge("model", "Workers by model version", "version")
        self.age = gauge("feature_age_seconds", "Age of the features in the store", mode="livemostrecent")
        self.shadow = counter("shadow_requests", "Requests of the shadow model, by outcome", "outcome")
        self.shadow_differs = counter(
            "shadow_disagreements", "Requests that the shadow ranks differently: top, order", "what"
        )
        self.shadow_swapped = histogram(
            "shadow_swapped_pairs",
            "Share of the pairs of a request that the shadow orders differently; Kendall's tau is 1 - 2 x this",
            buckets=SHARES,
        )
        self.shadow_difference = histogram(
            "shadow_score_difference", "Mean absolute difference of the scores of a request", buckets=DIFFERENCES
        )

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests(route, status).inc()
        self._seconds(route).observe(seconds)

    def model(self, version: str) -> None:
        """Set the version of the model of this worker."""
        if self._version is not None:
            self._model.labels(self._version).set(0)
        self._version = version
        self._model.labels(version).set(1)
        self.ready.set(1)

    def text(self) -> bytes:
        """Return the metrics of all workers in the format of Prometheus."""
        return generate_latest(self._all())

    def value(self, name: str, **labels: str) -> float:
        """Return one value over all workers; 0 if nothing was counted."""
        return self._all().get_sample_value(name, labels) or 0.0

    def _all(self) -> CollectorRegistry:
        if FOLDER not in os.environ:
            return self._registry
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return registry
