"""The options and exit codes that the commands of all papers share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from clickprism.errors import ClickprismError, DataError, SettingError

INTERRUPTED = 130
S = TypeVar("S", bound=Any)


@dataclass(frozen=True)
class How:
    """Options of running a plan.

    Attributes:
        out: Folder of the runs and of the results.
        jobs: Number of processes, each on one core.
        as_json: Print the rows as JSON instead of a table.
        only_say: Print how many runs there are and how long they will take, and stop.
        write_expected: Write our figures into expected.csv.
    """

    out: Path
    jobs: int = 2
    as_json: bool = False
    only_say: bool = False
    write_expected: bool = False

    @classmethod
    def of(cls, given: argparse.Namespace) -> How:
        """Return what the options say."""
        return cls(given.out, given.jobs, given.json, given.dry_run, given.write_expected)


def guarded(call: Callable[[], Any]) -> int:
    """Call the function and return an exit code of clickprism."""
    try:
        call()
    except ClickprismError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    return 0


def options(name: str, description: str | None, *, data: Sequence[str], full: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every paper has; `full` describes its full size."""
    made = argparse.ArgumentParser(prog=f"python -m reproduce.{name}", description=description)
    size = made.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="everything at a reduced size, in ten minutes on two cores")
    size.add_argument("--full", action="store_true", help=f"{full}; says beforehand how long it takes")
    made.add_argument("--data", choices=data, default="embedded", help="what is ranked (default: %(default)s)")
    made.add_argument("--folder", type=Path, help="where the files of the data are, unless embedded")
    made.add_argument("--out", type=Path, default=Path("out"), help="where runs and results go (default: %(default)s)")
    made.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes (default: %(default)s)")
    made.add_argument("--epochs", type=int, help="passes over the ranked lists")
    made.add_argument("--seeds", help="which seeds, such as 0,1,2, instead of those of the size")
    made.add_argument("--dry-run", action="store_true", help="only say how many runs there are and how long they take")
    made.add_argument(
        "--write-expected", action="store_true", help=f"fill our figures into reproduce/{name}/expected.csv"
    )
    made.add_argument("--json", action="store_true", help="print the rows of summary.json instead of a table")
    made.add_argument("--tables", help="which tables, such as 1,3; with --figures, what either names")
    made.add_argument("--figures", help="which figures, such as 3,4")
    made.add_argument("--rankers", help="which rankers, such as mlp")
    made.add_argument("--methods", help="which methods, such as click,lbd")
    return made


def parts_of(given: argparse.Namespace, known: Sequence[S]) -> tuple[S, ...]:
    """Return the tables and figures that were asked for, all by default; "3" means every panel of figure 3."""
    if given.tables is None and given.figures is None:
        return tuple(known)
    names = [f"table {word}" for word in (given.tables or "").split(",") if word]
    names += [f"figure {word}" for word in (given.figures or "").split(",") if word]
    if unknown := [name for name in names if not any(part.startswith(name) for part in known)]:
        raise SettingError("tables and figures", unknown[0], f"be among {', '.join(known)}")
    return tuple(part for part in known if any(part.startswith(name) for name in names))


def changed(size: S, given: argparse.Namespace) -> S:
    """Return the size with the seeds, epochs and rankers that were asked for."""
    more: dict[str, Any] = {}
    if given.seeds:
        more["seeds"] = whole_numbers("seeds", given.seeds)
    if given.epochs is not None:
        more["epochs"] = given.epochs
    if given.rankers:
        more["rankers"] = {name: size.rankers[name] for name in words("rankers", given.rankers, list(size.rankers))}
    return replace(size, **more)


def world_options(name: str, description: str | None, *, worlds: int, first: int = 0) -> argparse.ArgumentParser:
    """Return a parser with the options of every study over worlds that are drawn by seed."""
    made = argparse.ArgumentParser(prog=f"python -m reproduce.{name}", description=description)
    made.add_argument("--worlds", type=int, default=worlds, help="how many (default: %(default)s)")
    made.add_argument("--first", type=int, default=first, help="the seed of the first (default: %(default)s)")
    out = Path("out", name)
    made.add_argument("--out", type=Path, default=out, help="where each world is kept once done (default: %(default)s)")
    made.add_argument("--processes", type=int, default=1, help="worlds at a time (default: %(default)s)")
    return made


def world_seeds(given: argparse.Namespace) -> range:
    """Return the seeds that were asked for, after the checks that all studies over worlds share.

    >>> world_seeds(argparse.Namespace(worlds=2, first=7, processes=1))
    range(7, 9)
    """
    for field, least in (("worlds", 1), ("processes", 1), ("first", 0)):
        if getattr(given, field) < least:
            raise SettingError(field, getattr(given, field), f"be at least {least}")
    return range(given.first, given.first + given.worlds)


def size_name(given: argparse.Namespace) -> str:
    """Return the size that was asked for, after the checks that all papers share."""
    if given.data != "embedded" and given.folder is None:
        raise SettingError("folder", None, f"say where the files of {given.data} are")
    if given.data != "embedded" and not (given.folder.is_dir() and os.access(given.folder, os.R_OK | os.X_OK)):
        remedy = f"Say where the files of {given.data} are"
        raise DataError("is no folder that can be read", file=given.folder, remedy=remedy)
    if given.jobs < 1:
        raise SettingError("jobs", given.jobs, "be at least 1")
    if given.epochs is not None and given.epochs < 1:
        raise SettingError("epochs", given.epochs, "be at least 1")
    return "quick" if given.quick else "full" if given.full else "standard"


def words(field: str, text: str | None, known: Sequence[str]) -> tuple[str, ...]:
    """Return a comma-separated list of known words.

    >>> words("users", "ubm,pbm", ["pbm", "ubm", "ccm"])
    ('ubm', 'pbm')
    """
    names = tuple(word for word in (text or "").split(",") if word)
    if unknown := [name for name in names if name not in known]:
        raise SettingError(field, unknown[0], f"be among {', '.join(known)}")
    return names


def whole_numbers(field: str, text: str) -> tuple[int, ...]:
    """Return a comma-separated list of different whole numbers.

    >>> whole_numbers("seeds", "3,4")
    (3, 4)
    """
    several = text.split(",")
    if not all(word.isdecimal() for word in several) or len({int(word) for word in several}) < len(several):
        raise SettingError(field, text, "be different whole numbers from 0 on, with commas between")
    return tuple(map(int, several))
