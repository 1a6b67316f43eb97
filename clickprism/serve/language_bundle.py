"""A cross-encoder in PyTorch as the files of a bundle: graphs that were compared with it, in int8 if that will do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism.errors import DataError
from clickprism.serve.language_onnx import fits, pair_graph, text_graph
from clickprism.serve.language_reader import ABOUT, CORPUS, PAIRS, TEXTS, TOKENIZER, LanguageReader, Reading
from clickprism.settings import plain
from clickprism.types import Float64, Int32, JudgedLists, Lists, check

if TYPE_CHECKING:
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork
    from clickprism.rankers.cross_encoder_settings import CrossEncoder

MEASURE: Final = "nDCG(exp)@10"
LOSS: Final = 0.005
"""What int8 may lose of the measure."""
SAME: Final = 1e-3
"""By how much the log odds of a graph in single precision may differ from PyTorch's."""
COMPARED: Final = 64
HIGHEST: Final = 4


@final
@dataclass(frozen=True, eq=False)
class JudgedTexts:
    """Pairs of texts with grades, by which int8 is judged: annotators', or made from clicks.

    Attributes:
        queries: the text of the query of each pair, [n].
        documents: of the document, [n].
        grades: 0 or more, [n].
    """

    queries: Sequence[str]
    documents: Sequence[str]
    grades: Int32

    def __post_init__(self) -> None:
        lengths = {len(self.queries), len(self.documents), len(self.grades)}
        check(len(lengths) == 1 and lengths != {0}, "each pair has a query, a document and a grade, and there are some")

    def measure(self, scores: Float64, grades: Int32 | None = None) -> float:
        """The mean of `MEASURE` over queries, by these scores."""
        from clickprism.evaluation.measures import evaluate

        names, rows = np.unique(np.array(self.queries, dtype=np.str_), return_inverse=True)
        order = np.argsort(rows, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows))])
        lists = Lists(np.zeros((len(order), 1), np.float32), offsets, names)
        judged = JudgedLists(lists, (self.grades if grades is None else grades)[order])
        found = evaluate(judged, scores[order], MEASURE)[MEASURE]
        return float(found[~np.isnan(found)].mean()) if judged.max_grade else 1.0

    def agreement(self, wanted: Float64) -> Int32:
        """Grades 0 to 4 that say how other scores rank these pairs, the highest of each query 4."""
        _, rows = np.unique(np.array(self.queries, dtype=np.str_), return_inverse=True)
        low, high = np.full(rows.max() + 1, np.inf), np.full(rows.max() + 1, -np.inf)
        np.minimum.at(low, rows, wanted)
        np.maximum.at(high, rows, wanted)
        share = (wanted - low[rows]) / np.maximum(high - low, 1e-12)[rows]
        grades: Int32 = np.rint(HIGHEST * share).astype(np.int32)
        return grades


def read_judged(grades: Path | str, *, queries: Path | str, documents: Path | str) -> JudgedTexts:
    """Grades in the format of TREC (query id, 0, document id, grade) with the texts of both ids.

    A document that was judged to be of no use should be there with grade 0: a query whose documents all have the same
    grade says nothing of an order.
    """
    from clickprism.data.texts import read_qrel, read_texts

    found = read_qrel(grades)
    if not found.grades.any() or int(found.grades.min()) < 0:
        remedy = "Give pairs of several queries, of grades 0 and more, not all 0"
        raise DataError("has no grade above 0, or one below", file=grades, remedy=remedy)
    asked = read_texts(queries).of_ids(found.query_ids.tolist())
    return JudgedTexts(asked, read_texts(documents).of_ids(found.document_ids.tolist()), found.grades)


@final
class ServedLanguage:
    """A cross-encoder as it will be served; `files` go into the bundle, `notes` into its model card."""

    def __init__(
        self, settings: CrossEncoder, reading: Reading, files: dict[str, bytes], notes: tuple[str, ...]
    ) -> None:
        self.settings, self.notes, self._files = settings, notes, files
        self._reader = LanguageReader(reading, files, cached=False)

    def files(self) -> dict[str, bytes]:
        """The files of the bundle."""
        return self._files

    def score_pairs(self, queries: Sequence[str], documents: Sequence[str]) -> Float64:
        """The probability of a click in the first slot, [pairs]."""
        from clickprism.serve.language import probabilities

        return probabilities(odds_of(self._reader, queries, documents))


def serve_language(
    network: CrossEncoderNetwork, *, judged: JudgedTexts | None = None, int8: bool = True
) -> ServedLanguage | CrossEncoderNetwork:
    """The network as ONNX graphs, checked against it; itself where its language model is not of a form that we write.

    Quantised graphs are taken if they lose at most .005 nDCG@10 against those in single precision: on the judged texts,
    or without any on how the latter rank made-up texts.

    Args:
        network: trained.
        judged: pairs with grades, such as of a few hundred queries that were held out.
        int8: whether quantised graphs are tried.
    """
    if not fits(network.encoder.config):
        return network
    if judged is not None and not judged.grades.any():
        raise DataError("no pair is judged above 0", remedy="Give pairs of several queries with grades of 0 and more")
    sample = judged or made_up(network)
    exact = language_files(network, int8=False)
    reader = LanguageReader(*exact, cached=False)
    _compare(network, reader, sample)
    if not int8:
        return ServedLanguage(network.settings, *exact, ("The language model is served in single precision.",))
    whole = language_files(network, int8=True)
    by_float = odds_of(reader, sample.queries, sample.documents)
    by_int8 = odds_of(LanguageReader(*whole, cached=False), sample.queries, sample.documents)
    grades = sample.grades if judged is not None else sample.agreement(by_float)
    before, after = (sample.measure(odds, grades) for odds in (by_float, by_int8))
    of = "judged pairs" if judged is not None else "made-up pairs, against the order in single precision"
    figures = f"{MEASURE} {after:.4f}, {before:.4f} in single precision, on {len(grades):,} {of}"
    if after < before - LOSS:
        note = f"The language model is served in single precision: int8 would lose more than {LOSS} ({figures})."
        return ServedLanguage(network.settings, *exact, (note,))
    return ServedLanguage(network.settings, *whole, (f"The language model is served in int8: {figures}.",))


def odds_of(reader: LanguageReader, queries: Sequence[str], documents: Sequence[str]) -> Float64:
    """Log odds of pairs of texts, each query with its documents together, [pairs]."""
    odds = np.empty(len(queries))
    names, rows = np.unique(np.array(queries, dtype=np.str_), return_inverse=True)
    order = np.argsort(rows, kind="stable")
    for name, some in zip(names.tolist(), np.split(order, np.cumsum(np.bincount(rows))[:-1]), strict=True):
        odds[some] = reader.odds(name, [documents[row] for row in some.tolist()])
    return odds


def made_up(network: CrossEncoderNetwork, *, queries: int = 16, documents: int = 16) -> JudgedTexts:
    """Texts of words that the network knows, of many lengths; a third of the documents has words of the query."""
    draw = np.random.default_rng(20260103)
    if network.prior is not None and network.prior.corpus.having:
        vocabulary = np.array(sorted(network.prior.corpus.having))
    else:
        vocabulary = np.array(sorted(word for word in network.tokenizer.get_vocab() if word.isalpha()) or ["a"])
    asked, texts = [], []
    for _ in range(queries):
        words = draw.choice(vocabulary, 3)
        for place in range(documents):
            others = draw.choice(vocabulary, int(draw.integers(2, network.settings.tokens)))
            shared = draw.choice(words, 2) if place % 3 == 0 else words[:0]
            asked.append(" ".join(words))
            texts.append(" ".join(np.concatenate([shared, others])))
    return JudgedTexts(asked, texts, np.zeros(len(texts), np.int32))


def language_files(network: CrossEncoderNetwork, *, int8: bool) -> tuple[Reading, dict[str, bytes]]:
    """How to read, and the files that say so."""
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


def _compare(network: CrossEncoderNetwork, reader: LanguageReader, sample: JudgedTexts) -> None:
    """Refuse graphs that say something else than the network, on some of the sample, an empty text included."""
    queries, documents = [*sample.queries[:COMPARED], sample.queries[0]], [*sample.documents[:COMPARED], ""]
    wanted = network.odds(network.pairs(queries, documents))
    apart = float(np.abs(odds_of(reader, queries, documents) - wanted).max())
    if not apart <= SAME * max(1.0, float(np.abs(wanted).max())):
        problem = f"the graph of the language model differs from PyTorch by up to {apart:.3g} in log odds"
        raise DataError(problem, remedy="Report it, with the name of the model")
