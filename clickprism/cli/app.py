"""The commands, and how each is found, configured and run.

`COMMANDS` is the only list of commands. The module of a command is imported only when the command is called, so that
`clickprism --help` is quick. A command is a function: its positional parameters are data, its keyword parameters
marked `Flat` are settings classes whose fields are the options, and its docstring is the help.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    Group,
    MissingArgumentError,
    Parameter,
    Token,
    UnknownOptionError,
)
from cyclopts.argument import Argument, ArgumentCollection

from clickprism import __version__
from clickprism.errors import ClickprismError, SettingError, missing_extra

FAILED, WRONG_USE, REFUSED, INTERRUPTED = 1, 2, 3, 130
EXIT_CODES = {
    0: "the command succeeded",
    FAILED: "the command failed, for instance because a file is broken or missing",
    WRONG_USE: "the command was used wrongly: an unknown option or an impossible setting",
    REFUSED: "refused: the data is valid but does not support what was asked",
    INTERRUPTED: "interrupted by Ctrl-C",
}


def shown_default(value: Any) -> str | None:
    """Return a default as the help shows it; a flag that is off, an empty text and an empty list need no words."""
    if value is None or value is False or value in ("", (), {}):
        return None
    if value is True:
        return "true; turn it off with =false"
    if isinstance(value, timedelta):
        return f"{value.total_seconds() / 60:g}m"
    if isinstance(value, dict):
        return ", ".join(key if isinstance(each, dict) else f"{key} = {each}" for key, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


NESTED = 1  # the help shows nested settings below the other options
STYLE = Parameter(negative=(), show_default=shown_default)  # flags are off by default and need no `--no-flag`

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("experiment:demo", "See everything work on a simulated raw log, in one or two minutes."),
    "auto": ("auto:auto", "Train, check and bundle a ranker from a click log alone."),
    "diagnose": ("auto:diagnose", "Report which biases a click log contains."),
    "train": ("experiment:train", "Train one ranker on clicks."),
    "serve": ("model:serve", "Serve a bundle over HTTP."),
    "init": ("project:init", "Create a project: look at a log and write clickprism.toml."),
    "run": ("project:run", "Bring a project up to date: ingest, train, compare and publish what is new."),
    "status": ("project:status", "Show what a project contains, which ranker serves, and what needs attention."),
    "evaluate": ("", "Measure rankers, on judged lists or from clicks."),
    "evaluate judged": ("evaluate:judged", "Measure one or several models on judged lists."),
    "evaluate counterfactual": (
        "evaluate:counterfactual",
        "Estimate from a click log how many clicks a ranker would get.",
    ),
    "evaluate interleaving": ("evaluate:interleaving", "Compare two rankers by the clicks on their interleaved lists."),
    "evaluate buckets": (
        "evaluate:buckets",
        "Compare rankers by the clicks on searches that show one of them (A/B test).",
    ),
    "log": ("", "Load and maintain click logs."),
    "log ingest": ("log:ingest", "Add raw events to a click log."),
    "log sessions": ("log:sessions", "Build the ranked lists with clicks of a log."),
    "log features": ("log:features", "Compute click features over a day, a week and a month."),
    "log quarantine": ("log:quarantine", "Show the rows that ingest rejected, with the reason."),
    "log compact": ("log:compact", "Merge the small files of a log, and delete old data."),
    "log forget": ("log:forget", "Erase users from a log."),
    "log simulate": ("log:simulate", "Write the raw log of a simulated search engine."),
    "log info": ("log:info", "Describe what a log contains."),
    "bias": ("", "Estimate how users observe results."),
    "bias position": ("bias:position", "Estimate how often each position is observed."),
    "bias trust": ("bias:trust", "Estimate trust bias: clicks on results because the engine ranks them high."),
    "bias examination": ("bias:examination", "Fit a model of which documents were examined, from display times."),
    "bias click-models": ("bias:click_models", "Fit click models to a log and compare them on held-out sessions."),
    "relevance": ("", "Estimate the relevance of documents from clicks."),
    "relevance estimate": ("relevance:estimate", "Estimate the relevance of each query-document pair, with intervals."),
    "relevance impute": ("", "Predict relevance for pairs without clicks."),
    "relevance impute fit": ("relevance:impute_fit", "Fit an imputation model."),
    "relevance impute apply": ("relevance:impute_apply", "Predict relevance with a fitted imputation model."),
    "relevance impute cross-fit": (
        "relevance:impute_cross_fit",
        "Predict relevance, each query by a model of the other queries.",
    ),
    "relevance approximate": ("", "Approximate the estimates by a network that can run online."),
    "relevance approximate fit": ("relevance:approximate_fit", "Fit the approximation network."),
    "relevance approximate apply": ("relevance:approximate_apply", "Predict estimates with a fitted network."),
    "relevance judgments": ("relevance:judgments", "Turn estimates into a judgment list."),
    "relevance rank": ("relevance:rank", "Rank the documents of each query by their estimates."),
    "relevance exploration": ("relevance:exploration", "Measure what a randomised first result costs."),
    "model": ("", "Bundle, check, export and deploy rankers."),
    "model bundle": ("model:bundle", "Create a bundle from a trained ranker."),
    "model verify": ("model:verify", "Verify the files and scores of a bundle."),
    "model score": ("model:score", "Score documents with a bundle."),
    "model export": ("model:export", "Export a bundle to another system's format."),
    "model promote": ("model:promote", "Make a bundle the current one of a deployment."),
    "model rollout": ("model:rollout", "Release a bundle gradually, and take it back if users prefer the current one."),
    "model rollback": ("model:rollback", "Return a deployment to its previous bundle."),
    "model status": ("model:status", "Show the current bundle of a deployment."),
    "store": ("", "Publish click features for online serving."),
    "store publish": ("model:publish", "Publish the click features of a log to a store."),
    "store info": ("model:store_info", "Describe what a store contains."),
    "data": ("", "Inspect and generate judged lists."),
    "data info": ("data:info", "Describe files of judged lists."),
    "data check": ("data:check", "Check the files of a public data set."),
    "data generate": ("data:generate", "Write the embedded data as LETOR files."),
    "experiment": ("", "Run experiments on simulated users."),
    "experiment compare": ("experiment:compare", "Compare methods over several seeds."),
    "experiment simulate": ("experiment:simulate", "Simulate users who click on judged lists."),
    "experiment feedback": ("experiment:feedback", "Simulate a ranker that is retrained on its own clicks."),
}
"""Every command and group: its function, as "module:function" of `clickprism.cli`, and its summary."""
FIRST_STEPS = """\
clickprism separates relevance from observation in click logs.

  clickprism demo                           see it work on a simulated log (two minutes)
  clickprism diagnose clicks.csv            report which biases your click log contains
  clickprism init shop --source events      create a project from your click log
  clickprism run shop                       train a ranker; again: train only if the log has changed
  clickprism serve shop                     serve the ranker
  clickprism --help                         list all commands
"""


def main(words: Sequence[str] | None = None) -> None:
    """Run the command that the words name, by default those of the process, and exit with its code."""
    sys.exit(run(sys.argv[1:] if words is None else words))


def run(words: Sequence[str]) -> int:
    """Run a command and return its exit code; errors become one line on standard error."""
    if not words:
        print(FIRST_STEPS, end="")
        return 0
    given: list[Argument] = []
    try:
        app = build_app(words, given)
        app(full_names(app, words), exit_on_error=False, print_error=False, result_action="return_value")
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has what it wants
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (ClickprismError, CycloptsError, ModuleNotFoundError, OSError, KeyboardInterrupt) as error:
        message, code = _explain(error, words, given)
        print(message, file=sys.stderr)
        return code
    return 0


def _explain(error: BaseException, words: Sequence[str], given: Sequence[Argument]) -> tuple[str, int]:
    """Return what to print about an error, and the exit code; an error that is ours to repair is raised again."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(error, ModuleNotFoundError):
        error = missing_extra(error)
    if isinstance(error, CycloptsError):
        meant = [] if addressed(words) else [name for name in COMMANDS if name.endswith(f" {words[0]}")]
        if meant:
            names = " or ".join(f"clickprism {name}" for name in meant)
            return f"error: there is no command clickprism {words[0]}. Did you mean {names}?", WRONG_USE
        return f"error: {_misused(error)}\n{_see_help(words)}", WRONG_USE
    if isinstance(error, OSError):
        why = error.strerror or str(error)
        return f"error: {why if error.filename is None else f'{error.filename}: {why}'}", FAILED
    if isinstance(error, SettingError):
        error = _named(error, given)
        if error.value is None:
            return f"error: {error}\n{_see_help(words)}", error.exit_code
    if isinstance(error, ClickprismError):
        return f"error: {error}", error.exit_code
    raise error


def _see_help(words: Sequence[str]) -> str:
    return f"For help: clickprism {' '.join([*addressed(words), '--help'])}"


KINDS = {int: "a whole number", float: "a number", bool: "true or false", timedelta: "a time such as 90s, 10m or 1.5h"}


def _misused(error: CycloptsError) -> str:
    """Return what is wrong with the words of a command, and which option was probably meant."""
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        if error.keyword is not None or error.argument.tokens:
            return f"{error.argument.name} needs a value."
        unknown = [word for word in error.unused_tokens or () if word.startswith("--")]
        return f"{error.argument.name} is required{f', and {unknown[0]} is not an option' if unknown else ''}."
    if isinstance(error, CoercionError) and error.token is not None and error.target_type in KINDS:
        name = error.token.keyword or (error.argument.name if error.argument is not None else "the value")
        file = "" if error.token.source in ("", "cli", "default") else f" in {error.token.source}"
        return f"{name}{file} must be {KINDS[error.target_type]}, got {error.token.value!r}."
    if isinstance(error, UnknownOptionError):
        option = (error.token.keyword or error.token.value).partition("=")[0]
        if nested := [name for name in _names(error.argument_collection) if name.endswith(f".{option[2:]}")]:
            return f"Unknown option: {option}. Did you mean {' or '.join(nested)}?"
    return str(error)


def build_app(words: Sequence[str] | None = None, given: list[Argument] | None = None) -> App:
    """Return the application; only the command that the words name is imported, or all without words.

    `given` receives the options of the command that is run, so that an error can name them.
    """
    app = App(
        name="clickprism",
        version=__version__,
        version_flags=["--version"],
        help="A click is relevance times observation. clickprism separates the two.",
        help_format="markdown",
        default_parameter=STYLE,
        suppress_keyboard_interrupt=False,
        config=lambda command, _commands, arguments: _configure(command, arguments, given),
    )
    groups, wanted = {"": app}, None if words is None else " ".join(addressed(words))
    for order, (path, (where, summary)) in enumerate(COMMANDS.items()):
        group, _, name = path.rpartition(" ")
        if where and wanted in (None, path):
            child: App = Command(name=name, default_command=_function(where), sort_key=order, default_parameter=STYLE)
        else:
            child = groups[path] = App(name=name, help=summary, sort_key=order)
        groups[group].command(child)
    return app


def addressed(words: Sequence[str]) -> list[str]:
    """Return the words that name a command or a group.

    >>> addressed(["log", "ingest", "events.jsonl", "--into", "mylog"])
    ['log', 'ingest']
    """
    counts = range(min(len(words), 3), 0, -1)
    return next((list(words[:count]) for count in counts if " ".join(words[:count]) in COMMANDS), [])


def full_names(app: App, words: Sequence[str]) -> list[str]:
    """Return the words with the full names of options that choose a model.

    >>> full_names(build_app(["train"]), ["train", "--user", "pbm", "--user.severity", "2"])
    ['train', '--user.name', 'pbm', '--user.severity', '2']
    """
    for name in addressed(words):
        app = app[name]
    arguments = app.assemble_argument_collection() if app.default_command else []
    short = "|".join(name for argument in arguments if argument.hint == dict[str, Any] for name in argument.names)
    return [re.sub(rf"^({short})(?==|$)", r"\1.name", word) if short else word for word in words]


def find(path: Sequence[str]) -> Callable[..., None]:
    """Return the function of one command."""
    return _function(COMMANDS[" ".join(path)][0])


def _function(where: str) -> Callable[..., None]:
    """Import a command; its settings parameters get their defaults."""
    module, _, name = where.partition(":")
    function: Callable[..., None] = getattr(import_module(f"clickprism.cli.{module}"), name)
    flat = {
        parameter: get_args(hint)[0]
        for parameter, hint in get_type_hints(function, include_extras=True).items()
        if get_origin(hint) is Annotated and any(getattr(each, "name", ()) == ("*",) for each in get_args(hint)[1:])
    }
    function.__kwdefaults__ = {parameter: cls() for parameter, cls in flat.items()} | (function.__kwdefaults__ or {})
    return function


def _configure(app: App, arguments: ArgumentCollection, given: list[Argument] | None) -> None:
    """Put the values of `--config FILE` beneath the options that were given.

    An option with free keys, such as `--user.name` and `--user.severity`, is a dictionary: the file and then the
    default fill the keys that are missing, unless another model was named.
    """
    from clickprism.settings import read_toml

    if given is not None:
        given.extend(arguments)
    free = [argument for argument in arguments if get_origin(argument.hint) is dict]
    for argument in free:
        names = [_field_names(token.keys, argument.hint) for token in argument.tokens]
        argument.tokens[:] = [token.evolve(keys=keys) for token, keys in zip(argument.tokens, names, strict=True)]
    for argument in arguments:
        if argument.name == "--config" and argument.tokens:
            file = argument.tokens[0].value
            _put_beneath(read_toml(Path(file)), arguments, file=file, path=())
    for argument in free:
        if argument.tokens and all(token.source == "cli" for token in argument.tokens):
            _put_keys_beneath(_default(app, argument.keys) or {}, argument, (), source="default")
    _put_defaults_beneath(arguments)


def _field_names(keys: tuple[str, ...], hint: Any) -> tuple[str, ...]:
    """Return keys with field names of settings as in Python; labels and names of measures do not change.

    >>> _field_names(("my-dla", "max-weight"), dict[str, dict[str, Any]])
    ('my-dla', 'max_weight')
    """
    free = {dict[str, Any]: 0, dict[str, dict[str, Any]]: 1}.get(hint, len(keys))
    return (*keys[:free], *[key.replace("-", "_") for key in keys[free:]])


class Command(App):
    """A command whose options have the defaults of its settings.

    Cyclopts builds nested settings from their class: `--simulation.length 5` would give the other fields of
    `SimulationSettings` the defaults of that class, not those of the settings that it is part of.
    """

    def assemble_argument_collection(self, **options: Any) -> ArgumentCollection:
        """Return the options with the defaults of the command's settings, for the help."""
        arguments = super().assemble_argument_collection(**options)
        for argument in arguments:
            if metavar := {timedelta: "TIME", dict[str, Any]: "NAME"}.get(argument.hint):
                argument.parameter = Parameter.combine(argument.parameter, Parameter(metavar=metavar))
        for argument in _nested_options(arguments):
            group = Group(f"Settings of {argument.name[2:].rpartition('.')[0]}", sort_key=NESTED)
            argument.parameter = Parameter.combine(argument.parameter, Parameter(group=group))
            value = _default(self, argument.keys)
            if value is not None:
                argument.field_info = argument.field_info.evolve(default=value)  # type: ignore[no-untyped-call]
        return arguments


def _nested_options(arguments: ArgumentCollection) -> Iterator[Argument]:
    return (each for each in arguments if len(each.keys) > 1 and not is_dataclass(each.hint))


def _put_defaults_beneath(arguments: ArgumentCollection) -> None:
    """Put the defaults of nested settings beneath the options, if some of them are given."""
    given = {argument.keys[0] for argument in _nested_options(arguments) if argument.tokens}
    for argument in _nested_options(arguments):
        value = argument.field_info.default
        if argument.keys[0] not in given or argument.tokens:
            continue
        if isinstance(value, Mapping):
            _put_keys_beneath(value, argument, (), source="default")
        elif value is not None:
            for index, each in enumerate(value if isinstance(value, list | tuple) else [value]):
                argument.append(Token(keyword=argument.name, value=_text(each), source="default", index=index))


def _default(app: App, keys: Sequence[str]) -> Any:
    """Return the default of a field of the command's settings, or of a field of a nested class; None without one."""
    function = app.default_command
    defaults = [] if function is None else list((function.__kwdefaults__ or {}).values())
    value = next((each for each in defaults if hasattr(each, keys[0])), None)
    for key in keys:
        value = getattr(value, key, None)
    return value


def _put_beneath(values: Mapping[str, Any], arguments: ArgumentCollection, *, file: str, path: tuple[str, ...]) -> None:
    """Put the values of a TOML file beneath the options that were given."""
    from clickprism.settings import suggest

    for key, value in values.items():
        name = (*path, key)
        option = "--" + ".".join(part.replace("_", "-") for part in name)
        try:
            argument, keys, _ = arguments.match(option)
        except ValueError:
            known = [each[2:].replace("-", "_") for each in _names(arguments)]
            nested = [repr(each) for each in known if each.endswith(f".{key}")]
            close = f"did you mean {' or '.join(nested)}?" if nested else suggest(".".join(name), known)
            raise SettingError(f"{'.'.join(name)} in {file}", value, f"be a known setting ({close})") from None
        if get_origin(argument.hint) is dict:
            short = argument.hint == dict[str, Any] and isinstance(value, str)  # user = "ubm"
            _put_keys_beneath({"name": value} if short else value, argument, keys, source=file)
        elif isinstance(value, Mapping):
            _put_beneath(value, arguments, file=file, path=name)
        elif is_dataclass(argument.hint):
            raise SettingError(f"{'.'.join(name)} in {file}", value, "be a table of settings")
        elif not argument.tokens:
            for index, each in enumerate(value if isinstance(value, list) else [value]):
                argument.append(Token(keyword=option, value=_text(each), source=file, index=index))


def _names(arguments: ArgumentCollection) -> list[str]:
    """Return the names of the options that the help shows."""
    return [each.name for each in arguments if each.show and each.name.startswith("--")]


def _put_keys_beneath(value: Any, argument: Argument, keys: tuple[str, ...], *, source: str) -> None:
    """Put a value of a dictionary beneath the keys that were given."""
    if isinstance(value, Mapping):
        name = next((token.value for token in argument.tokens if token.keys == (*keys, "name")), value.get("name"))
        if name != value.get("name"):  # the settings of one model do not apply to another
            return
        for key, each in value.items():
            _put_keys_beneath(each, argument, (*keys, key), source=source)
        if not value and all(token.keys[: len(keys)] != keys for token in argument.tokens):
            argument.append(Token(keyword=argument.name, implicit_value={}, source=source, keys=keys))
    elif all(token.keys != keys for token in argument.tokens):
        argument.append(Token(keyword=argument.name, value=_text(value), source=source, keys=keys))


def _text(value: Any) -> str:
    from clickprism.settings import toml_value

    return value if isinstance(value, str) else toml_value(value)


def _named(error: SettingError, given: Sequence[Argument]) -> SettingError:
    """Return the error with the field named as the user wrote it: an option, or a key of the file."""
    option = "--" + error.field.replace("_", "-")
    matches = [each for each in given if each.name in (option, error.field.upper())]
    matches = matches or [each for each in given if each.name.endswith(f".{option[2:]}") and each.tokens]
    if len(matches) != 1:
        return error
    files = [token.source for token in matches[0].tokens if token.source not in ("cli", "default")]
    name = matches[0].name
    return error.renamed(f"{name.removeprefix('--').replace('-', '_')} in {files[0]}" if files else name)
