"""What commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer


def fail(message: str, code: int) -> NoReturn:
    """Say what is wrong and end; of several processes, all but the first say who they are."""
    rank = os.environ.get("RANK", "0")
    who = "" if rank == "0" else f" (process {rank})"
    typer.echo(f"error{who}: {message}" if code != 130 else message + who, err=True)
    raise typer.Exit(code)


def program() -> str:
    """What to type to run this command line again, from this folder."""
    started = Path(sys.argv[0]).absolute()
    if shutil.which("clickprism") is not None or started.name != "clickprism":
        return "clickprism"
    here = Path.cwd()
    return shlex.quote(str(started.relative_to(here) if started.is_relative_to(here) else started))


def command_line(*words: object) -> str:
    """A command to paste."""
    return " ".join([program(), *[shlex.quote(str(word)) for word in words]])


@dataclass(frozen=True)
class Output:
    """Where words go, by `--json` and `--quiet`."""

    json: bool = False
    quiet: bool = False

    def note(self, text: str) -> None:
        """What a reader may want to know while waiting, or beside the result."""
        if not self.quiet:
            typer.echo(text, err=True)

    def starting(self, engine: str) -> None:
        """Say on a terminal that Spark starts, and that its first answer takes a while however small the log."""
        if engine != "duckdb" and sys.stderr.isatty():
            self.note(f"Starting Spark ({engine}) ... it takes a minute or more, even for a small log")

    def result(self, text: str, data: Any) -> None:
        """What the command was asked for, in words or as JSON."""
        if self.json:
            from clickprism._util.tables import to_json

            text = to_json(data)
        typer.echo(text)

    @property
    def bar(self) -> bool | None:
        """Whether training shows its bar: None leaves it to the terminal."""
        return False if self.quiet else None

    @contextmanager
    def days(self, total: int) -> Iterator[Callable[[int, int], None]]:
        """Show the days of a simulation as they are done: a bar on a terminal, else nothing."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda _done, _total: None
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("days", total=total)
            yield lambda done, _total: progress.update(task, completed=done)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Plain text in aligned columns, numbers to the right.

    >>> print(columns(["position", "clicks"], [["1", "40"], ["2", "8"]]))
    position  clicks
           1      40
           2       8
    """
    table = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in table) for i in range(len(header))]
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in table
    )


def _is_number(cell: str) -> bool:
    return cell in ("", "-") or cell.strip("%+-").replace(",", "").replace(".", "").isdecimal()
