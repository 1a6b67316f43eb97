"""Tables 1 to 4 and Figure 4 of "Approximated Doubly Robust Search Relevance Estimation" (Zou et al., CIKM 2022).

A search engine with texts is simulated and its raw log goes through the product. See docs/research/adr.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "Agg")

from clickprism._util.files import write_file
from clickprism._util.tables import to_json, to_plain
from clickprism.errors import DataError
from reproduce.adr.figures import plot_buckets, plot_examination
from reproduce.adr.methods import draw
from reproduce.adr.tables import all_rows, examination_of, markdown, write_expected
from reproduce.adr.world import SIZES, Size
from reproduce.common.cli import guarded, whole_numbers

TEXTS = Path(__file__).parents[3] / "shared" / "data" / "nfcorpus"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the options and run; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: reproduce(given))


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    made = argparse.ArgumentParser(prog="python -m reproduce.adr", description=__doc__)
    size = made.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="one small draw, under ten minutes on two cores")
    size.add_argument("--full", action="store_true", help="five draws of 600 queries, several hours")
    size.add_argument("--smallest", action="store_true", help="a minute, for tests; its figures say nothing")
    made.add_argument("--texts", type=Path, help="folder of NFCorpus; by default ../shared/data/nfcorpus if it exists")
    made.add_argument("--generated", action="store_true", help="generate texts instead")
    made.add_argument("--seeds", help="which draws, such as 0,1,2, instead of those of the size")
    made.add_argument("--out", type=Path, default=Path("out/adr"), help="folder for the results (default: %(default)s)")
    made.add_argument("--write-expected", action="store_true", help="record our figures in expected.csv")
    return made


def reproduce(given: argparse.Namespace) -> None:
    """Run all draws, print the tables and write them to the folder of results."""
    name = "quick" if given.quick else "full" if given.full else "smallest" if given.smallest else "standard"
    size: Size = SIZES[name]
    seeds = whole_numbers("seeds", given.seeds) if given.seeds else size.seeds
    texts: Path | None = given.texts or (TEXTS if TEXTS.is_dir() else None)
    if given.texts is not None and not given.texts.is_dir():
        raise DataError("is not a folder", file=given.texts, remedy="Give the folder of NFCorpus, or --generated")
    texts, start = None if given.generated else texts, time.perf_counter()
    print(f"size {name}, texts {'generated' if texts is None else 'NFCorpus'}, draws {seeds}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        draws = [
            draw(Path(scratch) / str(seed), size, seed=seed, texts=texts, say=lambda text: print(text, file=sys.stderr))
            for seed in seeds
        ]
        examined = examination_of(Path(scratch) / "examination", searches=size.examined)
    rows = all_rows(draws, examined)
    text = markdown(rows, draws)
    print(text)
    given.out.mkdir(parents=True, exist_ok=True)
    facts = {str(seed): each.facts for seed, each in zip(seeds, draws, strict=True)}
    seconds, cpu = round(time.perf_counter() - start), round(time.process_time())
    summary = {
        "size": name,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "facts": facts,
        "rows": [to_plain(row) for row in rows],
    }
    write_file(given.out / "summary.json", to_json(summary) + "\n")
    write_file(given.out / "report.md", text)
    plot_buckets(rows, given.out / "buckets.svg")
    plot_examination(examined, given.out / "figure4.svg")
    if given.write_expected:
        write_expected(rows)
    print(f"{seconds} s, {cpu} s of a core; written: {given.out}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
