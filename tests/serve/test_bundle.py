"""A bundle is what its manifest says, or it is refused: whatever was changed, added, taken away or forged."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickprism.errors import ClickprismError, DataError
from clickprism.rankers.mlp import MLP
from clickprism.serve.bundle import bundle as bundle_files
from clickprism.serve.bundle.build import write_bundle
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.scoring.scorer import open_scorer
from tests.serve.rankers import network_model

SMALL = MLP(hidden=(4,))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a network with a normaliser outside of the graph."""
    folder = tmp_path_factory.mktemp("made") / "bundle"
    write_bundle(folder, network_model(SMALL, "quantile"))
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def forge(folder: Path, change: Callable[[dict[str, Any]], None], **contents: bytes) -> None:
    """Change the manifest, and files with their hashes, as one could who makes bundles by hand."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, content in contents.items():
        file = name.replace("__", ".")
        (folder / file).write_bytes(content)
        manifest["files"][file] = hashlib.sha256(content).hexdigest()
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def nothing(manifest: dict[str, Any]) -> None:
    pass


def refused(folder: Path, match: str) -> None:
    with pytest.raises(DataError, match=match):
        open_scorer(Bundle.load(folder)).warm()


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 10**9), bit=st.integers(0, 7), which=st.integers(0, 100))
def test_no_bit_may_change(made: Path, place: int, bit: int, which: int) -> None:
    names = sorted(entry.name for entry in made.iterdir())
    file = made / names[which % len(names)]
    before = file.read_bytes()
    changed = bytearray(before)
    changed[place % len(before)] ^= 1 << bit
    file.write_bytes(changed)
    try:
        version = Bundle.load(made).version
    except ClickprismError:
        version = None
    finally:
        file.write_bytes(before)
    assert version is None or (file.name == "manifest.json" and version != Bundle.load(made).version)


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True), which=st.integers(0, 100))
def test_no_file_may_be_cut(made: Path, share: float, which: int) -> None:
    names = sorted(entry.name for entry in made.iterdir())
    file = made / names[which % len(names)]
    before = file.read_bytes()
    file.write_bytes(before[: int(share * len(before))])
    try:
        with pytest.raises(DataError, match=file.name):
            Bundle.load(made)
    finally:
        file.write_bytes(before)


@pytest.mark.parametrize("name", ["more.json", "run.py", ".hidden", "network.pkl"])
def test_no_file_may_be_added(copy: Path, name: str) -> None:
    (copy / name).write_bytes(b"{}")
    refused(copy, f"{name}: is not named in the manifest of the bundle. A bundle holds")


def test_no_file_may_be_missing(copy: Path) -> None:
    (copy / "sample.json").unlink()
    refused(copy, r"sample\.json: is missing from the bundle\. Create the bundle again")


def test_only_regular_files_are_read(copy: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copy(copy / "network.onnx", outside)
    (copy / "network.onnx").unlink()
    (copy / "network.onnx").symlink_to(outside)
    refused(copy, "is a link")
    (copy / "network.onnx").unlink()
    os.mkfifo(copy / "network.onnx")
    refused(copy, "is not a regular file")
    (copy / "network.onnx").unlink()
    (copy / "network.onnx").mkdir()
    refused(copy, "is not a regular file")


@pytest.mark.parametrize(
    "name", ["../outside.json", "/etc/passwd", "a/b.json", "network.pkl", "manifest.json", "N.txt"]
)
def test_no_path_leads_outside(copy: Path, name: str) -> None:
    forge(copy, lambda manifest: manifest["files"].update({name: "0" * 64}))
    refused(copy, "names a file that no bundle has")


def test_a_pickle_is_refused_unread(copy: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "run"),)

    content = pickle.dumps(Evil())
    forge(copy, nothing, network__safetensors=content)
    refused(copy, "is not a safetensors file")
    forge(copy, lambda manifest: manifest["files"].pop("network.safetensors"), network__onnx=content)
    (copy / "network.safetensors").unlink()
    refused(copy, "is not an ONNX file")
    assert not (tmp_path / "run").exists()


def test_a_zip_bomb_is_no_safetensors(copy: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("mean.npy", b"\0" * 10_000_000)
    forge(copy, nothing, normaliser__safetensors=packed.getvalue())
    refused(copy, "is not a safetensors file")


def test_a_header_that_promises_too_much_is_refused(copy: Path) -> None:
    header = json.dumps({"mean": {"dtype": "F64", "shape": [1 << 40], "data_offsets": [0, 1 << 43]}}).encode()
    forge(copy, nothing, normaliser__safetensors=len(header).to_bytes(8, "little") + header)
    refused(copy, "is not a safetensors file")


def test_oversize_files_are_refused_unread(copy: Path) -> None:
    with (copy / "sample.json").open("r+b") as file:
        file.truncate(bundle_files.LARGEST[".json"] + 1)
    refused(copy, "is larger than")
    with (copy / "manifest.json").open("r+b") as file:
        file.truncate(bundle_files.LARGEST_MANIFEST + 1)
    refused(copy, "is larger than")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            {"schema_version": 1},
            "schema version 1, this clickprism reads 2. Create it again: clickprism model bundle RUN",
        ),
        ({"kind": "oracle"}, "of kind 'oracle', which no scorer knows"),
        ({"feature_names": ["a"]}, "the manifest says 1 features|is of 7 features"),
        ({"feature_names": ["a"] * 7}, "one twice"),
        ({"surprise": 1}, "unknown field `surprise`"),
        ({"files": 3}, r"Expected `object`, got `int` - at `\$\.files`"),
        ({"naive": {"kind": "linear"}}, "unknown field `naive`"),
        (
            {"normaliser": {"kind": "quantile"}, "missing": "perhaps"},
            "Invalid enum value 'perhaps'",
        ),
        ({"normaliser": None}, "its own sample by up to|has no score"),
        ({"scope": 10}, r"got `int` - at `\$\.scope`"),
        ({"scope": [10]}, r"got `array` - at `\$\.scope`"),
        ({"scope": {"depth": 10}}, r"unknown field `depth` - at `\$\.scope`"),
        ({"scope": {"rerank_depth": "10"}}, r"got `str` - at `\$\.scope\.rerank_depth`"),
        ({"scope": {"rerank_depth": True}}, r"got `bool` - at `\$\.scope\.rerank_depth`"),
        ({"scope": {"rerank_depth": 10.5}}, r"got `float` - at `\$\.scope\.rerank_depth`"),
        ({"scope": {"rerank_depth": 0}}, r"rerank_depth must be a whole number|out of range|got `float`"),
        ({"scope": {"rerank_depth": 10**30}}, r"rerank_depth must be a whole number|out of range|got `float`"),
        ({"scope": {"reason": ["why"]}}, r"got `array` - at `\$\.scope\.reason`"),
        ({"scope": {"reason": "\x1b[2J"}}, r"reason must be one line"),
    ],
)
def test_a_false_manifest_is_refused(copy: Path, change: dict[str, Any], match: str) -> None:
    forge(copy, lambda manifest: manifest.update(change))
    refused(copy, match)


@pytest.mark.parametrize("text", ["[]", '{"schema_version": 2, "schema_version": 2}', "{" * 10_000, "\xff", ""])
def test_what_is_no_manifest_is_refused(copy: Path, text: str) -> None:
    (copy / "manifest.json").write_text(text, encoding="latin-1")
    refused(copy, r"manifest\.json: is not")


def test_a_graph_may_not_reach_outside(copy: Path) -> None:
    import onnx

    model = onnx.load_model_from_string((copy / "network.onnx").read_bytes())
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../etc/passwd"
    forge(copy, nothing, network__onnx=model.SerializeToString())
    refused(copy, "keeps weights in another file")


def test_what_changes_after_loading_is_not_read(copy: Path) -> None:
    bundle = Bundle.load(copy)
    (copy / "network.onnx").write_bytes((copy / "network.onnx").read_bytes() + b"\0")
    with pytest.raises(DataError, match=r"network\.onnx: was changed after the bundle was made"):
        open_scorer(bundle)


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: does not exist"):
        Bundle.load(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"has no manifest\.json\. Create one with: clickprism model bundle"):
        Bundle.load(tmp_path)


def test_writing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, model = tmp_path / "bundle", network_model(SMALL)
    first = write_bundle(place, model)
    with pytest.raises(DataError, match=r"exists already\. Choose another folder, or replace it"):
        write_bundle(place, model)

    def other(*_: object, **__: object) -> bytes:
        from clickprism.serve.onnx.networks import network_onnx

        wrong = network_model(SMALL, seed=1)
        return network_onnx(wrong.ranker, wrong.network, features=7, normaliser=wrong.normaliser)

    monkeypatch.setattr("clickprism.serve.bundle.build.network_onnx", other)
    with pytest.raises(DataError, match="otherwise than the ranker that it was made from"):
        write_bundle(place, model, replace=True)
    assert Bundle.load(place).version == first.version
    assert [entry.name for entry in tmp_path.iterdir()] == ["bundle"]
    monkeypatch.undo()
    second = write_bundle(place, network_model(SMALL, seed=2), replace=True)
    assert second.version != first.version
    assert [entry.name for entry in tmp_path.iterdir()] == ["bundle"]


def test_a_folder_of_others_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="exists already"):
        write_bundle(tmp_path / "mine", network_model(SMALL), replace=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()
    (tmp_path / "mine" / "manifest.json").write_text('{"name": "an extension of a browser"}')
    with pytest.raises(DataError, match="exists already"):
        write_bundle(tmp_path / "mine", network_model(SMALL), replace=True)
    place = write_bundle(tmp_path / "bundle", network_model(SMALL)).folder
    (place / "thesis.txt").write_text("more of it")
    with pytest.raises(DataError, match="exists already"):
        write_bundle(place, network_model(SMALL), replace=True)
    assert (place / "thesis.txt").exists()


def test_a_compressed_normaliser_of_a_model_is_refused(tmp_path: Path) -> None:
    from clickprism.model import MANIFEST, Model

    model = network_model(SMALL)
    model.save(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    network = next(file for file in tmp_path.glob("network-*")).read_bytes()
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, mean=np.zeros(10_000_000))
    MANIFEST.save(tmp_path, about, {"network.safetensors": network, "normaliser.npz": packed.getvalue()})
    with pytest.raises(DataError, match="is compressed, unlike the files of a model"):
        Model.load(tmp_path)
