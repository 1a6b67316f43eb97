"""Columns of a log: conditions, contexts and query frequency."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.log.open_log import OTHER, ColumnSettings, column, contexts, of_sessions, query_frequency, where
from clickprism.log_model.counts import cut
from clickprism.types import Clicks, Lists


def sessions(device: list[str], **columns: list[str]) -> Logged:
    """Sessions that all show two documents and click the first."""
    size = len(device)
    lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    clicks = Clicks(
        lists,
        np.arange(0, 2 * size + 1, 2),
        np.tile([0, 1], size),
        np.tile([1, 2], size).astype(np.int32),
        np.tile([1, 0], size),
        np.ones(size, np.int64),
    )
    return Logged(clicks, columns={name: np.array(each) for name, each in {"device": device, **columns}.items()})


def test_only_sessions_with_the_same_value_are_merged() -> None:
    log = sessions(["phone", "desk", "phone", "phone"])
    assert len(of_sessions(log)) == 1
    kept = of_sessions(log, columns=["device"])
    assert kept.columns["device"].tolist() == ["phone", "desk"]
    assert kept.clicks.impressions.tolist() == [3, 1]
    assert kept.take(np.array([1])).columns["device"].tolist() == ["desk"]
    assert cut(kept, 1).columns["device"].tolist() == ["phone", "desk"]
    with pytest.raises(DataError, match=r"no column 'browser'.*device"):
        of_sessions(log, columns=["browser"])


def test_conditions_select_sessions() -> None:
    log = of_sessions(sessions(["phone", "desk", "phone", "tv"]), columns=["device"])
    assert where(log, ColumnSettings(where=("device=phone",))).clicks.sessions == 2
    with pytest.raises(DataError, match=r"no session has device=watch\. The column has desk, phone, tv"):
        where(log, ColumnSettings(where=("device=watch",)))
    with pytest.raises(DataError, match=r"no column 'browser'\. It has device, query-frequency"):
        where(log, ColumnSettings(where=("browser=x",)))
    with pytest.raises(SettingError, match="where must be written as column=value"):
        ColumnSettings(where=("device",))
    assert ColumnSettings(where=("device=phone", "ranker=a"), by="device").columns == ["device"]


def test_rare_values_are_one_context() -> None:
    log = of_sessions(sessions(["phone"] * 5 + ["desk"] * 4 + ["tv", "watch"]), columns=["device"])
    found = contexts(log, ColumnSettings(by="device", min_sessions=4))
    assert found is not None
    assert found.tolist() == ["phone", "desk", OTHER, OTHER]
    assert contexts(log, ColumnSettings()) is None
    with pytest.raises(UnsupportedError, match=r"no value of device has 1,000 sessions \(the largest has 5\)"):
        contexts(log, ColumnSettings(by="device"))
    with pytest.raises(SettingError, match="min_sessions must be at least 1"):
        ColumnSettings(min_sessions=0)


def test_rankers_and_random_lists_are_columns() -> None:
    log = of_sessions(sessions(["phone"] * 3, ranker=["a", "b", "a"], randomised=["1", "0", "0"]))
    assert column(log, "ranker").tolist() == ["a", "b", "a"]
    assert column(log, "randomised").tolist() == ["1", "0", "0"]
    with pytest.raises(DataError, match="no column 'ranker'"):
        column(Logged(log.clicks), "ranker")


def test_queries_are_split_by_frequency() -> None:
    """Sessions 6, 2, 1, 1, 1, 1: the first is the head, the next is in the middle, the rest the tail."""
    lists = Lists(np.zeros((6, 0), np.float32), np.arange(7), np.arange(6).astype(np.str_))
    query = np.array([1, 1, 1, 1, 1, 1, 0, 0, 2, 3, 4, 5])
    ones = np.ones(12, np.int64)
    clicks = Clicks(lists, np.arange(13), query, ones.astype(np.int32), ones, ones)
    assert query_frequency(clicks).tolist() == ["head"] * 6 + ["middle"] * 2 + ["tail"] * 4
    assert query_frequency(clicks.merge()).tolist() == ["head", "middle", "tail", "tail", "tail", "tail"]
