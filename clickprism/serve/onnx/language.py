"""BERT as an ONNX graph of ONNX Runtime's fused operators, in single precision or int8.

Written node by node from the weights: exporters leave attention in a dozen pieces, which nothing fuses again. In int8
the weights of a linear map have one scale a column and 7 bits: products of 8 bits overflow the 16-bit sums of
processors without VNNI, silently, so that a bundle would score otherwise on another machine. States are quantised as
they come, with one scale for all of a batch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import numpy as np

from clickprism.errors import DataError, UnsupportedError
from clickprism.rankers.text_tokens import DOCUMENT, QUERY
from clickprism.serve.onnx.graph import FLOAT, FUSED, INT32, INT64, Graph
from clickprism.serve.scoring.language import (
    ABOUT,
    CORPUS,
    PAIRS,
    TEXTS,
    TOKENIZER,
    LanguageReader,
    Reading,
    probabilities,
)
from clickprism.settings import plain
from clickprism.types import Float32, Float64, JudgedLists, Lists

if TYPE_CHECKING:
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork
    from clickprism.rankers.language_model import CrossEncoder


Pooling: TypeAlias = Literal["match", "cls", "mean"]
Tensors: TypeAlias = dict[str, Float32]
BITS: Final = 7


def fits(config: Any) -> bool:
    """Return whether a language model has the form that is written here: BERT, with the exact GELU."""
    usual = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False}
    return all(getattr(config, name, value) == value for name, value in usual.items())


def pair_graph(encoder: Any, weight: Float32, *, pooling: Pooling, int8: bool) -> bytes:
    """Return a graph of w . h of each pair, [pairs], with h as in `CrossEncoderNetwork.pooled`."""
    graph, bert = Graph(), _Bert(encoder, int8=int8)
    states = bert.states(graph, typed=pooling != "match" and encoder.config.type_vocab_size > 1)
    if pooling == "cls":
        pooled = graph.op("Gather", states, np.array(0, np.int64), axis=1)
    elif pooling == "mean":
        pooled = _mean(graph, states)
    else:
        weight = weight * np.float32(encoder.config.hidden_size)
        pooled = graph.op("Mul", *(_direction(graph, states, kind) for kind in (QUERY, DOCUMENT)))
    graph.output(graph.op("MatMul", pooled, weight), "odds", FLOAT, "pairs")
    return graph.bytes()


def text_graph(encoder: Any, *, int8: bool) -> bytes:
    """Return a graph of the mean state of each text, of length 1, [texts, width], as in `Similarity.embed`."""
    graph, bert = Graph(), _Bert(encoder, int8=int8)
    states = bert.states(graph, typed=False)
    mean = graph.op("LpNormalization", _mean(graph, states), axis=-1, p=2)
    graph.output(mean, "states", FLOAT, "pairs", encoder.config.hidden_size)
    return graph.bytes()


@final
class _Bert:
    def __init__(self, encoder: Any, *, int8: bool) -> None:
        self._tensors: Tensors = {name: value.detach().numpy() for name, value in encoder.state_dict().items()}
        config = encoder.config
        self._heads, self._epsilon = config.num_attention_heads, config.layer_norm_eps
        self._layers, self._int8 = config.num_hidden_layers, int8

    def states(self, graph: Graph, *, typed: bool) -> str:
        """Return the last states, [pairs, length, width]."""
        tensors = self._tensors
        shape = ("pairs", "length")
        tokens, places = graph.input("tokens", INT64, *shape), graph.input("places", INT64, "length")
        graph.input("kinds", INT64, *shape)
        graph.input("lengths", INT32, "pairs")
        words, places_of, types = (
            tensors[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        if not typed:
            places_of = places_of + types[0]
        value = graph.op("Add", *(graph.op("Gather", t, at) for t, at in ((words, tokens), (places_of, places))))
        if typed:
            value = graph.op("Add", value, graph.op("Gather", types, graph.input("types", INT64, *shape)))
        norm = (tensors[f"embeddings.LayerNorm.{name}"] for name in ("weight", "bias"))
        value = graph.op("LayerNormalization", value, *norm, axis=-1, epsilon=self._epsilon)
        for layer in range(self._layers):
            value = self._layer(graph, value, f"encoder.layer.{layer}.")
        return value

    def _layer(self, graph: Graph, value: str, start: str) -> str:
        tensors = self._tensors
        mixed = self._product(
            graph, self._attention(graph, value, f"{start}attention.self."), f"{start}attention.output.dense"
        )
        value = self._joined(graph, mixed, value, f"{start}attention.output.")
        wide = self._product(graph, value, f"{start}intermediate.dense")
        wide = graph.op("BiasGelu", wide, tensors[f"{start}intermediate.dense.bias"], domain=FUSED)
        return self._joined(graph, self._product(graph, wide, f"{start}output.dense"), value, f"{start}output.")

    def _attention(self, graph: Graph, value: str, start: str) -> str:
        names = ("query", "key", "value")
        weight = np.concatenate([self._tensors[f"{start}{name}.weight"] for name in names]).T
        bias = np.concatenate([self._tensors[f"{start}{name}.bias"] for name in names])
        about = {"num_heads": self._heads, "domain": FUSED}
        if not self._int8:
            return graph.op("Attention", value, weight, bias, "lengths", **about)
        whole, scale, zero = graph.ops("DynamicQuantizeLinear", value, outputs=3)
        columns, scales, zeros = self._quantised(weight)
        return graph.op("QAttention", whole, columns, bias, scale, scales, "lengths", zero, zeros, **about)

    def _product(self, graph: Graph, value: str, name: str) -> str:
        """W x, without its bias, which the next operator adds."""
        weight = self._tensors[f"{name}.weight"].T
        if not self._int8:
            return graph.op("MatMul", value, weight)
        return graph.op("DynamicQuantizeMatMul", value, *self._quantised(weight), domain=FUSED)

    def _quantised(self, weight: Float32) -> tuple[Any, Any, Any]:
        whole, scales = quantised(weight)
        return whole, scales, np.zeros(len(scales), np.int8)

    def _joined(self, graph: Graph, value: str, before: str, start: str) -> str:
        """LayerNorm(value + bias + before)."""
        names = ("LayerNorm.weight", "LayerNorm.bias", "dense.bias")
        given = (self._tensors[f"{start}{name}"] for name in names)
        return graph.op("SkipLayerNormalization", value, before, *given, domain=FUSED, epsilon=self._epsilon)


def quantised(weight: Float32) -> tuple[Any, Float32]:
    """Return a matrix as whole numbers of 7 bits, and the scale of each column.

    >>> whole, scales = quantised(np.array([[0.5, 2.0], [-1.0, 1.0]], np.float32))
    >>> whole.tolist(), np.round(whole * scales.astype(float), 2).tolist()
    ([[31, 63], [-63, 31]], [[0.49, 2.0], [-1.0, 0.98]])
    """
    most = (1 << (BITS - 1)) - 1
    largest: Float32 = np.abs(weight).max(axis=0)
    scales: Float32 = (np.where(largest > 0, largest, 1) / most).astype(np.float32)
    return np.rint(weight / scales).astype(np.int8), scales


def _mask(graph: Graph, comparison: str, kind: int) -> str:
    """1 where a token is of this kind, [pairs, 1, length]."""
    found = graph.cast(graph.op(comparison, "kinds", np.array(kind, np.int64)), FLOAT)
    return graph.op("Unsqueeze", found, np.array([1], np.int64))


def _sum(graph: Graph, states: str, mask: str) -> str:
    return graph.op("Squeeze", graph.op("MatMul", mask, states), np.array([1], np.int64))


def _mean(graph: Graph, states: str) -> str:
    mask = _mask(graph, "GreaterOrEqual", 0)
    count = graph.op("ReduceSum", mask, np.array([2], np.int64), keepdims=0)
    return graph.op("Div", _sum(graph, states, mask), count)


def _direction(graph: Graph, states: str, kind: int) -> str:
    """The mean state of the tokens of this kind, of length 1; 0 where there are none, [pairs, width]."""
    return graph.op("LpNormalization", _sum(graph, states, _mask(graph, "Equal", kind)), axis=-1, p=2)


MEASURE: Final = "nDCG(exp)@10"
LOSS: Final = 0.005  # how much of the measure int8 may lose
SAME: Final = 1e-3  # maximum difference of log odds between a single-precision graph and PyTorch
QUERIES, DOCUMENTS = 16, 16
HIGHEST: Final = 4


@final
class ServedLanguage:
    """A cross-encoder as it will be served; `files` go into the bundle, `notes` into its model card."""

    def __init__(self, settings: CrossEncoder, reading: Reading, files: dict[str, bytes], note: str) -> None:
        self.settings, self.notes, self._files = settings, (note,), files
        self._reader = LanguageReader(reading, files, cached=False)

    def files(self) -> dict[str, bytes]:
        """Return the files of the bundle."""
        return self._files

    def score_pairs(self, queries: Sequence[str], documents: Sequence[str]) -> Float64:
        """Return the probability of a click in the first slot, [pairs]."""
        return probabilities(odds_of(self._reader, queries, documents))


def serve_language(network: CrossEncoderNetwork, *, int8: bool = True) -> ServedLanguage:
    """Return a network as ONNX graphs, checked against PyTorch; an error if its language model is no BERT.

    Quantised graphs are used if they lose at most .005 nDCG@10 on generated texts, where the order in single precision
    defines the grades.
    """
    if not fits(network.encoder.config):
        problem = "only language models of the form of BERT are served, with the exact GELU"
        remedy = "Score pairs in advance (relevance impute apply) and publish them: store publish --imputed"
        raise UnsupportedError(problem, remedy=remedy)
    queries, documents = made_up(network)
    exact = language_files(network, int8=False)
    by_float = odds_of(LanguageReader(*exact, cached=False), queries, documents)
    wanted = network.odds(network.pairs(queries, documents))
    apart = float(np.abs(by_float - wanted).max())
    if not apart <= SAME * max(1.0, float(np.abs(wanted).max())):
        problem = f"the graph of the language model differs from PyTorch by up to {apart:.3g} in log odds"
        raise DataError(problem, remedy="Report it, with the name of the model")
    if not int8:
        return ServedLanguage(network.settings, *exact, "The language model is served in single precision.")
    whole = language_files(network, int8=True)
    same = order_kept(by_float, odds_of(LanguageReader(*whole, cached=False), queries, documents))
    figures = f"{MEASURE} {same:.4f} on generated texts, if single precision has 1"
    if same < 1 - LOSS:
        note = f"The language model is served in single precision: int8 would lose more than {LOSS} ({figures})."
        return ServedLanguage(network.settings, *exact, note)
    return ServedLanguage(network.settings, *whole, f"The language model is served in int8: {figures}.")


def odds_of(reader: LanguageReader, queries: Sequence[str], documents: Sequence[str]) -> Float64:
    """Return the log odds of pairs of texts, [pairs]; consecutive pairs of a query are read together."""
    odds: list[float] = []
    for query, pairs in groupby(zip(queries, documents, strict=True), key=itemgetter(0)):
        odds += reader.odds(query, [document for _, document in pairs]).tolist()
    return np.array(odds)


def made_up(network: CrossEncoderNetwork) -> tuple[list[str], list[str]]:
    """Return pairs of words that the network knows, of many lengths; some documents share words, the last is empty."""
    draw = np.random.default_rng(20260103)
    if network.prior is not None and network.prior.corpus.having:
        vocabulary = np.array(sorted(network.prior.corpus.having))
    else:
        vocabulary = np.array(sorted(word for word in network.tokenizer.get_vocab() if word.isalpha()) or ["a"])
    queries, documents = [], []
    for _ in range(QUERIES):
        words = draw.choice(vocabulary, 3)
        for place in range(DOCUMENTS):
            others = draw.choice(vocabulary, int(draw.integers(2, network.settings.tokens)))
            shared = draw.choice(words, 2) if place % 3 == 0 else words[:0]
            queries.append(" ".join(words))
            documents.append(" ".join(np.concatenate([shared, others])))
    documents[-1] = ""
    return queries, documents


def order_kept(wanted: Float64, found: Float64) -> float:
    """Return the mean measure of scores of `made_up`; other scores, brought to 0 to 4 in each query, are the grades."""
    from clickprism.evaluation.measures import evaluate

    rows = wanted.reshape(QUERIES, DOCUMENTS)
    low, high = rows.min(axis=1, keepdims=True), rows.max(axis=1, keepdims=True)
    grades = np.rint(HIGHEST * (rows - low) / np.maximum(high - low, 1e-12)).astype(np.int32)
    offsets, ids = np.arange(0, wanted.size + 1, DOCUMENTS), np.arange(QUERIES).astype(np.str_)
    judged = JudgedLists(Lists(np.zeros((wanted.size, 1), np.float32), offsets, ids), grades.ravel())
    return float(evaluate(judged, found, MEASURE, empty="one").mean(MEASURE))


def language_files(network: CrossEncoderNetwork, *, int8: bool) -> tuple[Reading, dict[str, bytes]]:
    """Return how to read, and the files of a bundle."""
    settings, prior = network.settings, network.prior
    slopes = tuple(float(each) for each in network.slopes)
    limits = (network.layout.padding, settings.tokens, settings.query_tokens)
    alone = 0 if prior is None else prior.similarity.tokens
    reading = Reading(*limits, float(network.head.bias.item()), slopes, alone, int8)
    files = {ABOUT: json.dumps(plain(reading)).encode(), TOKENIZER: network.tokenizer.to_str().encode()}
    if network.residual:
        weight: Any = network.head.weight.detach().numpy()[0]
        files[PAIRS] = pair_graph(network.encoder, weight, pooling=settings.pooling, int8=int8)
    if prior is not None:
        files[CORPUS] = prior.files(network.encoder)[CORPUS]
        files[TEXTS] = text_graph(prior.similarity.encoder, int8=int8)
    return reading, files
