"""Curves of parts of a log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.data.sessions import SessionLog
from clickprism.errors import DataError, SettingError
from clickprism.observation.bootstrap import Bootstrap
from clickprism.observation.contexts import CurveSettings, observe, query_frequency, where
from clickprism.observation.curve import relative_error
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.types import Clicks, JudgedLists, Lists, concatenate
from clickprism.users.pbm import PositionUser

CURVES = {"desk": (0.9, 0.8, 0.7), "phone": (0.9, 0.5, 0.2)}
ONCE = Bootstrap(resamples=0)
ALL_PAIRS = CurveSettings(method=("allpairs",))
BY_DEVICE = CurveSettings(method=("allpairs",), by="device")


@pytest.fixture(scope="module")
def log() -> SessionLog:
    """Sessions on two devices with curves of their own, and a hundred on a third."""
    rng = np.random.default_rng(0)
    lists = Lists(np.zeros((400, 0), np.float32), np.arange(0, 401, 4), np.arange(100).astype(np.str_))
    judged = JudgedLists(lists, rng.integers(0, 5, 400).astype(np.int32))
    scores = judged.grades + 2 * rng.normal(size=(3, 400))
    settings = SimulationSettings(length=3, merge="none", frequency="zipf")
    parts = [
        simulate(judged, PositionUser(curve=curve), sessions=count, seed=seed, settings=settings, scores=scores).clicks
        for seed, (curve, count) in enumerate([(CURVES["desk"], 20_000), (CURVES["phone"], 20_000), ((0.9,), 100)])
    ]
    device = np.repeat(["desk", "phone", "watch"], [20_000, 20_000, 100])
    return SessionLog(concatenate(parts), {"device": device})


def test_each_device_has_its_curve(log: SessionLog) -> None:
    found = observe(log, BY_DEVICE, bootstrap=ONCE)
    assert list(found.parts) == ["desk", "phone"]
    assert found.excluded == {"watch": 100}
    for device, curves in found.parts.items():
        assert curves.sessions == 20_000
        assert relative_error(curves.curves["allpairs"].values, np.array(CURVES[device])) < 0.05
    whole = found.whole.curves["allpairs"].values
    assert CURVES["phone"][2] < whole[2] * 0.9 < CURVES["desk"][2]
    with pytest.raises(SettingError, match="min_sessions must be at least 1"):
        CurveSettings(by="device", min_sessions=0)


def test_a_condition_selects_sessions_and_a_wrong_one_is_refused(log: SessionLog) -> None:
    assert len(where(log, ["device=watch"])) == 100
    with pytest.raises(DataError, match=r"no session has device=tv\. The column has desk, phone, watch"):
        where(log, ["device=tv"])
    with pytest.raises(DataError, match="no column 'browser'"):
        where(log, ["browser=x"])
    with pytest.raises(SettingError, match="where must be written as column=value"):
        CurveSettings(where=("device",))


def test_queries_are_parted_by_frequency() -> None:
    """Sessions 6, 2, 1, 1, 1, 1: the first is the head, the next is in the middle, the rest the tail."""
    lists = Lists(np.zeros((6, 0), np.float32), np.arange(7), np.arange(6).astype(np.str_))
    query = np.array([1, 1, 1, 1, 1, 1, 0, 0, 2, 3, 4, 5])
    ones = np.ones(12, np.int64)
    log = SessionLog(Clicks(lists, np.arange(13), query, ones.astype(np.int32), ones, ones))
    assert query_frequency(log).tolist() == ["head"] * 6 + ["middle"] * 2 + ["tail"] * 4
    merged = replace(log, clicks=log.clicks.merge())
    assert query_frequency(merged).tolist() == ["head", "middle", "tail", "tail", "tail", "tail"]


def test_frequency_buckets_have_curves(log: SessionLog) -> None:
    found = observe(log, CurveSettings(method=("allpairs",), by="query-frequency"), bootstrap=ONCE)
    assert list(found.parts) == ["head", "middle", "tail"]
    assert sum(curves.sessions for curves in found.parts.values()) == 40_100


def test_parts_differ_beyond_their_intervals(log: SessionLog) -> None:
    assert observe(log, BY_DEVICE, bootstrap=Bootstrap(resamples=20)).differ == ("desk", "phone", 3)
    assert observe(log, BY_DEVICE, bootstrap=ONCE).differ is None
    assert observe(log, ALL_PAIRS, bootstrap=Bootstrap(resamples=20)).differ is None
