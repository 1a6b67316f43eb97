"""Run every benchmark: `python -m benchmarks [--json] [name ...]`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import benchmarks
from benchmarks.base import Result


def main() -> None:
    """Print a line each: name, our figure, the peer's or the limit's, ratio, bar, ok or short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which benchmarks to run, by module name; all by default")
    parser.add_argument("--json", action="store_true", help="print a JSON array instead of lines")
    arguments = parser.parse_args()
    known = [
        module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name not in {"base", "__main__"}
    ]
    unknown = sorted(set(arguments.names) - set(known))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; known: {', '.join(known)}")
    results: list[Result] = []
    if not arguments.json:
        print(f"{'name':46} {'ours':>12} {'peer/limit':>12} {'ratio':>8} {'bar':>7}")
    for name in arguments.names or known:
        for result in importlib.import_module(f"benchmarks.{name}").run():
            results.append(result)
            if not arguments.json:
                print(_line(result), flush=True)
    if arguments.json:
        json.dump([_row(result) for result in results], sys.stdout, indent=1)
        print()


def _row(result: Result) -> dict[str, object]:
    return {
        "name": result.name,
        "ours": result.ours,
        "peer": result.peer,
        "ratio": result.ratio,
        "bar": result.bar,
        "ok": result.ok,
    }


def _line(result: Result) -> str:
    figures = f"{result.ours:12.4g} {result.peer:12.4g} {result.ratio:8.3g} {result.bar:7.3g}"
    return f"{result.name:46} {figures} {'ok' if result.ok else 'short'}  ({result.unit})"


if __name__ == "__main__":
    main()
