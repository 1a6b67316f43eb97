"""Robot rules: each by hand, all against plain loops, on every engine."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickprism.errors import SettingError
from clickprism.log.engines.base import Engine
from clickprism.log.robots import verdicts
from clickprism.log.schema import KINDS
from clickprism.log.settings import AGENTS, RobotSettings
from tests.log.event_logs import NOON, Row, event, judged_rows, random_rows, stored, table

OFF = RobotSettings(searches_per_day=0, searches_per_minute=0, click_through=1, repeat_clicks=0, agents=())
TIGHT = RobotSettings(
    searches_per_day=4,
    searches_per_minute=2,
    click_through=0.5,
    click_through_impressions=3,
    repeat_clicks=2,
    agents=("spider", "curl/"),
)


def found(engine: Engine, rows: list[Row], rules: RobotSettings, **kinds: Any) -> dict[bytes, str | None]:
    judged = engine.collect(verdicts(engine.memory(table(rows)), rules, **kinds).select("key", "filter"))
    return dict(zip(*(judged[name].to_pylist() for name in ("key", "filter")), strict=True))


def filters(engine: Engine, rows: list[Row], rules: RobotSettings) -> list[str | None]:
    told = found(engine, rows, rules)
    assert len(told) == len(rows)
    return [told[row["key"]] for row in rows]


def searches(user: str | None, count: int, *, apart: timedelta, **values: Any) -> list[Row]:
    return [
        event("impression", f"{user}{number}", user_id=user, document_id="d", time=NOON + number * apart, **values)
        for number in range(count)
    ]


def test_rate_of_a_day(duck: Engine) -> None:
    rules = RobotSettings(searches_per_day=3)
    rows = [
        *searches("calm", 3, apart=timedelta(hours=1)),
        *searches("busy", 4, apart=timedelta(hours=1)),
        *searches(None, 9, apart=timedelta(hours=1)),
        event("interaction", "elsewhere", user_id="busy", document_id="d"),
    ]
    assert filters(duck, rows, rules) == [None] * 3 + ["rate"] * 4 + [None] * 9 + ["rate"]


def test_rate_of_a_minute_is_of_the_clock(duck: Engine) -> None:
    rules = RobotSettings(searches_per_minute=2)
    across = searches("across", 4, apart=timedelta(seconds=20), agent="x")
    rows = [*searches("burst", 3, apart=timedelta(seconds=20)), *across]
    for number, row in enumerate(across):
        row["time"] = NOON + timedelta(seconds=20 + 20 * number)
    assert filters(duck, rows, rules) == ["rate"] * 3 + [None] * 4


def test_two_rows_of_a_search_are_one_search(duck: Engine) -> None:
    rows = [event("impression", "s", user_id="u", document_id=name) for name in "abcdef"]
    assert filters(duck, rows, RobotSettings(searches_per_minute=1)) == [None] * 6


def test_click_through_of_lists_and_interactions(duck: Engine) -> None:
    rules = RobotSettings(click_through=0.5, click_through_impressions=4)
    lists = [event("ranking", f"{user}s", user_id=user, documents=list("abcd")) for user in "ef"]
    clicks = [event("interaction", "es", user_id="e", document_id=name) for name in "abc"]
    again = [event("interaction", "fs", user_id="f", document_id="a", time=NOON + timedelta(n)) for n in range(3)]
    few = [event("ranking", "gs", user_id="g", documents=["a", "b"], clicked=["a", "b"])]
    rows = [*lists, *clicks, *again, *few]
    assert filters(duck, rows, rules) == ["click_through", None, *["click_through"] * 3, None, None, None, None]


def test_click_through_must_be_above_the_share(duck: Engine) -> None:
    rows = [event("impression", f"s{n}", user_id="u", document_id="d", click=n < 7) for n in range(10)]
    assert filters(duck, rows, RobotSettings(click_through=0.7, click_through_impressions=10)) == [None] * 10
    assert filters(duck, rows, RobotSettings(click_through=0.69, click_through_impressions=10))[0] == "click_through"


def test_repeat_clicks_leave_out_those_rows_only(duck: Engine) -> None:
    rules = RobotSettings(repeat_clicks=2)
    own = [event("impression", f"s{n}", user_id="u", document_id="d", click=True) for n in range(2)]
    listed = [event("ranking", "t", user_id="u", documents=["a", "d"])]
    acted = [event("interaction", "t", user_id="u", document_id=name) for name in "da"]
    other = [event("impression", "s9", user_id="v", document_id="d", click=True)]
    unclicked = [event("impression", "s8", user_id="u", document_id="d")]
    rows = [*own, *listed, *acted, *other, *unclicked]
    repeat = "repeat_clicks"
    assert filters(duck, rows, rules) == [repeat, repeat, None, repeat, None, None, None]


def test_agents_by_ascii_letters_only(duck: Engine) -> None:
    agents = ["Googlebot/2.1", "CUBOT X18", "HeadlessChrome", "spİder", "", None, "a % b_c"]
    rows = [event("ranking", str(n), agent=agent, documents=["a"]) for n, agent in enumerate(agents)]
    assert filters(duck, rows, RobotSettings()) == ["agent", None, "agent", None, None, None, None]
    percent = RobotSettings(agents=("% b_", "'"))
    assert filters(duck, rows, percent) == [None] * 6 + ["agent"]


def test_first_rule_names_the_filter_and_rules_can_be_off(duck: Engine) -> None:
    rows = searches("u", 5, apart=timedelta(), agent="curl/8", click=True)
    assert filters(duck, rows, TIGHT) == ["rate"] * 5
    assert filters(duck, rows, RobotSettings(searches_per_minute=0, repeat_clicks=0)) == ["agent"] * 5
    assert filters(duck, rows, OFF) == [None] * 5


def test_verdicts_on_every_engine(engine: Engine) -> None:
    rows = stored(random_rows(random.Random(0), 60, kinds=KINDS))
    judged = engine.collect(verdicts(engine.memory(table(rows)), TIGHT).select("key", "filter")).to_pylist()
    expected = judged_rows(rows, TIGHT)
    assert {row["filter"] for row in expected} >= {"rate", "agent", None}
    assert {row["key"]: row["filter"] for row in judged} == {row["key"]: row["filter"] for row in expected}
    assert len(judged) == len(expected)


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 40),
    kinds=st.sampled_from([KINDS, *[(kind,) for kind in KINDS], KINDS[:2], KINDS[1:]]),
)
@settings(max_examples=6)
def test_verdicts_by_plain_loops(duck: Engine, seed: int, count: int, kinds: tuple[str, ...]) -> None:
    rows = stored(random_rows(random.Random(seed), count, kinds=kinds))
    expected = {row["key"]: row["filter"] for row in judged_rows(rows, TIGHT)}
    assert found(duck, rows, TIGHT, kinds=kinds) == expected


def test_settings_are_checked() -> None:
    wrong: dict[str, Any] = {"searches_per_day": -1, "click_through": 0, "click_through_impressions": 0}
    for name, value in wrong.items():
        with pytest.raises(SettingError, match=f"robots.{name} must"):
            RobotSettings(**{name: value})
    for word in ("", "Bot", "böt"):
        with pytest.raises(SettingError, match="lower case"):
            RobotSettings(agents=(word,))
    assert RobotSettings().agents == AGENTS
