"""The reference of the command line is current, and every example in it can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clickprism.cli.app import EXIT_CODES
from clickprism.cli.reference import examples, reference
from tests.conftest import commands, parse_command

Run = Callable[..., Any]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "docs/reference/cli.md is not current: make docs"


def test_the_page_has_every_command_and_exit_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for path in commands():
        assert f" clickprism {' '.join(path)}\n" in page, path
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_example_of_the_help_can_be_typed(path: tuple[str, ...], cli: Run) -> None:
    shown = " ".join(cli(*path, "--help").stdout.split())
    for line in examples(path):
        assert line.startswith(f"clickprism {' '.join(path)}")
        assert line.split()[-1] in shown
        parse_command(*shlex.split(line)[1:])
