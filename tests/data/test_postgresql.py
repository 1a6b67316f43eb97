"""A log in PostgreSQL: a real server, which only listens on a socket in a temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

import clickprism as cp
from clickprism.data.logged import log_fingerprint
from clickprism.errors import DataError
from tests.data.shop import shop_clicks

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
USER = "postgres"  # initdb refuses root


def as_user(*words: object) -> None:
    prefix = ["runuser", "-u", USER, "--"] if os.geteuid() == 0 else []
    subprocess.run([*prefix, *map(str, words)], check=True, stdout=subprocess.DEVNULL, timeout=240, cwd="/")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Return the URL of an empty database."""
    if not PROGRAMS:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="clickprism-pg-"))  # short: the path of a socket has at most 107 bytes
    programs, data = PROGRAMS[-1].parent, folder / "data"
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
        as_user(programs / "initdb", "--no-sync", "--auth", "trust", "--username", USER, "-D", data)
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        as_user(programs / "pg_ctl", "-D", data, "-l", folder / "log", "-w", "-t", "200", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://{USER}@/postgres?host={folder}"
        finally:
            as_user(programs / "pg_ctl", "-D", data, "-w", "-m", "fast", "stop")
    finally:
        shutil.rmtree(folder)


def test_a_query_gives_the_same_log_as_the_frame(server: str) -> None:
    frame = shop_clicks(30)
    engine = sqlalchemy.create_engine(server)
    frame.reset_index(names="place").to_sql("clicks", engine, index=False)
    engine.dispose()
    sql = "select q, sku, rank, clicked, quality, brand, stock from clicks order by place"
    roles = {"query": "q", "document": "sku", "features": "all others"}
    log = cp.read_log(server, sql=sql, **roles)  # type: ignore[arg-type]
    assert log_fingerprint(log) == log_fingerprint(cp.read_log(frame, **roles))  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r'the query failed \(relation "nothing" does not exist'):
        cp.read_log(server, sql="select * from nothing")
