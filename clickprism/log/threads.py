"""Work that threads do ahead; results come in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def mapped(
    function: Callable[[S], T], items: Iterable[S], *, threads: int, waiting: int = 0
) -> Generator[T, None, None]:
    """The function of each item, in order, by so many threads; some results are made ahead of their use.

    Args:
        function: that the threads call.
        items: made in the thread of the caller.
        threads: number of threads.
        waiting: how many items wait for a thread, so that none is idle while an item takes long to make.

    >>> list(mapped(abs, [-1, 2, -3], threads=2))
    [1, 2, 3]
    """
    begun: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads, "clickprism-read") as pool:
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
            wait(begun)
