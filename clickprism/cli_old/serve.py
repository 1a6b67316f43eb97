"""`clickprism serve`: rank over HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from clickprism.cli_old.options import Json, Quiet
from clickprism.cli_old.output import Output

EPILOG = (
    "Examples:\n\nclickprism serve runs/demo/bundle\n\n"
    "clickprism serve deployment --store stores/shop --log logs/shop --workers 2\n\n"
    "clickprism serve deployment --store redis://localhost:6379 --max-feature-age 86400 --refuse-stale\n\n"
    "clickprism serve deployment --shadow runs/new/bundle"
)
LISTENING, LIMITS, TRIALS = "Listening", "Limits", "Two models"


def command(
    source: Annotated[
        Path, typer.Argument(metavar="BUNDLE|DEPLOYMENT", help="What to serve; a deployment is followed as it changes.")
    ],
    *,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="DIR|URL", help="Click vectors and features, by clickprism publish."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="DIR", help="The click log that takes events; it is made if missing."),
    ] = None,
    shadow: Annotated[
        Path | None,
        typer.Option(
            "--shadow",
            metavar="BUNDLE",
            help="A model that scores each request after its answer; disagreements are counted.",
            rich_help_panel=TRIALS,
        ),
    ] = None,
    interleave: Annotated[
        Path | None,
        typer.Option(
            "--interleave",
            metavar="BUNDLE",
            help="A model whose ranking is interleaved with that of the first, by team draft.",
            rich_help_panel=TRIALS,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.", rich_help_panel=LISTENING)
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="0 takes any that is free.", rich_help_panel=LISTENING)
    ] = 8000,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", help="Processes that answer.", rich_help_panel=LISTENING)
    ] = 1,
    no_auth: Annotated[
        bool,
        typer.Option("--no-auth", help="Ask for no token; on loopback only.", rich_help_panel=LISTENING),
    ] = False,
    max_body: Annotated[
        int, typer.Option("--max-body", metavar="BYTES", help="Of a request.", rich_help_panel=LIMITS)
    ] = 4 << 20,
    max_documents: Annotated[
        int, typer.Option("--max-documents", metavar="N", help="Of a request.", rich_help_panel=LIMITS)
    ] = 1000,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="For a body to arrive, and again for its answer to be made.",
            rich_help_panel=LIMITS,
        ),
    ] = 10.0,
    max_feature_age: Annotated[
        float | None,
        typer.Option(
            "--max-feature-age",
            metavar="SECONDS",
            help="Mark answers as stale whose features are older.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    refuse_stale: Annotated[
        bool, typer.Option("--refuse-stale", help="Refuse them instead, with 503.", rich_help_panel=LIMITS)
    ] = False,
    log_queries: Annotated[
        bool,
        typer.Option("--log-queries", help="Write queries and their ids into the request lines; they may be personal."),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rank over HTTP by a bundle: POST /v1/rank, POST /v1/events, /v1/models, /metrics, /openapi.json.

    Requests carry the token in the variable CLICKPRISM_TOKEN; without the variable, one is made and printed once.
    Request lines go to standard error as JSON, with --quiet only those of errors. The password of a Redis server is
    read from CLICKPRISM_REDIS_PASSWORD.
    """
    from clickprism.serve.auth import new_token
    from clickprism.serve.server import check, run
    from clickprism.serve.settings import TOKEN_VARIABLE, ServeSettings
    from clickprism.serve.store import typed_address

    output = Output(json, quiet)
    given = os.environ.get(TOKEN_VARIABLE)
    token = None if no_auth else given if given is not None else new_token()
    settings = ServeSettings(
        source,
        store=None if store is None else typed_address(store),
        log=log,
        shadow=shadow,
        interleave=interleave,
        host=host,
        port=port,
        workers=workers,
        token=token,
        max_body=max_body,
        max_documents=max_documents,
        body_timeout=timeout,
        answer_timeout=timeout,
        max_feature_age=max_feature_age,
        refuse_stale=refuse_stale,
        request_lines=not quiet,
        log_queries=log_queries,
    )
    bundle = check(settings)
    made = token if token != given else None

    def listening(address: str) -> None:
        words = f"Serving {bundle.manifest.kind} {bundle.version} at {address}; Ctrl-C stops"
        if made is not None:
            words += f"\nToken for this run: {made}\n(set {TOKEN_VARIABLE} to choose it)"
        told = {"address": address, "model_version": bundle.version, "kind": bundle.manifest.kind, "token": made}
        output.result(words, told)

    run(settings, listening=listening)
