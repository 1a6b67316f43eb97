"""Texts to log odds by ONNX Runtime: cut into tokens, batched by length, and nothing read twice; no PyTorch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from clickprism.data.bm25 import BM25, BM25Corpus
from clickprism.errors import DataError, MissingExtraError
from clickprism.rankers.text_tokens import (
    Layout,
    Pairs,
    Tokens,
    assemble,
    by_length,
    distinct_texts,
    pair_up,
    tokenise,
)
from clickprism.serve.sessions import open_session
from clickprism.serve.text_cache import TextCache
from clickprism.types import Float32, Float64

PAIRS, TEXTS, ABOUT, TOKENIZER, CORPUS = "pairs.onnx", "texts.onnx", "about.json", "tokenizer.json", "corpus.json"
BUDGET: Final = 256  # tokens at a time: their states stay in the nearest cache, and little is padding
PAIR_BYTES: Final = 64 << 20  # about 300,000 pairs
TEXT_BYTES: Final = 128 << 20  # about 75,000 texts of a width of 384


@final
@dataclass(frozen=True)
class Reading:
    """What about.json of a bundle says of how to read.

    Attributes:
        padding: the token that fills up a batch.
        tokens: the most of a pair.
        query_tokens: the most of a query.
        bias: b.
        slopes: u, one for each score of the prior; none without one.
        text_tokens: the most of a text that is read by itself, for the prior.
        int8: whether the graphs are quantised.
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

    Without `pairs.onnx` w is 0, and no pair is read. A pair is scored once while the cache remembers it, and a text is
    read once for the prior.

    Args:
        reading: how.
        files: the graphs, the tokenizer and the statistics of the corpus, by name.
        version: of the model, for the keys of the cache.
        threads: that one call may use.
        file: for errors.
        cached: whether scores of pairs are remembered.
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
        """Log odds of each text, [n]; a text that stands several times is read once."""
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
        """The mean state of each text, [texts, width]."""
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


def read_reading(content: bytes, *, file: object) -> Reading | None:
    """What about.json says, None where it is of a bundle for PyTorch."""
    from clickprism.settings import build

    try:
        values = json.loads(content)
        return None if set(values) == {"padding"} else build(Reading, values, path=ABOUT)
    except (ValueError, TypeError) as error:
        raise DataError(f"does not say how to read ({error})", file=file, remedy="Create the bundle again") from None


def _batched(session: Any, pairs: Pairs) -> Float32:
    """What a session says of each pair, in batches of like length, [pairs, outputs]."""
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
    """The layout of a text by itself: a pair whose query has no tokens and nothing around it."""
    frame = tokenizer.encode("a")
    special = frame.special_tokens_mask
    first, last = special.index(0), len(special) - special[::-1].index(0)
    around = [(token, 0) for token in frame.ids]
    return Layout((), tuple(around[:first]), tuple(around[last:]), (0, 0), padding)


def _corpus(about: dict[str, Any]) -> BM25Corpus:
    having = {str(word): int(count) for word, count in about["having"].items()}
    return BM25Corpus(BM25(**about["bm25"]), int(about["documents"]), float(about["mean_length"]), having)
