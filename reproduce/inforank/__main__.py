"""Every table and figure of InfoRank: `python -m reproduce.inforank --quick` in ten minutes, `--full` in full size."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "Agg")

from clickprism.errors import SettingError
from reproduce.common.cli import How, guarded, options, size_name, whole_numbers, words
from reproduce.inforank.config import CANDIDATES, DATA, SIZES, Size
from reproduce.inforank.plan import PARTS, Part, Plan
from reproduce.inforank.run import reproduce


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: reproduce(plan_of(given), How.of(given)))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = options("inforank", __doc__, data=DATA, full="the networks at full size, five draws of all")
    made.add_argument("--tables", help="which tables, 2, 3 or 2,3; with --figures, what either names")
    made.add_argument("--figures", help="which figures, such as 3,4,5,6,7")
    made.add_argument("--users", help="which users, such as pbm,ubm")
    made.add_argument("--rankers", help="which rankers, such as mlp,attention")
    made.add_argument("--methods", help="which methods, such as click,inforank")
    return made


def plan_of(given: argparse.Namespace) -> Plan:
    """What was asked for, checked."""
    size = _changed(SIZES[size_name(given)], given)
    methods = words("methods", given.methods, list(CANDIDATES))
    return Plan(given.data, size, _parts(given.tables, given.figures), given.folder, methods)


def _changed(size: Size, given: argparse.Namespace) -> Size:
    if given.seeds:
        size = replace(size, seeds=whole_numbers("seeds", given.seeds))
    if given.users:
        size = replace(size, users=words("users", given.users, size.users))
    if given.epochs is not None:
        size = replace(size, epochs=given.epochs)
    if given.rankers:
        names = words("rankers", given.rankers, list(size.rankers))
        size = replace(size, rankers={name: size.rankers[name] for name in names})
    return size


def _parts(tables: str | None, figures: str | None) -> tuple[Part, ...]:
    if tables is None and figures is None:
        return PARTS
    wanted = [f"table {word}" for word in (tables or "").split(",") if word]
    wanted += [f"figure {word}" for word in (figures or "").split(",") if word]
    found = {name: [part for part in PARTS if part == name or part.startswith(f"{name} ")] for name in wanted}
    if unknown := [name for name, parts in found.items() if not parts]:
        raise SettingError("tables and figures", unknown[0], f"be among {', '.join(PARTS)}")
    return tuple(part for part in PARTS if any(part in parts for parts in found.values()))


if __name__ == "__main__":
    sys.exit(main())
