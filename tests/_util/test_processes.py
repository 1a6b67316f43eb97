"""Work in several processes: what is not done in time is left undone, and ends."""

from __future__ import annotations

import signal
from multiprocessing import active_children

from clickprism._util.processes import side_by_side
from tests.waiting import until


def test_what_is_not_done_in_time_is_left_undone() -> None:
    before = set(active_children())
    done = list(side_by_side([(signal.pause, ()), (signal.pause, ())], 2, every=0.1, until=lambda: True))
    assert done == []
    until(lambda: set(active_children()) <= before)
    assert sorted(side_by_side([(abs, (-1,)), (abs, (-2,))], 2, until=lambda: False)) == [1, 2]
