"""How a TOML file and options become the settings of a command: options override the file, the file the defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clickprism.cli.experiment import chosen
from clickprism.experiments.settings import ExperimentSettings, resolved
from tests.conftest import parse_command

Run = Callable[..., Any]
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


def settings_of(*options: object, file: Path | None = None, text: str = "") -> ExperimentSettings:
    """Return the settings that `experiment compare` gets from these options and a TOML file with this text."""
    config: list[object] = []
    if file is not None:
        if text:
            file.write_text(text, encoding="utf-8")
        config = ["--config", file]
    settings: ExperimentSettings = parse_command("experiment", "compare", "--seed", 0, *options, *config)["settings"]
    return settings


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


def test_an_empty_file_gives_the_defaults(toml: Path) -> None:
    assert settings_of(file=toml, text="# nothing") == ExperimentSettings()


def test_options_override_the_file_and_the_file_the_defaults(toml: Path) -> None:
    text = "sessions = 1\n[fit]\nepochs = 1\npatience = 7\n[simulation]\nlength = 5\n"
    settings = settings_of("--fit.epochs", 3, "--sessions", 2, file=toml, text=text)
    assert (settings.sessions, settings.fit.epochs, settings.fit.patience) == (2, 3, 7)
    assert (settings.simulation.length, settings.simulation.frequency) == (5, "each")


def test_lists_are_given_by_repeating_an_option_or_as_a_list_in_the_file(toml: Path) -> None:
    both = ("nDCG@5", "MRR")
    options = [word for name in both for word in ("--evaluation.measures", name)]
    assert settings_of(*options).evaluation.measures == both
    assert settings_of(file=toml, text='[evaluation]\nmeasures = ["nDCG@5", "MRR"]').evaluation.measures == both


def test_a_model_is_chosen_by_its_name_alone_or_with_settings() -> None:
    assert settings_of("--user", "ubm").user == settings_of("--user.name", "ubm").user == {"name": "ubm"}
    settings = settings_of("--user.severity", "2", "--ranker.hidden", "[8, 4]")
    assert settings.user == {"name": "pbm", "severity": 2}
    assert settings.ranker == {"name": "mlp", "hidden": [8, 4]}


def test_another_user_drops_the_settings_of_the_user_in_the_file(toml: Path) -> None:
    text = '[user]\nname = "pbm"\nseverity = 2.0\n'
    assert settings_of("--user", "cascade", file=toml, text=text).user == {"name": "cascade"}
    assert settings_of("--user", "pbm", file=toml, text=text).user == {"name": "pbm", "severity": 2.0}


def test_methods_of_a_file_replace_the_default_ones_and_options_add_to_them(toml: Path) -> None:
    settings = settings_of("--methods.click2.name", "click", file=toml, text="[methods.click]\n")
    assert settings.methods == {"click": {}, "click2": {"name": "click"}}
    methods = settings_of("--methods.ipw.floor", ".05").methods
    assert methods == {"labels": {}, "click": {}, "ipw": {"floor": 0.05}, "dla": {}}


def test_chosen_methods_keep_their_settings(toml: Path) -> None:
    text = '[methods.mine]\nname = "dla"\nmax_weight = 3.0\n[methods.click]\n'
    settings = chosen(settings_of(file=toml, text=text), ["ipw", "mine"])
    assert settings.methods == {"ipw": {}, "mine": {"name": "dla", "max_weight": 3.0}}


def test_runs_use_consecutive_seeds() -> None:
    assert parse_command("experiment", "compare", "--seed", 4, "--runs", 2)["settings"].seeds == (4, 5)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_example_files_can_be_given_to_commands(file: Path) -> None:
    assert resolved(settings_of(file=file))


def test_the_settings_that_compare_saves_can_be_given_again(tmp_path: Path, cli: Run) -> None:
    options = ["--user.severity", "2", "--ranker", "linear", "--method", "ipw", "--method", "click", "--fit.epochs", 1]
    sizes = [word for part in ("train", "validation", "test") for word in (f"--data.synthetic.{part}-queries", 12)]
    cli("experiment", "compare", *options, *sizes, "--sessions", 5, "--out", tmp_path)
    settings = settings_of(file=tmp_path / "settings.toml")
    assert list(settings.methods) == ["ipw", "click"]
    assert (settings.user["severity"], settings.sessions, settings.fit.epochs) == (2.0, 5, 1)
    again = tmp_path / "again"
    cli("experiment", "compare", "--config", tmp_path / "settings.toml", "--out", again)
    assert (again / "settings.toml").read_text() == (tmp_path / "settings.toml").read_text()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[fit]\nepoch = 3", "fit.epoch in {file} must be a known setting (did you mean 'fit.epochs'?), got 3"),
        ("merge = 'pattern'", "merge in {file} must be a known setting (did you mean 'simulation.merge'?)"),
        ("[data]\nsource = 'synthetik'", "data.source in {file} must be a known source (did you mean 'synthetic'?)"),
        ("[user]\nname = 'pmb'", "user.name must be a known name (did you mean 'pbm'?)"),
        ("fit = 3", "fit in {file} must be a table of settings"),
        ("[methods.'../up']\n", "names a folder"),
    ],
)
def test_an_error_in_the_file_says_what_to_write(text: str, told: str, toml: Path, cli: Run) -> None:
    toml.write_text(text, encoding="utf-8")
    assert told.format(file=toml) in cli("experiment", "compare", "--config", toml, code=2).stderr
