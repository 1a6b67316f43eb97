"""Progress of long work: one callback for libraries, one bar for terminals."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """A function that long work calls after each step."""

    def __call__(self, done: int, total: int | None = None, text: str = "") -> None:
        """Report that `done` of `total` steps are complete; `text` names the current step."""


def no_progress(done: int, total: int | None = None, text: str = "") -> None:
    """Report nothing."""


@contextmanager
def progress_bar(description: str, *, show: bool | None = None) -> Iterator[Progress]:
    """Show a bar on standard error while the block runs.

    Args:
        description: Name of the work.
        show: Whether to show the bar; by default only if standard error is a terminal.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None)

        def report(done: int, total: int | None = None, text: str = "") -> None:
            bar.update(task, completed=done, total=total, description=text or description)

        yield report
