"""Files and databases: the same rows give the same log, whatever they are stored in."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlalchemy

import clickprism as cp
from clickprism.data.logged import log_fingerprint
from clickprism.data.tables import read_batches
from clickprism.errors import DataError, SettingError
from tests.data.shop import shop_clicks

ROLES = {"query": "q", "document": "sku", "position": "rank", "click": "clicked", "features": "all others"}


def read(source: object, **more: Any) -> cp.Clicks:
    log = cp.read_log(source, **{**ROLES, **more})
    assert log_fingerprint(log) == log_fingerprint(cp.read_log(shop_clicks(30), **ROLES))  # type: ignore[arg-type]
    return log.clicks


def test_csv_and_tsv_plain_and_compressed(tmp_path: Path) -> None:
    frame = shop_clicks(30)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "a.tsv.gz", index=False, sep="\t")
    frame.to_csv(tmp_path / "b.csv", index=False, sep=";")
    for name in ("a.csv", "a.tsv.gz", "b.csv"):
        read(tmp_path / name)


def test_folders_and_patterns_of_files(tmp_path: Path) -> None:
    frame = shop_clicks(30)
    frame[:120].to_parquet(tmp_path / "1.parquet", index=False)
    frame[120:].to_parquet(tmp_path / "2.parquet", index=False)
    read(tmp_path)
    read(str(tmp_path / "*.parquet"))
    (tmp_path / "2026" / "03").mkdir(parents=True)
    (tmp_path / "1.parquet").rename(tmp_path / "2026" / "03" / "1.parquet")
    (tmp_path / "2.parquet").rename(tmp_path / "2026" / "03" / "2.parquet")
    read(tmp_path)
    read(str(tmp_path / "**" / "*.parquet"))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "shop.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    shop_clicks(30).to_sql("clicks", engine, index=False)
    engine.dispose()
    return file


def test_sqlite_by_url_and_by_file(database: Path) -> None:
    read(f"sqlite:///{database}", sql="select * from clicks")
    read(database, sql="select * from clicks")


def test_a_database_is_read_in_batches(database: Path) -> None:
    batches = list(read_batches(f"sqlite:///{database}", "select * from clicks", rows=70))
    assert [len(batch) for batch in batches] == [70, 70, 70, 70, 20]


def test_a_duckdb_file_is_read_by_a_query(tmp_path: Path) -> None:
    file = tmp_path / "shop.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.register("frame", shop_clicks(30))
        connection.execute("create table clicks as select * from frame")
    read(file, sql="select * from clicks")


def test_files_can_be_queried(tmp_path: Path) -> None:
    shop_clicks(30).to_csv(tmp_path / "a.csv", index=False)
    log = cp.read_log(tmp_path / "a.csv", sql="select * from log where q = 'tv'", **ROLES)  # type: ignore[arg-type]
    assert log.clicks.lists.query_ids.tolist() == ["tv"]


def test_lines_with_another_number_of_fields_are_counted(tmp_path: Path) -> None:
    text = "query,document,position,click\n" + "".join(f"cat,d{n},{n},0\n" for n in range(1, 30)) + "cat,d30\n"
    with gzip.open(tmp_path / "a.csv.gz", "wt") as stream:
        stream.write(text)
    log = cp.read_log(tmp_path / "a.csv.gz")
    assert log.account["lines not used, another number of fields"] == 1
    assert "row 31, 'cat,d30'... with 2 fields instead of 4" in log.notes[-1]


def test_a_file_of_broken_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("query,document,click\ncat,a,1\ncat,b\n")
    with pytest.raises(DataError, match=r"1 of 2 rows are broken, such as row 3, .* quotation mark is closed"):
        cp.read_log(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.csv", b"", "is empty. Export the file again"),
        ("a.parquet", b"", "is empty. Export the file again"),
        ("a.parquet", b"PAR1 and no more", r"cannot be read .*\). Export the file again"),
        ("a.csv", "document,click\ncaf\u00e9,1\n".encode("latin-1"), r"cannot be read .*UTF8.*\). Convert it to UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path, name: str, content: bytes, error: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: {error}"):
        cp.read_log(tmp_path / name)


def test_errors_name_the_query_the_driver_and_the_remedy(database: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"query must be given, to read .* by SQL \(sql= in Python\)"):
        cp.read_log(f"sqlite:///{database}")
    with pytest.raises(DataError, match=r"the query failed \(no such table: x\)"):
        cp.read_log(f"sqlite:///{database}", sql="select * from x")
    with pytest.raises(DataError, match="the query returned no rows"):
        cp.read_log(f"sqlite:///{database}", sql="select * from clicks where q = 'x'")
    with pytest.raises(DataError, match="there is no such file"):
        cp.read_log(f"sqlite:///{tmp_path}/missing.db", sql="select 1")
    with pytest.raises(DataError, match=r"needs the driver .*, which is not installed"):
        cp.read_log("mysql+mysqldb://host/db", sql="select 1")
    with pytest.raises(DataError, match="the query failed"):
        cp.read_log("nothing://host/db", sql="select 1")
