"""The front door: every name opens, nothing heavy is loaded before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import clickprism

HEAVY = ("torch", "numba", "sklearn", "scipy", "lightgbm", "matplotlib", "rich", "numpy", "pandas")


@pytest.mark.parametrize("name", clickprism.__all__)
def test_every_name_opens(name: str) -> None:
    assert getattr(clickprism, name) is not None
    assert name in dir(clickprism)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lbd'"):
        clickprism.lbd  # noqa: B018


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, clickprism; print([m for m in {HEAVY!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"
