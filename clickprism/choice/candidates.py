"""What `tune` chooses from: observation models, which make targets of clicks, times rankers that learn them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from clickprism.errors import SettingError
from clickprism.settings import suggest

MOVED: Final = ("position", "trust", "browsing", "bend")
"""Those that documents which stood at several positions tell, in which relevance cancels."""
POOLED: Final = ("pooled", "pooled-bend")
"""Those of one likelihood for all documents, moved or not."""
LEARNED: Final[Mapping[str, Mapping[str, Any]]] = {
    "dla": {"name": "dla"},
    "lbd": {
        "name": "lbd",
        "observation": {"hidden": [0], "penalties": [0.0], "lists": 3000, "patience": 3, "epochs": 40},
    },
}
"""Those that a method of the library learns beside a small network, from documents with like features."""
METHODS: Final[Mapping[str, str]] = {
    "click": "clicks as they are, without any correction",
    "position": "clicks over how often their position is seen, by documents that stood at several positions",
    "trust": "clicks over how often their position is seen, less those that trust in high positions brings",
    "browsing": "clicks over how often their position is seen below the last click above",
    "bend": "clicks over how often each document is seen at its position, which its features bend, by documents that "
    "stood at several positions",
    "pooled": "clicks over how often their position is seen, by all documents, those that moved and those that look "
    "alike",
    "pooled-bend": "clicks over how often each document is seen at its position, which its features bend, by all "
    "documents",
    "dla": "clicks over an observation by position that dual learning (DLA) learns beside a network",
    "lbd": "clicks over an observation by document and position that LBD learns beside a network",
}
CHOSEN_FROM: Final = ("click", *POOLED)
"""By default: the others know less of the log, and their regret is larger (docs/choice.md)."""
RANKERS: Final[Mapping[str, str]] = {
    "linear": "a linear ranker",
    "mlp": "the mean of five small networks, as one network",
    "lambdamart": "trees (LambdaMART)",
    "blend": "the mean of a linear ranker and five small networks, as one network",
}


@final
@dataclass(frozen=True)
class Candidate:
    """A method, which is an observation model, and a ranker, by their names in `METHODS` and `RANKERS`.

    >>> Candidate("position", "linear").name
    'position/linear'
    >>> Candidate("bent", "linear")
    Traceback (most recent call last):
    clickprism.errors.SettingError: methods must be a known name (did you mean 'bend'?), got 'bent'
    """

    method: str
    ranker: str

    def __post_init__(self) -> None:
        for field, known in (("method", METHODS), ("ranker", RANKERS)):
            value = getattr(self, field)
            if value not in known:
                raise SettingError(f"{field}s", value, f"be a known name ({suggest(value, known)})")

    @property
    def name(self) -> str:
        """Both names."""
        return f"{self.method}/{self.ranker}"

    @property
    def words(self) -> str:
        """Both in the words of the product."""
        return f"{RANKERS[self.ranker]}, which learns {METHODS[self.method]}"

    @classmethod
    def parse(cls, name: str) -> Candidate:
        """The candidate of this name."""
        method, _, ranker = name.partition("/")
        return cls(method, ranker)


def supported(methods: Sequence[str], *, linked: bool, patterns: bool) -> tuple[str, ...]:
    """Of these methods those that a log supports; `click`, the floor, is always among them.

    Args:
        methods: names of `METHODS`.
        linked: whether documents that stood at several positions link all of them.
        patterns: whether it is known what was clicked together.

    >>> supported(["position", "browsing", "pooled"], linked=True, patterns=False)
    ('click', 'position', 'pooled')
    >>> supported(["position", "browsing", "pooled"], linked=False, patterns=True)
    ('click', 'pooled')
    """
    names = dict.fromkeys(["click", *(Candidate(name, "linear").method for name in methods)])
    return tuple(name for name in names if name not in MOVED or (linked and (patterns or name != "browsing")))
