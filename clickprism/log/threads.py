"""Work that other threads do while the taker of its results is busy; results come in order."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Workers:
    """Some threads that stay: the C library keeps memory for each thread that ever was.

    Args:
        threads: how many.

    >>> with Workers(2) as workers:
    ...     list(workers.map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads, "clickprism-map")

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[S], T], items: Iterable[S], *, waiting: int = 0) -> Generator[T, None, None]:
        """The function of each item, in order; some are made ahead of the taker.

        Args:
            function: that the threads call.
            items: made in the thread of the taker.
            waiting: how many items wait for a thread, so that none is idle while an item takes long to make.
        """
        begun: deque[Future[T]] = deque()
        try:
            for item in items:
                begun.append(self._pool.submit(function, item))
                if len(begun) > self.threads + waiting:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()
            wait(begun)


def mapped(
    function: Callable[[S], T], items: Iterable[S], *, threads: int, waiting: int = 0
) -> Generator[T, None, None]:
    """The function of each item, in order, by so many threads of its own; see `Workers.map`."""
    with Workers(threads) as workers:
        yield from workers.map(function, items, waiting=waiting)


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
