"""Work in several processes, of which none outlives what asked for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess
from typing import Any

from clickprism.errors import TrainingError


def side_by_side(
    tasks: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]],
    jobs: int,
    *,
    tick: Callable[[], None] | None = None,
    every: float = 1.0,
    until: Callable[[], bool] | None = None,
) -> Iterator[Any]:
    """What each function returns, as it is done; whatever ends this early ends the processes too.

    Args:
        tasks: functions and their arguments, all of which a new process can import.
        jobs: how many processes.
        tick: called after each task and every so many seconds meanwhile.
        every: those seconds.
        until: asked as often; once it says yes, what is not done is left undone.
    """
    others = set(active_children())
    with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=get_context("spawn"), initializer=_obey) as pool:
        try:
            left: set[Future[Any]] = {pool.submit(function, *arguments) for function, arguments in tasks}
            timeout = None if tick is None and until is None else every
            while left:
                done, left = wait(left, timeout=timeout, return_when="FIRST_COMPLETED")
                for one in done:
                    yield one.result()
                if tick is not None:
                    tick()
                if left and until is not None and until():
                    _end(pool, others)
                    return
        except BrokenProcessPool:
            advice = "most likely for want of memory: run fewer at a time (--jobs, --processes)"
            raise TrainingError(f"a process that trained came to a sudden end, {advice}") from None
        except BaseException:
            _end(pool, others)
            raise


def _end(pool: ProcessPoolExecutor, others: Collection[BaseProcess]) -> None:
    """End the processes of a pool, whatever they do; `others` are not of it."""
    pool.shutdown(wait=False, cancel_futures=True)
    for process in set(active_children()) - set(others):
        process.terminate()


def _obey() -> None:
    """Make this a process that ends when its parent does, and only then: Ctrl-C is the parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
