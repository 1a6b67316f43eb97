"""clickprism: a click is relevance times observation; clickprism separates the two.

The public names are those in `__init__.pyi`. Each is imported when it is first used, so that `import clickprism` is
fast and does not need the optional packages.
"""

from typing import Any

import lazy_loader

__version__ = "0.1.0"
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        from clickprism.errors import missing_extra

        raise missing_extra(error) from None
