"""Whether a log can tell what a position does at all: the positions that matter must be linked by documents."""

from __future__ import annotations

from typing import Final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.graph import graph_of
from clickprism.observation.bootstrap import DEEPEST
from clickprism.observation.counts import count

RARE: Final = 0.02  # of the impressions of the position shown most: below it, a position does not matter
REMEDY: Final = (
    "Swap documents between positions in some searches: the finding on identifiability says which, how often."
)


def missing(logged: Logged) -> tuple[str, str] | None:
    """Why nothing can be told of positions, and what to do; None if they are linked."""
    clicks = logged.clicks
    if len(logged) == 0 or int(clicks.clicks.sum()) == 0 or clicks.weights is not None:
        return "The log has no clicks as they were made.", "Give raw clicks on what was shown."
    if clicks.max_position < 2:
        return "The log has one position only.", "Log whole pages."
    if clicks.max_position > DEEPEST:
        return f"The log goes deeper than {DEEPEST} positions.", f"Cut it, such as to {DEEPEST} positions."
    shown = np.bincount(clicks.positions - 1, weights=clicks.list_impressions)
    group = graph_of(count(clicks)).groups(0.0)[shown >= RARE * shown.max()]
    if group.max() > group.min():
        apart = len(np.unique(group))
        return f"No documents link all positions: they fall into {apart} groups that nothing compares.", REMEDY
    return None
