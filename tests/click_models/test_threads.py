"""Simulation with threads: the number of threads does not change the clicks, and a forked child can simulate."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from clickprism.click_models import kernels
from clickprism.click_models.ccm import ClickChainUser
from clickprism.click_models.coupled import CoupledUser
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.ubm import BrowsingUser
from clickprism.click_models.users import Shown, User
from clickprism.types import Lists

FORK = """
import os
import numpy as np
from clickprism.types import Lists
from clickprism.click_models import kernels
from clickprism.click_models.users import Shown
from clickprism.click_models.pbm import PositionUser

kernels.THREADS, kernels._ENTRIES = 2, 1000
lists = Lists(np.zeros((10, 1), np.float32), np.array([0, 10]), np.array(["q"]))
rows = np.tile(np.arange(10), 2000)
shown = Shown(lists, np.arange(2001) * 10, rows, np.full(20000, 0.5, np.float32))
clicks = PositionUser().click(shown, seed=1).clicks
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(PositionUser().click(shown, seed=1).clicks, clicks) else 1)
print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(
    "user",
    [PositionUser(), BrowsingUser(), ClickChainUser(), CoupledUser(columns=(0,), weights=(0.5,))],
    ids=lambda user: str(user.name),
)
def test_the_number_of_threads_does_not_change_the_clicks(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 25, 300))]).astype(np.int64)
    entries = int(offsets[-1])
    lists = Lists(rng.normal(size=(50, 1)).astype(np.float32), np.array([0, 50]), np.array(["q"]))
    shown = Shown(lists, offsets, rng.integers(0, 50, entries), rng.random(entries).astype(np.float32), start=7)
    expected = user.click(shown, seed=1)
    monkeypatch.setattr(kernels, "_ENTRIES", 1)
    for threads in (2, 3, 7):
        monkeypatch.setattr(kernels, "THREADS", threads)
        threaded = user.click(shown, seed=1)
        for name in ("clicks", "observed", "attracted"):
            assert np.array_equal(getattr(threaded, name), getattr(expected, name))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_child_forked_after_a_simulation_can_simulate() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("child ended with 0\n", "")
