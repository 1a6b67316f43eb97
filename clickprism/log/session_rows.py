"""Session rows: the events of days as ranked lists with clicks, a row for each document shown, with its features.

A document of a search is shown by an impression row, or by the list of a ranking row. Where a search with a ranking row
has interactions `impression`, only the documents of these and those that were clicked count as shown. A click proves
that its document was shown, in a list or not, if it is known where. Clicks stand in the rows themselves or come as
interactions with the same search and document, on the same day or the next; they count for the last day that shows the
document. Rows that a robot rule leaves out are made into sessions of their own, so the rows that count are just what
they would be if the others had never been logged.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from clickprism.log.robots import query_of
from clickprism.log.schema import KINDS, SESSIONS

if TYPE_CHECKING:
    from ibis.expr.types import Table

    from clickprism.log.settings import SessionSettings

BUCKETS: Final = (2, 10, 100, 1000)
"""How many searches of its query in the day put a row in the next `query_bucket`."""
USED: Final = (
    "kind",
    "time",
    "search_id",
    "query_id",
    "query",
    "document_id",
    "position",
    "documents",
    "clicked",
    "action",
    "click",
    "display_ms",
    "dwell_ms",
    "page_skipped",
    "user_id",
    "ranker",
    "randomised",
    "filter",
    "day",
)
"""The columns of events, with their verdict, that sessions are made of."""
_SHOWN: Final = (
    "day",
    "search_id",
    "document_id",
    "kept",
    "position",
    "time",
    "inline",
    "display_ms",
    "dwell_ms",
    "page_skipped",
    "user_id",
    "ranker",
    "randomised",
    "query_id",
    "filter",
)
_DONE: Final = (
    "day",
    "search_id",
    "document_id",
    "kept",
    "position",
    "time",
    "click",
    "seen",
    "display_ms",
    "dwell_ms",
    "page_skipped",
    "randomised",
)
_PAIR: Final = ("day", "search_id", "document_id", "kept")


def session_rows(
    events: Table, later: Table | None, settings: SessionSettings, *, kinds: Collection[str] = KINDS
) -> Table:
    """The rows of the table `sessions` of some days: `behaviour` of `shown_rows`.

    Args:
        events: all events of the days, each key of a day once, with the verdict `filter`.
        later: the interactions that `left_over` gives of the day after each, with theirs, `day` being the day before;
            None if there are none.
        settings: of sessions.
        kinds: those that the events have; fewer make the query faster, not different.
    """
    return behaviour(shown_rows(events, later, settings, kinds=kinds), settings)


def shown_rows(
    events: Table, later: Table | None, settings: SessionSettings, *, kinds: Collection[str] = KINDS
) -> Table:
    """A row for each document that a search shows, with its clicks; the arguments are those of `session_rows`.

    A document that a search shows several times (in one list, on several pages, in several impression rows) is one
    row, with the first position and time, a click if any of them has one, and the longest display and dwell times.
    """
    interactions = _interactions(events, later, kinds)
    done = _done(events, interactions, kinds)
    shown = _merged(_shown(events, None if interactions is None else done, settings, kinds))
    return _clicked(shown, done, settings)


def left_over(events: Table, settings: SessionSettings, *, kinds: Collection[str] = KINDS) -> Table:
    """The interactions of days with documents that their search does not show on that day, but may the day before.

    Args:
        events: the interactions of the days, and all events of the searches that are on the day before too.
        settings: of sessions.
        kinds: those that the events have.
    """
    acts = events.filter(events.kind == "interaction").select(*USED)
    interactions = acts.mutate(kept=acts["filter"].isnull())
    done = _done(events, interactions, kinds)
    shown = _merged(_shown(events, done, settings, kinds))
    return interactions.anti_join(shown, list(_PAIR)).select(*USED)


def clicks_of(events: Table, *, kinds: Collection[str] = KINDS) -> Table | None:
    """The clicks that stand apart from what was shown and count: day, search and document; None if none can."""
    done = _done(events, _interactions(events, None, kinds), kinds)
    return None if done is None else done.filter(done.click & done.kept).select("day", "search_id", "document_id")


def _interactions(events: Table, later: Table | None, kinds: Collection[str]) -> Table | None:
    parts = [events.filter(events.kind == "interaction").select(*USED)] if "interaction" in kinds else []
    parts += [] if later is None else [later.select(*USED)]
    if not parts:
        return None
    rows = parts[0] if len(parts) == 1 else parts[0].union(parts[1])
    return rows.mutate(kept=rows["filter"].isnull())


def _shown(events: Table, done: Table | None, settings: SessionSettings, kinds: Collection[str]) -> list[Table]:
    """All that was shown, by source; a document may come several times."""
    import ibis

    rows = events.mutate(query_id=query_of(events), kept=events["filter"].isnull())
    parts = []
    if "impression" in kinds or "ranking" not in kinds:
        own = rows.filter((rows.kind == "impression") & rows.document_id.notnull() & rows.position.notnull())
        parts.append(own.mutate(inline=own.click.fill_null(False)).select(*_SHOWN))
    if "ranking" in kinds:
        rankings = rows.filter(rows.kind == "ranking").mutate(inline=ibis.literal(False))
        listed = rankings.drop("document_id").unnest("documents", offset="offset").rename(document_id="documents")
        listed = listed.mutate(position=(listed.offset + listed.position.fill_null(1)).cast("int32"))
        listed = listed.filter(listed.document_id.notnull()).select(*_SHOWN)
        parts += [listed] if done is None else _tracked(rankings, listed, done, settings)
    return parts


def _tracked(rankings: Table, listed: Table, done: Table, settings: SessionSettings) -> list[Table]:
    """Lists that count whole, and the documents of which interactions prove that they were shown."""
    import ibis

    search = ["day", "search_id", "kept"]
    once = rankings.group_by(search).aggregate(**_together(rankings))
    proof = done.filter(done.click | done.seen).inner_join(once.select(*search, start="time"), search)
    proof = proof.filter(proof.time <= proof.start + ibis.interval(hours=settings.click_window_hours))
    proven = proof.group_by(*_PAIR).aggregate(ordinal=proof.position.min(), seen=proof.seen.any())
    whole = listed.anti_join(proven.filter(proven.seen), search)
    place = listed.group_by(*_PAIR).aggregate(place=listed.position.min())
    placed = proven.anti_join(whole, list(_PAIR)).left_join(place, list(_PAIR))
    placed = placed.mutate(position=ibis.coalesce(placed.ordinal, placed.place)).select(*_PAIR, "position")
    return [whole, placed.filter(placed.position.notnull()).inner_join(once, search).select(*_SHOWN)]


def _merged(parts: list[Table]) -> Table:
    """One row for each document that a search shows."""
    import ibis

    rows = ibis.union(*parts) if len(parts) > 1 else parts[0]
    return rows.group_by(*_PAIR).aggregate(position=rows.position.min(), **_together(rows))


def _together(rows: Table) -> dict[str, Any]:
    """What several rows of one search say together."""
    first = {name: rows[name].min() for name in ("time", "user_id", "ranker", "query_id", "filter")}
    longest = {name: rows[name].max() for name in ("display_ms", "dwell_ms")}
    return first | longest | {name: rows[name].any() for name in ("inline", "page_skipped", "randomised")}


def _done(events: Table, interactions: Table | None, kinds: Collection[str]) -> Table | None:
    """All that was done to documents and stands apart from what was shown."""
    import ibis

    parts = []
    if interactions is not None:
        acted = interactions.filter(interactions.document_id.notnull())
        parts.append(acted.mutate(click=acted.action == "click", seen=acted.action == "impression").select(*_DONE))
    if "ranking" in kinds:
        rows = events.filter(events.kind == "ranking").drop("document_id", "click")
        rows = rows.unnest("clicked").rename(document_id="clicked")
        rows = rows.mutate(click=ibis.literal(True), seen=ibis.literal(False), position=ibis.null("int32"))
        rows = rows.filter(rows.document_id.notnull())
        parts.append(rows.mutate(kept=rows["filter"].isnull()).select(*_DONE))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else parts[0].union(parts[1])


def _clicked(shown: Table, done: Table | None, settings: SessionSettings) -> Table:
    """What was shown, with clicks and times of what was done to it."""
    import ibis

    if done is None:
        last = ibis.ifelse(shown.inline, shown.time, ibis.null(shown.time.type()))
        return shown.mutate(clicks=shown.inline.cast("int32"), last_click=last)
    keys = shown.select(*_PAIR, shown_at="time")
    near = done.inner_join(keys, list(_PAIR))
    near = near.filter(near.time <= near.shown_at + ibis.interval(hours=settings.click_window_hours))
    effects = near.group_by(*_PAIR).aggregate(
        done_clicks=near.click.cast("int32").sum(),
        done_at=near.time.max(where=near.click),
        done_display=near.display_ms.max(),
        done_dwell=near.dwell_ms.max(),
        done_skip=near.page_skipped.any(),
        done_randomised=near.randomised.any(),
    )
    rows = shown.left_join(effects, list(_PAIR))
    own = ibis.ifelse(rows.inline, rows.time, ibis.null(rows.time.type()))
    return rows.mutate(
        clicks=rows.inline.cast("int32") + rows.done_clicks.fill_null(0),
        last_click=_later(own, rows.done_at),
        display_ms=_later(rows.display_ms, rows.done_display),
        dwell_ms=_later(rows.dwell_ms, rows.done_dwell),
        page_skipped=rows.page_skipped.fill_null(False) | rows.done_skip.fill_null(False),
        randomised=rows.randomised.fill_null(False) | rows.done_randomised.fill_null(False),
    ).select(*shown.columns, "clicks", "last_click")


def _later(one: Any, other: Any) -> Any:
    """The greater of two, or that which is there."""
    import ibis

    return ibis.greatest(ibis.coalesce(one, other), ibis.coalesce(other, one))


def behaviour(rows: Table, settings: SessionSettings) -> Table:
    """Those rows with the features of the examination model (§6.1.1)."""
    import ibis

    asked = rows.select("day", "query_id", "kept", "search_id").distinct()
    searches = asked.group_by("day", "query_id", "kept").aggregate(searches=ibis._.count())
    found = rows.inner_join(searches, ["day", "query_id", "kept"])
    bucket = sum((found.searches >= least).cast("int32") for least in BUCKETS)
    place = ibis.ifelse(found.clicks > 0, found.position, ibis.null("int32"))
    one = [found.day, found.search_id, found.kept]
    above = ibis.range_window(group_by=one, order_by=found.position, preceding=(None, 1))
    search = ibis.window(group_by=one)
    made = found.mutate(
        query_bucket=bucket,
        clicked=found.clicks > 0,
        clicks_before=place.count().over(above),
        nearest=place.max().over(above),
        lowest=place.max().over(search),
        page=(found.position - 1) // settings.page_size + 1,
    )
    done = made.mutate(
        click_distance=(made.position - made.nearest).fill_null(0),
        click_below=(made.lowest > made.position).fill_null(False),
        page_skipped=made.page_skipped.fill_null(False),
        randomised=made.randomised.fill_null(False),
    )
    kinds = ibis.Schema.from_pyarrow(SESSIONS)
    return done.select(**{name: done[name].cast(kinds[name].copy(nullable=True)) for name in SESSIONS.names})
