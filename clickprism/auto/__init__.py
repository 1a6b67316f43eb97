"""From a click log to a ranker, without labels: what the log says, candidates, checks, and a report.

The function `clickprism.auto` has the name of this package, so the package can be called.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clickprism.auto.run import AutoResult


class _Callable(ModuleType):
    """A package that can be called as its function `auto`."""

    def __call__(self, *args: Any, **kwargs: Any) -> "AutoResult":
        """Train a ranker from a click log; see `clickprism.auto.run.auto`."""
        from clickprism.auto.run import auto

        return auto(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
