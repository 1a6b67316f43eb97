"""Named points of the code at which a test can kill the process, to show that a crash there loses nothing."""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "CLICKPRISM_CRASH_POINT"


def crash_point(point: str) -> None:
    """Kill this process if the environment variable CLICKPRISM_CRASH_POINT is the name of this point."""
    if os.environ.get(VARIABLE) == point:
        os.kill(os.getpid(), signal.SIGKILL)
