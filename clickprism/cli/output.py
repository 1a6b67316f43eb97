"""What commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Group, Parameter

from clickprism._util.progress import Progress, progress_bar
from clickprism._util.tables import Result, as_text, to_json

T = TypeVar("T")
Flat = Annotated[T, Parameter(name="*")]
"""A settings class whose fields are the options of a command."""
LogSource = Annotated[
    str,
    Parameter(
        help="An ingested log (a folder); events of OpenSearch UBI; a table of CSV or Parquet files (a file, folder or "
        "pattern); a database (sqlite:///shop.db or another URL of SQLAlchemy, shop.duckdb) with --query; a session "
        "file (TSV, CSV); or a simulated log (.npz)."
    ),
]


@Parameter(group=Group("Common options", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class Output:
    """The options that every command has, and what they decide: what is printed, and where.

    Attributes:
        config: TOML file with settings; options on the command line override it.
        json: Print the result as one JSON object on standard output, and nothing else there.
        quiet: Print the result only: no progress and no hints.
    """

    config: Path | None = None
    json: bool = False
    quiet: Annotated[bool, Parameter(alias="-q")] = False

    def note(self, text: str) -> None:
        """Print a message on standard error, unless `--quiet` was given."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def next(self, *words: object) -> None:
        """Suggest the command to type next."""
        self.note(f"Next: {command_line(*words)}")

    def result(self, result: Result, *, one_of_many: bool = False) -> None:
        """Print a result: its tables, or its fields as JSON, in one line if it is `one_of_many` (`--every`)."""
        if self.json and one_of_many:
            print(to_json(result, indent=None), flush=True)
        else:
            self.show(as_text(result.tables()), result)

    def show(self, text: str, result: Any) -> None:
        """Print a text, or the fields of the result as JSON."""
        print(to_json(result) if self.json else text, flush=True)

    @contextmanager
    def status(self) -> Iterator[Callable[[str], None]]:
        """Show on a terminal what is being done while the block runs; the block calls the returned function."""
        if not self.show_progress:
            yield lambda _: None
            return
        from rich.console import Console

        with Console(stderr=True).status("") as status:
            yield lambda text: status.update(f"{text} ...".replace("[", r"\["))

    def progress(self, description: str) -> AbstractContextManager[Progress]:
        """Show a progress bar on a terminal while the block runs; the block calls the returned function."""
        return progress_bar(description, show=self.show_progress)

    @property
    def show_progress(self) -> bool:
        """Whether to show progress: on a terminal, unless `--quiet` was given."""
        return not self.quiet and sys.stderr.isatty()


def program() -> str:
    """Return what to type to run this command line again from the current folder."""
    started = Path(sys.argv[0]).absolute()
    if shutil.which("clickprism") is not None or started.name != "clickprism":
        return "clickprism"
    here = Path.cwd()
    return shlex.quote(str(started.relative_to(here) if started.is_relative_to(here) else started))


def command_line(*words: object) -> str:
    """Return a command that can be pasted into a shell."""
    return " ".join([program(), *[shlex.quote(str(word)) for word in words]])
