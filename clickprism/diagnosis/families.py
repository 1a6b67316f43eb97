"""Which family of click models foretells held-out sessions best: by position alone, or heeding the clicks above."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from clickprism.diagnosis.clusters import NORMAL_95, by_query, queries_of
from clickprism.errors import DataError
from clickprism.types import Clicks, Float64, Int64

HELD_OUT: Final = 0.25
BASE: Final = "pbm"


@final
@dataclass(frozen=True)
class Families:
    """Held-out log-likelihood of click models, less that of the position-based one, in nats a session.

    Attributes:
        sessions: that were held out.
        gain: by model; 0 of the position-based one.
        interval: of each gain, 95%, by the spread over queries.
        best: the model with the highest likelihood.
    """

    sessions: int
    gain: dict[str, float]
    interval: dict[str, tuple[float, float]]
    best: str

    @property
    def sentence(self) -> str:
        """Who foretold best, in words."""
        if self.best == BASE:
            return "Of the click models, the position-based one foretold held-out sessions best."
        gain, (low, high) = self.gain[self.best], self.interval[self.best]
        return (
            f"Of the click models {self.best} foretold held-out sessions best"
            f" ({gain:+.4f} nats a session over the position-based one, {low:+.4f} to {high:+.4f})."
        )


def compare_families(clicks: Clicks, *, names: tuple[str, ...], most_sessions: int, seed: int) -> Families | None:
    """Fit models to three quarters of the sessions of each query, and see how probable they find the rest.

    Documents are known from the sessions that are fitted, so that all models are asked about the same pairs. None where
    no session is left to ask about, or there are no models.
    """
    from clickprism.observation.click_models import click_model

    if not names:
        return None
    rng = np.random.default_rng(seed)
    kept = rng.binomial(clicks.impressions, min(1.0, most_sessions / clicks.sessions))
    held = rng.binomial(kept, HELD_OUT)
    fitted, asked = thinned(clicks, (kept - held).astype(np.int64)), thinned(clicks, held.astype(np.int64))
    if len(fitted) == 0 or len(asked) == 0:
        return None
    likelihood: dict[str, Float64] = {}
    for name in names:
        settings = {} if name in ("cascade", "dcm") else {"tolerance": 1e-3, "max_iterations": 100}
        try:
            likelihood[name] = click_model(name, **settings).fit(fitted).log_likelihood(asked)
        except DataError:
            continue
    if BASE not in likelihood:
        return None
    query, sessions = queries_of(asked)[asked.offsets[:-1]], asked.sessions
    gain, interval = {BASE: 0.0}, {BASE: (0.0, 0.0)}
    for name, values in likelihood.items():
        scores = by_query(query, values - likelihood[BASE])[:, 0]
        gain[name] = float(scores.sum()) / sessions
        mean = scores.mean()
        error = NORMAL_95 * float(np.sqrt(((scores - mean) ** 2).sum())) / sessions
        interval[name] = (gain[name] - error, gain[name] + error)
    return Families(sessions, gain, interval, max(gain, key=lambda name: gain[name]))


def thinned(clicks: Clicks, impressions: Int64) -> Clicks:
    """So many of the sessions of each ranked list, of a log merged by pattern."""
    left = np.flatnonzero(impressions > 0)
    part, size = clicks.take(left), impressions[left]
    shown = np.repeat(size, np.diff(part.offsets))
    return replace(part, impressions=size, clicks=np.where(part.clicks > 0, shown, 0), seen=None)
