"""What `auto` says: every decision with its reason and numbers, what it could not know, and what to do next."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from clickprism.diagnosis.finding import Diagnosis, Finding

WIDTH: Final = 110
MENDED: Final[Mapping[str, tuple[str, ...]]] = {
    "click": (),
    "position": ("position",),
    "trust": ("position", "trust"),
    "browsing": ("position", "interaction"),
    "bend": ("position", "coupling"),
    "pooled": ("position",),
    "pooled-bend": ("position", "coupling"),
    "dla": ("position",),
    "lbd": ("position", "coupling"),
}
"""The biases that each observation model takes out of clicks, as findings are named."""
BENT: Final = "pooled-bend"
ASK_AGAIN: Final = "Swap documents by chance in more searches, and ask again."
LEARNED: Final = ("position", "trust", "coupling", "interaction")  # biases of what a ranker learns from
WITHOUT_FEATURES: Final = (
    "No ranker can be trained: the documents of the log have no features, and a ranker scores a document by them."
)
INSTEAD: Final = (
    "What can be done without features: estimate the relevance of each pair of query and document that was shown, and "
    "make judgment lists from the estimates (clickprism relevance estimate, clickprism relevance judgments).",
    "To train a ranker, log the features of each document as it was shown, and call clickprism auto again.",
)
ALWAYS: Final = (
    "Clicks cannot tell a bias that depends on the document at every position from relevance itself: what is ranked "
    "by is the click that a document would get in the first slot."
)


@final
@dataclass(frozen=True)
class Decision:
    """What was decided at a stage, why, and by which numbers."""

    stage: str
    decision: str
    reason: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


def decisions(stages: Mapping[str, Mapping[str, Any]], diagnosis: Diagnosis) -> list[Decision]:
    """Every decision, in the order in which they were taken; `stages` are the results of the stages by name."""
    read, choice, value, bundle = (stages[name] for name in ("read", "choice", "value", "bundle"))
    verdicts = {name: finding.verdict for name, finding in diagnosis.findings.items()}
    unknown = [name for name, verdict in verdicts.items() if verdict == "inconclusive"]
    made = [
        Decision("read", "use all of the log", read["sentence"], read["counts"]),
        Decision(
            "diagnosis",
            "say what was found",
            f"{len(verdicts) - len(unknown)} of {len(verdicts)} questions have an answer in this log.",
            {"verdicts": verdicts},
        ),
    ]
    if choice["refused"]:
        return [*made, Decision("choice", "train no ranker", choice["refused"])]
    made += [
        Decision(
            "choice",
            f"take {choice['chosen']}",
            " ".join([f"It is {choice['words']}.", *choice["why"]]),
            choice["numbers"],
        ),
        Decision("value", value["verdict"], value["sentence"], value["numbers"]),
        Decision("bundle", f"serve version {bundle['version']}", bundle["sentence"], {"files": bundle["files"]}),
    ]
    return made


def could_not_know(stages: Mapping[str, Mapping[str, Any]], diagnosis: Diagnosis) -> list[str]:
    """What the log cannot tell, a sentence each."""
    said = [finding.sentence for finding in diagnosis.findings.values() if finding.verdict == "inconclusive"]
    if stages["value"]["refusal"]:
        said.append(stages["value"]["refusal"])
    return [*said, ALWAYS]


def next_steps(stages: Mapping[str, Mapping[str, Any]], diagnosis: Diagnosis) -> list[str]:
    """What to do next, the most useful first: try the ranker, link what is not linked, then what findings advise."""
    order = sorted(diagnosis.findings.values(), key=lambda finding: finding.name != "identifiability")
    choice = stages["choice"]
    mended = _mended(choice)
    advised = {f"{each.title}: {_advice(each, choice)}": None for each in order if _open(each, mended)}
    return [*(choice["instead"] if choice["refused"] else [stages["value"]["advice"]]), *advised]


def _mended(choice: Mapping[str, Any]) -> tuple[str, ...]:
    """The biases that the chosen ranker does not have."""
    if choice["refused"]:
        return ()
    found = MENDED[str(choice["chosen"]).partition("/")[0]]
    return (*found, "interaction") if choice["numbers"].get("browsing") else found


def _open(finding: Finding, mended: Sequence[str]) -> bool:
    """Whether there is something left to do about a finding that the ranker does not do already."""
    bad = finding.tone == "bad" and finding.name not in mended
    return bool(finding.advice) and (bad or finding.tone == "inconclusive")


def _advice(finding: Finding, choice: Mapping[str, Any]) -> str:
    left = finding.tone == "bad" and finding.name in LEARNED and not choice["refused"]
    if left and finding.name == "coupling" and BENT in choice["numbers"].get("pooled", ()):
        return f"clicks of held-out queries do not bear it out; {choice['chosen']} has one curve for all. {ASK_AGAIN}"
    return f"{choice['chosen']} does not correct for it. {finding.advice}" if left else finding.advice


def commands(out: Path, log: str | None, *, bundle: bool, program: str = "clickprism") -> list[str]:
    """Commands to paste."""
    folder = shlex.quote(str(out))
    if bundle:
        served = f"{program} serve {folder}/bundle"
        return [served, f"{program} model verify {folder}/bundle"]
    if log is None:
        return []
    name = shlex.quote(log)
    if not Path(log).is_dir():
        return [f"{program} bias position {name}"]
    return [
        f"{program} relevance estimate {name} --out estimates.parquet",
        f"{program} relevance judgments estimates.parquet --out judgments.csv",
    ]


def terminal(
    diagnosis: Diagnosis, made: Sequence[Decision], unknown: Sequence[str], steps: Sequence[str], lines: Sequence[str]
) -> str:
    """The end of `clickprism auto`, in plain text."""
    findings = list(diagnosis.findings.values())
    heads = [(each.title, each.word, each.sentence) for each in findings]
    widths = [max((len(head[place]) for head in heads), default=0) for place in (0, 1)]
    found = [
        _wrapped(f"  {name.ljust(widths[0])}  {verdict.ljust(widths[1])}  ", sentence)
        for name, verdict, sentence in heads
    ]
    parts = {
        "What was found": found,
        "What was chosen, and why": [
            _wrapped(f"  {each.stage.ljust(6)}  ", f"{each.decision}. {each.reason}")
            for each in made
            if each.stage != "diagnosis"
        ],
        "What could not be known": [_wrapped("  - ", each) for each in unknown],
        "What to do next": [_wrapped("  - ", each) for each in steps] + [f"    {line}" for line in lines],
    }
    return "\n\n".join("\n".join([heading, *rows]) for heading, rows in parts.items() if rows)


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False)
