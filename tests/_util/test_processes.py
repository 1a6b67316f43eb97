"""Functions in one or several processes: results, cancellation, and the number of processes."""

from __future__ import annotations

import os
import signal
from multiprocessing import active_children

import pytest

from clickprism._util.processes import process_count, side_by_side
from clickprism.errors import SettingError
from tests.waiting import until


def test_tasks_are_cancelled_and_their_processes_end_once_until_is_true() -> None:
    before = set(active_children())
    done = list(side_by_side([(signal.pause, ()), (signal.pause, ())], 2, every=0.1, until=lambda: True))
    assert done == []
    until(lambda: set(active_children()) <= before)
    assert sorted(side_by_side([(abs, (-1,)), (abs, (-2,))], 2, until=lambda: False)) == [1, 2]


def test_one_process_runs_the_tasks_here_in_order_and_stops_when_asked() -> None:
    ticks: list[int] = []
    results = side_by_side([(os.getpid, ()), (abs, (-2,))], 1, tick=lambda: ticks.append(1))
    assert list(results) == [os.getpid(), 2]
    assert len(ticks) == 2
    assert list(side_by_side([(abs, (-1,)), (abs, (-2,))], 1, until=lambda: True)) == [1]


def test_zero_jobs_are_one_per_core_and_fewer_are_refused() -> None:
    assert process_count(0) == os.cpu_count()
    assert process_count(3) == 3
    with pytest.raises(SettingError, match="jobs must be at least 0, got -1"):
        process_count(-1)
