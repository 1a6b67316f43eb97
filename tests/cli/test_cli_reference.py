"""The reference says what the commands are, and every command says how it is used."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clickprism.cli_old.app import EXIT_CODES, app
from clickprism.cli_old.reference import commands, examples, reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
COMMANDS = dict(commands())


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "docs/cli.md is not current: make docs"


def test_all_commands_are_there() -> None:
    names = [f"data {name}" for name in ("recipes", "check", "info", "generate", "impressions")]
    names += ["simulate", "ingest", "quarantine", "sessions", "examine", "windows", "compact", "forget"]
    names += [
        "diagnose",
        "observe",
        "parameters",
        "impute",
        "estimate",
        "approximate",
        "judgments",
        "rank",
        "exploration",
        "train",
        "evaluate",
        "compare",
        "feedback",
        "tune",
        "bundle",
        "auto",
        "score",
        "publish",
        "promote",
        "serve",
        "interleave",
        "export",
        "demo",
    ]
    assert list(COMMANDS) == [f"clickprism {name}" for name in names]
    for code in EXIT_CODES:
        assert f"| {code} |" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    command = COMMANDS[name]
    page = PAGE.read_text(encoding="utf-8").partition(f"## {name}\n")[2].partition("\n## ")[0]
    for param in command.params:
        assert param.help, param.name
        assert param.is_flag if param.metavar is None else True, f"{param.name} needs a metavar"
        assert all(f"`{word}`" in page for word in param.opts if word.startswith("-"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_is_a_real_one(name: str) -> None:
    command = COMMANDS[name]
    shown = " ".join(CliRunner().invoke(app, [*name.split()[1:], "--help"]).output.split())
    assert examples(command)
    for example in examples(command):
        assert example.startswith(f"{name} ") or example == name
        assert example.split()[-1] in shown
        words = shlex.split(example)[len(name.split()) :]
        with command.make_context(name, words):
            pass


def test_groups_have_examples_too() -> None:
    for words in ([], ["data"]):
        assert "Example:" in CliRunner().invoke(app, [*words, "--help"]).output
