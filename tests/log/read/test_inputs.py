"""Which files paths name."""

from __future__ import annotations

from pathlib import Path

import pytest

from clickprism.errors import DataError
from clickprism.log.read import find_inputs, local_copies


def test_files_folders_and_patterns(tmp_path: Path) -> None:
    names = [
        "b.jsonl",
        "a/x.csv.gz",
        "a/day=1/y.parquet",
        "a/z.JSON.ZST",
        "odd.log",
        ".hidden.csv",
        "a/_SUCCESS",
        "c.csv.tmp",
    ]
    names += [".git/x.csv", "_delta_log/0.json", "readme.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def found(*paths: str) -> list[str]:
        return [str(path.relative_to(tmp_path)) for path in find_inputs([tmp_path / path for path in paths])]

    assert found(".") == ["a/day=1/y.parquet", "a/x.csv.gz", "a/z.JSON.ZST", "b.jsonl"]
    assert found("odd.log", ".hidden.csv") == ["odd.log", ".hidden.csv"]
    assert found("*.*") == ["b.jsonl", "odd.log", "readme.txt"]
    assert found(".git/*.csv") == [".git/x.csv"]
    assert found("a/**/*.parquet", "a", "a/x.csv.gz") == ["a/day=1/y.parquet", "a/x.csv.gz", "a/z.JSON.ZST"]


def test_a_click_log_is_no_input(tmp_path: Path) -> None:
    cut_off = ("logs/new/staging/1-a/.alive", "logs/new/staging/1-a/x.parquet")
    for name in ("in.jsonl", "logs/one/log.toml", "logs/one/events/day=1/x.parquet", "logs/two.jsonl", *cut_off):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert find_inputs([tmp_path]) == [tmp_path / "in.jsonl", tmp_path / "logs/two.jsonl"]
    assert find_inputs([f"{tmp_path}/**/*.*"]) == [tmp_path / "in.jsonl", tmp_path / "logs/two.jsonl"]
    with pytest.raises(DataError, match=r"the folder has no log file"):
        find_inputs([tmp_path / "logs/one"])
    inside = tmp_path / "logs/one/events/day=1/x.parquet"
    assert find_inputs([inside]) == [inside]


def test_nothing_there_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file matches. Check the pattern, and quote it for the shell"):
        find_inputs([tmp_path / "*.csv"])
    with pytest.raises(DataError, match=r"the folder has no log file. Log files end in .jsonl"):
        find_inputs([tmp_path])
    with pytest.raises(DataError, match=r"there is no such file or folder. Check the path"):
        find_inputs([tmp_path / "log.csv"])
    with pytest.raises(DataError, match=r"a path is empty. Say . for the current folder"):
        find_inputs([""])


def test_files_at_urls_are_copied_first(tmp_path: Path) -> None:
    """A URL of local files stands in for s3://: both go through the file systems of pyarrow."""
    names = ["b/2.jsonl", "a.jsonl", "c.csv"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    url, notes = tmp_path.as_uri(), list[str]()
    with local_copies([f"{url}/a.jsonl", "other.csv", f"{url}/*.jsonl", url], note=notes.append) as (
        one,
        other,
        *folders,
    ):
        assert (Path(one).read_text(), other) == ("a.jsonl", "other.csv")
        found = [[file.read_text() for file in find_inputs([folder])] for folder in folders]
    assert found == [["a.jsonl", "b/2.jsonl"], ["a.jsonl", "b/2.jsonl", "c.csv"]]
    assert len(notes) == 6
    assert not Path(one).exists()
    with (
        pytest.raises(DataError, match=r"there is no such file\. Check the URL"),
        local_copies([f"{url}/*.parquet"]),
    ):
        pass
