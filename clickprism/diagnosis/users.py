"""What else decides what users observe and click: trust, document features, earlier clicks, and clicks above.

Each finding is a test of one part of the model of the log: does adding the part predict held-out queries better?
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from clickprism.data.logged import Logged
from clickprism.diagnosis.finding import Finding, inconclusive, values_of
from clickprism.errors import DataError
from clickprism.log_model.model import LogModel
from clickprism.log_model.results import Test, p_text

MORE: Final = "Collect more searches, and show some documents at several positions."
RANDOMISE: Final = "Randomise positions in a small share of searches, so that they do not depend on clicks."


@final
@dataclass(frozen=True)
class Words:
    """What a report says about one test."""

    present: str
    absent: str
    question: str  # what an inconclusive test leaves open, after "whether"
    number: str  # the estimate as a sentence with the fields {value} and {interval}
    percent: bool  # print the estimate as a percentage
    advice: str  # if the bias is present
    needs: str  # what to do if the log does not have what the test needs
    negative: str = ""  # the sentence for a negative estimate, whose sign is dropped


TRUST: Final = Words(
    present="There is trust bias: users click on top results partly because of the position, whatever is shown there.",
    absent="There is no trust bias that matters: clicks on top results depend on the document.",
    question="users click on top results because of the position alone",
    number="Trust adds {value} to the click probability at position 1{interval}.",
    percent=False,
    advice="Dividing clicks by observation is not enough: subtract what trust adds. To train a ranker, use the method"
    ' `affine` with estimate = "trust".',
    needs="Show some documents at several positions, including the first.",
)
COUPLING: Final = Words(
    present="How often a document is observed depends on its features, not only on its position (coupling).",
    absent="One position curve describes all documents: observation does not depend on their features.",
    question="observation depends on the features of documents",
    number="How fast observation falls differs by {value} from document to document (standard deviation{interval}).",
    percent=True,
    advice="Use the method `lbd`, whose observation model has the features. Methods with one curve for all documents"
    " (ipw, dla) favour documents that are observed more.",
    needs="Log the features of documents, and show some documents at several positions.",
)
POPULARITY: Final = Words(
    present="How often a document is observed depends on how often it was clicked on earlier days (popularity bias).",
    absent="Earlier clicks on a document do not change how often users observe it.",
    question="users observe documents more often if these were clicked on earlier days",
    number="For the most clicked documents the position curve is flatter by {value}{interval}.",
    percent=True,
    advice="Do not use past clicks as a measure of relevance without a correction, and show new documents at random in"
    " a small share of searches. The method `inforank` is made for this.",
    needs="Log the time of each search, for at least two days.",
    negative="For the most clicked documents the position curve is steeper by {value}{interval}.",
)
INTERACTION: Final = Words(
    present="Whether users observe a result depends on their last click above it.",
    absent="Clicks hardly depend on clicks above (a gain of 0.001 per session with p < 0.01 would be needed): the"
    " position describes observation well enough.",
    question="clicks depend on clicks above",
    number="Taking the last click into account improves the held-out log-likelihood by {value} per session{interval}.",
    percent=False,
    advice="Prefer a click model that conditions on clicks above; `clickprism bias click-models LOG` compares them. The"
    " position curve is then an average over searches with and without clicks above.",
    needs='Log which clicks belong to one session, and merge sessions only with clicks.merge(by="pattern").',
    negative="Taking the last click into account lowers the held-out log-likelihood by {value} per session{interval}.",
)


def trust(model: LogModel) -> Finding:
    """Return whether users click on top results because of the position alone."""
    test = model.tests.get("trust")
    if test is None and model.steepness > 0:
        return inconclusive(
            "trust",
            "Trust bias was not tested: queries of this log differ in how fast observation falls with the position,"
            " which leaves the same trace in clicks.",
            "If you suspect trust bias, train rankers with and without the method `affine`, and compare them on"
            " held-out clicks.",
        )
    return finding_of("trust", test, TRUST)


def coupling(log: Logged, model: LogModel) -> Finding:
    """Return whether observation depends on the features of documents."""
    if not log.has_features:
        return inconclusive("coupling", "The documents of the log have no features.", COUPLING.needs)
    return finding_of("coupling", model.tests.get("coupling"), COUPLING)


def popularity(log: Logged, model: LogModel) -> Finding:
    """Return whether observation depends on the clicks of earlier days."""
    if log.days is None:
        return inconclusive("popularity", "The log does not record days.", POPULARITY.needs)
    return finding_of("popularity", model.tests.get("popularity"), POPULARITY)


def interaction(log: Logged, model: LogModel) -> Finding:
    """Return whether observation depends on the last click above."""
    if not log.clicks.are_patterns:
        why = "The log does not record which clicks belong to one session."
        return inconclusive("interaction", why, INTERACTION.needs)
    try:
        test = model.browsing(log)
    except DataError as error:
        return inconclusive("interaction", f"Clicks above could not be tested: {error}.", INTERACTION.needs)
    return finding_of("interaction", test, INTERACTION)


def finding_of(name: str, test: Test | None, words: Words) -> Finding:
    """Return a test of the model as a finding; inconclusive if the model has no such test."""
    if test is None:
        return inconclusive(name, f"The log does not show whether {words.question}.", words.needs)
    if test.verdict == "present":
        sentence, advice = words.present, words.advice
        if not test.used and name != "interaction":
            advice += " The position curve of this log does not include it."
    elif test.verdict == "absent":
        sentence, advice = words.absent, "Nothing to do."
    else:
        sentence, advice = f"The log does not show whether {words.question}.", MORE
        if "reacts to clicks" in test.note:
            advice = RANDOMISE
        sentence += f" Reason: {test.note}." if test.note else ""
    return Finding(name, test.verdict, f"{sentence}{_number(test, words)}", advice, **values_of(test))


def _number(test: Test, words: Words) -> str:
    """Return the sentence on the estimate; empty if there is none, or if it cannot be trusted."""
    if not math.isfinite(test.estimate) or test.verdict == "inconclusive":
        return ""
    numbers, number = (test.estimate, test.lower, test.upper), words.number
    if test.estimate < 0 and words.negative:
        numbers, number = (-test.estimate, -test.upper, -test.lower), words.negative
    digits = 3 if abs(test.estimate) >= 0.001 else 6
    value, lower, upper = (f"{each:.0%}" if words.percent else f"{each:.{digits}f}" for each in numbers)
    ends = [f"95% interval {lower} to {upper}"] if math.isfinite(test.lower) else []
    ends += [p_text(test.p_value)] if math.isfinite(test.p_value) else []
    inside = "(" in number
    interval = "".join(f", {each}" for each in ends) if inside else f" ({', '.join(ends)})" if ends else ""
    return f" {number.format(value=value, interval=interval)}"
