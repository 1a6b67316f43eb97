"""Robot and click-spam rules: each excludes events of a day.

A verdict is a pure function of the events of one day and of the settings, so that rules can be changed and undone;
nothing stored is deleted. Rules on users do not apply to events without a user.
"""

from __future__ import annotations

from collections.abc import Collection
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any, Final

from clickprism.log.schema import KINDS
from clickprism.log.settings import RobotSettings

if TYPE_CHECKING:
    from ibis.expr.types import Table

RULES: Final = ("rate", "click_through", "repeat_clicks", "agent")
_SHARE: Final = 1_000_000


def verdicts(events: Table, settings: RobotSettings, *, kinds: Collection[str] = KINDS) -> Table:
    """Return all events of some days with `filter`: the first of `RULES` that excludes the event, or null.

    `kinds` are those that the events have; fewer make the query faster, not different.

    >>> import pyarrow as pa
    >>> from clickprism.log.engines.base import connect
    >>> from clickprism.log.schema import EVENTS
    >>> row = {"kind": "ranking", "search_id": "s", "documents": ["a"], "agent": "Googlebot/2.1"}
    >>> with connect() as engine:
    ...     events = engine.memory(pa.Table.from_pylist([row], pa.schema([f.with_nullable(True) for f in EVENTS])))
    ...     engine.collect(verdicts(events, RobotSettings()))["filter"].to_pylist()
    ['agent']
    """
    import ibis

    clicks = _clicks(events.filter(events.user_id.notnull()), kinds)
    found = _beside(events, _users(events, clicks, settings), "user_id", "robot")
    found = _beside(found, _repeats(clicks, settings), "key", "repeat")
    agents = _agents(events, settings)
    found = found.left_join(agents, found.agent == agents.machine)
    name = ibis.cases(
        (found.rule.notnull(), found.rule),
        (found.repeat.notnull(), "repeat_clicks"),
        (found.machine.notnull(), "agent"),
        else_=ibis.null("string"),
    )
    return found.select(*events.columns, filter=name)


def _beside(rows: Table, others: Table, name: str, other: str) -> Table:
    """Return rows, each joined to the columns of other rows of the same day that are equal in two columns."""
    return rows.left_join(others, [rows[name] == others[other], rows.day == others.day]).drop("day_right")


def query_of(events: Table) -> Any:
    """Return the id of the query, else the SHA-256 of its text; no text is the empty query."""
    return events.query_id.fill_null(events.query.fill_null("").hexdigest("sha256"))


def _agents(events: Table, settings: RobotSettings) -> Table:
    """Return the distinct agents that contain a word of the rule: `machine`."""
    import ibis

    agents = events.group_by(machine=events.agent).aggregate(times=ibis._.count())
    lower = agents.machine.translate(ascii_uppercase, ascii_lowercase)
    named = ibis.or_(False, *[lower.contains(word) for word in settings.agents])
    return agents.filter((agents.times > 0) & named).select("machine")


def _clicks(events: Table, kinds: Collection[str]) -> Table:
    """Return a row for each click of an event: day, key, user, search, document and query."""
    import ibis

    columns = ("day", "key", "user_id", "search_id", "document_id", "query")
    parts: list[Table] = []
    whole = events.mutate(query=query_of(events))
    if "impression" in kinds:
        parts.append(whole.filter((whole.kind == "impression") & whole.click.fill_null(False)).select(*columns))
    if "ranking" in kinds:
        lists = whole.filter(whole.kind == "ranking").drop("document_id").unnest("clicked")
        parts.append(lists.rename(document_id="clicked").select(*columns))
    if "interaction" in kinds:
        searches = whole.filter(whole.kind != "interaction")
        asked = searches.group_by("day", "search_id").aggregate(asked=searches.query.min()).rename(search="search_id")
        done = events.filter((events.kind == "interaction") & (events.action == "click"))
        found = _beside(done, asked, "search_id", "search")
        query = ibis.coalesce(found.query_id, found.asked, found.search_id)
        parts.append(found.mutate(query=query).select(*columns))
    return ibis.union(*parts) if len(parts) > 1 else parts[0]


def _users(events: Table, clicks: Table, settings: RobotSettings) -> Table:
    """Return the users that a rule excludes: day, `robot` and `rule`."""
    import ibis

    shown = events.filter(events.user_id.notnull() & (events.kind != "interaction"))
    length = ibis.ifelse(shown.kind == "ranking", shown.documents.length(), 1)
    searches = shown.group_by("day", "user_id", "search_id").aggregate(start=shown.time.min(), shown=length.sum())
    searches = searches.mutate(minute=searches.start.hour() * 60 + searches.start.minute())
    minutes = searches.group_by("day", "user_id", "minute")
    users = minutes.aggregate(searches=ibis._.count(), shown=ibis._.shown.sum()).group_by("day", "user_id")
    users = users.aggregate(searches=ibis._.searches.sum(), most=ibis._.searches.max(), shown=ibis._.shown.sum())
    once = clicks.select("day", "user_id", "search_id", "document_id").distinct()
    clicked = once.group_by("day", "user_id").aggregate(clicked=ibis._.count()).rename(clicker="user_id")
    found = _beside(users, clicked, "user_id", "clicker")
    share = round(settings.click_through * _SHARE)
    fast = ibis.or_(
        found.searches > settings.searches_per_day if settings.searches_per_day else False,
        found.most > settings.searches_per_minute if settings.searches_per_minute else False,
    )
    eager = found.clicked.fill_null(0) * _SHARE > found.shown * share
    eager &= found.shown >= settings.click_through_impressions
    rule = ibis.cases((fast, "rate"), (eager, "click_through"), else_=ibis.null("string"))
    return found.select("day", robot=found.user_id, rule=rule).filter(ibis._.rule.notnull())


def _repeats(clicks: Table, settings: RobotSettings) -> Table:
    """Return the keys of events with a click that was repeated too often: day and `repeat`."""
    import ibis

    if not settings.repeat_clicks:
        return clicks.filter(False).select("day", repeat="key")
    pair = ("day", "user_id", "query", "document_id")
    often = clicks.group_by(*pair).aggregate(times=ibis._.count())
    often = often.filter(often.times > settings.repeat_clicks)
    return clicks.semi_join(often, list(pair)).select("day", repeat="key").distinct()
