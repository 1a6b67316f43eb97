"""Which positions can be compared: documents shown at several positions, randomised positions, features."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.errors import UnsupportedError
from clickprism.log_model.counts import LogCounts, count
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.log_model.references import LEAST_CLICKS, Links, allpairs, linkage
from clickprism.log_model.results import Linkage
from clickprism.types import Bool
from tests.log_model.simulated_logs import clicks_of, lists_of, world

NOWHERE = np.zeros(4, dtype=np.bool_)


def four_positions(*orders: list[int], clicks: int = 30) -> LogCounts:
    """Return the counts of one query of four documents, shown in these orders with these clicks on each result."""
    rows = np.array(orders)
    return count(clicks_of(lists_of(1, 4), rows, np.full(rows.shape, clicks), 100))


def linked(counts: LogCounts, *, features: bool = False, randomised: Bool = NOWHERE) -> Linkage:
    return linkage(counts, Links.of(counts), features=features, randomised=randomised)


def test_documents_shown_at_several_positions_link_them() -> None:
    found = linked(four_positions([0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2]))
    assert found.groups.tolist() == [0, 0, 0, 0]
    assert found.linked
    assert found.depth == 4
    assert found.identified == ("documents",) * 4
    assert found.repair == ""
    assert (found.moved, found.pairs) == (4, 4)
    assert (found.evidence > LEAST_CLICKS).all()


def test_positions_without_documents_in_common_are_not_linked() -> None:
    found = linked(four_positions([0, 1, 2, 3], [1, 0, 3, 2]))
    assert found.groups.tolist() == [0, 0, 1, 1]
    assert not found.linked
    assert found.depth == 2
    assert found.identified == ("documents", "documents", "not identified", "not identified")
    assert found.evidence[2:].tolist() == [0, 0]


def test_the_repair_names_the_positions_to_swap_and_the_searches_that_it_takes() -> None:
    found = linked(four_positions([0, 1, 2, 3], [1, 0, 3, 2]))
    # a link needs 10 effective clicks, so 20 clicks, at a click rate of .3
    assert found.repair == "Swap the results at positions 2 and 3 in about 67 searches"
    still = linked(four_positions([0, 1, 2, 3]))
    assert still.groups.tolist() == [0, 1, 2, 3]
    assert still.repair == "Swap the results at positions 1 and 2, 2 and 3, 3 and 4 in about 200 searches"


def test_a_link_needs_clicks() -> None:
    orders = ([0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2])
    assert linked(four_positions(*orders, clicks=30)).linked
    few = linked(four_positions(*orders, clicks=1))
    assert not few.linked
    assert (few.evidence[1:] < LEAST_CLICKS).all()
    assert (few.evidence[1:] > 0).all()


def test_the_weakest_link_is_the_one_with_the_fewest_effective_clicks() -> None:
    rows = np.array([[0, 1, 2], [1, 0, 2], [0, 2, 1]])
    shown = np.array([1000, 1000, 40])
    counts = count(clicks_of(lists_of(1, 3), rows, (shown[:, None] * 2 // 5) * np.ones((3, 3), dtype=np.int64), shown))
    found = linked(counts, randomised=np.zeros(3, dtype=np.bool_))
    assert found.linked
    assert found.weakest is not None
    assert found.weakest[:2] == (2, 3)
    assert found.evidence[1] > found.evidence[2] == pytest.approx(found.weakest[2])


def test_effective_clicks_are_one_over_the_variance_of_the_log_ratio() -> None:
    # one document, 100 impressions at each of two positions, 30 and 10 clicks: 1 / (1 / 30 + 1 / 10)
    rows = np.array([[0, 1], [1, 0]])
    counts = count(clicks_of(lists_of(1, 2), rows, np.array([[30, 0], [0, 10]]), 100))
    links = Links.of(counts)
    assert links.strength == pytest.approx([7.5])
    assert (links.low.tolist(), links.high.tolist(), links.documents, links.clicks) == ([0], [1], 2, 40)


def test_features_compare_positions_that_documents_do_not_link() -> None:
    found = linked(four_positions([0, 1, 2, 3], [1, 0, 3, 2]), features=True)
    assert found.identified == ("documents", "documents", "features", "features")
    assert not found.linked
    assert found.repair


def test_randomised_positions_are_identified_without_documents_in_common() -> None:
    found = linked(four_positions([0, 1, 2, 3]), randomised=np.ones(4, dtype=np.bool_))
    assert found.identified == ("randomised",) * 4
    assert found.linked
    assert found.repair == ""


def test_random_positions_without_the_first_do_not_identify_the_curve() -> None:
    found = linked(four_positions([0, 1, 2, 3]), randomised=np.array([False, True, True, True]))
    assert "randomised" not in found.identified
    assert not found.linked


def test_documents_link_a_position_to_a_randomised_one() -> None:
    counts = four_positions([0, 1, 2, 3], [0, 2, 1, 3])  # 2 and 3 are linked, 1 and 2 by chance
    found = linked(counts, randomised=np.array([True, True, False, False]))
    assert found.identified[:3] == ("randomised", "randomised", "documents")
    assert found.groups[:3].tolist() == [0, 0, 0]
    assert found.depth == 3


def test_the_model_says_that_an_engine_which_never_changes_identifies_nothing() -> None:
    model = LogModel.fit(world(1, noise=0.0).log, settings=LogModelSettings(resamples=0))
    assert model.linkage.moved == 0
    assert set(model.linkage.identified[1:]) == {"not identified"}
    assert model.tests["position"].verdict == "inconclusive"
    assert "no other position is linked to position 1 by documents" in model.tests["position"].note
    assert "not linked" in model.unsupported["allpairs"]


def test_the_model_says_that_features_alone_identify_the_curve() -> None:
    model = LogModel.fit(world(1, noise=0.0, features=2, explained=0.9).log, settings=LogModelSettings(resamples=0))
    assert model.form.features
    assert set(model.linkage.identified[1:]) == {"features"}
    assert not model.linkage.linked


def test_allpairs_refuses_unlinked_positions_with_a_remedy() -> None:
    counts = four_positions([0, 1, 2, 3], [1, 0, 3, 2])
    with pytest.raises(
        UnsupportedError, match=r"position 3 is not linked .* swap results in some searches; .*--depth 2"
    ):
        allpairs(Links.of(counts), resamples=0)
