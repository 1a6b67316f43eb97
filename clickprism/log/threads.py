"""Work that other threads do while the taker of its results is busy; results come in order."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

S = TypeVar("S")
T = TypeVar("T")
AHEAD: Final = 2


def mapped(function: Callable[[S], T], items: Iterable[S], *, threads: int) -> Generator[T, None, None]:
    """The function of each item, in order, by so many threads; some are made ahead of the taker.

    >>> list(mapped(abs, [-1, 2, -3], threads=2))
    [1, 2, 3]
    """
    begun: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads, "clickprism-map") as pool:
        try:
            for item in items:
                begun.append(pool.submit(function, item))
                if len(begun) > threads:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, made by another thread while the taker is busy with the one before.

    >>> list(ahead(range(3)))
    [0, 1, 2]
    """
    made: queue.Queue[tuple[str, T | BaseException | None]] = queue.Queue(AHEAD)
    stopped = threading.Event()

    def put(kind: str, item: T | BaseException | None) -> bool:
        while not stopped.is_set():
            try:
                made.put((kind, item), timeout=0.2)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put("item", item):
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    thread = threading.Thread(target=work, name="clickprism-read", daemon=True)
    thread.start()
    try:
        while True:
            kind, item = made.get()
            if kind == "end":
                return
            if isinstance(item, BaseException):
                raise item
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()
