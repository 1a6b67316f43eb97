"""Worker processes that share a socket: one that dies is replaced, one that dies again and again more slowly."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final, final

multiprocessing.allow_connection_pickling()
SPAWN: Final = multiprocessing.get_context("spawn")
STEADY: Final = 10.0
"""Seconds after which a worker that dies counts as one that had started well."""
SLOWEST: Final = 10.0
"""Seconds between two starts of workers that do not start well, at most."""


@final
class Supervisor:
    """Keeps as many processes as were asked for, until SIGINT or SIGTERM.

    Args:
        work: what a process does; it and its arguments go to a fresh interpreter.
        arguments: of the work.
        count: of processes.
        drain: seconds that they have to end once they are asked to.
        died: is told of a process that ended by itself: its id and its exit code.
    """

    def __init__(
        self,
        work: Callable[..., None],
        *arguments: Any,
        count: int,
        drain: float,
        died: Callable[[int, int | None], None],
    ) -> None:
        self._work = work
        self._arguments = arguments
        self._drain = drain
        self._died = died
        self._count = count
        self._processes: dict[SpawnProcess, float] = {}
        self._failures = 0
        self._wake_read, self._wake_write = os.pipe()
        self._asked = False

    def run(self, *, begun: Callable[[], None]) -> None:
        """Start the processes and wait for SIGINT or SIGTERM; then let the processes finish their requests.

        Args:
            begun: is called once both signals end the processes in this way.
        """
        old = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            begun()
            while not self._asked:
                while len(self._processes) < self._count and not self._asked:
                    self._start()
                wait([self._wake_read, *(process.sentinel for process in self._processes)])
                self._bury()
            self._end()
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _ask(self, *_: object) -> None:
        self._asked = True
        os.write(self._wake_write, b"x")

    def _start(self) -> None:
        process = SPAWN.Process(target=self._work, args=self._arguments)
        process.start()
        self._processes[process] = time.monotonic()

    def _bury(self) -> None:
        """Forget processes that ended; wait a while if they do not start well."""
        for process, since in list(self._processes.items()):
            if process.is_alive():
                continue
            process.join()
            del self._processes[process]
            if self._asked:
                continue
            self._died(process.pid or 0, process.exitcode)
            self._failures = 0 if time.monotonic() - since > STEADY else self._failures + 1
            if self._failures > 2 * self._count:
                pause = min(SLOWEST, 0.1 * 2 ** min(10, self._failures - 2 * self._count))
                wait([self._wake_read], pause)

    def _end(self) -> None:
        for process in self._processes:
            process.terminate()
        end = time.monotonic() + self._drain
        for process in self._processes:
            process.join(max(0.1, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
