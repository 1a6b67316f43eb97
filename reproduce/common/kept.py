"""What a process made before and may need again: data sets and logs, a few of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LIMIT = 4
_kept: dict[tuple[Any, ...], Any] = {}


def keep(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """What was made for this key before, or now; the oldest of its kind, the key's first entry, is let go.

    >>> keep(("log", 1), lambda: "made"), keep(("log", 1), lambda: "made anew")
    ('made', 'made')
    """
    if key not in _kept:
        alike = [other for other in _kept if other[0] == key[0]]
        if len(alike) >= LIMIT:
            del _kept[alike[0]]
        _kept[key] = make()
    return _kept[key]
