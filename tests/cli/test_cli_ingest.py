"""`clickprism ingest` and `clickprism quarantine`: what they print, and how they end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from clickprism.cli_old.app import app
from tests.log.raw_logs import BROKEN, impression, write_lines


def test_an_account_for_people_and_for_machines(tmp_path: Path) -> None:
    path, log = write_lines(tmp_path / "a.jsonl", [impression(1), impression(2), BROKEN]), tmp_path / "log"
    found = CliRunner().invoke(app, ["ingest", str(path), "--into", str(log)])
    assert found.exit_code == 3
    assert "1 of 3 rows are broken" in found.stderr
    good = write_lines(tmp_path / "good.jsonl", [impression(1)])
    found = CliRunner().invoke(app, ["ingest", str(good), str(path), "--into", str(tmp_path / "other"), "--json"])
    assert found.exit_code == 3
    assert (json.loads(found.stdout)["in"], json.loads(found.stdout)["accepted"]) == (1, 1)
    assert "1 of 4 rows are broken" in found.stderr
    words = ["ingest", str(path), "--into", str(log), "--max-bad-ratio", "1"]
    found = CliRunner().invoke(app, [*words, "--dry-run"])
    assert found.exit_code == 0
    assert "time-unreadable: the time cannot be read" in found.stdout
    assert "Nothing was written" in found.stderr
    found = CliRunner().invoke(app, [*words, "--json"])
    account = json.loads(found.stdout)
    assert {name: account[name] for name in ("in", "accepted", "duplicate", "filtered", "quarantined")} == {
        "in": 3,
        "accepted": 2,
        "duplicate": 0,
        "filtered": 0,
        "quarantined": 1,
    }
    found = CliRunner().invoke(app, [*words, "--schema", "ubi"])
    assert found.exit_code == 2
    assert "source.schema must be 'auto'" in found.stderr
    found = CliRunner().invoke(app, ["quarantine", str(log), "--out", str(tmp_path / "broken.jsonl")])
    assert found.exit_code == 0
    assert "time-unreadable" in found.stdout
    assert "a.jsonl:3" in found.stdout
    assert (tmp_path / "broken.jsonl").read_text(encoding="utf-8") == f"{BROKEN}\n"


def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    path, log = write_lines(tmp_path / os.fsdecode(b"a\xff.jsonl"), [impression(1), BROKEN]), tmp_path / "log"
    found = CliRunner().invoke(app, ["ingest", str(path), "--into", str(log), "--max-bad-ratio", "1", "--json"])
    assert json.loads(found.stdout)["in"] == 2
    found = CliRunner().invoke(app, ["quarantine", str(log)])
    assert "a\\xff.jsonl:2" in found.stdout
    pq.write_table(pa.Table.from_pylist([impression(3)]), tmp_path / "a.parquet")
    path = (tmp_path / "a.parquet").rename(tmp_path / os.fsdecode(b"a\xff.parquet"))
    found = CliRunner().invoke(app, ["ingest", str(path), "--into", str(log), "--json"])
    assert json.loads(found.stdout)["accepted"] == 1


def test_a_mapping_and_a_setting(tmp_path: Path) -> None:
    (tmp_path / "columns.toml").write_text('[columns]\ndocument_id = "sku"\n', encoding="utf-8")
    row = impression(1)
    row["sku"] = row.pop("document_id")
    path, log = write_lines(tmp_path / "a.jsonl", [row]), tmp_path / "log"
    words = ["ingest", str(path), "--into", str(log), "--mapping", str(tmp_path / "columns.toml"), "--json"]
    found = CliRunner().invoke(app, [*words, "--set", "robots.searches_per_day=5"])
    assert json.loads(found.stdout)["accepted"] == 1
    text = (log / "log.toml").read_text(encoding="utf-8")
    assert 'document_id = "sku"' in text
    assert "searches_per_day = 5" in text
    found = CliRunner().invoke(app, [*words, "--set", "robots.searches_per_dya=5"])
    assert found.exit_code == 2
    assert "did you mean 'searches_per_day'?" in found.stderr
