"""The language model online: graphs say what PyTorch says, nothing is read twice."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clickprism.data.texts import Texts
from clickprism.errors import DataError, UnsupportedError
from clickprism.rankers.cross_encoder import CrossEncoderNetwork
from clickprism.rankers.language_model import CrossEncoder
from clickprism.serve.bundle.build import write_bundle
from clickprism.serve.onnx import language as language_bundle
from clickprism.serve.onnx.language import fits, generated_texts, language_files, serve_language
from clickprism.serve.scoring.language import ENTRY, PAIRS, LanguageReader, LanguageScorer, TextCache
from clickprism.serve.scoring.scorer import Candidates
from clickprism.types import Float32, Int64
from tests.rankers.tiny_language_model import write_tiny_model

QUERY = "red apple"
TEXTS = ["sweet red apple ripe", "old plum", "", "blue unknown plum sour sour old", "old plum", "green " * 40]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def network_of(folder: Path, *, residual: bool = True, **settings: Any) -> CrossEncoderNetwork:
    """With weights that are drawn, also where the prior's untuned model has others."""
    corpus = Texts.of(["a", "b", "c"], ["sweet red apple", "old plum", "red plum sour"])
    network = CrossEncoder(model=str(folder), tokens=24, query_tokens=6, **settings).build(corpus).eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        for parameter in network.encoder.parameters():
            parameter.data.add_(0.05 * torch.randn_like(parameter))
        if residual:
            network.head.weight.data = torch.randn(1, network.width) * 0.3
        network.head.bias.data = torch.tensor([-0.4])
        network.slopes.copy_(torch.tensor([0.3, 0.8, 1.5][: len(network.slopes)]))
    return network


@pytest.mark.parametrize("pooling", ["match", "cls", "mean"])
@pytest.mark.parametrize("prior", [True, False])
def test_a_graph_says_what_pytorch_says(folder: Path, pooling: str, prior: bool) -> None:
    network = network_of(folder, pooling=pooling, prior=prior)
    reader = LanguageReader(*language_files(network))
    wanted = network.odds(network.pairs([QUERY] * len(TEXTS), TEXTS))
    np.testing.assert_allclose(reader.odds(QUERY, TEXTS), wanted, atol=2e-5)
    np.testing.assert_allclose(reader.odds(QUERY, TEXTS), wanted, atol=2e-5)
    assert reader.known.misses == 5


def test_where_the_prior_says_all_no_pair_is_read(folder: Path) -> None:
    network = network_of(folder, residual=False)
    reading, files = language_files(network)
    assert PAIRS not in files
    reader = LanguageReader(reading, files)
    wanted = network.odds(network.pairs([QUERY] * len(TEXTS), TEXTS))
    np.testing.assert_allclose(reader.odds(QUERY, TEXTS), wanted, atol=2e-5)
    misses = reader.states.misses
    reader.odds("plum", TEXTS)
    assert reader.states.misses == misses + 1, "texts are known, only the query is new"


def test_a_bundle_reads_without_pytorch(folder: Path, tmp_path: Path) -> None:
    network = network_of(folder)
    bundle = write_bundle(tmp_path / "bundle", network)
    code = (
        "import sys; from clickprism.serve.bundle.bundle import Bundle\n"
        "from clickprism.serve.scoring.scorer import *\n"
        f"scorer = open_scorer(Bundle.load({str(bundle.folder)!r})); scorer.warm()\n"
        f"print(scorer.score(Candidates({QUERY!r}, {TEXTS!r})).scores.tolist()); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    wanted = network.score_pairs([QUERY] * len(TEXTS), TEXTS)
    np.testing.assert_allclose(np.array(json.loads(done.stdout)), wanted, atol=1e-5)


def test_generated_texts_have_many_lengths(folder: Path) -> None:
    pairs = list(generated_texts(network_of(folder)))
    lengths = {len(document.split()) for _, documents in pairs for document in documents}
    assert (len(pairs), pairs[-1][1][-1], min(lengths)) == (8, "", 0)
    assert len(lengths) > 10


def test_a_graph_with_other_outputs_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(folder, prior=False)

    def wrong(network: CrossEncoderNetwork) -> Any:
        reading, files = language_files(network)
        return replace(reading, bias=reading.bias + 0.01), files

    monkeypatch.setattr(language_bundle, "language_files", wrong)
    with pytest.raises(DataError, match="differs from PyTorch by up to"):
        serve_language(network)


def test_a_model_of_another_form_is_refused(folder: Path, tmp_path: Path) -> None:
    network = network_of(folder, prior=False)
    network.encoder.config.hidden_act = "gelu_new"  # type: ignore[union-attr]
    assert not fits(network.encoder.config)
    with pytest.raises(UnsupportedError, match=r"only language models of the form of BERT .* store publish --imputed"):
        write_bundle(tmp_path / "bundle", network)


def test_a_cache_forgets_what_was_used_longest_ago() -> None:
    cache, computed = TextCache(most=2 * (ENTRY + 4)), list[str]()

    def ask(*texts: str) -> list[str]:
        computed.clear()

        def compute(places: Int64) -> Float32:
            computed.extend(texts[place] for place in places)
            return np.ones((len(places), 1), np.float32)

        assert cache.through("q", texts, compute).shape == (len(texts), 1)
        return list(computed)

    assert ask("a", "b") == ["a", "b"]
    assert ask("a") == []
    assert ask("c") == ["c"]
    assert ask("a", "c") == []
    assert ask("b") == ["b"]


def test_keys_differ_by_where_texts_part() -> None:
    cache = TextCache(most=10_000)
    for first, other in (("ab", "c"), ("a", "bc"), ("\ud800", "\ud800")):
        cache.through(first, [other], lambda places: np.ones((len(places), 1), np.float32))
    assert cache.misses == 3


def test_many_threads_share_a_reader(folder: Path) -> None:
    reader = LanguageReader(*language_files(network_of(folder)))
    fresh = LanguageReader(*language_files(network_of(folder)))
    fresh.known = TextCache(most=0)
    queries = ["red apple", "plum", "sour pear", "blue"] * 8
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda query: reader.odds(query, TEXTS), queries))
    for query, each in zip(queries[:4], found[:4], strict=True):
        np.testing.assert_allclose(each, fresh.odds(query, TEXTS), atol=1e-5)


def test_scores_need_texts(folder: Path, tmp_path: Path) -> None:
    scorer = LanguageScorer(write_bundle(tmp_path / "bundle", network_of(folder, prior=False)))
    assert scorer.score(Candidates(QUERY, [])).scores.shape == (0,)
    with pytest.raises(DataError, match="needs the text of the query"):
        scorer.score(Candidates(None, TEXTS))
