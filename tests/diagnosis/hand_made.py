"""A model of a log with values that are set by hand, to test what findings make of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from clickprism.log_model import results
from clickprism.log_model.model import LogModel

CURVE = results.Curve("model", np.array([1.0, 0.5, 0.25]), np.array([1.0, 0.4, 0.2]), np.array([1.0, 0.6, 0.3]))
POSITION = results.Test("position", "present", 0.375, 0.3, 0.45, "average observation", p_value=1e-9)
LINKAGE = results.Linkage(
    ("documents",) * 3, np.array([90.0, 90.0, 40.0]), np.zeros(3, dtype=np.int64), 8, 10, (2, 3, 40.0), ""
)
FITS = results.GoodnessOfFit(np.ones((3, 2)), np.zeros((3, 2)), ("1", "2-3"), 0.4, 0.0, True)
FEEDBACK = results.Feedback("absent", 0.3, 0.6)
AGREES = results.Agreement(CURVE, 0.5, True, 2, 1.02)


def relevance(rows: list[int], value: list[float], weight: list[float], impressions: list[float]) -> results.Relevance:
    """Relevance of pairs; what no finding reads is 0."""
    none = np.zeros(len(rows))
    return results.Relevance(
        np.array(rows), np.array(value), np.array(value), none, none, none, np.array(weight), none,
        np.full(len(rows), "clicks"), np.array(impressions), none,
    )  # fmt: skip


def hand_made(tests: dict[str, results.Test] | None = None, **values: Any) -> LogModel:
    """Return a model of three positions with position bias and nothing else, but for the values given."""
    fields: dict[str, Any] = {
        "curve": CURVE,
        "tests": {"position": POSITION, **(tests or {})},
        "linkage": LINKAGE,
        "fit_quality": FITS,
        "feedback": FEEDBACK,
        "references": {"allpairs": AGREES},
        "unsupported": {"randomised": "no position was randomised"},
        "relevance": relevance([0, 1], [0.5, 0.4], [50.0, 100.0], [100.0, 100.0]),
        "steepness": 0.0,
        **values,
    }
    return cast(LogModel, SimpleNamespace(**fields))
