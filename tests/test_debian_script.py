"""`scripts/debian` installs the programs that are not there where it may, and else says which are missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "debian"


def tool(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A path with nothing but what the script needs and one of two programs; its user may install."""
    found = shutil.which("sh")
    assert found is not None
    (tmp_path / "sh").symlink_to(found)
    tool(tmp_path, "id", "echo 0")
    tool(tmp_path, "wrk", "exit 0")
    return tmp_path


def run(path: Path, **environment: str) -> tuple[int, str]:
    command = ["/bin/sh", str(SCRIPT), "wrk", "redis-server"]
    done = subprocess.run(command, env={"PATH": str(path)} | environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_what_is_there_is_left_alone(path: Path) -> None:
    tool(path, "redis-server", "exit 0")
    tool(path, "apt-get", "echo installed >&2")
    assert run(path, CI="1") == (0, "")


def test_what_is_missing_is_installed_once_the_lists_are_new(path: Path) -> None:
    calls = path / "calls"
    lines = [
        f'echo "$*" >> {calls}',
        f'case "$*" in update*) : > {path}/new; exit 0 ;; esac',
        f"[ -e {path}/new ] || exit 100",
        f"/bin/cp {path}/wrk {path}/redis-server",
    ]
    tool(path, "apt-get", "\n".join(lines))
    assert run(path, CI="1") == (0, "")
    assert [line.split()[-1] for line in calls.read_text().splitlines()] == ["redis-server", "-qq", "redis-server"]


def test_what_cannot_be_installed_is_named(path: Path) -> None:
    tool(path, "apt-get", "exit 100")
    code, text = run(path, CI="1")
    assert (code, "tests need it: redis-server" in text) == (1, True)
    code, text = run(path)
    assert (code, "will be skipped: redis-server" in text) == (0, True)
    tool(path, "id", "echo 1000")
    assert "apt-get" not in run(path)[1]


def test_a_program_may_be_in_a_package_of_another_name(path: Path) -> None:
    made = path / "pg_ctlcluster"
    tool(path, "apt-get", f'echo "$@" >{path}/asked; echo "#!/bin/sh" >{made}; /bin/chmod +x {made}')
    command = ["/bin/sh", str(SCRIPT), "wrk", "pg_ctlcluster:postgresql"]
    done = subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (path / "asked").read_text().split()[-1] == "postgresql"
