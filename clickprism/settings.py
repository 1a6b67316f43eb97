"""Settings: frozen dataclasses built from mappings, with errors that name the field and suggest the right name.

A settings class is any frozen dataclass whose fields are numbers, strings, booleans, tuples, optional values or nested
settings. The class checks its values in `__post_init__` and raises `SettingError`; this module checks names and types.
A TOML file, an option and a Python call therefore give the same errors.
"""

from __future__ import annotations

import difflib
import importlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from clickprism._util.tables import to_builtin
from clickprism.errors import DataError, SettingError, missing_extra

T = TypeVar("T")


def build(cls: type[T], values: Mapping[str, Any], *, path: str = "", default: T | None = None) -> T:
    """Return the settings of class `cls` with the values of a mapping; unknown names and wrong types are errors.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Fit:
    ...     epochs: int = 10
    ...     rate: float = 0.1
    >>> build(Fit, {"epochs": 3})
    Fit(epochs=3, rate=0.1)
    >>> build(Fit, {"epoch": 3}, path="fit")
    Traceback (most recent call last):
    clickprism.errors.SettingError: fit.epoch must be a known setting (did you mean 'epochs'?), got 3
    >>> build(Fit, {"rate": "fast"}, path="fit")
    Traceback (most recent call last):
    clickprism.errors.SettingError: fit.rate must be of type float, got 'fast'
    """
    if not isinstance(values, Mapping):
        raise SettingError(path or cls.__name__, values, "be a table of settings")
    hints = get_type_hints(cls)
    known = {field.name: field for field in fields(cls) if field.init}  # type: ignore[arg-type]
    made: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{path}.{key}" if path else key
        if key not in known:
            close, before = suggest(key, known), name.removesuffix(key)
            inner = [repr(f"{before}{table}.{key}") for table in known if key in _names(hints[table])]
            words = f"did you mean {' or '.join(inner)}?" if inner and close.startswith("known") else close
            raise SettingError(name, value, f"be a known setting ({words})")
        made[key] = _convert(value, hints[key], name, _default(known[key], default))
    for key, field in known.items():
        if key not in made and default is not None:
            made[key] = getattr(default, key)
        elif key not in made and field.default is MISSING and field.default_factory is MISSING:
            raise SettingError(f"{path}.{key}" if path else key, None, "be given")
    try:
        return cls(**made)
    except SettingError as error:
        if path and not error.field.startswith(f"{path}."):
            raise error.renamed(f"{path}.{error.field}") from None
        raise


def _names(hint: Any) -> set[str]:
    """Return the names of the fields of a settings class; an empty set for any other type."""
    nested = isinstance(hint, type) and is_dataclass(hint)
    return {field.name for field in fields(hint) if field.init} if nested else set()


def _options(hint: Any) -> list[str]:
    """Return the values that a Literal, or a union of Literals, allows; an empty list for any other type."""
    if get_origin(hint) is Literal:
        return [str(option) for option in get_args(hint)]
    parts = [_options(part) for part in get_args(hint)] if get_origin(hint) in (Union, UnionType) else []
    return [option for part in parts for option in part] if all(parts) else []


def _default(field: Field[Any], default: Any) -> Any:
    """Return the value that a field has if it is not given: that of `default`, or its own."""
    if default is not None:
        return getattr(default, field.name)
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _convert(value: Any, hint: Any, name: str, default: Any) -> Any:
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, Mapping):
        return build(hint, value, path=name, default=default if isinstance(default, hint) else None)
    try:
        return _typed(value, hint)
    except msgspec.ValidationError:
        if options := _options(hint):
            close = suggest(str(value), options)
            more = "" if close.startswith("known") else f" ({close})"
            raise SettingError(name, value, f"be one of {', '.join(options)}{more}") from None
        kind = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
        raise SettingError(name, value, f"be of type {kind}") from None


def _typed(value: Any, hint: Any) -> Any:
    """Return the value as its type; text from the command line is read as TOML where the type is not text."""
    if isinstance(value, str):
        read = read_value(value)
        if hint == tuple[str, ...] and not isinstance(read, list):
            return (value,)
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError:
            return msgspec.convert(read, hint)
    return msgspec.convert(value, hint)


def plain(settings: Any) -> dict[str, Any]:
    """Return settings as a mapping for JSON or TOML, from which `build` makes equal settings."""
    values: dict[str, Any] = msgspec.to_builtins(asdict(settings), enc_hook=to_builtin)
    return values


def check_fields(settings: object, **allowed: Any) -> None:
    """Raise SettingError if a field is outside its interval, or none of the values of its Literal type.

    None is not checked; of a tuple, each value is.

    Args:
        settings: The settings; call this from `__post_init__`. Fields of a Literal type need no entry below.
        allowed: For each field an interval such as "(0, 1]" or "[1, inf)", its least and largest value (None for no
            limit), or a Literal type.

    >>> from types import SimpleNamespace
    >>> check_fields(SimpleNamespace(mode="b", epochs=0), mode=Literal["a", "b"], epochs=(1, None))
    Traceback (most recent call last):
    clickprism.errors.SettingError: epochs must be at least 1, got 0
    >>> check_fields(SimpleNamespace(rates=(0.1, 1.0)), rates="(0, 1)")
    Traceback (most recent call last):
    clickprism.errors.SettingError: rates must be between 0 and 1, got (0.1, 1.0)
    """
    cls: Any = type(settings)
    for name, given in {**_literals(cls), **allowed}.items():
        value, limit = getattr(settings, name), given
        if isinstance(given, tuple):
            limit = f"[{given[0]}, {'inf' if given[1] is None else given[1]}]"
        if not isinstance(limit, str):
            if value is not None and value not in get_args(limit):
                raise SettingError(name, value, f"be one of {', '.join(map(str, get_args(limit)))}")
            continue
        low, high = limit[1:-1].split(", ")
        for number in value if isinstance(value, tuple) else () if value is None else (value,):
            above = number >= float(low) if limit[0] == "[" else number > float(low)
            below = number <= float(high) if limit[-1] == "]" else number < float(high)
            if not (above and below):
                raise SettingError(name, value, _words(limit, low, high))


@cache
def _literals(cls: Any) -> dict[str, Any]:
    if not is_dataclass(cls):
        return {}
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls) if get_origin(hints[field.name]) is Literal}


def _words(interval: str, low: str, high: str) -> str:
    """Return an interval as the end of "field must ...".

    >>> _words("[1, inf)", "1", "inf"), _words("[0, 1]", "0", "1"), _words("(0, 1]", "0", "1")
    ('be at least 1', 'be from 0 to 1', 'be above 0 and at most 1')
    """
    ends = interval[0] + interval[-1]
    if high != "inf" and ends in ("[]", "()"):
        return f"be from {low} to {high}" if ends == "[]" else f"be between {low} and {high}"
    least = f"be at least {low}" if interval[0] == "[" else f"be above {low}"
    return least if high == "inf" else f"{least} and {'at most' if ends[1] == ']' else 'below'} {high}"


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: the closest known name, or all of them.

    >>> suggest("lda", ["dla", "click"])
    "did you mean 'dla'?"
    >>> suggest("zzz", ["dla", "click"])
    'known: click, dla'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


def resolve(table: Mapping[str, str], name: str, *, path: str) -> type[Any]:
    """Return the class of a name in a registry; it is imported now, so that unused ones need not be installed.

    A registry is a plain dictionary from a short name to "module:Class", such as `clickprism.debias.METHODS`.
    """
    if name not in table:
        raise SettingError(path, name, f"be a known name ({suggest(name, table)})")
    module, _, attribute = table[name].partition(":")
    try:
        found: type[Any] = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    return found


def choose(table: Mapping[str, str], values: Mapping[str, Any] | str, *, path: str, name: str | None = None) -> Any:
    """Return settings of the class that `name` in the mapping selects from a registry, with the other entries.

    >>> choose({"fraction": "fractions:Fraction"}, {"name": "fractoin"}, path="number")
    Traceback (most recent call last):
    clickprism.errors.SettingError: number.name must be a known name (did you mean 'fraction'?), got 'fractoin'
    """
    if not isinstance(values, Mapping | str):
        raise SettingError(path, values, f"be a table with a name, one of {', '.join(sorted(table))}")
    rest = {"name": values} if isinstance(values, str) else dict(values)
    chosen = rest.pop("name", name)
    if not isinstance(chosen, str):
        raise SettingError(f"{path}.name", chosen, f"be one of {', '.join(sorted(table))}")
    return build(resolve(table, chosen, path=f"{path}.name"), rest, path=path)


def read_toml(path: Path) -> dict[str, Any]:
    """Return a TOML file as a mapping; a DataError names the file and the line of a mistake."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"is not valid TOML: {error}", file=path) from None


def to_toml(values: Mapping[str, Any], *, path: str = "") -> str:
    """Return a mapping as TOML that `read_toml` can read; None values are omitted, since TOML has none.

    >>> print(to_toml({"seeds": [0, 1], "folder": None, "fit": {"rate": 0.05}, "methods": {"dla": {}}}), end="")
    seeds = [0, 1]
    <BLANKLINE>
    [fit]
    rate = 0.05
    <BLANKLINE>
    [methods.dla]
    """
    own = {key: value for key, value in values.items() if value is not None and not isinstance(value, Mapping)}
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    lines = [f"{_toml_key(key)} = {toml_value(value)}" for key, value in own.items()]
    head = [f"\n[{path}]"] if path and (own or not tables) else []
    text = "".join(f"{line}\n" for line in [*head, *lines])
    names = {key: f"{path}.{_toml_key(key)}" if path else _toml_key(key) for key in tables}
    return text + "".join(to_toml(table, path=names[key]) for key, table in tables.items())


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_text(key)


def toml_value(value: Any) -> str:
    """Return a number, text, boolean, list or mapping as a TOML value in one line."""
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_toml_key(key)} = {toml_value(each)}" for key, each in value.items())
        return f"{{{pairs}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(each) for each in value)}]"
    return repr(value) if isinstance(value, float) else _toml_text(value)


def _toml_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


_LOOSE = re.compile(r"(?<![\w.\"'])(\d+\.(?!\d)|\.\d+)(?=(?:[eE][+-]?\d+)?\s*(?:[],}]|$))")


def read_value(text: str) -> Any:
    """Return the TOML value of a text on the command line; `.3` and `1.` are numbers, other text stays text.

    >>> read_value("[64, 32]"), read_value(".5"), read_value("true"), read_value("pbm")
    ([64, 32], 0.5, True, 'pbm')
    """
    whole = _LOOSE.sub(lambda number: f"0{number[0]}" if number[0].startswith(".") else f"{number[0]}0", text)
    for words in (text, whole):
        try:
            return tomllib.loads(f"value = {words}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return text.strip()


def read_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping whose texts, also in mappings within it, are read by `read_value`.

    >>> read_values({"name": "ipw", "floor": ".5", "more": {"propensities": "[]"}})
    {'name': 'ipw', 'floor': 0.5, 'more': {'propensities': []}}
    """
    read = {key: read_values(each) if isinstance(each, Mapping) else each for key, each in values.items()}
    return {key: read_value(each) if isinstance(each, str) else each for key, each in read.items()}
