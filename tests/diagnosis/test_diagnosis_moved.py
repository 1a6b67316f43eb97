"""Position, trust and coupling: by hand on tiny logs, and on small worlds whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.diagnosis.beyond import beyond, trust_by_position
from clickprism.diagnosis.coupling import CouplingSettings, coupling
from clickprism.diagnosis.linked import missing
from clickprism.diagnosis.position import PositionSettings, fall_of, position
from clickprism.diagnosis.trust import TrustSettings, trust
from clickprism.errors import SettingError
from clickprism.types import Lists
from tests.diagnosis.tiny_logs import log_of, small_world, swapped


def test_half_the_clicks_at_the_second_place_is_half_the_observation() -> None:
    found = position(swapped(30, first=(40, 20), second=(20, 10)))
    assert found.verdict == "present"
    assert found.number == pytest.approx(0.5, abs=1e-3)
    curves = found.details["curves"]
    assert curves["moved"]["values"] == pytest.approx([1.0, 0.5], abs=1e-3)
    assert curves["allpairs"]["values"] == pytest.approx([1.0, 0.5])
    assert curves["click-through"]["values"] == pytest.approx([1.0, 0.5])
    assert "agree within" in found.sentence
    assert "randomised" in found.details["refused"]


def test_click_through_may_fall_where_observation_does_not() -> None:
    pages = []
    for query in range(30):  # a document clicked in half of its searches, and one in a tenth, wherever they stand
        good, poor = 2 * query, 2 * query + 1
        pages += [((good, poor), (1,), 45, 0), ((good, poor), (2,), 9, 0), ((good, poor), (), 36, 0)]
        pages += [((poor, good), (1,), 1, 0), ((poor, good), (2,), 5, 0), ((poor, good), (), 4, 0)]
    found = position(log_of(pages, documents=[2] * 30))
    assert found.verdict == "absent"
    assert found.number == pytest.approx(1.0, abs=1e-3)
    assert found.details["curves"]["click-through"]["values"][1] == pytest.approx(14 / 46)


def test_what_is_not_linked_is_not_known() -> None:
    pages = [((2 * query, 2 * query + 1), (1,), 50, 0) for query in range(20)]
    pages += [((2 * query, 2 * query + 1), (2,), 30, 0) for query in range(20)]
    logged = log_of(pages, documents=[2] * 20, features=2)
    for found in (position(logged), trust(logged), coupling(logged)):
        assert found.verdict == "unknown"
        assert found.number is None
        assert "2 groups" in found.sentence
    assert "falls to 60%" in position(logged).sentence


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        ([((0, 1), (), 5, 0)], "no clicks"),
        ([((0,), (1,), 5, 0)], "one position only"),
    ],
)
def test_what_a_log_lacks(pages: list[tuple[tuple[int, ...], tuple[int, ...], int, int]], why: str) -> None:
    logged = log_of(pages, documents=[2], features=1)
    lacking = missing(logged)
    assert lacking is not None
    assert why in lacking[0]
    assert {each(logged).verdict for each in (position, trust, coupling)} == {"unknown"}


def test_too_few_queries_tell_nothing() -> None:
    logged = swapped(2, first=(4, 2), second=(2, 1), searches=20)
    assert position(logged).verdict == "unknown"
    assert trust(logged).verdict == "unknown"
    assert "no features" in coupling(logged).sentence
    unsure = PositionSettings(material=0.999, widest=1e-6)  # a fall that is never enough, an interval that always is
    wide = position(small_world(policy="shuffle", trust=0.5, queries=100), settings=unsure)
    assert wide.sentence.endswith("too few documents moved.")


def test_without_features_trust_can_still_be_told() -> None:
    logged = small_world(policy="shuffle", trust=0.5, queries=100)
    bare = logged.clicks.lists.with_features(np.zeros((logged.clicks.lists.documents, 0), np.float32))
    found = trust(Logged(replace(logged.clicks, lists=bare)))
    assert found.verdict == "present"


def test_places_that_hardly_any_click_links_do_not_stretch_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = small_world(policy="shuffle", trust=0.5, queries=100)
    known = beyond(logged)
    odd = replace(known, poor=np.where(np.arange(len(known.poor)) == 2, 69.0, known.poor))
    monkeypatch.setattr("clickprism.diagnosis.trust.beyond", lambda _: odd)
    found = trust(logged)
    assert found.table is not None
    assert found.figure is not None
    assert [row[1] == "" for row in found.table[1]] == [place == 2 for place in range(len(odd.poor))]
    (axes,) = found.figure().axes
    assert axes.get_ylim()[1] < 3


def test_a_share_that_is_not_sure_is_said_as_such() -> None:
    logged = small_world(policy="shuffle", trust=0.5, queries=100)
    unsure = trust(logged, settings=TrustSettings(level=1e-300, widest=0.999))
    assert unsure.verdict == "absent"
    assert unsure.sentence.startswith("Poor documents do not surely gain more from the top")
    open_ended = trust(logged, settings=TrustSettings(level=1e-300, widest=1e-6))
    assert open_ended.verdict == "unknown"
    assert "any share" not in open_ended.sentence


def test_trust_falls_as_it_should() -> None:
    falls = trust_by_position(10)
    assert falls[-1] == 0
    assert (np.diff(falls) < 0).all()
    assert falls[0] == pytest.approx(1 / 0.6 - 1 / 9.6)


@pytest.mark.parametrize("trusting", [0.0, 0.5])
@pytest.mark.parametrize("coupled", [0.0, 0.5])
def test_trust_and_coupling_are_told_apart(trusting: float, coupled: float) -> None:
    logged = small_world(trust=trusting, coupling=coupled, seed=7)
    assert position(logged).verdict == "present"
    assert trust(logged).verdict == ("present" if trusting else "absent")
    found = coupling(logged)
    assert found.verdict == ("present" if coupled else "absent")
    assert found.table is not None
    assert len(found.details["slopes"]) == 12


def test_what_is_popular_is_not_coupled() -> None:
    assert coupling(small_world(attention=0.6, seed=3)).verdict == "absent"


@pytest.mark.parametrize("browsing", ["ubm", "dbn", "ccm"])
def test_clicks_above_are_neither_trust_nor_coupling(browsing: str) -> None:
    logged = small_world(browsing=browsing, queries=100, sessions=30_000)
    assert position(logged).verdict == "present"
    assert trust(logged).verdict == "absent"
    assert coupling(logged).verdict == "absent"


def test_an_engine_that_heeds_clicks_does_not_pass_for_a_bias() -> None:
    logged = small_world(policy="feedback", severity=0.0, queries=100, sessions=30_000, seed=4)
    assert beyond(logged).heeds
    assert fall_of(logged).mean > 0.9
    for each in (position, trust, coupling):
        assert each(logged).verdict == "absent"


def test_lists_in_random_order_are_a_curve_of_their_own() -> None:
    found = position(small_world(policy="shuffle"))
    curve = found.details["curves"]["randomised"]["values"]
    assert curve[1] == pytest.approx(0.61 / 0.68, abs=0.2)
    assert found.figure is not None
    assert found.figure().axes


def test_figures_and_words_of_present_findings() -> None:
    logged = small_world(trust=0.5, coupling=0.5, seed=7)
    for found in (trust(logged), coupling(logged)):
        assert found.figure is not None
        assert found.figure().axes
        assert found.interval is not None
        assert found.interval[0] <= (found.number or 0.0) <= found.interval[1]
        assert found.advice


def test_a_log_merged_by_list_still_tells() -> None:
    logged = small_world(trust=0.5, coupling=0.5, seed=7)
    merged = Logged(logged.clicks.merge(by="list"), feature_names=logged.feature_names)
    assert trust(merged).verdict == "present"
    assert coupling(merged).verdict == "present"


def test_a_feature_that_is_constant_is_left_in_peace() -> None:
    logged = small_world(coupling=0.5, seed=7)
    lists = logged.clicks.lists
    constant = lists.features.copy()
    constant[:, 0] = 3.0
    made = Lists(constant, lists.offsets, lists.query_ids, lists.document_ids)
    slopes = coupling(replace(logged, clicks=replace(logged.clicks, lists=made))).details["slopes"]
    assert slopes[0] == 0


@pytest.mark.parametrize("kind", [TrustSettings, CouplingSettings, PositionSettings])
def test_settings_are_checked(kind: type[TrustSettings | CouplingSettings | PositionSettings]) -> None:
    with pytest.raises(SettingError, match="level"):
        kind(level=0.0)
    with pytest.raises(SettingError, match="depth"):
        PositionSettings(depth=1)
