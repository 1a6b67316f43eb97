"""`clickprism.toml`: errors name file and key, secrets stay in the environment, `init` finds out the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
import sqlalchemy

from clickprism.errors import DataError, SettingError
from clickprism.project import source
from clickprism.project.create import init
from clickprism.project.run import Project
from clickprism.project.settings import FILE, ProjectSettings, Source, as_toml, expand, period, read_settings, redact
from tests.conftest import Done
from tests.data.shop import shop_clicks
from tests.project.bucket import bucket
from tests.project.worlds import shop_rows
from tests.shared_data import shared_data

SECRET = "s3cret-of-the-database"  # noqa: S105 - of this test


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[source]\npath = "a"\nraed = "ingest"',
            r"source\.raed in .*clickprism\.toml must be a known .*did you mean 'read'",
        ),
        (
            '[source]\npath = "a"\n[training]\ndrift = 2',
            r"training\.drift in .*\.toml must be between 0 and 1, got 2",
        ),
        ('[source]\npath = "a"\nread = "stream"', r"source\.read in .* must be one of ingest, memory"),
        ("[training]\nseed = 1", r"source in .*clickprism\.toml must be given"),
        ('engine = "sprak"\n[source]\npath = "a"', r"engine in .* must be duckdb, local"),
        ('every = "1 hour"\n[source]\npath = "a"', r"every in .* must be a time such as"),
        (
            '[source]\npath = "postgresql://me:pw@host/db"',
            r"must name the password by a variable.*got 'postgresql://me:\*\*\*@host/db'",
        ),
        ('[source]\npath = "a"\n[training]\noutcome = "cart"', r"training\.outcome in .* must be click unless"),
    ],
)
def test_errors_name_the_file_and_the_key(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(SettingError, match=words):
        read_settings(tmp_path)


def test_a_folder_without_the_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not a project.*clickprism init"):
        Project(tmp_path)


def test_what_init_writes_is_read_again_as_the_same_settings(tmp_path: Path) -> None:
    settings = ProjectSettings(source=Source(path="logs/*.csv", table=True, read="memory"))
    (tmp_path / FILE).write_text(as_toml(settings))
    assert read_settings(tmp_path) == settings
    assert period("every", "90s") == timedelta(seconds=90)


def test_secrets_are_expanded_when_used_and_hidden_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    settings = ProjectSettings(source=Source(path="postgresql://me:${DB_PASSWORD}@host/db", table=True, read="memory"))
    assert expand(settings.source.path) == f"postgresql://me:{SECRET}@host/db"
    assert redact(f"cannot connect to postgresql://me:{SECRET}@host", settings).endswith("me:${DB_PASSWORD}@host")
    monkeypatch.delenv("DB_PASSWORD")
    with pytest.raises(SettingError, match="export DB_PASSWORD="):
        expand(settings.source.path)


def test_no_secret_is_in_any_byte_that_a_project_writes_or_prints(
    tmp_path: Path, cli: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret is part of the path of the database, so that it would be in every message that names the source."""
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    database = tmp_path / f"{SECRET}.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{database}")
    shop_clicks(400).to_sql("clicks", engine, index=False)
    engine.dispose()
    project, url = tmp_path / "shop", f"sqlite:///{tmp_path}/${{SHOP_SECRET}}.db"
    printed = [cli("init", project, "--source", url, "--sql", "select * from clicks")]
    printed += [cli("run", project, "--log-format", "json"), cli("run", project), cli("status", project, "--json")]
    database.unlink()
    engine = sqlalchemy.create_engine(f"sqlite:///{database}")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("create table other (a int)"))
    engine.dispose()
    printed.append(cli("run", project, code=1))
    for done in printed:
        assert SECRET not in done.stdout + done.stderr
    files = [path for path in project.rglob("*") if path.is_file()]
    assert len(files) > 30
    assert [path for path in files if SECRET.encode() in path.read_bytes() or SECRET in path.name] == []
    assert "every step is up to date" in printed[2].stdout


def test_init_ignores_columns_that_are_known_only_after_a_click(tmp_path: Path) -> None:
    rows = shop_rows((1.0, 0.0, 0.0), first_day=1, searches=100)
    bought = [0.0 if not click else 9.5 for click in rows["clicked"].to_pylist()]
    pacsv.write_csv(rows.append_column("revenue", pa.array(bought)), tmp_path / "log.csv")
    found = init(tmp_path / "shop", str(tmp_path / "log.csv"))
    assert list(found.ignored) == ["revenue"]
    assert found.features == ("x0", "x1", "x2")
    assert found.roles["position"] == "position"
    assert found.days == ("2026-03-01", "2026-03-02")
    assert found.positions[0][:2] == (1, 100)
    assert len(found.rows) == 5
    settings = read_settings(tmp_path / "shop")
    assert settings.columns.ignore == ("revenue",)
    assert settings.source.read == "ingest"
    with pytest.raises(DataError, match=r"exists already.*--replace"):
        init(tmp_path / "shop", str(tmp_path / "log.csv"))


def test_init_finds_the_number_of_the_first_position_of_ubi_events(tmp_path: Path, cli: Callable[..., Done]) -> None:
    for base in (0, 1):
        raw = tmp_path / f"raw{base}"
        options = ["--searches", 300, "--days", 2, "--queries", 20, "--length", 5, "--ordinal-base", base]
        cli("log", "simulate", "--out", raw, "--schema", "ubi", *options)
        done = cli("init", tmp_path / f"shop{base}", "--source", raw / "events", "--json")
        assert done.json["positions"][0][0] == 1
        settings = read_settings(tmp_path / f"shop{base}")
        assert settings.source.ordinal_base == base


def test_columns_without_usual_names_are_named_once_for_init_and_run(tmp_path: Path, cli: Callable[..., Done]) -> None:
    rows = shop_rows((1.0, 0.0, 0.0), first_day=1, searches=100)
    own = {"query": "term", "document": "ware", "clicked": "was_hit"}
    pacsv.write_csv(rows.rename_columns([own.get(name, name) for name in rows.column_names]), tmp_path / "log.csv")
    assert "--map document=" in cli("init", tmp_path / "shop", "--source", tmp_path / "log.csv", code=1).stderr
    options = [part for name in ("query=term", "document=ware", "click=was_hit") for part in ("--map", name)]
    cli("init", tmp_path / "shop", "--source", tmp_path / "log.csv", *options)
    assert Project(tmp_path / "shop").run(step="log-model").status.searches == 100


def test_events_in_no_known_format_are_read_by_a_mapping_file(tmp_path: Path, cli: Callable[..., Done]) -> None:
    (tmp_path / "events").mkdir()
    rows = shop_rows((1.0, 0.0, 0.0), first_day=1, searches=100)
    own = {"visit": "search", "term": "query", "sku": "document", "rank": "position", "hit": "clicked", "when": "time"}
    lines = [{name: row[column] for name, column in own.items()} for row in rows.to_pylist()]
    text = "".join(json.dumps(line, default=str) + "\n" for line in lines)
    (tmp_path / "events" / "day.jsonl").write_text(text)
    done = cli("init", tmp_path / "shop", "--source", tmp_path / "events", code=1)
    assert f"{tmp_path}/events/day.jsonl: the rows have the fields of no known schema" in done.stderr
    columns = {"search_id": "visit", "query": "term", "document_id": "sku", "position": "rank", "click": "hit"}
    named = "".join(f'{ours} = "{theirs}"\n' for ours, theirs in (columns | {"time": "when"}).items())
    (tmp_path / "mapping.toml").write_text(f"[columns]\n{named}")
    cli("init", tmp_path / "shop", "--source", tmp_path / "events", "--mapping", tmp_path / "mapping.toml")
    assert read_settings(tmp_path / "shop").source.mapping == "../mapping.toml"
    assert Project(tmp_path / "shop").run(step="log-model").status.searches == 100


def test_a_source_that_is_missing_is_named_as_it_was_given(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{tmp_path}/logs: there is no such file.*Check --source"):
        init(tmp_path / "shop", str(tmp_path / "logs"))


def test_a_database_without_a_query_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="sql must give the query"):
        init(tmp_path / "shop", "sqlite:///shop.db")


@pytest.mark.parametrize("scheme", ["file", "s3"])
def test_remote_files_are_fetched_once(tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "reader"), ("SECRET_ACCESS_KEY", SECRET), ("EC2_METADATA_DISABLED", "true")):
        monkeypatch.setenv(f"AWS_{name}", value)
    (tmp_path / "remote" / "old").mkdir(parents=True)
    (tmp_path / "remote" / "a.jsonl").write_text("1\n" * 50_000)
    (tmp_path / "remote" / "old" / "b.jsonl").write_text("1\n")
    said: list[str] = []
    with bucket(tmp_path, "shop") as options:
        url = f"s3://shop/remote{options}" if scheme == "s3" else f"file://{tmp_path}/remote"
        settings = ProjectSettings(source=Source(path=url))
        first = source.source_files(tmp_path, settings, said.append)
        assert [Path(name).read_text() for name in first] == ["1\n" * 50_000, "1\n"]
        assert source.source_files(tmp_path, settings, said.append) == first
        (tmp_path / "remote" / "c.jsonl").write_text("2\n")
        assert len(source.source_files(tmp_path, settings, said.append)) == 3
    assert said == ["fetching a.jsonl", "fetching old__b.jsonl", "fetching c.jsonl"]


def test_expedia_from_a_file_to_a_ranker(tmp_path: Path, cli: Callable[..., Done]) -> None:
    file = shared_data("expedia/searches.csv.gz")
    found = cli("init", tmp_path / "hotels", "--source", file, "--json").json
    assert set(found["ignored"]) == {"booking_bool", "gross_bookings_usd"}
    status = cli("run", tmp_path / "hotels", "--json").json["status"]
    assert status["ranker"]
    assert status["searches"] == 209
    assert json.loads(cli("status", tmp_path / "hotels", "--json").stdout)["clicks"] == 227
