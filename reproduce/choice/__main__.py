"""Measure the ranker that `auto` chooses, over engines of every quality: `python -m reproduce.choice`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from clickprism._util.files import write_file
from clickprism.errors import SettingError
from reproduce.choice.frame import POSITION, TriedFrame, frame_table, try_frames
from reproduce.choice.study import Tried, cell_tasks, fold_tasks, summary, table, tool_tasks, try_all
from reproduce.common.cli import guarded
from reproduce.common.engines import CELLS

PAGE = Path(__file__).parents[2] / "docs" / "research" / "choice.md"
TOOL = Path(__file__).parents[3] / "shared" / "tools" / "engine_worlds"
SETS = ("cells", "collection", "tool", "frame")
QUICK = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: run(given))


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    made = argparse.ArgumentParser(prog="python -m reproduce.choice", description=__doc__)
    made.add_argument(
        "--set",
        choices=SETS,
        default="cells",
        help="cells: simulated engines; collection: simulated users on NFCorpus, MQ2008 and LETOR-like lists; tool: "
        "the worlds of engine_worlds; frame: the frame of a shop with categories",
    )
    made.add_argument("--draws", type=int, default=3, help="draws of each world, or folds (default: %(default)s)")
    made.add_argument("--first", type=int, default=0, help="seed of the first draw, or first fold (default: 0)")
    made.add_argument("--quick", action="store_true", help=f"only {QUICK} worlds, one draw")
    made.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="worlds at a time")
    made.add_argument("--write", action="store_true", help="write the table to docs/research/choice.md")
    return made


def run(given: argparse.Namespace) -> None:
    """Try the worlds and print the table."""
    for name in ("draws", "processes"):
        if getattr(given, name) < 1:
            raise SettingError(name, getattr(given, name), "be at least 1")
    if given.first < 0:
        raise SettingError("first", given.first, "be at least 0")
    draws = 1 if given.quick else given.draws
    if given.set == "frame":
        text = frame_table(try_frames(draws, processes=given.processes, tell=_tell_frame))
    else:
        text = _worlds(given, draws)
    print(text)
    if given.write:
        fill(PAGE, given.set, text)


def _worlds(given: argparse.Namespace, draws: int) -> str:
    """Return the summary and the table of simulated engines or of the collection."""
    seeds = range(given.first, given.first + draws)
    tasks = {
        "cells": lambda: cell_tasks(CELLS, seeds),
        "collection": lambda: fold_tasks(seeds),
        "tool": lambda: tool_tasks(TOOL, seeds),
    }[given.set]()
    tried = try_all(tasks[:QUICK] if given.quick else tasks, processes=given.processes, tell=_tell)
    return f"{summary(tried)}\n{table(tried)}"


def fill(page: Path, name: str, table: str) -> None:
    """Write the table between the two marks of a page, or at its end."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = page.read_text(encoding="utf-8") if page.exists() else "# The choice of `auto`\n"
    if begin not in text:
        text = f"{text.rstrip()}\n\n{begin}\n{end}\n"
    before, rest = text.split(begin, 1)
    write_file(page, f"{before}{begin}\n{table}{end}{rest.split(end, 1)[1]}")


def _tell(one: Tried) -> None:
    failed = f", failed: {', '.join(one.failed)}" if one.failed else ""
    print(
        f"{one.name}, seed {one.seed}: {one.chosen} {one.ours:.3f}, raw clicks {one.raw:.3f}, "
        f"LightGBM {one.rivals['LightGBM']:.3f}, ridge {one.rivals['ridge']:.3f}, regret {one.regret:.3f}"
        f"{failed} ({one.seconds:.0f} s)",
        file=sys.stderr,
        flush=True,
    )


def _tell_frame(one: TriedFrame) -> None:
    print(
        f"{one.engine}, query = {one.query}, seed {one.seed}: {one.chosen} {one.values['auto']:.3f}, {POSITION} "
        f"{one.values[POSITION]:.3f} ({one.seconds:.0f} s)",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
