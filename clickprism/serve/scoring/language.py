"""Scores by a cross-encoder that reads query and document, in ONNX Runtime."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
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
from clickprism.types import Float32, Float64

ENTRY: Final = 200  # bytes that an entry takes beside its value: the key, the places in two tables


@final
class TextCache:
    """Vectors by texts, with a limit in bytes; several threads may use it at a time.

    Keys are BLAKE2b hashes of 128 bits of the texts and of the model's version: texts are not kept, and no model gets
    the vectors of another.

    >>> import numpy as np
    >>> cache = TextCache("3f2a", most=10_000)
    >>> keys = cache.keys("grapes", ["grape juice", "walking"])
    >>> cache.put(keys[:1], [np.array([0.5], np.float32)])
    >>> cache.get(keys), cache.hits, cache.misses
    ([array([0.5], dtype=float32), None], 1, 1)
    """

    def __init__(self, version: str, *, most: int) -> None:
        self._version, self._most, self._held = version.encode(), most, 0
        self._values: OrderedDict[bytes, Float32] = OrderedDict()
        self._lock = Lock()
        self.hits = self.misses = 0

    def keys(self, first: str, others: Iterable[str]) -> list[bytes]:
        """Return the key of each pair of texts; the first is hashed once."""
        text = first.encode("utf-8", "surrogatepass")
        start = blake2b(self._version + len(text).to_bytes(8, "little") + text, digest_size=16)
        found = []
        for other in others:
            each = start.copy()
            each.update(other.encode("utf-8", "surrogatepass"))
            found.append(each.digest())
        return found

    def get(self, keys: Sequence[bytes]) -> list[Float32 | None]:
        """Return the value of each key, None if it is not known."""
        with self._lock:
            found = [self._values.get(key) for key in keys]
            for key, value in zip(keys, found, strict=True):
                if value is not None:
                    self._values.move_to_end(key)
            known = sum(value is not None for value in found)
            self.hits += known
            self.misses += len(keys) - known
        return found

    def put(self, keys: Sequence[bytes], values: Sequence[Float32]) -> None:
        """Remember values; forget those used longest ago if they take too much memory."""
        with self._lock:
            for key, value in zip(keys, values, strict=True):
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
        int8: Whether the graphs are quantised.
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

    def __init__(
        self,
        reading: Reading,
        files: Mapping[str, bytes],
        *,
        version: str = "",
        threads: int = 1,
        file: object = "",
        cached: bool = True,
    ) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtraError("lm", "scoring by a language model") from None
        self.reading, self._cached = reading, cached
        self._tokenizer = Tokenizer.from_str(files[TOKENIZER].decode())
        self._layout = Layout.of(self._tokenizer, reading.padding)
        self._alone = _alone(self._tokenizer, reading.padding)
        self._corpus = _corpus(json.loads(files[CORPUS])) if reading.slopes else None

        def opened(name: str) -> Any:
            return open_session(files[name], threads=threads, file=f"{file}/{name}", varying=True)

        self._pairs = opened(PAIRS) if PAIRS in files else None
        self._texts = opened(TEXTS) if reading.slopes else None
        self.known = TextCache(version, most=PAIR_BYTES if cached else 0)
        self.states = TextCache(version, most=TEXT_BYTES)

    def odds(self, query: str, texts: Sequence[str]) -> Float64:
        """Return the log odds of each text, [n]; equal texts are read once."""
        distinct, rows = distinct_texts(texts)
        keys = self.known.keys(query, distinct) if self._cached else []
        found = self.known.get(keys) if self._cached else [None] * len(distinct)
        new = [place for place, value in enumerate(found) if value is None]
        odds = np.array([np.nan if value is None else value[0] for value in found], dtype=np.float64)
        if new:
            odds[new] = self._read(query, [distinct[place] for place in new])
            if self._cached:
                self.known.put([keys[place] for place in new], [np.array([odds[place]], np.float32) for place in new])
                odds[new] = odds[new].astype(np.float32)
        return odds[rows]

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
        keys = self.states.keys("", texts)
        found = self.states.get(keys)
        new = np.array([place for place, value in enumerate(found) if value is None], dtype=np.int64)
        if len(new):
            none = Tokens(np.empty(0, np.int32), np.zeros(2, np.int64))
            zero, most = np.zeros(len(new), np.int64), self.reading.text_tokens
            read = _batched(self._texts, pair_up(none, tokens, zero, new, layout=self._alone, most=most, most_query=0))
            values = [row.copy() for row in read]
            self.states.put([keys[place] for place in new.tolist()], values)
            for place, value in zip(new.tolist(), values, strict=True):
                found[place] = value
        return np.stack([value for value in found if value is not None])


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
"""A warm scorer in int8 may differ by so much: other processors round states to other whole numbers."""


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
            self._reader = LanguageReader(reading, files, version=bundle.version, threads=threads, file=bundle.folder)
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
