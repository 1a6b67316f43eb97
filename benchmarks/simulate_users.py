"""Simulated users against the same models as plain Python loops, list by list: sessions a second.

Both sides get the same lists and return the same: clicks, observed and attracted for every entry. The loops run on a
sample of the lists; their cost is linear in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from benchmarks.base import Result, seconds
from clickprism.click_models.ccm import ClickChainUser
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.ubm import BrowsingUser
from clickprism.click_models.users import Shown, User
from clickprism.types import Lists

SESSIONS = 1_000_000
SAMPLE = 20_000
LENGTH = 10

Answer = tuple[list[bool], list[bool], list[bool]]


def position_loop(chances: list[float], curve: tuple[float, ...]) -> Answer:
    """One session of the position-based model."""
    observed = [random.random() < curve[place] for place in range(len(chances))]
    attracted = [random.random() < chance for chance in chances]
    return [seen and drawn for seen, drawn in zip(observed, attracted, strict=True)], observed, attracted


def browsing_loop(chances: list[float], table: tuple[tuple[float, ...], ...]) -> Answer:
    """One session of the user browsing model."""
    clicks, observed, attracted = [], [], []
    last = -1
    for place, chance in enumerate(chances):
        seen = random.random() < table[place][place - last - 1]
        drawn = random.random() < chance
        observed.append(seen)
        attracted.append(drawn)
        clicks.append(seen and drawn)
        if seen and drawn:
            last = place
    return clicks, observed, attracted


def chain_loop(chances: list[float], further: tuple[float, float, float]) -> Answer:
    """One session of the click chain model."""
    skip, low, high = further
    attracted = [random.random() < chance for chance in chances]
    clicks, observed = [False] * len(chances), [False] * len(chances)
    for place, chance in enumerate(chances):
        observed[place] = True
        clicks[place] = attracted[place]
        if random.random() >= (low * (1 - chance) + high * chance if attracted[place] else skip):
            break
    return clicks, observed, attracted


def run() -> list[Result]:
    """PBM, UBM and CCM on a million lists of ten."""
    rng = np.random.default_rng(0)
    lists = Lists(np.zeros((LENGTH, 1), np.float32), np.array([0, LENGTH]), np.array(["q"]))
    offsets = np.arange(SESSIONS + 1, dtype=np.int64) * LENGTH
    attraction = rng.choice(
        np.array([0.1, 0.16, 0.28, 0.52, 1.0], np.float32), SESSIONS * LENGTH, p=[0.5, 0.27, 0.16, 0.05, 0.02]
    )
    shown = Shown(lists, offsets, np.tile(np.arange(LENGTH, dtype=np.int64), SESSIONS), attraction)
    sample = attraction[: SAMPLE * LENGTH].reshape(SAMPLE, LENGTH).tolist()
    position, browsing, chain = PositionUser(), BrowsingUser(), ClickChainUser()
    curve, table = position.curve, browsing.table
    further = (chain.after_skip, chain.after_irrelevant, chain.after_relevant)
    return [
        _compare("PBM", position, shown, lambda: [position_loop(row, curve) for row in sample]),
        _compare("UBM", browsing, shown, lambda: [browsing_loop(row, table) for row in sample]),
        _compare("CCM", chain, shown, lambda: [chain_loop(row, further) for row in sample]),
    ]


def _compare(name: str, user: User, shown: Shown, loop: Callable[[], object]) -> Result:
    user.click(shown, seed=0)
    ours = SESSIONS / seconds(lambda: user.click(shown, seed=1), repeats=5)
    peer = SAMPLE / seconds(loop)
    return Result(f"simulate {name}: 1 M lists against a loop", ours, peer, 50, "sessions/s")
