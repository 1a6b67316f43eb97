"""`clickprism exploration`: what randomised first slots cost, and what they buy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from clickprism.cli_old.options import SETTINGS, Json, Log, Quiet
from clickprism.cli_old.output import Output, columns, command_line

EPILOG = (
    "Examples:\n\nclickprism exploration logs/shop\n\n"
    "clickprism exploration logs/shop --estimates estimates.parquet --share 0.02"
)


def command(
    log: Log,
    *,
    estimates: Annotated[
        Path | None,
        typer.Option(
            "--estimates",
            metavar="FILE.parquet",
            help="Of clickprism estimate, of the same log: say too what the explored slots have bought.",
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option("--share", metavar="P", min=0, max=1, help="Of searches to explore; by default as there were."),
    ] = None,
    confidence: Annotated[
        float,
        typer.Option(
            "--confidence", metavar="P", min=0.5, max=0.999, help="Of the intervals.", rich_help_panel=SETTINGS
        ),
    ] = 0.95,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say how many clicks randomised first slots cost, and how much surer estimates are for them."""
    from clickprism.log.sessions import update_sessions
    from clickprism.log.store import LogStore
    from clickprism.relevance.exploration import (
        by_query,
        exploration_cost,
        exploration_gain,
        explored_of,
        read_first_slots,
    )
    from clickprism.relevance.table import read_estimates

    output = Output(json, quiet)
    store = LogStore.open(log, note=output.note)
    known = None if estimates is None else read_estimates(estimates)
    with store.write() as writer:
        engine = writer.engine
        update_sessions(store, engine)
        slots = read_first_slots(store)
    cost = exploration_cost(*by_query(slots), confidence=confidence)
    wanted = cost.share if share is None else share
    lost, low, high = cost.per_thousand(wanted)
    data: dict[str, Any] = cost.plain() | {"for_share": wanted, "lost_per_1000_searches": [lost, low, high]}
    text = (
        f"{cost.searches:,} searches, {cost.share:.1%} of them with a random first result\n"
        f"Clicks on it: {cost.explored_rate:.3f} a search, {cost.rate:.3f} in other searches of the same queries\n"
        f"With {wanted:.1%} explored, 1,000 searches lose {lost:.2f} first-slot clicks ({low:.2f} to {high:.2f})"
    )
    if known is not None:
        pairs, queries, made = known
        bought = exploration_gain(made, queries, explored_of(slots, pairs), confidence=confidence)
        data["bought"] = [{"times": each.times, "width": each.width, "told": each.told} for each in bought]
        names = {0.0: "without them", 1.0: "as it is", 2.0: "with twice as many"}
        rows = [[names[each.times], f"{each.width:.4f}", f"{each.told:.1%}"] for each in bought]
        text += f"\n\n{columns(['explored slots', 'mean width of intervals', 'told apart from the best'], rows)}"
    output.result(text, data)
    if known is None:
        output.note(f"What they buy: {command_line('exploration', log, '--estimates', 'estimates.parquet')}")
