"""Coverage, identifiability, interaction, popularity, selection, drift: by hand on tiny logs, and on small worlds."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.diagnosis.clusters import by_query, evidence, numbered, ratio, units
from clickprism.diagnosis.coverage import CoverageSettings, coverage
from clickprism.diagnosis.diagnose import DiagnoseSettings, check_names, diagnose
from clickprism.diagnosis.drift import drift
from clickprism.diagnosis.identifiability import identifiability
from clickprism.diagnosis.interaction import clicks_above, heeded, interaction
from clickprism.diagnosis.popularity import engine_response, popularity
from clickprism.diagnosis.selection import selection
from clickprism.errors import SettingError
from tests.diagnosis.tiny_logs import Page, log_of, small_world, swapped


def test_sums_by_query_and_their_test() -> None:
    assert by_query(np.array([1, 1, 0]), np.array([[1.0], [2.0], [5.0]])).tolist() == [[5.0], [3.0]]
    found = evidence(np.ones((20, 1)))
    assert found.statistic == pytest.approx(20**2 / 20)
    assert evidence(np.ones((5, 1))).p_value == 1.0  # too few
    assert ratio(np.array([2.0, 4.0]), np.array([1.0, 2.0])).value == 2.0
    assert numbered(np.array([3, 3, 1]), np.array([0, 1, 0])).tolist() == [1, 2, 0]


def test_documents_stand_for_themselves_where_few_queries_hold_all() -> None:
    query, document = np.array([0, 0, 1, 2]), np.array([9, 8, 7, 6])
    assert units(query, document, np.array([1.0, 1.0, 2.0, 2.0]), enough=3).tolist() == query.tolist()
    assert units(query, document, np.array([50.0, 50.0, 1.0, 1.0]), enough=3).tolist() == document.tolist()


def test_coverage_counts() -> None:
    pages = [((0, 1), (1,), 3, 0), ((1, 0), (), 2, 0), ((3, 4), (1, 2), 1, 0)]
    facts = coverage(log_of(pages, documents=[3, 2])).details
    assert (facts["searches"], facts["queries"], facts["queries_once"]) == (6, 2, 1)
    assert (facts["documents"], facts["documents_shown"], facts["documents_at_several_positions"]) == (5, 4, 2)
    assert (facts["clicks"], facts["impressions"], facts["lists"]) == (5, 12, 3)
    assert facts["searches_with_click"] == pytest.approx(4 / 6)
    assert "features of documents" in facts["missing"]


def test_coverage_says_when_there_is_too_little() -> None:
    logged = swapped(12, first=(40, 20), second=(20, 10))
    assert coverage(logged).verdict == "present"
    found = coverage(logged, settings=CoverageSettings(clicks=10_000))
    assert found.verdict == "absent"
    assert "10,000 are wanted" in found.sentence


def test_positions_that_nothing_links_are_found_with_the_swap_that_links_them() -> None:
    pages = [((0, 1, 2), (1,), 40, 0), ((0, 1, 2), (2,), 20, 0), ((0, 1, 2), (3,), 10, 0)]
    pages += [((1, 0, 2), (1,), 40, 0), ((1, 0, 2), (2,), 20, 0)]
    found = identifiability(log_of(pages, documents=[3]))
    assert found.verdict == "absent"
    assert found.number == 2
    assert "3" in found.sentence
    linked = identifiability(swapped(3, first=(40, 20), second=(20, 10)))
    assert linked.verdict == "present"
    assert linked.unit == "group of positions, all linked"


def test_swaps_that_would_take_years_are_not_told_in_days() -> None:
    pages: list[Page] = [((0, 1, 2), (1,), 3, 0), ((0, 1, 2), (), 2, 1), ((0, 1, 2), (2,), 1, 1)]
    seldom = identifiability(log_of(pages, documents=[3], days=True))
    assert "more than a year of 5% of the searches: take a larger share" in seldom.advice
    many: list[Page] = [(*page[:2], 30_000 * page[2], page[3]) for page in pages]
    often = identifiability(log_of(many, documents=[3], days=True))
    assert "5% of the searches for" in often.advice
    assert "±0.05" in often.advice


@pytest.mark.parametrize("policy", ["single", "blocks"])
def test_a_world_that_is_not_linked_is_always_found(policy: str) -> None:
    assert identifiability(small_world(policy=policy)).verdict == "absent"


def test_clicks_above_by_hand() -> None:
    pages = []
    for query in range(20):  # below a click the second is clicked in 1 of 10, below none in 4 of 10
        one, other = 2 * query, 2 * query + 1
        pages += [((one, other), (1, 2), 10, 0), ((one, other), (1,), 90, 0)]
        pages += [((one, other), (2,), 40, 0), ((one, other), (), 60, 0)]
    above = clicks_above(log_of(pages, documents=[2] * 20).clicks)
    assert above.ratios[0].value == pytest.approx(0.25)
    assert heeded(above)
    assert above.searches[0] == 20 * 100


@pytest.mark.parametrize(("browsing", "verdict"), [("pbm", "absent"), ("dbn", "present")])
def test_interaction_of_small_worlds(browsing: str, verdict: str) -> None:
    assert interaction(small_world(browsing=browsing, queries=100, sessions=30_000)).verdict == verdict


def test_interaction_needs_what_was_clicked_together() -> None:
    merged = Logged(small_world(queries=100, sessions=30_000, browsing="dbn").clicks.merge(by="list"))
    assert interaction(merged).verdict == "unknown"


def test_an_engine_that_heeds_clicks_is_found() -> None:
    heeding = small_world(policy="feedback", queries=100, sessions=30_000, severity=0.0, seed=4)
    assert popularity(heeding).verdict == "present"
    assert popularity(small_world()).verdict == "absent"
    assert engine_response(heeding).size > 0


def test_popularity_needs_days() -> None:
    assert popularity(Logged(small_world().clicks)).verdict == "unknown"


def test_what_was_never_shown_is_counted() -> None:
    found = selection(log_of([((0, 1), (1,), 3, 0), ((4,), (), 1, 0)], documents=[4, 1, 2]))
    assert found.verdict == "present"
    assert found.number == pytest.approx(2 / 5)  # the last query was never asked
    assert selection(log_of([((0, 1), (1,), 3, 0)], documents=[2])).verdict == "unknown"


def test_drift_of_the_click_rate() -> None:
    pages = []
    for query in range(20):
        pages += [((query,), (1,), 50, 0), ((query,), (), 50, 0), ((query,), (1,), 20, 1), ((query,), (), 80, 1)]
    found = drift(log_of(pages, documents=[1] * 20, days=True))
    assert found.verdict == "present"
    assert found.details["changes"][0]["by_day"] == pytest.approx([0.5, 0.2])
    assert drift(log_of(pages, documents=[1] * 20)).verdict == "unknown"


def test_all_findings_in_the_order_of_a_report() -> None:
    told: list[str] = []
    made = diagnose(small_world(queries=100, sessions=30_000, browsing="dbn"), progress=told.append, as_of="now")
    assert list(made.findings) == told == list(check_names(None))
    assert made.verdict("position") == "present"
    assert made.to_json()["as_of"] == "now"
    with pytest.raises(SettingError, match="luck"):
        check_names(["luck"])
    with pytest.raises(SettingError, match="seed"):
        DiagnoseSettings(seed=-1)
