"""The reference of the command line, written from the code: `python -m clickprism.cli_old.reference > docs/cli.md`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from typer.main import get_command

from clickprism.cli_old.app import EXIT_CODES, ORDER, app

INTRODUCTION = """\
# Command line

Written from the code by `make docs`; a test fails where it is not current.

Results go to standard output, everything else to standard error, where a terminal sees a progress bar. `--json` prints
one JSON object and nothing else on standard output; `--quiet` leaves out all but the result and errors.

## Settings

Every command works on the same [settings](#all-settings). They are made in this order, the later on top:

1. the defaults;
2. a TOML file, `--config FILE`; what it does not name stays as it was, except `methods`, which is taken as a whole;
3. flags, each short for one setting: `--epochs 5` is `--set fit.epochs=5`. A `--user` or `--ranker` other than that of
   the file drops the settings of that one;
4. `--set KEY=VALUE`, with the value as in TOML, or plain text.

Paths in a TOML file, as those of flags, are relative to the working directory, not to the file.

An unknown name is an error that suggests the right one. `train`, `compare`, `feedback` and `demo` write all settings,
the defaults too, to `settings.toml` in their folder: `--config` takes it back.

```toml
sessions = 50
runs = 3

[data]
source = "mq2008"
folder = "data/MQ2008"

[user]
name = "pbm"
severity = 1.5

[ranker]
name = "mlp"
hidden = [64, 32]

[methods.click]
[methods.dla]
[methods.clipped]
name = "ipw"
floor = 0.05
```
"""


def reference() -> str:
    """The whole page."""
    codes = [[str(code), meaning] for code, meaning in EXIT_CODES.items()]
    parts = [INTRODUCTION, "## Exit codes\n", _table(["code", "meaning"], codes)]
    for name, command in commands():
        parts += _command(name, command)
    return "\n".join([*parts, *_settings()])


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its full name, such as "clickprism data info"."""
    yield from _below("clickprism", get_command(app))


def examples(command: Any) -> list[str]:
    """The command lines in the help of a command."""
    return [line for line in (command.epilog or "").split("\n\n") if line.startswith("clickprism ")]


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for key in sorted(inner, key=lambda each: ORDER.index(each) if each in ORDER else len(ORDER)):
        yield from _below(f"{name} {key}", inner[key])


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option"]
    usage = " ".join([name, *[param.metavar for param in arguments], "[OPTIONS]"])
    yield f"## {name}\n"
    yield f"{inspect.cleandoc(command.help)}\n"
    yield f"```\n{usage}\n```\n"
    rows = [[f"`{param.metavar}`", "", param.help] for param in arguments]
    for param in options:
        names = ", ".join(f"`{each}`" for each in param.opts)
        rows.append([names if param.is_flag else f"{names} {param.metavar}", _option_default(param), param.help])
    yield _table(["argument or option", "default", "meaning"], rows)
    yield "```bash\n{}\n```\n".format("\n".join(examples(command)))


def _option_default(param: Any) -> str:
    if param.required:
        return "required"
    return "" if param.is_flag or not isinstance(param.default, str | int | Path) else f"`{param.default}`"


def _settings() -> Iterator[str]:
    from clickprism.debias import METHODS
    from clickprism.experiments.settings import ExperimentSettings
    from clickprism.rankers import RANKERS
    from clickprism.settings import resolve
    from clickprism.users import USERS

    yield "## All settings\n"
    yield from _section("", ExperimentSettings, {})
    for path, table in (("user", USERS), ("ranker", RANKERS), ("methods", METHODS)):
        for name in table:
            cls = resolve(table, name, path=path)
            head = f"`[methods.{name}]`" if path == "methods" else f'`{path}.name = "{name}"`'
            yield f"### {head}\n"
            yield f"{_documented(cls)[0]}\n"
            rows = [[f"`{each.name}`", _default(each), _documented(cls)[1][each.name]] for each in fields(cls)]
            if rows:
                yield _table(["setting", "default", "meaning"], rows)


def _section(path: str, cls: Any, changed: dict[str, Any]) -> Iterator[str]:
    """The table of a settings class, then those of the classes inside; `changed` are defaults other than its own."""
    words, hints = _documented(cls)[1], get_type_hints(cls)
    inner = {each.name: hints[each.name] for each in fields(cls) if is_dataclass(hints[each.name])}
    rows = []
    for each in fields(cls):
        if f"{path}.{each.name}" == "fit.seed":
            continue
        name = f"{path}.{each.name}" if path else each.name
        default = f"[below](#{name.replace('.', '')})" if each.name in inner else _default(each, changed)
        rows.append([f"`{name}`", default, words[each.name]])
    if path:
        yield f"### {path}\n"
    yield _table(["setting", "default", "meaning"], rows)
    for name, kind in inner.items():
        made = changed[name] if name in changed else _value(next(each for each in fields(cls) if each.name == name))
        yield from _section(f"{path}.{name}" if path else name, kind, vars(made))


def _default(field: Any, changed: dict[str, Any] | None = None) -> str:
    from clickprism.settings import plain, toml_value

    value = (changed or {}).get(field.name, _value(field))
    return "" if value is None else f"`{toml_value(plain(value) if is_dataclass(value) else value)}`"


def _value(field: Any) -> Any:
    return field.default_factory() if field.default is MISSING else field.default


def _documented(cls: Any) -> tuple[str, dict[str, str]]:
    """The first sentence of a docstring, and what it says of each attribute."""
    text = inspect.getdoc(cls) or ""
    found: dict[str, str] = {}
    name = ""
    for line in text.partition("\nAttributes:\n")[2].splitlines():
        start = re.match(r"    (\w+): (.*)", line)
        if start is not None:
            name = start[1]
            found[name] = start[2]
        elif line.startswith("        ") and name:
            found[name] += f" {line.strip()}"
        else:
            break
    return text.partition("\n")[0], found


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *[[cell.replace("|", "\\|") for cell in row] for row in rows]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(reference(), end="")
