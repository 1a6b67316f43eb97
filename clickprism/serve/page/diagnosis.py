"""Read the latest diagnosis of a log from the file that `clickprism diagnose` writes into the folder of the log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "diagnosis.json"
LARGEST: Final = 1 << 20
NONE: Final = "No diagnosis. Start the service with --log DIR, a log that `clickprism diagnose` was run on."


class Finding(msgspec.Struct, frozen=True):
    """One finding.

    Attributes:
        name: Name of the finding, such as "position".
        verdict: "present", "absent" or "inconclusive".
        advice: What to do.
        sentence: The finding in words.
        title: Heading of the finding.
        word: The verdict as readers see it.
    """

    name: str
    verdict: str
    advice: str = ""
    sentence: str = ""
    title: str = ""
    word: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """All findings, and when they were made."""

    as_of: str
    findings: list[Finding]


def read_diagnosis(log: Path | None) -> tuple[Diagnosis | None, str]:
    """Return the diagnosis of a log, or None and a sentence that says why there is none.

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
        return None, "The log has no diagnosis yet. Run: clickprism diagnose LOG"
    except (OSError, msgspec.DecodeError) as error:
        return None, f"{FILE} of the log cannot be read ({error})."
