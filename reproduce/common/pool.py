"""Runs side by side: how long they will take, a bar while they do, and nothing lost by Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from clickprism._util import processes as pool
from clickprism._util.progress import progress_bar
from reproduce.common.files import Run, done, finished, path_of, perform, read

Task: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
LONGEST = 120.0  # seconds of work that a process takes at a time, of one log
LOG_SECONDS = 6.0
EARLY = 0.1  # the share of runs before which the time left is the one foreseen
R = TypeVar("R", bound=Run)


class Clock:
    """Estimates of how long runs take: the mean of finished runs of the same kind, or a guess."""

    def __init__(self, runs: Sequence[Run], out: Path, *, log_seconds: float = LOG_SECONDS) -> None:
        self.known: dict[Hashable, list[float]] = defaultdict(list)
        self.log_seconds = log_seconds
        for run in runs:
            self.learn(run, out)

    def learn(self, run: Run, out: Path) -> None:
        """Take the seconds of a run that is done."""
        result = read(run, out) if done(run, out) else None
        if result is not None:
            self.known[run.kind].append(float(result["seconds"]))

    def seconds(self, run: Run) -> float:
        """What this run will take."""
        known = self.known.get(run.kind)
        return sum(known) / len(known) if known else run.guess()

    def total(self, runs: Sequence[Run], jobs: int) -> float:
        """What these will take side by side, their logs included."""
        logs = len({run.log for run in runs})
        return (sum(map(self.seconds, runs)) + self.log_seconds * logs) / max(jobs, 1)


def span(seconds: float) -> str:
    """Return seconds as a readable text.

    >>> span(42), span(200), span(8000)
    ('42 s', '3 min', '2 h 13 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def chunks(runs: Sequence[R], clock: Clock) -> list[list[R]]:
    """Runs of one log each, that a process does one after another; a log with much to do is shared by several."""
    parts: list[list[R]] = []
    for _, same in groupby(runs, key=lambda run: run.log):
        part: list[R] = []
        for run in sorted(same, key=clock.seconds, reverse=True):
            if part and sum(map(clock.seconds, part)) + clock.seconds(run) > LONGEST:
                parts.append(part)
                part = []
            part.append(run)
        parts.append(part)
    return parts


def perform_all(
    runs: Sequence[Run], *, out: Path, folder: Path | None, jobs: int, what: str, log_seconds: float = LOG_SECONDS
) -> float:
    """Do what is not done yet, `jobs` at a time; returns the seconds it took."""
    left = [run for run in runs if not done(run, out)]
    clock = Clock([run for run in runs if done(run, out)], out, log_seconds=log_seconds)
    expected = clock.total(left, jobs)
    say(f"{what}: {len(runs)} runs, {len(runs) - len(left)} done before; about {span(expected)} with {jobs} at a time")
    start = time.perf_counter()
    tasks: list[Task] = [(work, (part, out, folder)) for part in chunks(left, clock)]
    with bar(what, len(left), expected) as show:
        files = {path_of(run, out).name for run in left}
        side_by_side(tasks, jobs, lambda: show(len(files & finished(out))))
    return time.perf_counter() - start


def foresee(runs: Sequence[Run], out: Path, jobs: int, *, log_seconds: float = LOG_SECONDS, note: str = "") -> float:
    """Say how many runs there are in all and how long they will take; return the seconds."""
    runs = list({run.key: run for run in runs}.values())
    left = [run for run in runs if not done(run, out)]
    seconds = Clock(runs, out, log_seconds=log_seconds).total(left, jobs)
    before = f"{len(runs) - len(left)} done before"
    say(f"in all: {len(runs)} runs{note}, {before}; about {span(seconds)} with {jobs} at a time")
    return seconds


def work(runs: Sequence[Run], out: Path, folder: Path | None) -> None:
    """Do these runs in this process."""
    for run in runs:
        perform(run, out, folder)


def side_by_side(tasks: Sequence[Task], jobs: int, tick: Callable[[], None]) -> None:
    """Call each function, in processes if jobs is above 1; `tick` now and then. Ctrl-C ends the processes."""
    for _ in pool.side_by_side(tasks, max(jobs, 1), tick=tick):
        pass


def say(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def bar(what: str, total: int, expected: float) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal with the time left, else a line now and then."""
    start, shown = time.perf_counter(), [0.0]
    if not sys.stderr.isatty():

        def line(count: int) -> None:
            passed = time.perf_counter() - start
            if passed - shown[0] >= 30:
                shown[0] = passed
                rest = passed / count * (total - count) if count > EARLY * total else max(expected - passed, 0.0)
                say(f"{what}: {count} of {total}, {span(passed)} so far, about {span(rest)} left")

        yield line
        return
    with progress_bar(what, show=True) as report:
        yield lambda count: report(count, total)


def seconds_of(runs: Sequence[Run], out: Path) -> float:
    """What the runs took, all together, of one core's time."""
    results = (read(run, out) for run in runs if path_of(run, out).exists())
    return sum(float(result["cpu_seconds"]) for result in results if result is not None)
