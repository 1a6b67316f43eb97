"""Every table of the doubly robust paper: `python -m reproduce.adr --quick`, ten minutes, no language model."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "Agg")

from clickprism.errors import SettingError
from reproduce.adr.config import CANDIDATES, DATA, SIZES, TUNED
from reproduce.adr.plan import PARTS, Part, Plan
from reproduce.adr.run import reproduce
from reproduce.common.cli import How, guarded, options, size_name, whole_numbers, words


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: reproduce(plan_of(given), How.of(given)))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = options("adr", __doc__, data=DATA, full="twice as many queries, five draws of all")
    made.add_argument("files", nargs="?", type=Path, metavar="FOLDER", help="the same as --folder FOLDER")
    made.add_argument("--fine-tune", action="store_true", help="with nfcorpus: train the language model on clicks too")
    made.add_argument("--tables", help="which tables, such as 2,4; with --figures and --costs, what either names")
    made.add_argument("--figures", help="which figures: 4")
    made.add_argument("--costs", action="store_true", help="what randomisation costs and buys")
    made.add_argument("--methods", help="which methods, such as affine,imputation,shrunk")
    return made


def plan_of(given: argparse.Namespace) -> Plan:
    """What was asked for, checked."""
    given.folder = given.folder or given.files
    size = SIZES[size_name(given)]
    if given.seeds:
        size = replace(size, seeds=whole_numbers("seeds", given.seeds))
    if given.epochs is not None:
        size = replace(size, epochs=given.epochs)
    methods = words("methods", given.methods, list(CANDIDATES))
    parts = _parts(given.tables, given.figures, costs=given.costs)
    if given.fine_tune and given.data == "embedded":
        raise SettingError("fine-tune", True, "go with --data nfcorpus, which has texts")
    data = TUNED if given.fine_tune else given.data
    return Plan(data, size, given.out, parts, given.folder, methods)


def _parts(tables: str | None, figures: str | None, *, costs: bool) -> tuple[Part, ...]:
    wanted = [f"table {word}" for word in (tables or "").split(",") if word]
    wanted += [f"figure {word}" for word in (figures or "").split(",") if word]
    wanted += ["costs"] * costs
    if unknown := [name for name in wanted if name not in PARTS]:
        raise SettingError("tables and figures", unknown[0], f"be among {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in wanted) or PARTS


if __name__ == "__main__":
    sys.exit(main())
