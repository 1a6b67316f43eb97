"""Every table and figure of LBD: `python -m reproduce.lbd --quick` in ten minutes, `--full` in the paper's size."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "Agg")

from clickprism.errors import ClickprismError, DataError, SettingError
from reproduce.lbd.config import DATA, SIZES, Size
from reproduce.lbd.plan import PARTS, Plan
from reproduce.lbd.run import reproduce

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    try:
        reproduce(
            plan_of(given),
            out=given.out,
            jobs=given.jobs,
            as_json=given.json,
            only_say=given.dry_run,
            write_expected=given.write_expected,
        )
    except ClickprismError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    return 0


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="python -m reproduce.lbd", description=__doc__)
    size = made.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="everything at a reduced size, in ten minutes on two cores")
    size.add_argument("--full", action="store_true", help="the network of the paper; says beforehand how long it takes")
    made.add_argument("--data", choices=DATA, default="embedded", help="what is ranked (default: %(default)s)")
    made.add_argument("--folder", type=Path, help="where the files of the data are, unless embedded")
    made.add_argument("--out", type=Path, default=Path("out"), help="where runs and results go (default: %(default)s)")
    made.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes (default: %(default)s)")
    made.add_argument("--tables", help="which tables, such as 1,3,4; with --figures, only what both name")
    made.add_argument("--figures", help="which figures, such as 3a,3b,3c,4")
    made.add_argument("--seeds", help="which seeds, such as 0,1,2, instead of those of the size")
    made.add_argument("--couplings", help="which couplings of Figure 3, such as 0,.3,.6")
    made.add_argument("--maps", help="which couplings of Figure 4, such as 0,.3,.6")
    made.add_argument("--rankers", help="which rankers, linear or mlp")
    made.add_argument("--epochs", type=int, help="passes over the ranked lists")
    made.add_argument("--dry-run", action="store_true", help="only say how many runs there are and how long they take")
    made.add_argument("--write-expected", action="store_true", help="fill our figures into reproduce/lbd/expected.csv")
    made.add_argument("--json", action="store_true", help="print the rows of summary.json instead of a table")
    return made


def plan_of(given: argparse.Namespace) -> Plan:
    """What was asked for, checked."""
    size = SIZES["quick" if given.quick else "full" if given.full else "standard"]
    if given.data != "embedded" and given.folder is None:
        raise SettingError("folder", None, f"say where the files of {given.data} are")
    if given.jobs < 1:
        raise SettingError("jobs", given.jobs, "be at least 1")
    if given.data != "embedded" and not (given.folder.is_dir() and os.access(given.folder, os.R_OK | os.X_OK)):
        raise DataError(
            "is no folder that can be read", file=given.folder, remedy=f"Say where the files of {given.data} are"
        )
    return Plan(given.data, _changed(size, given), _parts(given.tables, given.figures), given.folder)


def _changed(size: Size, given: argparse.Namespace) -> Size:
    if given.seeds:
        size = replace(size, seeds=tuple(int(seed) for seed in _numbers("seeds", given.seeds)))
    if given.couplings:
        size = replace(size, couplings=_numbers("couplings", given.couplings))
    if given.maps:
        size = replace(size, maps=_numbers("maps", given.maps))
    if given.epochs is not None:
        if given.epochs < 1:
            raise SettingError("epochs", given.epochs, "be at least 1")
        size = replace(size, epochs=given.epochs)
    if given.rankers:
        names = given.rankers.split(",")
        if unknown := [name for name in names if name not in size.rankers]:
            raise SettingError("rankers", unknown[0], f"be one of {', '.join(size.rankers)}")
        maps = tuple(name for name in size.map_rankers if name in names)
        size = replace(size, rankers={name: size.rankers[name] for name in names}, map_rankers=maps)
    return size


def _numbers(field: str, text: str) -> tuple[float, ...]:
    try:
        values = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise SettingError(field, text, "be numbers with commas between") from None
    if min(values) < 0:
        raise SettingError(field, text, "not be negative")
    return values


def _parts(tables: str | None, figures: str | None) -> tuple[str, ...]:
    if tables is None and figures is None:
        return PARTS
    wanted = [f"table {word}" for word in (tables or "").split(",") if word]
    for word in [word for word in (figures or "").split(",") if word]:
        wanted += [f"figure 3{panel}" for panel in "abc"] if word == "3" else [f"figure {word}"]
    if unknown := [part for part in wanted if part not in PARTS]:
        raise SettingError("tables and figures", unknown[0], f"be among {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in wanted)


if __name__ == "__main__":
    sys.exit(main())
