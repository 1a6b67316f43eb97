"""Every module of the log can be imported first: no import is circular."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import clickprism.log

ALONE = """
import importlib, sys
for name in sys.argv[1:]:
    for known in [each for each in sys.modules if each.startswith("clickprism.log")]:
        del sys.modules[known]
    importlib.import_module(name)
    print(name)
"""


def test_every_module_can_be_imported_first() -> None:
    folder = Path(clickprism.log.__path__[0])
    files = sorted(path.relative_to(folder.parent.parent).with_suffix("") for path in folder.rglob("*.py"))
    names = [".".join(file.parts).removesuffix(".__init__") for file in files]
    done = subprocess.run([sys.executable, "-c", ALONE, *names], capture_output=True, text=True, check=False)
    assert done.stdout.split() == names, done.stderr
