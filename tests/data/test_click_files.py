"""Click files: round trips, and errors for every kind of broken file."""

from __future__ import annotations

import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.data.clicks import fingerprint, load_bare, load_clicks, load_log, save_clicks
from clickprism.data.sessions import read_session_file
from clickprism.errors import DataError
from clickprism.types import Clicks, Lists, Simulation, Truth

NAMES = ("offsets", "rows", "positions", "clicks", "impressions")


def example() -> Simulation:
    lists = Lists(np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0, 2, 3]), np.array(["a", "ü"]))
    clicks = Clicks(
        lists,
        np.array([0, 2, 3]),
        np.array([1, 0, 2]),
        np.array([1, 2, 1], np.int32),
        np.array([2, 0, 1]),
        np.array([3, 1]),
    )
    return Simulation(clicks, Truth(np.array([3, 1, 1]), np.array([2, 2, 1])))


def changed(path: Path, **columns: Any) -> Path:
    """Save the example with some columns replaced, or omitted if None."""
    simulation = example()
    save_clicks(simulation.clicks, path, truth=simulation.truth)
    with np.load(path) as file:
        kept = {name: file[name] for name in file.files} | columns
    np.savez(path, **{name: value for name, value in kept.items() if value is not None})
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    simulation, path = example(), tmp_path / "log.npz"
    save_clicks(simulation.clicks, path, truth=simulation.truth)
    again, truth = load_log(path, simulation.clicks.lists)
    assert truth is not None
    for name in NAMES:
        old, new = getattr(simulation.clicks, name), getattr(again, name)
        assert np.array_equal(old, new)
        assert old.dtype == new.dtype
    assert truth.observed.tolist() == [3, 1, 1]
    assert truth.attracted.tolist() == [2, 2, 1]
    assert load_clicks(path, simulation.clicks.lists).clicks.tolist() == [2, 0, 1]
    assert [file.name for file in tmp_path.iterdir()] == ["log.npz"]


def test_a_file_may_have_no_truth(tmp_path: Path) -> None:
    clicks = example().clicks
    save_clicks(clicks, tmp_path / "log.npz")
    assert load_clicks(tmp_path / "log.npz", clicks.lists).sessions == 4
    assert load_log(tmp_path / "log.npz", clicks.lists)[1] is None


def test_clicks_on_other_documents_are_rejected(tmp_path: Path) -> None:
    clicks = example().clicks
    save_clicks(clicks, tmp_path / "log.npz")
    lists = clicks.lists
    others = [
        lists.with_features(lists.features + 1),
        replace(lists, offsets=np.array([0, 1, 3])),
        replace(lists, query_ids=np.array(["a", "u"])),
        Lists(lists.features.reshape(6, 1), np.array([0, 2, 6]), lists.query_ids),
    ]
    for other in others:
        with pytest.raises(DataError, match="other documents"):
            load_clicks(tmp_path / "log.npz", other)
    assert fingerprint(lists) == fingerprint(replace(lists, document_ids=np.array(["x", "y", "z"])))


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"format": np.array("other")}, "not a file of clicks"),
        ({"rows": None}, "lacks: rows"),
        ({"version": np.array(2)}, "format version 2"),
        ({"rows": np.zeros(3)}, "rows must be a vector of int64"),
        ({"rows": np.zeros((3, 1), np.int64)}, "rows must be a vector"),
        ({"rows": np.array([0, 1, 3])}, "rows must be below 3"),
        ({"clicks": np.array([9, 0, 0])}, "clicked in more sessions"),
        ({"observed": np.array([9, 0, 0])}, "observed must count"),
        ({"attracted": np.array([0, 0])}, "attracted must count"),
    ],
)
def test_errors_of_broken_contents_name_the_file(tmp_path: Path, columns: dict[str, Any], problem: str) -> None:
    path = changed(tmp_path / "log.npz", **columns)
    with pytest.raises(DataError, match=problem) as caught:
        load_log(path, example().clicks.lists)
    assert str(path) in str(caught.value)


def test_loading_runs_no_code(tmp_path: Path) -> None:
    path = changed(tmp_path / "log.npz", rows=np.array([{}, {}, {}], dtype=object))
    with pytest.raises(DataError, match="rows must be a vector of int64, got object"):
        load_clicks(path, example().clicks.lists)


def test_unexpected_contents_are_not_decompressed(tmp_path: Path) -> None:
    lists, path = example().clicks.lists, tmp_path / "log.npz"
    bomb = np.zeros(3 * 10**7, np.uint8)
    for columns, problem in (
        ({"junk": bomb}, "holds 'junk'"),
        ({"format": bomb}, "format is too long"),
        ({"rows": bomb}, "rows must be a vector of int64, got uint8"),
    ):
        save_clicks(example().clicks, path)
        kept = {name: value for name, value in np.load(path).items() if name not in columns}
        np.savez_compressed(path, allow_pickle=False, **kept, **columns)
        tracemalloc.start()
        with pytest.raises(DataError, match=problem):
            load_clicks(path, lists)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1e7


def test_a_header_that_claims_too_many_values_is_rejected(tmp_path: Path) -> None:
    lists, path = example().clicks.lists, tmp_path / "log.npz"
    save_clicks(example().clicks, path)
    kept = dict(np.load(path).items())
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in kept.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, value, version=(1, 0))
    assert load_clicks(path, lists).sessions == 4
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in kept.items():
            with archive.open(f"{name}.npy", "w") as file:
                shape = (10**12,) if name == "rows" else value.shape
                descr = {"descr": value.dtype.str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, descr)
                file.write(value.tobytes())
    with pytest.raises(DataError, match="rows is not as long as its header says"):
        load_clicks(path, lists)


def test_files_that_are_not_npz_are_rejected(tmp_path: Path) -> None:
    lists, path = example().clicks.lists, tmp_path / "log.npz"
    with pytest.raises(DataError, match="No such file"):
        load_clicks(path, lists)
    path.write_bytes(b"1 qid:1 1:0.5\n")
    with pytest.raises(DataError, match="not a valid"):
        load_clicks(path, lists)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DataError, match="not a valid"):
        load_clicks(tmp_path / "one.npy", lists)
    save_clicks(example().clicks, path)
    whole = path.read_bytes()
    for cut in (0, 1, 30, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError):
            load_clicks(path, lists)
    for index in range(0, len(whole), 7):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 0xFF]) + whole[index + 1 :])
        try:
            again = load_clicks(path, lists)
        except DataError:
            continue
        assert np.array_equal(again.clicks, example().clicks.clicks)


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        save_clicks(example().clicks, tmp_path / "missing" / "log.npz")


def test_clicks_are_read_without_their_documents(tmp_path: Path) -> None:
    """Rows are renumbered without gaps, and the lists keep the documents of a query together."""
    made = example()
    save_clicks(made.clicks, tmp_path / "clicks.npz", truth=made.truth)
    clicks, truth = load_bare(tmp_path / "clicks.npz")
    assert truth is not None
    assert np.array_equal(truth.observed, made.truth.observed)
    for name in NAMES:
        assert np.array_equal(getattr(clicks, name), getattr(made.clicks, name))
    assert clicks.lists.offsets.tolist() == [0, 2, 3]
    assert read_session_file(tmp_path / "clicks.npz").clicks.sessions == clicks.sessions


def test_unsound_offsets_are_refused_without_documents(tmp_path: Path) -> None:
    file = changed(tmp_path / "bad.npz", offsets=np.array([1, 3, 4]))
    with pytest.raises(DataError, match="offsets of clicks must run from 0"):
        load_bare(file)


def test_rows_far_apart_and_empty_lists_are_read(tmp_path: Path) -> None:
    columns = {"offsets": [0, 2, 2, 4, 4], "rows": [0, 1, 2**62, 2**62 + 1], "clicks": [5, 2, 4, 1]}
    made = {name: np.array(values, dtype=np.int64) for name, values in columns.items()}
    made |= {"impressions": np.array([100, 5, 100, 5]), "positions": np.array([1, 2, 1, 2], dtype=np.int32)}
    np.savez(tmp_path / "far.npz", format="clickprism clicks", version=1, fingerprint="", **made)  # type: ignore[arg-type]
    clicks, _ = load_bare(tmp_path / "far.npz")
    assert clicks.lists.offsets.tolist() == [0, 2, 4]
    assert clicks.rows.tolist() == [0, 1, 2, 3]
