"""Engines: files, batches and errors, the same on DuckDB and on Spark."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime
from pathlib import Path

import ibis
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clickprism.errors import EngineError, SettingError
from clickprism.log.engines.base import Engine, connect

DAY = "day=2026-03-01"
COLUMNS = pa.schema(
    [
        ("a", pa.int32()),
        ("time", pa.timestamp("us")),
        ("key", pa.binary()),
        ("documents", pa.list_(pa.string())),
        ("clicked", pa.bool_()),
    ]
)
ROWS = [
    {"a": 1, "time": datetime(1969, 12, 31, 23, 59, 59, 999999), "key": b"\xff", "documents": ["x", "é"]},
    {"a": 2, "time": datetime(9999, 1, 1), "key": b"a\0", "documents": [], "clicked": True},
    {"a": 3},
]
TABLE = pa.Table.from_pylist(ROWS, COLUMNS)
WITH_DAY = COLUMNS.append(pa.field("day", pa.date32()))


def test_rows_survive_files_in_a_folder_with_an_odd_name(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "a b [c] d=e 'f' %20 é {1,2} *?" / "t" / DAY
    written = engine.write(engine.memory(TABLE), folder, stem="print")
    assert all(path.name.startswith("print-") for path in written)
    assert sorted(folder.iterdir()) == sorted(written)
    back = engine.collect(engine.read(written, WITH_DAY).order_by("a"))
    assert back.drop_columns(["day"]).to_pylist() == TABLE.to_pylist()
    assert back["day"].to_pylist() == [date(2026, 3, 1)] * 3
    assert back["time"].type == pa.timestamp("us")
    assert engine.collect(engine.read([], WITH_DAY)).num_rows == 0


def test_rows_without_a_row_are_a_file(engine: Engine, tmp_path: Path) -> None:
    rows = engine.memory(TABLE)
    files = engine.write(rows.filter(rows.a > 9), tmp_path / DAY, stem="s")
    assert len(files) == 1
    assert engine.collect(engine.read(files, COLUMNS)).num_rows == 0


def test_rows_go_to_their_days(engine: Engine, tmp_path: Path) -> None:
    days = [date(2026, 3, number) for number in (1, 2, 3)]
    rows = engine.memory(TABLE.append_column("day", pa.array([days[0], days[2], days[0]], pa.date32())))
    for some in (days, days[:1]):
        folder = tmp_path / "a b 'é' %20" / str(len(some))
        stems = {day: f"stem{day.day}" for day in some}
        written = engine.write_days(rows.filter(rows.day.isin(some)), folder, stems=stems)
        every = [file for files in written.values() for file in files]
        assert [day for day, files in written.items() if files] == some
        for day, files in written.items():
            assert {file.parent.name for file in files} == {f"day={day.isoformat()}"}
            assert all(file.name.startswith(f"{stems[day]}-") for file in files)
        assert sorted(path for path in folder.rglob("*") if path.is_file()) == sorted(every)
        assert len([*folder.iterdir()]) == len(some)
        back = engine.collect(engine.read(every, WITH_DAY).order_by("a")).to_pylist()
        expected = [(1, days[0]), (2, days[2]), (3, days[0])]
        assert [(row["a"], row["day"]) for row in back] == [pair for pair in expected if pair[1] in some]


def test_batches_pass_through_a_function(engine: Engine, tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int32()), ("twice", pa.int64())])
    rows = engine.memory(TABLE)
    written = engine.write_batches(
        rows.select("a"),
        lambda batch: batch.append_column("twice", pc.multiply(batch["a"], 2)),
        schema,
        tmp_path,
        stem="double",
    )
    double = engine.read(written, schema)
    found = engine.collect(rows.inner_join(double, "a").select("a", "twice").order_by("a"))
    assert found.to_pylist() == [{"a": a, "twice": 2 * a} for a in (1, 2, 3)]
    with engine.held(double) as held:
        assert engine.collect(held.aggregate(sum=held.twice.sum()))["sum"].to_pylist() == [12]


def test_error_is_one_line_of_the_cause(engine: Engine) -> None:
    rows = engine.memory(TABLE)
    with pytest.raises(EngineError) as caught:
        engine.collect(rows.mutate(b=rows.documents.join(",").cast("int64")))
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 400
    assert "x,é" in said


def test_error_of_a_function_on_executors(spark: Engine, tmp_path: Path) -> None:
    def broken(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError(f"{batch.num_columns} column is one too many")

    rows = spark.memory(TABLE).select("a")
    with pytest.raises(EngineError, match="Spark failed: ValueError: 1 column is one too many"):
        spark.write_batches(rows, broken, pa.schema([("a", pa.int32())]), tmp_path, stem="made")


@pytest.mark.parametrize("name", ["duck", "local[0]", "local[x]", "yarn", "spark://", ""])
def test_unknown_engines(name: str) -> None:
    with pytest.raises(SettingError, match="engine must be duckdb, local"):
        connect(name)


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="memory must be such as"):
        connect(memory="much")
    with pytest.raises(SettingError, match="threads must be at least 1"):
        connect(threads=0)


def test_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match=r"no Spark master answers at spark://127\.0\.0\.1:1\."):
        connect("spark://127.0.0.1:1")
    with pytest.raises(EngineError, match="not the address of a Spark master"):
        connect("spark://somewhere")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(EngineError, match="Spark needs Java 17"):
        connect("local[1]")


def test_too_little_memory_is_said(tmp_path: Path) -> None:
    with connect(threads=1, memory="10MB", temp=tmp_path) as engine:
        rows = ibis.range(0, 300_000).unnest().name("a").as_table()
        wide = rows.mutate(text=rows.a.cast("string").hexdigest("sha256"))
        with pytest.raises(EngineError, match=r"too little memory .* --memory"):
            engine.collect(wide.group_by("text").aggregate(all=wide.text.group_concat()).order_by("text"))
    assert list(tmp_path.iterdir()) == []


def test_command_line_does_not_load_engines() -> None:
    code = (
        "import sys, clickprism.cli.app; print([name for name in ('ibis', 'duckdb', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
