"""Robot and click-spam rules: each names the events of a day that it leaves out.

A verdict is a pure function of the events of one day and of the settings, so that rules can be changed and undone;
nothing stored is deleted. Rules on users do not apply to events without a user.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any, Final

from clickprism.log.schema import KINDS
from clickprism.log.settings import RobotSettings

if TYPE_CHECKING:
    from ibis.expr.types import Table

RULES: Final = ("rate", "click_through", "repeat_clicks", "agent")
_SHARE: Final = 1_000_000


def verdicts(
    events: Table, settings: RobotSettings, *, kinds: Collection[str] = KINDS, by: Sequence[str] = ("day",)
) -> Table:
    """The same events with `filter`: the first of `RULES` that leaves the event out, null if none does.

    Args:
        events: all events of some days, each key of a day once.
        settings: of the rules.
        kinds: those that the events have; fewer make the query faster, not different.
        by: the column that tells days apart; none if there is but one day.

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

    clicks = _clicks(events.filter(events.user_id.notnull()), kinds, by)
    users = _users(events, clicks, settings, by)
    repeats = _repeats(clicks, settings, by)
    found = _beside(events, users, "user_id", "robot", by)
    found = _beside(found, repeats, "key", "repeat", by)
    found = _beside(found, _agents(events, settings), "agent", "machine", ())
    name = ibis.cases(
        (found.rule.notnull(), found.rule),
        (found.repeat.notnull(), "repeat_clicks"),
        (found.machine.notnull(), "agent"),
        else_=ibis.null("string"),
    )
    return found.select(*events.columns, filter=name)


def _beside(rows: Table, others: Table, name: str, other: str, by: Sequence[str]) -> Table:
    """Rows, and beside them what the others of the same day have where two columns are equal."""
    joined = rows.left_join(others, [rows[name] == others[other], *(rows[each] == others[each] for each in by)])
    return joined.drop(*(f"{each}_right" for each in by))


def query_of(events: Table) -> Any:
    """What tells queries apart: the id, else the SHA-256 of the text; no text is the empty query."""
    return events.query_id.fill_null(events.query.fill_null("").hexdigest("sha256"))


def _agents(events: Table, settings: RobotSettings) -> Table:
    """The agents with a word of the rule in them: `machine`. There are few agents, so they are looked at once each."""
    import ibis

    agents = events.group_by(machine=events.agent).aggregate(times=ibis._.count())
    lower = agents.machine.translate(ascii_uppercase, ascii_lowercase)
    named = ibis.or_(False, *[lower.contains(word) for word in settings.agents])
    return agents.filter((agents.times > 0) & named).select("machine")


def _clicks(events: Table, kinds: Collection[str], by: Sequence[str]) -> Table:
    """A row for each click that an event tells of: day, key, user, search, document and query."""
    import ibis

    columns = (*by, "key", "user_id", "search_id", "document_id", "query")
    parts: list[Table] = []
    whole = events.mutate(query=query_of(events))
    if "impression" in kinds:
        parts.append(whole.filter((whole.kind == "impression") & whole.click.fill_null(False)).select(*columns))
    if "ranking" in kinds:
        lists = whole.filter(whole.kind == "ranking").drop("document_id").unnest("clicked")
        parts.append(lists.rename(document_id="clicked").select(*columns))
    if "interaction" in kinds:
        searches = whole.filter(whole.kind != "interaction")
        asked = searches.group_by(*by, "search_id").aggregate(asked=searches.query.min()).rename(search="search_id")
        done = events.filter((events.kind == "interaction") & (events.action == "click"))
        found = _beside(done, asked, "search_id", "search", by)
        query = ibis.coalesce(found.query_id, found.asked, found.search_id)
        parts.append(found.mutate(query=query).select(*columns))
    return ibis.union(*parts) if len(parts) > 1 else parts[0]


def _users(events: Table, clicks: Table, settings: RobotSettings, by: Sequence[str]) -> Table:
    """The users that a rule leaves out: day, `robot` and `rule`."""
    import ibis

    shown = events.filter(events.user_id.notnull() & (events.kind != "interaction"))
    length = ibis.ifelse(shown.kind == "ranking", shown.documents.length(), 1)
    searches = shown.group_by(*by, "user_id", "search_id").aggregate(start=shown.time.min(), shown=length.sum())
    searches = searches.mutate(minute=searches.start.hour() * 60 + searches.start.minute())
    minutes = searches.group_by(*by, "user_id", "minute")
    users = minutes.aggregate(searches=ibis._.count(), shown=ibis._.shown.sum()).group_by(*by, "user_id")
    users = users.aggregate(searches=ibis._.searches.sum(), most=ibis._.searches.max(), shown=ibis._.shown.sum())
    once = clicks.select(*by, "user_id", "search_id", "document_id").distinct()
    clicked = once.group_by(*by, "user_id").aggregate(clicked=ibis._.count()).rename(clicker="user_id")
    found = _beside(users, clicked, "user_id", "clicker", by)
    share = round(settings.click_through * _SHARE)
    fast = ibis.or_(
        found.searches > settings.searches_per_day if settings.searches_per_day else False,
        found.most > settings.searches_per_minute if settings.searches_per_minute else False,
    )
    eager = found.clicked.fill_null(0) * _SHARE > found.shown * share
    eager &= found.shown >= settings.click_through_impressions
    rule = ibis.cases((fast, "rate"), (eager, "click_through"), else_=ibis.null("string"))
    return found.select(*by, robot=found.user_id, rule=rule).filter(ibis._.rule.notnull())


def _repeats(clicks: Table, settings: RobotSettings, by: Sequence[str]) -> Table:
    """The keys of events with a click that was repeated too often: day and `repeat`."""
    import ibis

    if not settings.repeat_clicks:
        return clicks.filter(False).select(*by, repeat="key")
    pair = (*by, "user_id", "query", "document_id")
    often = clicks.group_by(*pair).aggregate(times=ibis._.count())
    often = often.filter(often.times > settings.repeat_clicks)
    return clicks.semi_join(often, list(pair)).select(*by, repeat="key").distinct()
