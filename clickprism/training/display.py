"""What training shows on a terminal: a bar with the parts of the loss, the validation and the rate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clickprism.training.settings import Record

Show = Callable[[Record], None]


@contextmanager
def bar(title: str, total: int, *, done: int = 0, show: bool | None = None) -> Iterator[Show]:
    """A progress bar on standard error, by default only where that is a terminal; yields what to call an epoch."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total, completed=done, words="")

        def update(record: Record) -> None:
            words = [f"{name} {value:.4f}" for name, value in record.loss.items()]
            if record.validation is not None:
                words.append(f"validation {record.validation:.4f}")
            words.append(f"{record.lists_per_second:,.0f} lists/s")
            progress.update(task, completed=record.epoch, words="  ".join(words))

        yield update
