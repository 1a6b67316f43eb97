"""The options that several commands have, and how they become settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    pass

SETTINGS = "Settings"
OUTPUT = "Output"

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A TOML file with any settings.", rich_help_panel=SETTINGS),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A single setting on top of all else, such as fit.epochs=5; may be repeated.",
        rich_help_panel=SETTINGS,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, metavar="N", help="Random seed of the first run.", rich_help_panel=SETTINGS),
]
User = Annotated[
    str | None,
    typer.Option("--user", metavar="NAME", help="Who clicks: the setting user.name.", rich_help_panel=SETTINGS),
]
Sessions = Annotated[
    int | None,
    typer.Option(
        "--sessions",
        metavar="N",
        help="How many: of each query, or in all where simulation.frequency is not each: the setting sessions.",
        rich_help_panel=SETTINGS,
    ),
]
Ranker = Annotated[
    str | None,
    typer.Option(
        "--ranker", metavar="NAME", help="What is trained: the setting ranker.name.", rich_help_panel=SETTINGS
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs", metavar="N", help="At most, of training: the setting fit.epochs.", rich_help_panel=SETTINGS
    ),
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "--measure",
        metavar="NAME",
        help="Such as nDCG@10, MRR, ERR@10; may be repeated: the setting evaluation.measures.",
        rich_help_panel=SETTINGS,
    ),
]
Log = Annotated[Path, typer.Argument(metavar="DIR", help="A click log, made by clickprism ingest.")]
Examination = Annotated[
    str | None,
    typer.Option(
        "--examination",
        metavar="MODEL|none",
        help="The JSON of an examination model, or none; by default the one in force, if there is one.",
        rich_help_panel=SETTINGS,
    ),
]
EngineName = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="duckdb, local[*] (Spark here) or spark://host:port.")
]
Memory = Annotated[
    str, typer.Option("--memory", metavar="SIZE", help="What the engine may hold at a time, such as 500MB.")
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="One JSON object on standard output; all else on standard error.", rich_help_panel=OUTPUT
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the result, no progress.", rich_help_panel=OUTPUT)]
AnySeed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of everything random.")]
Processes = Annotated[
    int, typer.Option("--processes", min=1, metavar="N", help="How many candidates are trained at a time.")
]
Budget = Annotated[str, typer.Option("--budget", metavar="TIME", help="What it may take, such as 10m, 90s or 1.5h.")]
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def settings_of(
    config: Path | None,
    assignments: list[str] | None,
    *,
    base: Any = None,
    seeds: list[int] | None = None,
    methods: list[str] | None = None,
    **flags: Any,
) -> Any:
    """The settings that config, flags and `--set` make, in this order; `__` in a flag's name stands for a dot."""
    from clickprism.experiments.settings import ExperimentSettings
    from clickprism.settings import build, override, plain, read_toml

    base = ExperimentSettings() if base is None else base
    values = plain(base)
    values["fit"].pop("seed", None)
    if config is not None:
        values = _merged(values, read_toml(config))
    if seeds is not None:
        flags |= {"seed": seeds[0], "runs": len(seeds)}
    for name, value in flags.items():
        if value is not None:
            values = _merged(values, _nested(name.replace("__", "."), value))
    if methods is not None:
        values["methods"] = {label: values["methods"].get(label, {}) for label in methods}
    return build(type(base), override(values, assignments or ()))


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over others, key by key; methods, and what has another `name`, are replaced whole."""
    result = dict(under)
    for key, value in over.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping) and _same(key, before, value):
            result[key] = _merged(before, value)
        else:
            result[key] = value
    return result


def _same(key: str, before: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    return key != "methods" and value.get("name", before.get("name")) == before.get("name")


def seconds_from(text: str) -> float:
    """The seconds of a budget.

    >>> seconds_from("10m"), seconds_from("90"), seconds_from("1.5h")
    (600.0, 90.0, 5400.0)
    """
    from clickprism.errors import SettingError

    number, unit = (text[:-1], text[-1]) if text[-1:] in SECONDS else (text, "s")
    try:
        seconds = float(number) * SECONDS[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise SettingError("--budget", text, "be a time above 0, such as 10m, 90s or 1.5h")
    return seconds


def names_from(text: str | None) -> list[str] | None:
    """The names that an option parts by commas; None if it is not given.

    >>> names_from("click, dla")
    ['click', 'dla']
    """
    return None if text is None else [name.strip() for name in text.split(",")]


def seeds_from(count: str | None, first: int | None) -> list[int] | None:
    """The seeds that `--seeds` and `--seed` ask for; None if neither is given.

    >>> seeds_from("3", None), seeds_from("3", 5), seeds_from(None, 2)
    ([0, 1, 2], [5, 6, 7], [2])
    """
    from clickprism.errors import SettingError

    if count is None:
        return None if first is None else [first]
    if not count.isdecimal() or int(count) < 1:
        raise SettingError("--seeds", count, "be the number of runs, such as 3")
    return list(range(first or 0, (first or 0) + int(count)))
