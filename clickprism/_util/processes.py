"""Run functions in one or several processes, which end when their parent ends."""

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

from clickprism.errors import SettingError, TrainingError


def process_count(jobs: int) -> int:
    """Return the number of processes that the option `--jobs` means: 0 is one per core."""
    if jobs < 0:
        raise SettingError("jobs", jobs, "be at least 0")
    return jobs or os.cpu_count() or 1


def side_by_side(
    tasks: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]],
    jobs: int,
    *,
    tick: Callable[[], None] | None = None,
    every: float = 1.0,
    until: Callable[[], bool] | None = None,
) -> Iterator[Any]:
    """Yield what each function returns, in the order of completion; an error ends the processes.

    Args:
        tasks: functions with their arguments; a new process must be able to import them.
        jobs: number of processes. With one, or with one task, the functions run in this process.
        tick: called after each task, and every `every` seconds while none completes.
        every: seconds between two calls.
        until: called as often; once it returns True, the remaining tasks are cancelled.
    """
    if jobs == 1 or len(tasks) <= 1:
        for function, arguments in tasks:
            yield function(*arguments)
            if tick is not None:
                tick()
            if until is not None and until():
                return
        return
    others = set(active_children())
    with ProcessPoolExecutor(
        min(jobs, len(tasks)), mp_context=get_context("spawn"), initializer=_end_with_parent
    ) as pool:
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
            advice = "probably because memory ran out: run fewer at a time (--jobs, --processes)"
            raise TrainingError(f"a worker process ended unexpectedly, {advice}") from None
        except BaseException:
            _end(pool, others)
            raise


def _end(pool: ProcessPoolExecutor, others: Collection[BaseProcess]) -> None:
    """Terminate the processes of a pool; `others` are child processes that do not belong to it."""
    pool.shutdown(wait=False, cancel_futures=True)
    for process in set(active_children()) - set(others):
        process.terminate()


def _end_with_parent() -> None:
    """End this process when its parent ends; ignore Ctrl-C, which the parent handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
