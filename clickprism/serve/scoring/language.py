"""Scores by a cross-encoder that reads query and document, in ONNX Runtime."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock
from typing import Any, Final, final

import numpy as np

from clickprism.data.bm25 import BM25, BM25Corpus
from clickprism.errors import ClickprismError, DataError, MissingExtraError
from clickprism.rankers.text_tokens import Layout, Pairs, Tokens, assemble, by_length, distinct_texts, pair_up, tokenise
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.scoring.scorer import TOLERANCE, Candidates, Need, Scored, check_sample, open_session
from clickprism.settings import build
from clickprism.types import Float32, Float64, Int64

ENTRY: Final = 200  # bytes that an entry takes beside its value: the key, the places in two tables


@final
class TextCache:
    """Values by a pair of texts, with a limit in bytes; several threads may use it at a time.

    Keys are BLAKE2b hashes of 128 bits: texts are not kept. `misses` counts the values that were computed.
    """

    def __init__(self, *, most: int) -> None:
        self._most, self._held, self.misses = most, 0, 0
        self._values: OrderedDict[bytes, Float32] = OrderedDict()
        self._lock = Lock()

    def through(self, first: str, others: Sequence[str], compute: Callable[[Int64], Float32]) -> Float32:
        """Return the value of each pair, [others, width]; `compute` is called with the places of unknown ones.

        >>> cache = TextCache(most=10_000)
        >>> for texts in (["grape juice", "walking"], ["walking", "rain"]):
        ...     cache.through("grapes", texts, lambda places: np.ones((len(places), 1), np.float32)).shape, cache.misses
        ((2, 1), 2)
        ((2, 1), 3)
        """
        text = first.encode("utf-8", "surrogatepass")
        start, keys = blake2b(len(text).to_bytes(8, "little") + text, digest_size=16), []
        for other in others:
            each = start.copy()
            each.update(other.encode("utf-8", "surrogatepass"))
            keys.append(each.digest())
        with self._lock:
            found = [self._values.get(key) for key in keys]
            for key, value in zip(keys, found, strict=True):
                if value is not None:
                    self._values.move_to_end(key)
        new = [place for place, value in enumerate(found) if value is None]
        if new:
            computed = compute(np.array(new, np.int64))
            with self._lock:
                self.misses += len(new)
                for place, value in zip(new, computed, strict=True):
                    found[place] = value
                    self._put(keys[place], value.copy())
        return np.stack([value for value in found if value is not None])

    def _put(self, key: bytes, value: Float32) -> None:
        """Remember a value; forget those used longest ago if all take too much memory."""
        old = self._values.pop(key, None)
        self._held += value.nbytes + ENTRY - (0 if old is None else old.nbytes + ENTRY)
        self._values[key] = value
        while self._held > self._most:
            _, gone = self._values.popitem(last=False)
            self._held -= gone.nbytes + ENTRY


PAIRS, TEXTS, ABOUT, TOKENIZER, CORPUS = "pairs.onnx", "texts.onnx", "about.json", "tokenizer.json", "corpus.json"
FILES: Final = (PAIRS, TEXTS, ABOUT, TOKENIZER, CORPUS)
BUDGET: Final = 256  # tokens at a time: their states stay in the nearest cache, and little is padding
PAIR_BYTES: Final = 64 << 20  # about 300,000 pairs
TEXT_BYTES: Final = 128 << 20  # about 75,000 texts of a width of 384


@final
@dataclass(frozen=True)
class Reading:
    """How to read texts, as about.json of a bundle says.

    Attributes:
        padding: Token that fills up a batch.
        tokens: Maximum number of tokens of a pair.
        query_tokens: Maximum number of tokens of a query.
        bias: The bias b of the log odds.
        slopes: Slopes u, one for each score of the prior; empty without one.
        text_tokens: Maximum number of tokens of a text that is read alone, for the prior.
        int8: Whether the graphs are quantised, as by clickprism before November 2026.
    """

    padding: int
    tokens: int
    query_tokens: int
    bias: float
    slopes: tuple[float, ...] = ()
    text_tokens: int = 0
    int8: bool = False


@final
class LanguageReader:
    """Log odds of a query with each of several texts: w . h + u . s + b, see `CrossEncoderNetwork`.

    Without `pairs.onnx` w is 0, and no pair is read. Scores of pairs and states of texts are cached.
    """

    def __init__(self, reading: Reading, files: Mapping[str, bytes], *, threads: int = 1, file: object = "") -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtraError("lm", "scoring by a language model") from None
        self.reading = reading
        self._tokenizer = Tokenizer.from_str(files[TOKENIZER].decode())
        self._layout = Layout.of(self._tokenizer, reading.padding)
        self._alone = _alone(self._tokenizer, reading.padding)
        self._corpus = _corpus(json.loads(files[CORPUS])) if reading.slopes else None

        def opened(name: str) -> Any:
            return open_session(files[name], threads=threads, file=f"{file}/{name}", varying=True)

        self._pairs = opened(PAIRS) if PAIRS in files else None
        self._texts = opened(TEXTS) if reading.slopes else None
        self.known, self.states = TextCache(most=PAIR_BYTES), TextCache(most=TEXT_BYTES)

    def odds(self, query: str, texts: Sequence[str]) -> Float64:
        """Return the log odds of each text, [n]; equal texts are read once."""
        distinct, rows = distinct_texts(texts)

        def read(places: Int64) -> Float32:
            return self._read(query, [distinct[place] for place in places])[:, None].astype(np.float32)

        odds: Float64 = self.known.through(query, distinct, read)[rows, 0].astype(np.float64)
        return odds

    def _read(self, query: str, texts: list[str]) -> Float64:
        reading, zero = self.reading, np.zeros(len(texts), np.int64)
        odds = np.full(len(texts), reading.bias)
        most = max(reading.tokens, reading.text_tokens)
        tokens = tokenise(self._tokenizer, texts, most=most)
        asked = tokenise(self._tokenizer, [query], most=most)
        rows = np.arange(len(texts))
        if self._corpus is not None:
            words, share = self._corpus.score_texts([query], texts, zero, rows)
            cosine = self._states(texts, tokens) @ self._states([query], asked)[0]
            odds = odds + np.stack([words, share, cosine], axis=1) @ np.array(reading.slopes)
        if self._pairs is not None:
            few, fewer = reading.tokens, reading.query_tokens
            pairs = pair_up(asked, tokens, zero, rows, layout=self._layout, most=few, most_query=fewer)
            odds = odds + _batched(self._pairs, pairs)[:, 0]
        return odds

    def _states(self, texts: Sequence[str], tokens: Tokens) -> Float32:
        """Return the mean state of each text, [texts, width]."""

        def read(places: Int64) -> Float32:
            none = Tokens(np.empty(0, np.int32), np.zeros(2, np.int64))
            zero, most = np.zeros(len(places), np.int64), self.reading.text_tokens
            pairs = pair_up(none, tokens, zero, places, layout=self._alone, most=most, most_query=0)
            return _batched(self._texts, pairs)

        return self.states.through("", texts, read)


def _batched(session: Any, pairs: Pairs) -> Float32:
    """Return the outputs of a session for each pair, in batches of similar length, [pairs, outputs]."""
    wanted = {each.name for each in session.get_inputs()}
    found: Float32 | None = None
    for rows in by_length(pairs.lengths, budget=BUDGET):
        tokens, types, kinds = assemble(pairs.take(rows))
        given = {
            "tokens": tokens,
            "types": types,
            "kinds": kinds.astype(np.int64),
            "places": np.arange(tokens.shape[1]),
            "lengths": pairs.lengths[rows].astype(np.int32),
        }
        (values,) = session.run(None, {name: each for name, each in given.items() if name in wanted})
        if found is None:
            found = np.empty((len(pairs), values[0].size), np.float32)
        found[rows] = values.reshape(len(rows), -1)
    return np.empty((0, 1), np.float32) if found is None else found


def _alone(tokenizer: Any, padding: int) -> Layout:
    """Return the layout of a single text: a pair whose query has no tokens and nothing around it."""
    frame = tokenizer.encode("a")
    special = frame.special_tokens_mask
    first, last = special.index(0), len(special) - special[::-1].index(0)
    around = [(token, 0) for token in frame.ids]
    return Layout((), tuple(around[:first]), tuple(around[last:]), (0, 0), padding)


def _corpus(about: dict[str, Any]) -> BM25Corpus:
    having = {str(word): int(count) for word, count in about["having"].items()}
    return BM25Corpus(BM25(**about["bm25"]), int(about["documents"]), float(about["mean_length"]), having)


SMALL: Final = 1e-6
INT8: Final = 0.02
"""A quantised scorer may differ by so much: other processors round states to other whole numbers."""


@final
class LanguageScorer:
    """Scores by texts: the probability of a click in the first slot (see `clickprism.serve.scoring.scorer.Scorer`)."""

    kind = "cross-encoder"
    needs: frozenset[Need] = frozenset({"texts"})
    feature_names: tuple[str, ...] = ()
    click_fields: tuple[str, ...] = ()

    def __init__(self, bundle: Bundle, *, threads: int = 1) -> None:
        self._bundle = bundle
        try:
            files = {name: bundle.read(name) for name in FILES if name in bundle.manifest.files}
            reading = build(Reading, json.loads(files[ABOUT]), path=ABOUT)
            self._reader = LanguageReader(reading, files, threads=threads, file=bundle.folder)
        except ClickprismError:
            raise
        except Exception as error:
            problem = f"is no cross-encoder ({type(error).__name__}: {error})"
            raise DataError(problem, file=bundle.folder, remedy="Create the bundle again") from None
        self._tolerance = INT8 if reading.int8 else TOLERANCE

    def score(self, candidates: Candidates, *, explain: bool = False) -> Scored:
        """Return probabilities, [n]; with `explain` the same as relevance."""
        if candidates.query is None or candidates.texts is None:
            raise DataError("the ranker reads: it needs the text of the query and of each document")
        texts = list(candidates.texts)
        scores = probabilities(self._reader.odds(candidates.query, texts)) if texts else np.zeros(0)
        return Scored(scores, {"relevance": scores} if explain else {})

    def warm(self) -> None:
        """Score the sample of the bundle; raise an error if its scores have changed."""
        check_sample(self, self._bundle, tolerance=self._tolerance)


def probabilities(odds: Float64) -> Float64:
    """Return log odds as probabilities that are never 0 or 1.

    >>> probabilities(np.array([0.0, -50.0])).tolist()
    [0.5, 1e-06]
    """
    from scipy.special import expit

    return np.clip(expit(odds), SMALL, 1 - SMALL)
