"""`scripts/java` finds a Java that Spark can use, installs one where it may, and else says what is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "java"


def tool(folder: Path, name: str, body: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2024-01-16' >&2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A path with nothing but what the script needs; its user may install."""
    for name in ("sh", "sed"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).symlink_to(found)
    tool(tmp_path / "bin", "id", "echo 0")
    return tmp_path / "bin"


def run(path: Path, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        ["/bin/sh", str(SCRIPT)], env={"PATH": str(path)} | environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("version", ["17.0.9", "21", "24-ea"])
def test_a_java_that_is_there(path: Path, version: str) -> None:
    tool(path, "java", says(version))
    tool(path, "apt-get", "echo installed >&2; exit 1")
    assert run(path, CI="1") == (0, "")


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2"])
def test_a_java_that_is_too_old(path: Path, version: str) -> None:
    tool(path, "java", says(version))
    code, text = run(path)
    assert (code, "will be skipped" in text) == (0, True)
    code, text = run(path, CI="1")
    assert (code, "no Java 17 or later, and tests of Spark need it" in text) == (1, True)


def test_the_home_of_java_decides(path: Path, tmp_path: Path) -> None:
    tool(path, "java", says("17.0.9"))
    tool(path, "apt-get", "echo installed >&2")
    code, text = run(path, JAVA_HOME=str(tmp_path / "no where"), CI="1")
    assert (code, "set it right, or unset it" in text, "installed" in text) == (1, True, False)
    tool(tmp_path / "home" / "bin", "java", says("21.0.1"))
    assert run(path, JAVA_HOME=str(tmp_path / "home"), CI="1") == (0, "")


def test_one_is_installed_where_we_may(path: Path) -> None:
    """Only after the lists of packages are made new, and only the second of the two."""
    calls = path.parent / "calls"
    tool(path, "made", says("17.0.9"))
    lines = [
        f'echo "$*" >> {calls}',
        f'case "$*" in update*) : > {path}/new; exit 0 ;; *openjdk*) exit 100 ;; esac',
        f"[ -e {path}/new ] || exit 100",
        f"/bin/mv {path}/made {path}/java",
    ]
    tool(path, "apt-get", "\n".join(lines))
    assert run(path, CI="1") == (0, "")
    words = [line.split()[-1] for line in calls.read_text().splitlines()]
    packages = ["openjdk-17-jre-headless", "default-jre-headless"]
    assert words == [*packages, "-qq", *packages]


def test_one_that_cannot_be_installed_or_is_too_old(path: Path) -> None:
    tool(path, "apt-get", "exit 100")
    code, text = run(path, CI="1")
    assert (code, "could not install a Java 17" in text) == (1, True)
    tool(path, "apt-get", "exit 0")
    tool(path, "java", says("11"))
    assert "could not install a Java 17" in run(path)[1]
    tool(path, "id", "echo 1000")
    assert "apt-get" not in run(path)[1]
