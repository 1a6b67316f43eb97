"""A log of any kind, for commands that take one: the options that say which column is what, and how it is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clickprism.cli_old.observe import settings_named
from clickprism.cli_old.options import settings_of
from clickprism.cli_old.output import Output

if TYPE_CHECKING:
    from clickprism.data.logged import Logged

READING = "How the log is read"

AnyLog = Annotated[
    Path,
    typer.Argument(
        metavar="LOG",
        help="The folder of a click log, sessions as TSV or CSV with the columns query, documents, clicks, or a "
        "file of clickprism simulate.",
    ),
]
Day = Annotated[
    str | None,
    typer.Option(
        "--day",
        metavar="COLUMN",
        help="Of sessions: the column of the day; by default day or date.",
        rich_help_panel=READING,
    ),
]
RankerColumn = Annotated[
    str | None,
    typer.Option(
        "--ranker",
        metavar="COLUMN",
        help="Of sessions: that of the ranker; by default ranker.",
        rich_help_panel=READING,
    ),
]
Randomised = Annotated[
    str | None,
    typer.Option(
        "--randomised",
        metavar="COLUMN",
        help="Of sessions: that which is 1 where chance ordered the list; by default randomised.",
        rich_help_panel=READING,
    ),
]
OnError = Annotated[
    Literal["raise", "quarantine"],
    typer.Option(
        "--on-error",
        metavar="raise|quarantine",
        help="Stop at a broken line of sessions, or leave such lines out.",
        rich_help_panel=READING,
    ),
]


def read_any_logged(
    log: Path,
    output: Output,
    *,
    day: str | None = None,
    ranker: str | None = None,
    randomised: str | None = None,
    on_error: Literal["raise", "quarantine"] = "raise",
    memory: str = "700MB",
    config: Path | None = None,
    sets: list[str] | None = None,
) -> Logged:
    """A log as the options say; errors name the option.

    A file of `clickprism simulate` has its features by the settings that made it: `config` and `sets`, or the default
    ones; where nobody named any and the default ones do not fit, it has none.
    """
    from clickprism.errors import DataError
    from clickprism.log.logged import read_logged

    with settings_named():
        if log.suffix != ".npz":
            return read_logged(
                log, day=day, ranker=ranker, randomised=randomised, on_error=on_error, memory=memory, note=output.note
            )
        from clickprism.experiments.stages import load_raw

        try:
            return read_logged(log, lists=load_raw(settings_of(config, sets).data).train.lists)
        except DataError:
            if config is not None or sets or not log.is_file():
                raise
        output.note(
            "The documents are not those of the default settings, so their features are not known: give --config"
        )
        return read_logged(log)
