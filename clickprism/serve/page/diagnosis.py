"""The newest diagnosis of a log, from the file that `clickprism diagnose` keeps in the log's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "diagnosis.json"
LARGEST: Final = 1 << 20
NONE: Final = "There is none: start the service with --log DIR, where a diagnosis of the log is found."


class Finding(msgspec.Struct, frozen=True):
    """What was found of one bias.

    Attributes:
        name: which.
        verdict: in a word, or in a sentence.
        advice: what to do.
        sentence: the verdict in words.
        title: what readers call it.
        word: the verdict as readers have it.
    """

    name: str
    verdict: str
    advice: str = ""
    sentence: str = ""
    title: str = ""
    word: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """All that was found, as of a time."""

    as_of: str
    findings: list[Finding]


def read_diagnosis(log: Path | None) -> tuple[Diagnosis | None, str]:
    """The diagnosis of a log; where there is none, or it cannot be read, a sentence that says so.

    >>> read_diagnosis(None)[0] is None
    True
    """
    if log is None:
        return None, NONE
    file = log / FILE
    try:
        if file.stat().st_size > LARGEST:
            return None, f"{FILE} of the log is too large to be a diagnosis."
        return msgspec.json.decode(file.read_bytes(), type=Diagnosis), ""
    except FileNotFoundError:
        return None, "The log has not been diagnosed yet: clickprism diagnose does it."
    except (OSError, msgspec.DecodeError) as error:
        return None, f"{FILE} of the log cannot be read ({error})."
