"""Events made by hand or at random, and sessions and verdicts of such events by plain loops."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from clickprism.log.schema import EVENTS, SESSIONS
from clickprism.log.settings import RobotSettings, SessionSettings

NOON = datetime(2026, 3, 1, 12)
DOCUMENTS = ("a", "A", "a ", "e\u0301", "\U0001f600")
LOOSE = pa.schema([field.with_nullable(True) for field in EVENTS])
Row = dict[str, Any]


def event(kind: str, search: str, **values: Any) -> Row:
    """A row of `events`; what is not said is usual."""
    row: Row = dict.fromkeys(EVENTS.names)
    row |= {"kind": kind, "search_id": search, "time": NOON, "query_id": "q", "line": 1}
    row |= {"documents": [], "clicked": None} if kind == "ranking" else {}
    row |= {"query_id": None, "action": "click"} if kind == "interaction" else {}
    row |= {"position": 1, "click": False} if kind == "impression" else {}
    row |= values
    said = repr(sorted((name, value) for name, value in row.items() if name != "line")).encode()
    content = hashlib.blake2b(said, digest_size=16).digest()
    row["key"] = content if row["event_id"] is None else row["event_id"].encode().ljust(16)
    return row | {"file_id": "f", "day": row["time"].date()}


def table(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), LOOSE)


def stored(rows: Iterable[Row]) -> list[Row]:
    """As ingest stores them: the first row of each key."""
    kept: dict[bytes, Row] = {}
    for row in rows:
        kept.setdefault(row["key"], row)
    return list(kept.values())


def query_of(row: Row) -> str:
    if row["query_id"] is not None:
        return str(row["query_id"])
    return hashlib.sha256((row["query"] or "").encode()).hexdigest()


def judged_rows(rows: list[Row], settings: RobotSettings) -> list[Row]:
    """The rules, by plain loops."""
    asked: dict[str, str] = {}
    shown: Counter[str] = Counter()
    starts: dict[tuple[str, str], datetime] = {}
    for row in rows:
        if row["kind"] == "interaction":
            continue
        search, user = row["search_id"], row["user_id"]
        if user is not None:
            shown[user] += len(row["documents"]) if row["kind"] == "ranking" else 1
            starts[user, search] = min(starts.get((user, search), row["time"]), row["time"])
            asked[search] = min(asked.get(search, query_of(row)), query_of(row))
    days = Counter(user for user, _ in starts)
    minutes = Counter((user, time.hour, time.minute) for (user, _), time in starts.items())
    clicked, triples = set(), Counter[Any]()
    of_row: list[list[tuple[str, str, str]]] = []
    for row in rows:
        of_row.append([])
        if row["user_id"] is None:
            continue
        query: str = query_of(row)
        if row["kind"] == "interaction":
            query = str(row["query_id"] or asked.get(row["search_id"], row["search_id"]))
        documents = row["clicked"] or [] if row["kind"] == "ranking" else [row["document_id"]]
        told = row["kind"] == "ranking" or row["action"] == "click" or (row["kind"] == "impression" and row["click"])
        for document in documents if told else []:
            clicked.add((row["user_id"], row["search_id"], document))
            triples[row["user_id"], query, document] += 1
            of_row[-1].append((row["user_id"], query, document))
    shares = Counter(user for user, _, _ in clicked)
    made = []
    for row, mine in zip(rows, of_row, strict=True):
        user, rule = row["user_id"], None
        many = settings.searches_per_day and days[user] > settings.searches_per_day
        fast = settings.searches_per_minute and any(
            count > settings.searches_per_minute for (who, _, _), count in minutes.items() if who == user
        )
        share = shown[user] >= settings.click_through_impressions and (
            shares[user] > settings.click_through * shown[user]
        )
        if user is not None and (many or fast):
            rule = "rate"
        elif user is not None and share:
            rule = "click_through"
        elif settings.repeat_clicks and any(triples[each] > settings.repeat_clicks for each in mine):
            rule = "repeat_clicks"
        elif row["agent"] is not None and any(word in row["agent"].lower() for word in settings.agents):
            rule = "agent"
        made.append(row | {"filter": rule})
    return made


def sessions_of(events: list[Row], later: list[Row], settings: SessionSettings) -> list[Row]:
    """Sessions, by plain loops: those of the rows that count, and those of the rows that do not."""
    made = []
    for kept in (True, False):
        chosen = [row for row in events if (row["filter"] is None) is kept]
        after = [row for row in later if (row["filter"] is None) is kept]
        made += _sessions(chosen, [*chosen, *after], settings)
    return sorted(made, key=lambda row: (row["search_id"], row["document_id"], row["filter"] or ""))


def _sessions(events: list[Row], near: list[Row], settings: SessionSettings) -> list[Row]:
    window = timedelta(hours=settings.click_window_hours)
    acts = [row for row in near if row["kind"] == "interaction" and row["document_id"] is not None]
    shown: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in events:
        if row["kind"] == "impression":
            shown[row["search_id"], row["document_id"]].append(row)
    rankings = defaultdict(list)
    for row in events:
        if row["kind"] == "ranking":
            rankings[row["search_id"]].append(row)
    for search, rows in rankings.items():
        for document, copies in _listed(search, rows, acts, window).items():
            shown[search, document] += copies
    made = []
    for (search, document), copies in shown.items():
        time = min(copy["time"] for copy in copies)
        inline = any(copy["click"] for copy in copies)
        done = [
            (act["time"], act["action"] == "click", act)
            for act in acts
            if act["search_id"] == search and act["document_id"] == document and act["time"] <= time + window
        ]
        for row in rankings.get(search, []):
            told = row["clicked"] or [] if row["time"] <= time + window else []
            done += [(row["time"], True, row) for each in told if each == document]
        clicks = [when for when, click, _ in done if click] + [time] * inline
        both = [*copies, *(act for _, _, act in done)]
        made.append(
            {
                "search_id": search,
                "document_id": document,
                "query_id": min(query_of(copy) for copy in copies),
                "position": min(copy["position"] for copy in copies),
                "time": time,
                "clicks": len(clicks),
                "last_click": max(clicks, default=None),
                "display_ms": _most(both, "display_ms"),
                "dwell_ms": _most(both, "dwell_ms"),
                "page_skipped": bool(_most(both, "page_skipped")),
                "user_id": _least(copies, "user_id"),
                "ranker": _least(copies, "ranker"),
                "randomised": bool(_most(both, "randomised")),
                "filter": _least(copies, "filter"),
                "clicked": bool(clicks),
                "day": time.date(),
            }
        )
    searches = defaultdict(set)
    for row in made:
        searches[row["query_id"]].add(row["search_id"])
    for row in made:
        places_of = [each["position"] for each in made if each["search_id"] == row["search_id"] and each["clicked"]]
        above = [place for place in places_of if place < row["position"]]
        many = len(searches[row["query_id"]])
        row |= {
            "clicks_before": len(above),
            "click_distance": row["position"] - max(above) if above else 0,
            "click_below": any(place > row["position"] for place in places_of),
            "page": -(-row["position"] // settings.page_size),
            "query_bucket": sum(many >= least for least in (2, 10, 100, 1000)),
        }
    return [{name: row[name] for name in SESSIONS.names} for row in made]


def _listed(search: str, rows: list[Row], acts: list[Row], window: timedelta) -> dict[str, list[Row]]:
    """What the lists of a search have shown."""
    start = min(row["time"] for row in rows)
    places: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        for offset, document in enumerate(row["documents"]):
            position = (row["position"] or 1) + offset
            places[document].append(row | {"document_id": document, "position": position, "click": False})
    near = [act for act in acts if act["search_id"] == search and act["time"] <= start + window]
    tracked = any(act["action"] == "impression" for act in near)
    shown = defaultdict(list) if tracked else places
    proof = [(act["document_id"], act["position"]) for act in near if act["action"] in ("click", "impression")]
    proof += [(each, None) for row in rows if row["time"] <= start + window for each in row["clicked"] or []]
    first = {name: _least(rows, name) for name in ("ranker", "user_id", "filter")}
    first |= {name: _most(rows, name) for name in ("display_ms", "dwell_ms", "page_skipped", "randomised")}
    first |= {"time": start, "query_id": min(query_of(row) for row in rows), "click": False}
    for document in {document for document, _ in proof} - set(shown):
        at = [place for each, place in proof if each == document and place is not None]
        at = at or [copy["position"] for copy in places.get(document, [])]
        if at:
            shown[document].append(first | {"position": min(at)})
    return shown


def _least(rows: list[Row], name: str) -> Any:
    return min((row[name] for row in rows if row[name] is not None), default=None)


def _most(rows: list[Row], name: str) -> Any:
    return max((row[name] for row in rows if row[name] is not None), default=None)


def random_rows(rng: random.Random, count: int, *, kinds: tuple[str, ...], day: datetime = NOON) -> list[Row]:
    """Events that meet often: few users, searches, documents and queries."""
    made = []
    for number in range(count):
        kind = rng.choice(kinds)
        values: Row = {
            "time": day.replace(hour=0) + timedelta(minutes=rng.randrange(1440), microseconds=rng.randrange(10)),
            "user_id": rng.choice([None, "u", "U ", "\u0130"]),
            "agent": rng.choice([None, "\uff22OT/", "SpIder 1", "curl/8"]) if rng.random() < 0.2 else None,
            "event_id": rng.choice([None, f"e{rng.randrange(count)}", f"n{number}"]),
            "display_ms": rng.choice([None, 0, 900, 6000]),
            "dwell_ms": rng.choice([None, 10, 2**40]),
            "page_skipped": rng.choice([None, True, False]),
            "ranker": rng.choice([None, "r1", "r2"]),
            "randomised": rng.choice([None, True, False]),
        }
        if kind == "ranking":
            values["documents"] = [rng.choice(DOCUMENTS) for _ in range(rng.randrange(5))]
            values["clicked"] = (
                [rng.choice((*DOCUMENTS[1:], "x")) for _ in range(rng.randrange(3))] if rng.random() < 0.4 else None
            )
            values["position"] = rng.choice([None, None, 1, 11])
        else:
            values["document_id"] = rng.choice(DOCUMENTS)
        if kind == "impression":
            values |= {"position": rng.randrange(1, 14), "click": rng.choice([None, True, False])}
        if kind == "interaction":
            values["action"] = rng.choice(["click", "click", "impression", "buy"])
            values["position"] = rng.choice([None, rng.randrange(1, 5)])
        else:
            named = rng.random() < 0.6
            values |= {
                "query_id": rng.choice(("q", "Q", "'ß\\")) if named else None,
                "query": rng.choice([None, "", "ß cat"]),
            }
        made.append(event(kind, f"s{rng.randrange(max(2, count // 5))}", **values))
    return stored(made)
