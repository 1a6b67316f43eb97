"""`clickprism promote`: put a new model in front of users, or go back to the one before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clickprism.cli_old.options import Json, Quiet
from clickprism.cli_old.output import Output, command_line

EPILOG = (
    "Examples:\n\nclickprism promote runs/demo/bundle --to deployment\n\n"
    "clickprism promote --rollback --to deployment\n\n"
    "clickprism promote --to deployment"
)


def command(
    bundle: Annotated[
        Path | None,
        typer.Argument(
            metavar="[BUNDLE]", help="The bundle to promote; without one, say which answers.", show_default=False
        ),
    ] = None,
    *,
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="DEPLOYMENT", help="The folder that clickprism serve follows.", show_default=False
        ),
    ],
    rollback: Annotated[bool, typer.Option("--rollback", help="Go back to the bundle before the current one.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Verify and warm a bundle, then swap it in, in one step; running services follow within a second.

    No request fails meanwhile, and none is scored by a mixture.
    """
    from clickprism.errors import SettingError
    from clickprism.serve.deployment import Deployment

    output, deployment = Output(json, quiet), Deployment(to)
    if bundle is not None and rollback:
        raise SettingError("--rollback", str(bundle), "be given without a bundle")
    before = None
    if rollback or bundle is not None:
        done = deployment.rollback() if bundle is None else deployment.promote(bundle)
        before = done.before
    now = deployment.pointer()
    told = {"version": now.version, "since": now.since, "previous": list(now.previous), "before": before}
    if before == now.version:
        text = f"{now.version} answers already"
    elif before is None:
        text = f"{now.version} answers since {now.since}"
    else:
        text = f"{now.version} answers now, {before} did before"
    output.result(text, told)
    if rollback or bundle is None:
        return
    if now.previous:
        output.note(f"To go back: {command_line('promote', '--rollback', '--to', to)}")
    elif before is None:
        output.note(f"To serve it: {command_line('serve', to)}")
