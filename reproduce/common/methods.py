"""The methods that a reproduction may name: those of clickprism, and the published baselines that live beside it."""

from __future__ import annotations

from typing import Any, Final

from clickprism.debias import METHODS as PRODUCT
from clickprism.settings import choose

METHODS: Final[dict[str, str]] = {
    **PRODUCT,
    "pair_debias": "reproduce.common.pair_debias:PairDebias",
    "vectorization": "reproduce.lbd.vectorization:Vectorization",
}


def method(name: str, **settings: Any) -> Any:
    """Return the method of this name with these settings.

    >>> method("pair_debias", p=0.0)
    PairDebias(p=0.0, step=0.05, floor=0.01)
    """
    return choose(METHODS, {"name": name, **settings}, path="method")
