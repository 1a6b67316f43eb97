"""Real data sets in the folder `shared/data` beside the project."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def shared_data(name: str) -> Path:
    """Return the path of a file or folder there; skip the test where it is missing."""
    path = ROOT.parent / "shared" / "data" / name
    if not path.exists():
        pytest.skip(f"needs ../shared/data/{name}")
    return path
