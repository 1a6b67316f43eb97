"""BERT as an ONNX graph of ONNX Runtime's fused operators, in single precision.

Written node by node from the weights: exporters leave attention in a dozen pieces, which nothing fuses again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
)
from clickprism.settings import plain
from clickprism.types import Float32

if TYPE_CHECKING:
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork


Pooling: TypeAlias = Literal["match", "cls", "mean"]
Tensors: TypeAlias = dict[str, Float32]


def fits(config: Any) -> bool:
    """Return whether a language model has the form that is written here: BERT, with the exact GELU."""
    usual = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False}
    return all(getattr(config, name, value) == value for name, value in usual.items())


def pair_graph(encoder: Any, weight: Float32, *, pooling: Pooling) -> bytes:
    """Return a graph of w . h of each pair, [pairs], with h as in `CrossEncoderNetwork.pooled`."""
    graph, bert = Graph(), _Bert(encoder)
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


def text_graph(encoder: Any) -> bytes:
    """Return a graph of the mean state of each text, of length 1, [texts, width], as in `Similarity.embed`."""
    graph, bert = Graph(), _Bert(encoder)
    states = bert.states(graph, typed=False)
    mean = graph.op("LpNormalization", _mean(graph, states), axis=-1, p=2)
    graph.output(mean, "states", FLOAT, "pairs", encoder.config.hidden_size)
    return graph.bytes()


@final
class _Bert:
    def __init__(self, encoder: Any) -> None:
        self._tensors: Tensors = {name: value.detach().numpy() for name, value in encoder.state_dict().items()}
        config = encoder.config
        self._heads, self._epsilon = config.num_attention_heads, config.layer_norm_eps
        self._layers = config.num_hidden_layers

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
        return graph.op("Attention", value, weight, bias, "lengths", num_heads=self._heads, domain=FUSED)

    def _product(self, graph: Graph, value: str, name: str) -> str:
        """W x, without its bias, which the next operator adds."""
        return graph.op("MatMul", value, self._tensors[f"{name}.weight"].T)

    def _joined(self, graph: Graph, value: str, before: str, start: str) -> str:
        """LayerNorm(value + bias + before)."""
        names = ("LayerNorm.weight", "LayerNorm.bias", "dense.bias")
        given = (self._tensors[f"{start}{name}"] for name in names)
        return graph.op("SkipLayerNormalization", value, before, *given, domain=FUSED, epsilon=self._epsilon)


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


SAME: Final = 1e-3  # maximum difference of log odds between a graph and PyTorch
QUERIES, DOCUMENTS = 8, 8


def serve_language(network: CrossEncoderNetwork) -> tuple[LanguageReader, dict[str, bytes]]:
    """Return a reader of a network's ONNX graphs, checked against PyTorch, and the files of its bundle."""
    if not fits(network.encoder.config):
        problem = "only language models of the form of BERT are served, with the exact GELU"
        remedy = "Score pairs in advance (relevance impute apply) and publish them: store publish --imputed"
        raise UnsupportedError(problem, remedy=remedy)
    reading, files = language_files(network)
    reader = LanguageReader(reading, files)
    for query, documents in generated_texts(network):
        wanted = network.odds(network.pairs([query] * len(documents), documents))
        apart = float(np.abs(reader.odds(query, documents) - wanted).max())
        if not apart <= SAME * max(1.0, float(np.abs(wanted).max())):
            problem = f"the graph of the language model differs from PyTorch by up to {apart:.3g} in log odds"
            raise DataError(problem, remedy="Report it, with the name of the model")
    return reader, files


def generated_texts(network: CrossEncoderNetwork) -> Iterator[tuple[str, list[str]]]:
    """Yield queries and documents of words that the network knows, of many lengths; the last document is empty."""
    draw = np.random.default_rng(20260103)
    words = sorted(word for word in network.tokenizer.get_vocab() if word.isalpha()) or ["a"]
    for _ in range(QUERIES):
        query = draw.choice(words, 3).tolist()
        lengths = draw.integers(1, network.settings.tokens, DOCUMENTS - 1).tolist()
        documents = [" ".join([*query[: length % 4], *draw.choice(words, length).tolist()]) for length in lengths]
        yield " ".join(query), [*documents, ""]


def language_files(network: CrossEncoderNetwork) -> tuple[Reading, dict[str, bytes]]:
    """Return how to read, and the files of a bundle."""
    settings, prior = network.settings, network.prior
    slopes = tuple(float(each) for each in network.slopes)
    limits = (network.layout.padding, settings.tokens, settings.query_tokens)
    alone = 0 if prior is None else prior.similarity.tokens
    reading = Reading(*limits, float(network.head.bias.item()), slopes, alone)
    files = {ABOUT: json.dumps(plain(reading)).encode(), TOKENIZER: network.tokenizer.to_str().encode()}
    if network.residual:
        weight: Any = network.head.weight.detach().numpy()[0]
        files[PAIRS] = pair_graph(network.encoder, weight, pooling=settings.pooling)
    if prior is not None:
        files[CORPUS] = prior.files(network.encoder)[CORPUS]
        files[TEXTS] = text_graph(prior.similarity.encoder)
    return reading, files
