"""Work in several processes: what is not done in time is left undone, and ends."""

from __future__ import annotations

import time
from multiprocessing import active_children

from clickprism.training.pool import side_by_side


def test_what_is_not_done_in_time_is_left_undone() -> None:
    begun = time.monotonic()
    before = set(active_children())
    done = list(side_by_side([(time.sleep, (300,)), (time.sleep, (300,))], 2, every=0.1, until=lambda: True))
    assert done == []
    assert time.monotonic() - begun < 60
    while set(active_children()) - before and time.monotonic() - begun < 60:
        time.sleep(0.05)
    assert set(active_children()) <= before
    assert sorted(side_by_side([(abs, (-1,)), (abs, (-2,))], 2, until=lambda: False)) == [1, 2]
