"""`clickprism interleave`: which of two interleaved rankers the users of a log prefer, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clickprism.cli_old.options import SETTINGS, Json, Log, Memory, Quiet, names_from
from clickprism.cli_old.output import Output, columns

if TYPE_CHECKING:
    from clickprism.evaluation.interleaving import Preference
    from clickprism.log.teams import InterleavedSearches

EPILOG = (
    "Examples:\n\nclickprism interleave logs/shop\n\n"
    "clickprism interleave logs/shop --rankers 3f2a9c01d4e5b678,9b8a7c6d5e4f3a21 --days 2026-03-01..2026-03-14\n\n"
    "clickprism interleave logs/shop --unit user --json"
)


def command(
    log: Log,
    *,
    rankers: Annotated[
        str | None,
        typer.Option(
            "--rankers",
            metavar="OLD,NEW",
            help="Which two, as `ranker` has them; by default those that made the most searches together.",
        ),
    ] = None,
    days: Annotated[str | None, typer.Option("--days", metavar="A..B", help="Of these days only.")] = None,
    unit: Annotated[
        Literal["search", "user"],
        typer.Option("--unit", metavar="search|user", help="What is won or lost, and counts as independent."),
    ] = "search",
    confidence: Annotated[
        float,
        typer.Option("--confidence", metavar="SHARE", help="Of the intervals.", rich_help_panel=SETTINGS),
    ] = 0.95,
    tightest: Annotated[
        int,
        typer.Option(
            "--tightest",
            metavar="N",
            help="After how many searches the interval for many looks is tightest: as many as are planned.",
            rich_help_panel=SETTINGS,
        ),
    ] = 5_000,
    seed: Annotated[
        int, typer.Option("--seed", min=0, metavar="N", help="Of the bootstrap.", rich_help_panel=SETTINGS)
    ] = 0,
    memory: Memory = "2GB",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare two rankers whose rankings were interleaved: wins, losses, ties, and whether that is chance."""
    from clickprism.errors import SettingError
    from clickprism.evaluation.interleaving import by_user, preference, winners
    from clickprism.log.schedule import days_of
    from clickprism.log.sessions import update_sessions
    from clickprism.log.store import LogStore
    from clickprism.log.teams import interleaved_searches

    output, chosen = Output(json, quiet), days_of(days)
    names = names_from(rankers)
    if names is not None and len(names) != 2:
        raise SettingError("--rankers", rankers, "be two, parted by a comma")
    store = LogStore.open(log, note=output.note)
    with store.write(memory=memory, exclusive=False) as writer:
        update_sessions(store, writer.engine, chosen)
    found = interleaved_searches(store, rankers=None if names is None else (names[0], names[1]), days=chosen)
    won = winners(found.first, found.second)
    made = preference(
        by_user(won, found.users) if unit == "user" else won, confidence=confidence, tightest=tightest, seed=seed
    )
    told = {
        "rankers": {"first": found.rankers[0], "second": found.rankers[1]},
        "searches": len(found),
        "searches_of_other_rankers": found.others,
        "clicks": {"first": int(found.first.sum()), "second": int(found.second.sum())},
        "unit": unit,
    }
    output.result(_text(found, made, unit), told | made.plain())


def _text(found: InterleavedSearches, made: Preference, unit: str) -> str:
    first, second = found.rankers
    share = f"{made.confidence:.0%}"
    rows = [
        [f"good ({second} won)", f"{made.good:,}"],
        ["same", f"{made.same:,}"],
        [f"bad ({first} won)", f"{made.bad:,}"],
        ["delta GSB", f"{made.delta_gsb:+.4f}"],
        [f"{share} interval, one look", f"{made.low:+.4f} to {made.high:+.4f}"],
        ["sign test, one look", f"p = {made.p_value:.3g}"],
        [f"{share} interval, any looks", f"{made.always_low:+.4f} to {made.always_high:+.4f}"],
    ]
    units = "searches" if unit == "search" else "users"
    verdict = {"second": f"{second} is better", "first": f"{first} is better", "none": "No preference is proven"}
    text = f"{len(found):,} interleaved searches: {first} against {second}\n\n"
    text += columns([units, ""], rows) + f"\n\n{verdict[made.better]} (looked at once)"
    decided = "not decided yet" if made.decided is None else f"decided after {made.decided:,} {units}"
    return f"{text}; looked at as often as one likes: {decided}"
