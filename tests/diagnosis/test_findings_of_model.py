"""What findings make of a model whose values are set by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.diagnosis.position import click_rates, position, top_changes
from clickprism.diagnosis.users import (
    COUPLING,
    INTERACTION,
    POPULARITY,
    TRUST,
    coupling,
    finding_of,
    interaction,
    popularity,
    trust,
)
from clickprism.diagnosis.validity import feedback, fit, identifiability
from clickprism.errors import DataError
from clickprism.log_model import results
from tests.diagnosis.hand_made import CURVE, FITS, LINKAGE, POSITION, hand_made, relevance
from tests.diagnosis.tiny_logs import log_of

LOG = log_of([((0, 1, 2), (1,), 40, 0), ((1, 0, 2), (2,), 10, 0), ((1, 0, 2), (), 50, 0)], documents=[3])


def test_position_bias_with_its_curve() -> None:
    model = hand_made()
    found = position(LOG, model)
    assert found.verdict == "present"
    assert found.sentence == (
        "There is position bias. Lower positions are observed 38% as often as position 1 on average (95% interval 30%"
        " to 45%). A second estimate, from documents shown at several positions only, differs by less than 10%."
    )
    assert (found.estimate, found.interval, found.p_value) == (0.375, (0.3, 0.45), 1e-9)
    assert found.table is not None
    assert found.table.rows[1] == ["2", "0.500", "0.400 to 0.600", "documents", "0.500", "0.250"]
    assert found.figure is not None
    (axes,) = found.figure().axes
    drawn = {str(line.get_label()): line.get_ydata() for line in axes.lines}
    assert np.asarray(drawn["observation"]).tolist() == CURVE.values.tolist()
    assert np.asarray(drawn["click rate"]).tolist() == [1.0, 0.25, 0.0]


def test_the_other_verdicts_on_position_bias() -> None:
    absent = replace(POSITION, verdict="absent", estimate=0.98, lower=0.95, upper=1.01)
    found = position(LOG, hand_made({"position": absent}))
    assert found.sentence.startswith("There is no position bias that matters. Lower positions are observed 98%")
    assert found.tone == "good"
    unclear = replace(POSITION, verdict="inconclusive", lower=0.1, upper=2.3)
    found = position(LOG, hand_made({"position": unclear}))
    assert found.sentence.startswith("The log does not show whether there is position bias.")
    assert "may be observed 10% to 230% as often as position 1 on average (95% interval)" in found.sentence
    assert found.details["ranking"] == "Unknown: a ranking by click rate may repeat position bias."
    assert found.advice == "Show some documents at several positions: see Identifiability."
    one = results.Test("position", "inconclusive", note="the log has one position only")
    assert position(LOG, hand_made({"position": one})).sentence == (
        "The log does not show whether there is position bias. Reason: the log has one position only."
        " A second estimate, from documents shown at several positions only, differs by less than 10%."
    )


def test_a_curve_that_only_features_identify_has_a_note() -> None:
    linkage = replace(
        LINKAGE,
        identified=("documents", "features", "features"),
        groups=np.array([0, 1, 1]),
        evidence=np.array([90.0, 0.0, 0.0]),
    )
    model = hand_made(linkage=linkage)
    assert "Identified by features only: positions 2 to 3." in position(LOG, model).sentence
    assert "The position curve is identified by features only" in identifiability(model).sentence
    assert "doubtful" not in position(LOG, model).sentence
    above = replace(POSITION, verdict="inconclusive", estimate=1.8, lower=1.5, upper=2.1)
    found = position(LOG, hand_made({"position": above}, linkage=linkage)).sentence
    assert "may be observed 150% to 210% as often" in found
    assert "It rises above 100%, which makes this doubtful." in found
    linkage = replace(LINKAGE, identified=("documents", "documents", "not identified"), groups=np.array([0, 0, 1]))
    unclear = replace(POSITION, verdict="inconclusive", lower=0.1, upper=2.3, note="positions below 2 are not linked")
    found = position(LOG, hand_made({"position": unclear}, linkage=linkage)).sentence
    assert "Reason: positions below 2 are not linked. Not identified: position 3." in found
    assert "230%" not in found


def test_a_second_estimate_that_differs_is_said() -> None:
    differs = results.Agreement(CURVE, 0.0005, False, 3, 1.4)
    model = hand_made(references={"allpairs": differs})
    said = "differs: it is 25% at position 3, where this curve is 35% (p = 0.0005)."
    assert said in position(LOG, model).sentence
    reacts = results.Feedback("present", -9.0, 1e-12)
    model = hand_made(references={"allpairs": differs}, feedback=reacts)
    assert "This is expected, since the engine reacts to clicks." in position(LOG, model).sentence


def test_click_rates_by_position() -> None:
    assert click_rates(LOG).tolist() == [1.0, 0.25, 0.0]  # 40, 10 and 0 clicks of 100 impressions
    without = log_of([((0, 1), (2,), 5, 0)], documents=[2])
    assert np.isnan(click_rates(without)).all()


def test_the_document_with_most_clicks_is_not_always_the_best() -> None:
    log = log_of([((0, 1), (), 1, 0), ((2, 3), (), 1, 0), ((4,), (), 1, 0)], documents=[2, 2, 1])
    # Query 1: relevance .5 > .4, observed half the time: click rates .25 < .4. Query 2: the same order by both.
    made = relevance([0, 1, 2, 3, 4], [0.5, 0.4, 0.5, 0.4, 0.1], [50, 100, 100, 100, 5], [100, 100, 100, 100, 5])
    assert top_changes(log, hand_made(relevance=made)) == pytest.approx(1 / 2)
    assert top_changes(log, hand_made(relevance=relevance([], [], [], []))) == 0.0


def test_linked_positions_are_identifiable() -> None:
    found = identifiability(hand_made())
    assert found.word == "✓ identifiable"
    assert "All 3 positions are linked by documents shown at several positions; 8 of 10" in found.sentence
    assert "The weakest link, between positions 2 and 3, is based on 40 clicks." in found.sentence
    randomised = replace(LINKAGE, identified=("randomised",) * 3)
    assert "linked by randomised positions" in identifiability(hand_made(linkage=randomised)).sentence


def test_positions_that_are_not_linked() -> None:
    apart = replace(
        LINKAGE,
        identified=("documents", "documents", "not identified"),
        groups=np.array([0, 0, 1]),
        evidence=np.array([90.0, 90.0, 0.0]),
        repair="Swap the results at positions 2 and 3 in about 400 searches",
    )
    found = identifiability(hand_made(linkage=apart))
    assert (found.verdict, found.estimate) == ("absent", 2.0)
    assert "positions 1 to 2 | 3 are not linked to each other" in found.sentence
    assert found.advice == "Swap the results at positions 2 and 3 in about 400 searches."
    weak = replace(apart, evidence=np.array([90.0, 90.0, 3.0]))
    found = identifiability(hand_made(linkage=weak))
    assert found.verdict == "inconclusive"
    assert "position 3 is linked to position 1 by 3 clicks only" in found.sentence
    single = replace(apart, groups=np.arange(3), evidence=np.zeros(3))
    assert "no two positions are linked" in identifiability(hand_made(linkage=single)).sentence


def test_tests_of_the_model_become_findings() -> None:
    tested = results.Test("trust", "present", 0.21, 0.15, 0.27, "of the clicks at position 1", 1e-6, used=True)
    found = trust(hand_made({"trust": tested}))
    assert found.sentence.endswith(
        "Trust adds 0.210 to the click probability at position 1 (95% interval 0.150 to 0.270, p < 0.0001)."
    )
    assert "does not include it" not in found.advice
    unused = trust(hand_made({"trust": replace(tested, used=False)}))
    assert "The position curve of this log does not include it." in unused.advice
    absent = trust(hand_made({"trust": replace(tested, verdict="absent")}))
    assert (absent.tone, absent.advice) == ("good", "Nothing to do.")
    unclear = replace(
        tested, verdict="inconclusive", estimate=np.nan, lower=np.nan, p_value=np.nan, note="too few documents"
    )
    found = trust(hand_made({"trust": unclear}))
    assert found.sentence.endswith("because of the position alone. Reason: too few documents.")
    assert (found.estimate, found.interval, found.p_value) == (None, None, None)
    assert found.advice == "Collect more searches, and show some documents at several positions."
    hidden = trust(hand_made({"trust": replace(unclear, note="the engine reacts to clicks, which hides trust bias")}))
    assert hidden.advice.startswith("Randomise positions in a small share of searches")
    assert "queries of this log differ in how fast observation falls" in trust(hand_made(steepness=0.3)).sentence
    assert trust(hand_made()).sentence == f"The log does not show whether {TRUST.question}."
    couples = replace(tested, name="coupling", estimate=0.4, lower=np.nan, upper=np.nan)
    assert "differs by 40% from document to document (standard deviation, p < 0.0001)." in (
        finding_of("coupling", couples, COUPLING).sentence
    )
    tiny = replace(tested, name="interaction", verdict="absent", estimate=0.00021, lower=0.0001, upper=0.0003)
    said = finding_of("interaction", tiny, INTERACTION).sentence
    assert said.endswith("by 0.000210 per session (95% interval 0.000100 to 0.000300, p < 0.0001).")
    steeper = replace(tested, name="popularity", verdict="absent", estimate=-0.05, lower=-0.09, upper=-0.01)
    assert "the position curve is steeper by 5% (95% interval 1% to 9%, p < 0.0001)." in (
        finding_of("popularity", steeper, POPULARITY).sentence
    )


def test_what_a_log_does_not_record_leaves_a_finding_inconclusive() -> None:
    model = hand_made()
    assert coupling(LOG, model).sentence == "The documents of the log have no features."
    assert popularity(LOG, model).sentence == "The log does not record days."
    merged = Logged(LOG.clicks.merge(by="list"))
    assert "which clicks belong to one session" in interaction(merged, model).sentence


def test_interaction_asks_the_model_for_its_conditional_test() -> None:
    tested = results.Test("browsing", "present", 2.5, 2.1, 3.0, "times the clicks")
    found = interaction(LOG, hand_made(browsing=lambda _: tested))
    assert (found.name, found.verdict, found.estimate) == ("interaction", "present", 2.5)

    def refuse(_: Logged) -> results.Test:
        raise DataError("the log is deeper than 20 positions")

    refused = interaction(LOG, hand_made(browsing=refuse))
    assert (refused.verdict, refused.sentence) == (
        "inconclusive",
        "Clicks above could not be tested: the log is deeper than 20 positions.",
    )


@pytest.mark.parametrize(
    ("verdict", "words"),
    [("present", "The engine reacts to clicks"), ("absent", "does not react to clicks"), ("inconclusive", "is weak")],
)
def test_the_finding_on_feedback_gives_verdict_and_advice(verdict: results.Verdict, words: str) -> None:
    found = feedback(hand_made(feedback=results.Feedback(verdict, -2.0, 0.023)))
    assert found.verdict == verdict
    assert words in found.sentence
    assert "z = -2.0, p = 0.023" in found.sentence
    assert (found.advice == "Collect more days, and run the diagnosis again.") is (verdict == "inconclusive")
    untested = feedback(hand_made(feedback=results.Feedback("inconclusive", np.nan, np.nan)))
    assert untested.advice == "Log the time of each search, for several days."
    assert "one day only, too few clicks, or documents that hardly change positions" in untested.sentence


def test_feedback_says_how_far_documents_move() -> None:
    reacts = results.Feedback("present", -4.0, 3e-5, -0.5, -0.8, -0.2)
    found = feedback(hand_made(feedback=reacts))
    assert found.sentence.endswith(
        "If the click rate of a document rises by 10 percentage points, the number of its position falls by 4.9% (95%"
        " interval 2.0% to 7.7%)."
    )
    assert found.details["reaction"] == -0.5
    absent = feedback(hand_made(feedback=replace(reacts, verdict="absent")))
    assert "falls by" not in absent.sentence


def test_a_bad_fit_names_the_position_and_its_excess() -> None:
    assert fit(hand_made()).word == "✓ fits"
    ratio, z = np.ones((3, 2)), np.zeros((3, 2))
    ratio[1, 0], z[1, 0] = 1.3, 5.0
    found = fit(hand_made(fit_quality=results.GoodnessOfFit(ratio, z, ("1", "2-3"), 1e-6, 0.26, False)))
    assert found.word == "! does not fit"
    assert (
        "position 2 has 30% more clicks than expected on documents that the engine ranked at position 1"
        in found.sentence
    )
    assert found.estimate == 0.26
    assert fit(hand_made(fit_quality=replace(FITS, p_value=np.nan))).verdict == "inconclusive"
    small = fit(hand_made(fit_quality=replace(FITS, p_value=1e-6, largest=0.039))).sentence
    assert small.endswith(
        "where observed clicks differ significantly from expected ones, it is by a factor of at most 1.04."
    )
