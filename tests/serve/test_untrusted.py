"""Bundles of strangers: trees that lead nowhere, graphs that ask for all memory, and a first run that is limited."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.rankers.lambdamart import Trees
from clickprism.rankers.mlp import MLP
from clickprism.serve.bundle.build import write_bundle
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.bundle.deployment import Deployment
from clickprism.serve.bundle.untrusted import checked_trees, verify_apart
from clickprism.serve.scoring.scorer import open_scorer
from tests.serve.rankers import FEATURES, network_model, raw_lists, tree_model

TALL = np.zeros((9000, 1), np.float32)


@pytest.fixture(scope="module")
def text() -> str:
    return tree_model().trees.text


def replaced(text: str, name: str, value: str | Callable[[list[str]], list[str]]) -> str:
    """The model with another value in the first line of this name."""

    def other(found: re.Match[str]) -> str:
        return f"\n{name}=" + (value if isinstance(value, str) else " ".join(value(found[1].split(" "))))

    return re.sub(rf"\n{name}=([^\n]*)", other, text, count=1)


def test_trees_that_were_checked_score_as_before(text: str) -> None:
    features = raw_lists().features
    checked = Trees.from_text(checked_trees(text, features=FEATURES))
    np.testing.assert_array_equal(checked(features), Trees.from_text(text)(features))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("left_child", lambda old: ["2000000000", *old[1:]], "leads nowhere, or back"),
        ("right_child", lambda old: ["-2000000000", *old[1:]], "leads nowhere, or back"),
        ("left_child", lambda old: ["0"] * len(old), "leads nowhere, or back"),
        ("right_child", lambda old: [*old[:-1], "1"], "leads nowhere, or back"),
        ("left_child", lambda old: ["-1"] * len(old), "the same child"),
        ("left_child", lambda old: old[1:], "has 3 values, not 4"),
        ("left_child", lambda old: [*old[:-1], "9" * 40], "broken tree 0"),
        ("split_feature", lambda old: ["7", *old[1:]], "a feature that does not exist"),
        ("split_feature", lambda old: ["-1", *old[1:]], "a feature that does not exist"),
        ("leaf_value", lambda old: ["nan", *old[1:]], "a leaf is not a number"),
        ("decision_type", lambda old: ["1", *old[1:]], "broken tree 0: 'cat_boundaries'"),
        ("num_leaves", "2000000000", "2000000000 leaves"),
        ("num_leaves", "0", "0 leaves"),
        ("is_linear", "1", "linear models"),
        ("num_class", "2", "num_class=2, not 1"),
        ("max_feature_idx", "900", "max_feature_idx=900, not 6"),
        ("objective", "binary sigmoid:1", "the objective 'binary"),
        ("tree_sizes", "1\nnum_class=1", "a name twice"),
        ("num_cat", "0\nnum_cat=0", "a name twice"),
        ("end of trees", "", ""),
    ],
)
def test_broken_trees_are_refused(text: str, name: str, value: Any, words: str) -> None:
    broken = text.replace("\nend of trees", "") if name == "end of trees" else replaced(text, name, value)
    assert broken != text
    with pytest.raises(DataError, match=words or "no end of them"):
        checked_trees(broken, features=FEATURES)


def test_sizes_of_trees_are_not_trusted(text: str) -> None:
    wrong = replaced(text, "tree_sizes", "999999999 1")
    assert "tree_sizes" not in checked_trees(wrong, features=FEATURES)


def forge(folder: Path, name: str, content: bytes) -> Path:
    """Replace a file of a bundle, with its right hash."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def graph_with(folder: Path, *nodes: tuple[str, list[str], str], constants: dict[str, Any]) -> bytes:
    """The network of a bundle with more nodes, whose last output is added to the scores."""
    import onnx

    model = onnx.load_model_from_string((folder / "network.onnx").read_bytes())
    for name, values in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(values), name))
    for kind, inputs, output in nodes:
        model.graph.node.append(onnx.helper.make_node(kind, inputs, [output]))
    return bytes(model.SerializeToString())


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "network", network_model(MLP(hidden=(4,), activation="gelu"))).folder


@pytest.mark.parametrize(
    ("nodes", "constants", "words"),
    [
        ([("ConstantOfShape", ["n"], "big")], {"n": np.array([4_000_000_000])}, "operator 'ConstantOfShape'"),
        ([("Expand", ["x", "n"], "big")], {"x": np.zeros(1, "f4"), "n": np.array([1 << 32])}, "operator 'Expand'"),
        ([("Pad", ["x", "n"], "big")], {"x": np.zeros(1, "f4"), "n": np.array([0, 1 << 32])}, "more than 16,777,216"),
        (
            [("MatMul", ["x", "y"], "big")],
            {"x": np.zeros((9000, 1), "f4"), "y": np.zeros((1, 9000), "f4")},
            "more than",
        ),
        ([("Add", ["x", "y"], "big")], {"x": np.zeros((9000, 1), "f4"), "y": np.zeros((1, 9000), "f4")}, "more than"),
        ([("Add", ["x", "y"], "big")], {"x": np.zeros(3, "f4"), "y": np.zeros(4, "f4")}, "do not fit together"),
    ],
)
def test_a_graph_without_bounds_is_refused(network: Path, nodes: Any, constants: Any, words: str) -> None:
    forge(network, "network.onnx", graph_with(network, *nodes, constants=constants))
    with pytest.raises(DataError, match=words):
        open_scorer(Bundle.load(network))


def test_a_hostile_bundle_harms_only_the_process_that_verifies_it(network: Path, tmp_path: Path) -> None:
    """What the checks know nothing of, such as steps of ONNX Runtime's own, meets the limits."""
    verify_apart(network)
    with pytest.raises(DataError, match=r"network: (cannot be scored within 1 MB|ended the process)"):
        verify_apart(network, memory=1 << 20)
    forge(network, "network.onnx", graph_with(network, ("Expand", ["c0", "c0"], "big"), constants={}))
    deployment = Deployment(tmp_path / "shop")
    with pytest.raises(DataError, match="operator 'Expand'"):
        deployment.promote(network)
    assert not deployment.exists()


def test_the_error_of_the_child_process_is_reported(network: Path) -> None:
    forge(network, "sample.json", (network / "sample.json").read_bytes().replace(b"0.", b"1."))
    with pytest.raises(DataError, match=r"scores its own sample by up to .* otherwise"):
        verify_apart(network)
    with pytest.raises(DataError, match="nowhere: does not exist"):
        verify_apart(network / "nowhere")
