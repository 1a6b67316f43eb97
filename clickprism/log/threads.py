"""Work that other threads do while the taker of its results is busy; results come in order."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def mapped(
    function: Callable[[S], T], items: Iterable[S], *, threads: int, waiting: int = 0
) -> Generator[T, None, None]:
    """The function of each item, in order, by so many threads; some are made ahead of the taker.

    Args:
        function: that threads call.
        items: made in the thread of the taker.
        threads: how many.
        waiting: how many items wait for a thread, so that none is idle while an item takes long to make.

    >>> list(mapped(abs, [-1, 2, -3], threads=2))
    [1, 2, 3]
    """
    begun: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads, "clickprism-map") as pool:
        try:
            for item in items:
                begun.append(pool.submit(function, item))
                if len(begun) > threads + waiting:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()


def ahead(items: Iterable[T], *, held: int = 2) -> Generator[T, None, None]:
    """The same items, made by another thread while the taker is busy with the one before.

    Args:
        items: to make.
        held: how many may be ready before they are taken, beside the one in the making.

    >>> list(ahead(range(3)))
    [0, 1, 2]
    """
    made: queue.SimpleQueue[tuple[str, T | BaseException | None]] = queue.SimpleQueue()
    free, stopped = threading.Semaphore(held + 1), threading.Event()

    def work() -> None:
        try:
            free.acquire()
            for item in items:
                made.put(("item", item))
                del item
                free.acquire()
                if stopped.is_set():
                    return
            made.put(("end", None))
        except BaseException as error:
            made.put(("error", error))

    thread = threading.Thread(target=work, name="clickprism-read", daemon=True)
    thread.start()
    try:
        while True:
            kind, item = made.get()
            if kind == "end":
                return
            if isinstance(item, BaseException):
                raise item
            free.release()
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        free.release()
        thread.join()
