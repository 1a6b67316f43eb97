"""Adressa's recipe on small folders in the published format; the public files themselves are not at hand."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.errors import DataError, SettingError
from reproduce.inforank.adressa import AdressaSettings, load_adressa
from reproduce.inforank.worlds import World, dataset_of, kept_lists

NEW_YEAR = 1483225200  # 2016-12-31T23:00:00Z, a Saturday


def event(user: str, article: str | None, active: int | None, hour: float = 0, **more: Any) -> dict[str, Any]:
    """An event with the fields that the published files have; the front page has no id, the last view no time."""
    made: dict[str, Any] = {
        "eventId": zlib.crc32(repr((user, article, active, hour)).encode()),
        "city": "trondheim",
        "url": f"http://adressa.no/nyheter/{article}.ece" if article else "http://adressa.no",
        "referrerHostClass": "direct",
        "region": "sor-trondelag",
        "time": NEW_YEAR + round(3600 * hour),
        "userId": user,
        "sessionStart": False,
        "deviceType": "Mobile",
        "sessionStop": active is None,
        "country": "no",
        "os": "iPhone OS",
    }
    if active is not None:
        made["activeTime"] = active
    if article is not None:
        made |= {
            "profile": [{"item": "0", "groups": [{"count": 1, "group": "adressa-importance", "weight": 1.0}]}],
            "category1": "nyheter|trondheim",
            "canonicalUrl": f"http://www.adressa.no/nyheter/{article}.ece",
            "publishtime": "2016-12-31T21:30:00.000Z",
            "keywords": "utenriks,innenriks, E6",
            "id": article,
            "title": "- Det blir fyrverkeri",
            "author": ["norunn bergesen"],
        }
    return made | more


def write(folder: Path, days: dict[str, list[dict[str, Any]]]) -> Path:
    for name, events in days.items():
        text = "".join(json.dumps(each) + "\n" for each in events).encode()
        (folder / name).write_bytes(gzip.compress(text, mtime=0) if name.endswith(".gz") else text)
    return folder


def test_grades_by_hand(tmp_path: Path) -> None:
    """Article a: v = 30 (10 + 20 in two views), 60, 0; mean 30; nv = 1, 2, 0. Article b: v = 8, 24; nv = .5, 1.5."""
    first = [event("u", "a", 10, 0), event("u", None, 5, 0.1), event("u", "b", 8, 0.2), event("v", "a", 60, 0.3)]
    second = [event("u", "a", 20, 24), event("v", "b", 24, 25), event("w", "a", 0, 26), event("w", "b", None, 26)]
    folder = write(tmp_path, {"20170101": first, "20170102.gz": [*second, second[0]]})
    read = load_adressa(folder, settings=AdressaSettings(top=0.4, shares=(0.5, 0.25, 0.25), least_count=1))
    account = read.account
    assert (account.files, account.events, account.users, account.articles, account.pairs) == (2, 9, 3, 2, 5)
    assert (account.without_article, account.without_time, account.duplicates) == (1, 1, 1)
    assert (account.threshold, account.relevant) == (1.5, 0.4)
    train, validation, test = read.dataset.train, read.dataset.validation, read.dataset.test
    assert train.lists.query_ids.tolist() == ["u"]  # in order of time: ua, ub | va, vb, wa are cut at .5 and .75
    assert train.lists.document_ids is not None
    assert train.lists.document_ids.tolist() == ["a", "b"]
    assert train.grades.tolist() == [0, 0]
    assert validation.lists.query_ids.tolist() == ["v"]
    assert validation.grades.tolist() == [1]
    assert test.lists.query_ids.tolist() == ["v", "w"]
    assert test.grades.tolist() == [1, 0]


def test_features_are_of_the_article_and_the_first_view(tmp_path: Path) -> None:
    events = [event("u", "a", 10, 1.5), event("u", "a", 10, 2, deviceType="Desktop"), event("v", "b", 5, 3)]
    events += [event("v", "c", 9, 4, category1="sport", os="Android", publishtime=None, keywords=None)]
    folder = write(tmp_path, {"20170101": events})
    read = load_adressa(folder, settings=AdressaSettings(shares=(0.4, 0.3, 0.3), least_count=1, identities=True))
    names = list(read.names)
    assert names[:5] == ["user=u", "article=a", "category=nyheter", "subcategory=trondheim", "keyword=utenriks"]
    row = dict(zip(names, read.dataset.train.lists.features[0].tolist(), strict=True))
    assert row["age_hours"] == 3  # published 21:30, read 00:30
    assert (row["hour"], row["weekday"], row["keywords"], row["title_words"]) == (0, 6, 3, 4)
    assert [name for name in names if name.startswith("device")] == ["device=Mobile"]
    last = dict(zip(names, read.dataset.test.lists.features[0].tolist(), strict=True))
    assert (last["category=nyheter"], last["os=iPhone OS"], last["user=u"], last["keywords"]) == (0, 0, 0, 0)
    assert np.isnan(last["age_hours"])
    assert not {"activeTime", "active", "time"} & set(names)


def test_the_top_share_is_relevant_and_ties_count(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    events = [
        event(f"u{user}", f"a{article}", int(rng.exponential(60)) + 1, hour=float(rng.uniform(0, 150)))
        for user in range(60)
        for article in rng.choice(20, 8, replace=False)
    ]
    folder = write(tmp_path, {"20170101": events[:200], "20170102": events[200:]})
    read = load_adressa(folder)
    assert read.account.pairs == 480
    assert read.account.relevant == pytest.approx(0.2, abs=1 / 480)
    sizes = [part.lists.documents for part in (read.dataset.train, read.dataset.validation, read.dataset.test)]
    assert sizes == pytest.approx([336, 48, 96], abs=1)
    spent: dict[tuple[str, str], float] = {}
    for each in events:
        key = each["userId"], each["id"]
        spent[key] = spent.get(key, 0) + each["activeTime"]
    mean = {name: np.mean([v for (_, a), v in spent.items() if a == name]) for name in {a for _, a in spent}}
    for judged in (read.dataset.train, read.dataset.validation, read.dataset.test):
        assert judged.lists.document_ids is not None
        users = judged.lists.query_ids[judged.lists.list_of]
        for user, article, grade in zip(users, judged.lists.document_ids, judged.grades, strict=True):
            assert grade == (spent[user, article] / mean[article] >= read.account.threshold)
    few = load_adressa(folder, settings=AdressaSettings(least_readers=25))
    readers = {name: sum(a == name for _, a in spent) for name in mean}
    assert few.account.articles == sum(count >= 25 for count in readers.values())


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no file of events, such as 20170101. Get it from"):
        load_adressa(tmp_path)
    (tmp_path / "one_week.tar.gz").write_bytes(b"")
    with pytest.raises(DataError, match="Unpack the archive first"):
        load_adressa(tmp_path)
    write(tmp_path, {"20170101": [event("u", None, 5)]})
    with pytest.raises(DataError, match="has no event that says how long an article was read"):
        load_adressa(tmp_path)
    events = [event(user, "a", 5, hour) for hour, user in enumerate("mnopqrstuvwx")]
    write(tmp_path, {"20170101": [*events, {"time": 3}]})
    with pytest.raises(DataError, match=r"20170101:13: is not an event of Adressa .*userId"):
        load_adressa(tmp_path)
    assert load_adressa(tmp_path, on_error="quarantine").account.broken == 1
    with pytest.raises(SettingError, match=r"adressa\.least_readers must be at most 12 here"):
        load_adressa(tmp_path, settings=AdressaSettings(least_readers=13), on_error="quarantine")
    write(tmp_path, {"20170101": events[:1]})
    with pytest.raises(DataError, match="has nothing for the train part"):
        load_adressa(tmp_path)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"time": 99999999999999999999}, "time"),
        ({"time": -1}, "time"),
        ({"time": 2**40 + 1}, "time"),
        ({"userId": "u" * 1001}, "length <= 1000 .*userId"),
        ({"userId": "u\0"}, "userId"),
        ({"id": "a" * 1001}, r"length <= 1000 .*\.id"),
        ({"id": "a\0"}, r"\.id"),
    ],
)
def test_values_beyond_bounds_are_no_event(more: dict[str, Any], problem: str, tmp_path: Path) -> None:
    events = [event(user, "a", 5, hour) for hour, user in enumerate("mnopqrstuvwx")]
    write(tmp_path, {"20170101": [*events, event("u", "a", 5, **more)]})
    with pytest.raises(DataError, match=rf"20170101:13: is not an event of Adressa .*{problem}"):
        load_adressa(tmp_path)
    account = load_adressa(tmp_path, on_error="quarantine").account
    assert (account.broken, account.pairs) == (1, 12)


def test_ids_take_room_for_pairs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """12 pairs with an id of 900 characters take 4 * 900 * 12 bytes, 300 events 25 times as much."""
    users = ["x" * 900, *"mnopqrstuvw"]
    events = [event(user, "a", 5, hour + view / 100) for hour, user in enumerate(users) for view in range(25)]
    write(tmp_path, {"20170101": events})
    monkeypatch.setattr("clickprism.data.tables.LONGEST_IDS", 4 * 900 * 12)
    read = load_adressa(tmp_path)
    assert read.dataset.train.lists.query_ids.tolist()[-1] == "x" * 900
    monkeypatch.setattr("clickprism.data.tables.LONGEST_IDS", 4 * 900 * 12 - 1)
    with pytest.raises(DataError, match="the column of users is too large: 12 texts, the longest of 900 characters"):
        load_adressa(tmp_path)


def test_duplicates_are_the_same_in_id_user_article_and_time(tmp_path: Path) -> None:
    """Against a set of all of it; what has no id of its own is never a duplicate."""
    rng = np.random.default_rng(0)
    ids = [None, 1, "1", 2**63, -5, "x"]
    events = [
        event(f"u{user}", f"a{article}", 2 ** (n % 7), int(10 * user + 5 * article + later), eventId=ids[n % 6])
        for n, (user, article, later) in enumerate(rng.integers((3, 2, 4), size=(300, 3)).tolist())
    ]
    seen: set[tuple[Any, ...]] = set()
    spent: dict[tuple[str, str], int] = {}
    for each in events:
        key = each["eventId"], each["userId"], each["id"], each["time"]
        if key not in seen or each["eventId"] is None:
            spent[key[1:3]] = spent.get(key[1:3], 0) + each["activeTime"]
        seen.add(key)
    known = sum(each["eventId"] is None for each in events) + sum(key[0] is not None for key in seen)
    read = load_adressa(write(tmp_path, {"20170101": events}), settings=AdressaSettings(shares=(0.4, 0.3, 0.3)))
    assert read.account.duplicates == 300 - known > 100
    mean = {article: np.mean([v for (_, a), v in spent.items() if a == article]) for article in ("a0", "a1")}
    nv = [value / mean[article] for (_, article), value in spent.items()]
    assert read.account.threshold == pytest.approx(max(nv))  # 20% of 6 pairs is one


@pytest.mark.parametrize("settings", [{"top": 1}, {"shares": (0.5, 0.5)}, {"least_readers": 0}, {"least_count": 0}])
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        AdressaSettings(**settings)


def test_the_reproduction_loads_the_events_as_indicators_and_filters_lists(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    days = {"20170101": [event(f"u{n % 12}", f"a{n % 7}", int(rng.integers(1, 90)), n / 60) for n in range(200)]}
    world = World("adressa", 1, None, 10, "ubm", None, 0)
    dataset = dataset_of(world, write(tmp_path, days))
    for part in (dataset.train, dataset.validation, dataset.test):
        assert kept_lists(part).all()
    assert np.abs(dataset.train.lists.features).max() <= 1
