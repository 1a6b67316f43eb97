"""All commands, and what their errors become: a line on standard error and a stable exit code."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from clickprism import __version__
from clickprism.cli_old.output import fail
from clickprism.errors import ClickprismError, DataError, missing_extra
from clickprism.training.distributed import alone

INTERRUPTED = 130
EXIT_CODES = {
    0: "done",
    1: "another error",
    2: "a setting or an option is wrong",
    3: "data is broken or missing",
    4: "training cannot go on",
    5: "an optional part is not installed",
    6: "DuckDB or Spark failed",
    INTERRUPTED: "interrupted by Ctrl-C; `train` has kept the best so far, `auto` and `tune` go on when called again",
}
ORDER: list[str] = []


class Commands(TyperGroup):
    """A group whose commands end with a message and an exit code, not with a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order in which one meets them."""
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except ClickprismError as error:
            fail(str(error), error.exit_code)
        except ModuleNotFoundError as error:
            missing = missing_extra(error)
            if not isinstance(missing, ClickprismError):
                raise
            fail(str(missing), missing.exit_code)
        except BrokenPipeError:
            raise
        except OSError as error:
            why = error.strerror or str(error)
            message = why if error.filename is None else f"{error.filename}: cannot be used ({why})"
            fail(message, DataError.exit_code)
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A click is relevance times observation; clickprism splits the two.",
    epilog="Example:\n\nclickprism demo",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clickprism {__version__}")
        raise typer.Exit


@app.callback()
def clickprism(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """A click is relevance times observation; clickprism splits the two."""
    if ctx.invoked_subcommand not in (None, "train"):
        more = "; --jobs runs several at a time" if ctx.invoked_subcommand in ("compare", "feedback") else ""
        alone(f"clickprism {ctx.invoked_subcommand}", remedy=f"run it without torchrun{more}")
