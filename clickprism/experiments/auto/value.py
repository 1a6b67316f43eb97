"""What the chosen ranker would earn, in the words of `auto`: a value with its interval, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from clickprism._util.tables import to_plain
from clickprism.data.logged import Logged
from clickprism.errors import DataError
from clickprism.types import Float64

if TYPE_CHECKING:
    from clickprism.evaluation.counterfactual.result import CounterfactualResult, Estimate

NOTHING: Final[Mapping[str, Any]] = {"verdict": "", "sentence": "", "refusal": "", "advice": "", "numbers": {}}
VERDICTS: Final = {
    "better": "expect more clicks than now",
    "worse": "expect fewer clicks than now",
    "no difference found": "leave open whether it earns more clicks than now",
    "unknown": "leave open what it would earn",
}
SILENT: Final = "The log cannot say what it would earn."
BESIDE: Final = "Interleave the bundle with what is served now"
ADVICE: Final = {
    "better": f"{BESIDE} in a share of searches, and promote it once users prefer it.",
    "worse": f"Do not serve the bundle alone yet. {BESIDE} in a small share of searches first.",
    "no difference found": f"{BESIDE} in a share of searches: the log does not tell which of the two is better.",
    "unknown": f"{BESIDE} in a small share of searches: only users can say which of the two is better.",
}
REFUSED: Final = "item-position"  # whose refusal is told where all refuse


def value_of(logged: Logged, scores: Float64, *, whose: str) -> dict[str, Any]:
    """The value of a ranker by the log of others, in a sentence and in numbers.

    Args:
        logged: searches that the ranker did not learn from, if there are any.
        scores: of the documents, [documents].
        whose: what the searches are, for the sentence.
    """
    from clickprism.evaluation.counterfactual.run import counterfactual

    try:
        result = counterfactual(logged, scores)
    except DataError as error:
        return _told("unknown", SILENT, f"What it would earn cannot be said: {error}.", {})
    numbers = to_plain(result)
    if result.best is None:
        return _told("unknown", SILENT, _refusal(result), numbers)
    best = result.estimates[result.best]
    return _told(best.verdict, _sentence(result, best, whose), "", numbers)


def _told(verdict: str, sentence: str, refusal: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    words = {"verdict": VERDICTS[verdict], "sentence": sentence, "refusal": refusal, "advice": ADVICE[verdict]}
    return {**words, "numbers": numbers}


def _sentence(result: CounterfactualResult, best: Estimate, whose: str) -> str:
    gain, logged = best.difference, max(result.logged.value, 1e-9)
    ends = f"{gain.lower / logged:+.1%} to {gain.upper / logged:+.1%}"
    return (
        f"On {whose} it would earn {best.value.value:.3f} clicks a search where {result.logged.value:.3f} were earned, "
        f"{gain.value / logged:+.1%} ({ends} with 95% confidence), by the estimator {best.name} "
        f"(it assumes: {best.assumption})."
    )


def _refusal(result: CounterfactualResult) -> str:
    told = result.estimates.get(REFUSED) or next(iter(result.estimates.values()))
    return f"What it would earn cannot be said from this log: {told.refusal}."
