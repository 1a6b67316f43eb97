"""Print the reference of the command line, docs/reference/cli.md: `python -m clickprism.cli.reference`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from inspect import getdoc
from typing import Any

from clickprism.cli.app import EXIT_CODES, build_app, find

LONG = 3  # a list of as many options is printed once
INTRODUCTION = """\
# Command line

This page is generated from the code by `make docs`; a test fails if it is not current.

Results go to standard output, everything else to standard error. On a terminal, long commands show their progress.
`--json` prints the result as one JSON object; `--quiet` prints the result and errors only.

Every option is a field of a settings class. `--fit.epochs 5` on the command line, `epochs = 5` in the table `[fit]` of
a TOML file (`--config FILE`) and `fit=FitSettings(epochs=5)` in Python are the same setting. Options override the file.
Lists are given by repeating an option. An unknown name is an error that suggests the right one. Paths in a file are
relative to the working directory.
"""


def reference() -> str:
    """Return the whole page."""
    codes = [[str(code), meaning] for code, meaning in EXIT_CODES.items()]
    page = str(build_app().generate_docs()).partition("\n## ")[2]
    parts = [INTRODUCTION, "## Exit codes\n", _table(["code", "meaning"], codes), _without_repeats(f"## {page}")]
    return "\n".join([*parts, *_models()]).rstrip() + "\n"


def _without_repeats(page: str) -> str:
    """Replace each list of options that an earlier command has too by a link to that command."""
    first: dict[str, str] = {}
    sections = re.split(r"^(?=#+ clickprism )", page, flags=re.MULTILINE)
    for number, section in enumerate(sections):
        command = section.partition("\n")[0].lstrip("# ")

        def shortened(block: re.Match[str], command: str = command) -> str:
            earlier = first.setdefault(block[0], command)
            if earlier == command or block[0].count("\n* ") < LONG:
                return block[0]
            return f"**{block[1]}**: as in [`{earlier}`](#{earlier.replace(' ', '-')}).\n"

        sections[number] = re.sub(r"\*\*([^*\n]+)\*\*:\n\n(?:(?:\* | ).*\n)+", shortened, section)
    return "".join(sections)


def examples(path: Sequence[str]) -> list[str]:
    """Return the command lines in the help of a command, each as one line.

    >>> examples(["data", "check"])
    ['clickprism data check', 'clickprism data check mq2008 data/MQ2008']
    """
    text = getdoc(find(path)) or ""
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
    return "".join(blocks).replace("\\\n", " ").splitlines()


def _models() -> Iterator[str]:
    """Yield the settings of everything that is chosen by name: user models, rankers and methods."""
    from clickprism.click_models import USERS
    from clickprism.debias import METHODS
    from clickprism.rankers import RANKERS
    from clickprism.settings import resolve

    for title, noun, option, table in (
        ("User models", "User model", "--user", USERS),
        ("Rankers", "Ranker", "--ranker", RANKERS),
        ("Methods", "Method", "--methods", METHODS),
    ):
        yield f"## {title}\n"
        if table is METHODS:
            yield methods_table()
        for name in table:
            cls = resolve(table, name, path=option)
            prefix = f"{option}.{name}" if option == "--methods" else option
            chosen = "--method" if option == "--methods" else option
            summary = getattr(cls, "summary", None) or (getdoc(cls) or "").partition("\n")[0]
            yield f"### {noun} {name}\n\n`{chosen} {name}`: {summary}\n"
            rows = [
                [f"`{prefix}.{field.name.replace('_', '-')}`", _default(field), meanings(cls).get(field.name, "")]
                for field in fields(cls)
            ]
            if rows:
                yield _table(["option", "default", "meaning"], rows)


def methods_table() -> str:
    """Return what every method declares about itself as a Markdown table."""
    from clickprism.debias import METHODS
    from clickprism.settings import resolve

    rows = []
    for name in METHODS:
        cls = resolve(METHODS, name, path="--method")
        biases, needs = ", ".join(cls.corrects) or "none", ", ".join(cls.needs)
        page = f"[`{name}`](../research/methods/{name}.md)"
        rows.append([page, cls.summary, biases, needs, "yes" if cls.takes_weights else "no"])
    return _table(["method", "what it does", "corrects", "needs", "weighted clicks"], rows)


def meanings(cls: type[Any]) -> dict[str, str]:
    """Return what the docstring of a settings class says about each field."""
    from docstring_parser import parse

    return {each.arg_name: " ".join((each.description or "").split()) for each in parse(getdoc(cls) or "").params}


def _default(field: Any) -> str:
    from clickprism.settings import plain, toml_value

    value = field.default_factory() if field.default is MISSING else field.default
    return "" if value is None else f"`{toml_value(plain(value) if is_dataclass(value) else value)}`"


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *[[cell.replace("|", "\\|") for cell in row] for row in rows]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(reference(), end="")
