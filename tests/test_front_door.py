"""The front door: every name opens, nothing heavy is loaded before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import clickprism
from clickprism.errors import MissingExtraError

HEAVY = ("torch", "numba", "sklearn", "scipy", "lightgbm", "matplotlib", "rich", "numpy", "pandas")


@pytest.mark.parametrize("name", clickprism.__all__)
def test_every_name_opens(name: str) -> None:
    assert getattr(clickprism, name) is not None
    assert name in dir(clickprism)


def test_unknown_names_are_attribute_errors() -> None:
    name = "lbd"
    with pytest.raises(AttributeError, match="No clickprism attribute lbd"):
        getattr(clickprism, name)


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, clickprism; print([m for m in {HEAVY!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


def test_a_name_that_needs_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(clickprism), "Click", raising=False)
    monkeypatch.delitem(sys.modules, "clickprism.debias.click", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'clickprism\[neural\]'"):
        getattr(clickprism, "Click")  # noqa: B009
