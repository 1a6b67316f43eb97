"""The cross-encoder: how pairs become tokens and batches, what it pools, that it goes to files and back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load

from clickprism.data.bm25 import BM25
from clickprism.data.texts import Texts
from clickprism.errors import DataError, MissingExtraError, SettingError
from clickprism.rankers import language_model
from clickprism.rankers.cross_encoder import CrossEncoderNetwork, probabilities
from clickprism.rankers.language_model import CrossEncoder, load_language_model
from clickprism.rankers.prior import Similarity
from clickprism.rankers.text_tokens import assemble, by_length
from tests.rankers.tiny_language_model import write_tiny_model

QUERIES = ["red apple", "plum", "sour green pear", "plum"]
DOCUMENTS = ["sweet red apple ripe", "old plum", "red apple", "blue unknown plum sour sour old"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def network_of(folder: Path, **settings: object) -> CrossEncoderNetwork:
    given = {"model": str(folder), "tokens": 16, "query_tokens": 4} | settings
    corpus = Texts.of(["a", "b", "c"], DOCUMENTS[:3])
    return CrossEncoder(**given).build(corpus).eval()  # type: ignore[arg-type]


def test_a_pair_is_laid_out_as_the_tokenizer_does_it(folder: Path) -> None:
    network = network_of(folder)
    tokens, types, kinds = assemble(network.pairs(QUERIES, DOCUMENTS))
    for row, (query, document) in enumerate(zip(QUERIES, DOCUMENTS, strict=True)):
        whole = network.tokenizer.encode(query, document)
        length = len(whole.ids)
        assert tokens[row, :length].tolist() == whole.ids
        assert types[row, :length].tolist() == whole.type_ids
        owners = [{None: 0, 0: 1, 1: 2}[owner] for owner in whole.sequence_ids]
        assert kinds[row].tolist() == owners + [-1] * (tokens.shape[1] - length)
        assert (tokens[row, length:] == 0).all()


def test_the_document_is_cut_and_the_query_kept(folder: Path) -> None:
    pairs = network_of(folder).pairs(["red " * 10], ["plum " * 50])
    assert (pairs.query_lengths[0], pairs.document_lengths[0], pairs.lengths[0]) == (4, 9, 16)


def test_a_text_is_cut_into_tokens_once(folder: Path) -> None:
    pairs = network_of(folder).pairs(QUERIES, DOCUMENTS)
    assert len(pairs.queries) == 3
    assert pairs.query_rows.tolist() == [0, 1, 2, 1]


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 150), st.integers(1, 9), st.booleans())
def test_batches_hold_every_pair_once_within_the_budget(
    lengths: list[int], budget: int, most: int, shuffled: bool
) -> None:
    sizes = np.array(lengths, dtype=np.int64)
    generator = np.random.default_rng(0) if shuffled else None
    batches = list(by_length(sizes, budget=budget, most=most, shuffle=generator))
    assert sorted(row for batch in batches for row in batch.tolist()) == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) <= most
        assert len(batch) == 1 or sizes[batch].max() * len(batch) <= budget


def represented(network: CrossEncoderNetwork, queries: list[str], documents: list[str]) -> Any:
    network.eval()
    with torch.no_grad():
        return network.pooled(*network.batch(network.pairs(queries, documents))[:3]).numpy()


@pytest.mark.parametrize("pooling", ["match", "cls", "mean"])
def test_scores_do_not_depend_on_batches_or_padding(folder: Path, pooling: str) -> None:
    network = network_of(folder, pooling=pooling)
    torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(3))
    network.slopes.copy_(torch.tensor([0.5, -1.0, 2.0]))
    together = network.score_pairs(QUERIES, DOCUMENTS)
    alone = [network.score_pairs([query], [document])[0] for query, document in zip(QUERIES, DOCUMENTS, strict=True)]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert ((together > 0) & (together < 1)).all()
    states = represented(network, QUERIES, DOCUMENTS)
    odds = states @ network.head.weight.detach().numpy()[0] + network.head.bias.item()
    odds = odds + network.pairs(QUERIES, DOCUMENTS).prior @ [0.5, -1.0, 2.0]
    np.testing.assert_allclose(probabilities(odds.astype(np.float64)), together, atol=1e-6)


def test_pooling_is_what_it_says(folder: Path) -> None:
    states = {}
    for pooling in ("match", "cls", "mean"):
        network = network_of(folder, pooling=pooling)
        tokens, types, kinds = network.batch(network.pairs(QUERIES[:1], DOCUMENTS[:1]))[:3]
        types = types if pooling != "match" else torch.zeros_like(types)
        hidden = network.encoder(input_ids=tokens, attention_mask=kinds >= 0, token_type_ids=types)[0][0]
        states[pooling] = represented(network, QUERIES[:1], DOCUMENTS[:1])[0], hidden.detach().numpy()
    np.testing.assert_allclose(states["cls"][0], states["cls"][1][0], atol=1e-6)
    np.testing.assert_allclose(states["mean"][0], states["mean"][1].mean(axis=0), atol=1e-6)
    hidden = states["match"][1]
    query, document = hidden[1:3].mean(axis=0), hidden[4:8].mean(axis=0)
    cosine = query @ document / np.linalg.norm(query) / np.linalg.norm(document)
    assert states["match"][0].mean() == pytest.approx(cosine, abs=1e-6)


def test_the_prior_needs_only_the_two_texts(folder: Path) -> None:
    """BM25 with the statistics of the corpus, the cosine as the untuned model has it; new words are rare ones."""
    prior = network_of(folder).pairs(QUERIES, DOCUMENTS).prior
    corpus = BM25().corpus(Texts.of(["a", "b", "c"], DOCUMENTS[:3]))
    np.testing.assert_allclose(prior[:3, 0], corpus.scores(QUERIES, DOCUMENTS[:3]).diagonal()[:3], rtol=1e-6)
    most = [sum(np.log1p((3 - n + 0.5) / (n + 0.5)) for n in counts) * 2.2 for counts in ((2, 2), (1,), (1, 1, 1))]
    np.testing.assert_allclose(prior[:3, 1], prior[:3, 0] / most, rtol=1e-6)
    np.testing.assert_allclose(
        prior[:, 2], Similarity(str(folder), tokens=16).score_pairs(QUERIES, DOCUMENTS), atol=1e-6
    )
    assert prior[3, 0] > 0
    with pytest.raises(SettingError, match="corpus must be given"):
        CrossEncoder(model=str(folder), tokens=16, query_tokens=4).build()


def test_without_a_residual_no_pair_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(folder)
    network.slopes.copy_(torch.tensor([0.5, -1.0, 2.0]))
    pairs = network.pairs(QUERIES, DOCUMENTS)
    with torch.no_grad():
        whole = network(*network.batch(pairs)).double().numpy()
    monkeypatch.setattr(network, "pooled", None)
    np.testing.assert_allclose(network.odds(pairs), whole, atol=1e-6)


@pytest.mark.parametrize("tuned", [False, True])
def test_files_make_the_same_network(folder: Path, tuned: bool) -> None:
    network = network_of(folder, pooling="mean")
    with torch.no_grad():
        network.slopes.copy_(torch.tensor([0.5, -1.0, 2.0]))
        if tuned:
            network.head.weight.fill_(0.3)
            network.layers()[-1].output.dense.bias.fill_(0.7)  # type: ignore[union-attr, operator]
    files = network.files()
    again = CrossEncoderNetwork.of_files(network.settings, files)
    np.testing.assert_array_equal(network.score_pairs(QUERIES, DOCUMENTS), again.score_pairs(QUERIES, DOCUMENTS))
    assert len(load(files["untuned.safetensors"])) == tuned
    config = json.loads(files["config.json"])
    wide = files | {"config.json": json.dumps(config | {"vocab_size": 10**9}).encode()}
    with pytest.raises(DataError, match="do not fit the config"):
        CrossEncoderNetwork.of_files(network.settings, wide)
    other = files | {"untuned.safetensors": files["network.safetensors"]}
    with pytest.raises(DataError, match="untuned weights do not fit"):
        CrossEncoderNetwork.of_files(network.settings, other)
    with pytest.raises(DataError, match="whether there is a prior"):
        CrossEncoderNetwork.of_files(replace(network.settings, prior=False), files)


def test_similarity_is_the_cosine_of_mean_states(folder: Path) -> None:
    similarity = Similarity(str(folder), tokens=12)
    encoder, tokenizer, _ = load_language_model(str(folder))
    means = []
    for text in (QUERIES[0], DOCUMENTS[0]):
        tokens = torch.tensor([tokenizer.encode(text).ids])
        means.append(encoder.eval()(input_ids=tokens)[0][0].mean(0).detach().numpy())
    cosine = means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])
    scores = similarity.score_pairs(QUERIES, DOCUMENTS)
    assert scores[0] == pytest.approx(cosine, abs=1e-5)
    assert scores[3] == pytest.approx(similarity.score_pairs(QUERIES[3:], DOCUMENTS[3:])[0], abs=1e-5)


def test_what_is_no_language_model_is_said(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(DataError, match="is no language model") as caught:
        load_language_model(str(tmp_path))
    assert "safetensors" in str(caught.value)
    with pytest.raises(SettingError, match="tokens must be at most 40"):
        CrossEncoder(model=str(folder), tokens=64).build()


def test_code_that_a_config_names_is_never_fetched(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    config, evil = tmp_path / "config.json", {"_attn_implementation": "owner/kernel"}
    files = network_of(tmp_path).files()
    for hidden in (evil, {"text_config": evil}):
        files["config.json"] = json.dumps(json.loads(config.read_text()) | hidden).encode()
        with pytest.raises(DataError, match="code from elsewhere: _attn_implementation 'owner/kernel'"):
            CrossEncoderNetwork.of_files(CrossEncoder(model=str(tmp_path), tokens=16, query_tokens=4), files)
    config.write_bytes(files["config.json"])
    with pytest.raises(DataError, match="code from elsewhere"):
        load_language_model(str(tmp_path))


def test_weights_that_are_pickled_are_never_read(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match="is no language model"):
        load_language_model(str(tmp_path))


@pytest.mark.parametrize(("field", "value"), [("pooling", "max"), ("query_tokens", 0), ("tokens", 20), ("model", "")])
def test_settings_are_checked(field: str, value: object) -> None:
    with pytest.raises(SettingError, match=field):
        CrossEncoder(**{field: value})  # type: ignore[arg-type]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_model, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"clickprism\[lm\]"):
        language_model.check_installed("impute")
