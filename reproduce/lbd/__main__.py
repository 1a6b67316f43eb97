"""Every table and figure of LBD: `python -m reproduce.lbd --quick` in ten minutes, `--full` in the paper's size."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "Agg")

from clickprism.errors import SettingError
from reproduce.common.cli import How, guarded, options, size_name, whole_numbers, words
from reproduce.lbd.config import CANDIDATES, DATA, PUBLISHED, SIZES, Size
from reproduce.lbd.plan import PARTS, Plan
from reproduce.lbd.run import reproduce


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: reproduce(plan_of(given), How.of(given)))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = options("lbd", __doc__, data=DATA, full="the network of the paper")
    made.add_argument("--tables", help="which tables, such as 1,3,4; with --figures, what either names")
    made.add_argument("--figures", help="which figures, such as 3a,3b,3c,4")
    made.add_argument("--couplings", help="which couplings of Figure 3, such as 0,.3,.6")
    made.add_argument("--maps", help="which couplings of Figure 4, such as 0,.3,.6")
    made.add_argument("--rankers", help="which rankers, linear or mlp")
    made.add_argument("--methods", help="which methods, such as click,dla,lbd_paper,lbd")
    made.add_argument("--published", action="store_true", help="lambda and t of the paper's Table 3, without tuning")
    return made


def plan_of(given: argparse.Namespace) -> Plan:
    """What was asked for, checked."""
    size, parts = _changed(SIZES[size_name(given)], given), _parts(given.tables, given.figures)
    methods = words("methods", given.methods, list(CANDIDATES))
    if given.published:
        if missing := [each for each in product(size.rankers, size.couplings) if each not in PUBLISHED]:
            raise SettingError("couplings", missing[0][1], "be 0, .1 and so on to .6, which Table 3 has")
        parts = tuple(part for part in parts if part != "table 3")
    return Plan(given.data, size, parts, given.folder, published=given.published, methods=methods)


def _changed(size: Size, given: argparse.Namespace) -> Size:
    if given.seeds:
        size = replace(size, seeds=whole_numbers("seeds", given.seeds))
    if given.couplings:
        size = replace(size, couplings=_numbers("couplings", given.couplings))
    if given.maps:
        size = replace(size, maps=_numbers("maps", given.maps))
    if given.epochs is not None:
        size = replace(size, epochs=given.epochs)
    if given.rankers:
        names = words("rankers", given.rankers, list(size.rankers))
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
