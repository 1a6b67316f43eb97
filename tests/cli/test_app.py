"""The tree of commands: every command is documented, errors name what to type, a file lies beneath the options."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from inspect import Parameter, getdoc, signature
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App
from cyclopts.argument import Argument

from clickprism import __version__
from clickprism.cli.app import COMMANDS, EXIT_CODES, FIRST_STEPS, addressed, build_app, find
from clickprism.click_models import USERS
from clickprism.debias import METHODS
from clickprism.rankers import RANKERS
from tests.conftest import commands, parse_command

Run = Callable[..., Any]
KINDS = (int, float, str)


def options(path: tuple[str, ...]) -> list[Argument]:
    """Return the arguments and options that the help of a command shows."""
    app: App = build_app(path)
    for name in path:
        app = app[name]
    return [option for option in app.assemble_argument_collection(parse_docstring=True) if option.show]


def required_words(option: Argument) -> list[str]:
    """Return words that give a required argument or option some value."""
    return ["3"] if option.index is not None else [option.name, "3"]


def test_without_words_six_commands_lead_to_a_result(cli: Run) -> None:
    shown = cli().stdout
    assert shown == FIRST_STEPS
    assert shown.count("\n  clickprism ") == 6


def test_the_version_is_that_of_the_package(cli: Run) -> None:
    assert cli("--version").stdout.strip() == __version__


def test_a_command_without_its_group_leads_to_the_full_name(cli: Run) -> None:
    told = cli("ingest", "anything", "--flag", code=2).stderr
    assert told == "error: there is no command clickprism ingest. Did you mean clickprism log ingest?\n"
    assert "clickprism store info or clickprism data info" in cli("info", code=2).stderr
    assert "For help" in cli("tune", code=2).stderr


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_the_help_of_a_command_starts_with_its_summary_and_has_an_example(path: tuple[str, ...], cli: Run) -> None:
    function = find(path)
    text = getdoc(function) or ""
    assert text.splitlines()[0] == commands()[path]
    assert f"```bash\nclickprism {' '.join(path)}" in text
    shown = cli(*path, "--help").stdout
    assert f"clickprism {' '.join(path)}" in shown
    for option in ("--json", "--quiet", "--config"):
        assert option in shown


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_option_has_a_sentence_as_its_help(path: tuple[str, ...]) -> None:
    for option in options(path):
        meaning = option.parameter.help or ""
        assert meaning[:1].isupper(), f"{option.name}: {meaning!r} must start with a capital letter"
        assert meaning.endswith("."), f"{option.name}: {meaning!r} must end with a period"


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_data_is_given_by_position_and_everything_else_by_name(path: tuple[str, ...]) -> None:
    kinds = {parameter.kind for parameter in signature(find(path)).parameters.values()}
    assert Parameter.POSITIONAL_OR_KEYWORD not in kinds


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_a_nested_option_with_its_default_changes_no_other_setting(path: tuple[str, ...]) -> None:
    required = [word for option in options(path) if option.required for word in required_words(option)]
    nested = [option for option in options(path) if len(option.keys) > 1 and type(option.field_info.default) in KINDS]
    for option in {option.keys[:-1]: option for option in nested}.values():  # one of each nested class
        given = parse_command(*path, *required, option.name, str(option.field_info.default))
        for name, settings in (find(path).__kwdefaults__ or {}).items():
            if getattr(settings, option.keys[0], None) is not None:
                assert given[name] == settings, f"{name} after {option.name}"


def test_a_command_keeps_its_own_defaults_beside_nested_options() -> None:
    words = ["experiment", "feedback", "--fit.epochs", "3", "--data.synthetic.train-queries", "60"]
    settings = parse_command(*words)["settings"]
    assert (settings.fit.epochs, settings.fit.threads) == (3, 1)
    assert (settings.data.synthetic.train_queries, settings.data.synthetic.test_queries) == (60, 500)
    assert settings.evaluation.validation == "none"
    shown = {option.name: option.field_info.default for option in options(("experiment", "feedback"))}
    assert (shown["--fit.threads"], shown["--data.synthetic.test-queries"]) == (1, 500)


def test_help_imports_no_heavy_package() -> None:
    code = (
        "import sys; from clickprism.cli.app import run; run(['--help']); run(['log', '--help']);"
        "print([name for name in ('torch', 'duckdb', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


def test_an_unknown_command_gets_a_suggestion(cli: Run) -> None:
    told = cli("log", "ingst", code=2).stderr
    assert 'Did you mean "ingest"?' in told
    assert "For help: clickprism log --help" in told


def test_an_unknown_option_gets_a_suggestion(cli: Run, tmp_path: Path) -> None:
    told = cli("data", "generate", "--out", tmp_path, "--sed", "3", code=2).stderr
    assert "--sed" in told
    assert "--seed" in told.replace("--sed.", "")


def test_a_missing_argument_is_named(cli: Run) -> None:
    assert cli("diagnose", code=2).stderr.startswith("error: LOG is required.\nFor help: clickprism diagnose --help")
    assert cli("data", "generate", code=2).stderr.startswith("error: --out is required.")


def test_a_missing_file_is_a_failure_that_names_it(cli: Run, tmp_path: Path) -> None:
    assert str(tmp_path / "none.txt") in cli("data", "info", tmp_path / "none.txt", code=1).stderr


def config(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return file


def generated(cli: Run, tmp_path: Path, *words: object, code: int = 0) -> Any:
    small = ["--validation-queries", "2", "--test-queries", "2"]
    return cli("data", "generate", *small, *words, "--out", tmp_path / "data", "--json", code=code)


def lists(done: Any) -> list[int]:
    return [file["lists"] for file in done.json["files"]]


def test_options_override_the_file(cli: Run, tmp_path: Path) -> None:
    file = config(tmp_path, "train_queries = 9\nfeatures = 20\n")
    assert lists(generated(cli, tmp_path, "--config", file)) == [9, 2, 2]
    assert lists(generated(cli, tmp_path, "--config", file, "--train-queries", "7")) == [7, 2, 2]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("train_queris = 9", "train_queris in {file} must be a known setting (did you mean 'train_queries'?), got 9"),
        ("min_documents = 0", "min_documents in {file} must be at least 1, got 0"),
        ("train_queries = 'many'", "--train-queries in {file} must be a whole number"),
        ("train_queries = [", "{file}: is not valid TOML"),
    ],
)
def test_an_error_in_the_file_names_file_and_key(text: str, told: str, cli: Run, tmp_path: Path) -> None:
    file = config(tmp_path, text)
    code = 1 if "TOML" in told else 2
    assert told.format(file=file) in generated(cli, tmp_path, "--config", file, code=code).stderr


def test_a_wrong_value_names_the_option(cli: Run, tmp_path: Path) -> None:
    told = generated(cli, tmp_path, "--min-documents", "0", code=2).stderr
    assert told == "error: --min-documents must be at least 1, got 0\n"


def test_an_option_with_free_keys_has_hyphens_as_other_options() -> None:
    words = (
        "train --user.name ccm --user.after-skip 0.7 --methods.my-dla.name dla --methods.my-dla.max-weight 9 --out dla"
    )
    settings = parse_command(*words.split())["settings"]
    assert settings.user == {"name": "ccm", "after_skip": 0.7}
    assert settings.methods["my-dla"] == {"name": "dla", "max_weight": 9}


def test_a_model_is_chosen_by_its_name_alone_or_with_its_settings(cli: Run, tmp_path: Path) -> None:
    few = [f"--data.synthetic.{part}-queries=5" for part in ("train", "validation", "test")]
    words = ["experiment", "simulate", "--sessions", "2", *few, "--out", tmp_path / "clicks.npz", "--json"]
    severe = cli(*words, "--user", "pbm", "--user.severity", "2").json["observation"]
    assert severe == cli(*words, "--user.severity=2", "--user=pbm").json["observation"]
    assert severe != cli(*words, "--config", config(tmp_path, "user = 'pbm'")).json["observation"]


def test_exit_codes_are_the_documented_ones() -> None:
    assert list(EXIT_CODES) == [0, 1, 2, 3, 130]


def test_every_group_and_command_has_a_summary() -> None:
    assert all(summary.endswith(".") for _, summary in COMMANDS.values())


def test_an_option_of_nested_settings_keeps_the_other_defaults_of_the_command(cli: Run, tmp_path: Path) -> None:
    words = ["experiment", "simulate", "--out", tmp_path / "clicks.npz", "--sessions", "2", "--json"]
    few = [f"--data.synthetic.{part}-queries=5" for part in ("train", "validation", "test")]
    for length in (["--simulation.length", "3"], ["--config", config(tmp_path, "[simulation]\nlength = 3")]):
        found = cli(*words, *few, *length).json
        assert found["sessions"] == 5 * 2  # of each query, the default of experiments, not of SimulationSettings
        assert len(found["observation"]) == 3


def test_the_help_of_train_names_every_user_model_ranker_and_method() -> None:
    shown = {option.name: option.parameter.help or "" for option in options(("train",))}
    for option, names in (("--user", USERS), ("--ranker", RANKERS), ("--method", METHODS)):
        assert [name for name in names if not re.search(rf"\b{name}\b", shown[option])] == []


def test_the_help_groups_nested_options_by_their_table(cli: Run) -> None:
    shown = cli("train", "--help").stdout
    titles = re.findall(r"^╭─ (.+?) ─", shown, flags=re.MULTILINE)
    assert titles[:2] == ["Arguments", "Parameters"]
    assert titles[-1] == "Common options"
    assert "Settings of fit" in titles
    assert "--fit." not in shown.partition("Settings of ")[0].partition("─ Parameters ─")[2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train clicks.npz", "--out is required."),
        ("train clicks.npz --outt runs", "--out is required, and --outt is not an option."),
        ("train clicks.npz --out", "--out needs a value."),
        ("train --out runs --fit.epochs x", "--fit.epochs must be a whole number, got 'x'."),
        ("auto mylog --budget 10", "--budget must be a time such as 90s, 10m or 1.5h, got '10'."),
        ("log ingest --into mylog", "PATHS must name at least one file or folder"),
        ("data check mq2008", "FOLDER must name the folder with the files of mq2008"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_expected(words: str, told: str, cli: Run) -> None:
    command = " ".join(addressed(words.split()))
    assert cli(*words.split(), code=2).stderr == f"error: {told}\nFor help: clickprism {command} --help\n"


def test_the_help_shows_a_time_as_it_is_typed(cli: Run) -> None:
    shown = cli("auto", "--help").stdout
    assert "--budget TIME" in shown
    assert "[default: 10m]" in shown
