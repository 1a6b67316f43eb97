"""Scores of a pair of texts before any click: BM25 over a corpus, the cosine of an untuned language model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Final, final

import numpy as np
import torch
from torch import nn

from clickprism.data.bm25 import BM25, BM25Corpus
from clickprism.errors import DataError
from clickprism.rankers.language_model import MINILM, load_language_model
from clickprism.rankers.text_tokens import by_length, distinct_texts, tokenise
from clickprism.types import Float32, Float64, Int64

BUDGET: Final = 8192
KEPT: Final = 1 << 15  # texts whose states are remembered: 50 MB at a width of 384


@final
class Prior:
    """Scores of a pair that need only its two texts and these statistics (Askari et al. 2023 use BM25 alone).

    Attributes:
        corpus: The statistics of BM25: how many documents have each word, and their lengths.
        similarity: The untuned language model.
    """

    names: ClassVar[tuple[str, ...]] = ("bm25", "bm25_share", "cosine")

    def __init__(self, corpus: BM25Corpus, similarity: Similarity) -> None:
        self.corpus, self.similarity = corpus, similarity

    def scores(self, queries: Sequence[str], documents: Sequence[str], rows: Int64, others: Int64) -> Float32:
        """Return BM25, BM25 as a share of its maximum for the query, and the cosine, by rows of texts, [pairs, 3]."""
        words, share = self.corpus.score_texts(queries, documents, rows, others)
        cosine = self.similarity.score_rows(queries, documents, rows, others)
        return np.stack([words, share, cosine], axis=1).astype(np.float32)

    def files(self, tuned: nn.Module) -> dict[str, bytes]:
        """Return what `of_files` needs: the corpus, and the weights that differ from those of the tuned encoder."""
        from safetensors.torch import save

        corpus, same = self.corpus, tuned.state_dict()
        about = {
            "bm25": {"k1": corpus.settings.k1, "b": corpus.settings.b, "plurals": corpus.settings.plurals},
            "documents": corpus.documents,
            "mean_length": corpus.mean_length,
            "tokens": self.similarity.tokens,
            "having": dict(sorted(corpus.having.items())),
        }
        own = {
            name: value.detach().contiguous().clone()
            for name, value in self.similarity.encoder.state_dict().items()
            if not torch.equal(value, same[name])
        }
        return {"corpus.json": json.dumps(about, ensure_ascii=False).encode(), "untuned.safetensors": save(own)}

    @classmethod
    def of_files(cls, files: dict[str, bytes], encoder: nn.Module, tokenizer: Any, padding: int) -> Prior:
        """Return the prior that `files` came from; the encoder is a copy of the tuned one, and is changed."""
        from safetensors.torch import load

        about, own = json.loads(files["corpus.json"]), load(files["untuned.safetensors"])
        state = encoder.state_dict()
        if any(name not in state or state[name].shape != value.shape for name, value in own.items()):
            raise DataError("the untuned weights do not fit the language model")
        encoder.load_state_dict(own, strict=False)
        having = {str(word): int(count) for word, count in about["having"].items()}
        corpus = BM25Corpus(BM25(**about["bm25"]), int(about["documents"]), float(about["mean_length"]), having)
        return cls(corpus, Similarity(tokens=int(about["tokens"]), parts=(encoder, tokenizer, padding)))


@final
class Similarity:
    """The untuned baseline: the cosine of the mean token states of two texts. Each text is encoded once, separately.

    Args:
        model: A folder, a name on the hub, or "minilm".
        tokens: Largest number of tokens of a text.
        parts: The encoder, the tokenizer and the padding token, if they are loaded already; `model` is not read.
    """

    def __init__(
        self, model: str = MINILM, *, tokens: int = 128, parts: tuple[nn.Module, Any, int] | None = None
    ) -> None:
        self.encoder, self.tokenizer, self.padding = load_language_model(model) if parts is None else parts
        self.encoder.requires_grad_(False).eval()
        self.tokens = tokens
        self._known: dict[str, Float32] = {}

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return the mean state of each text, of length 1, [texts, width]."""
        width = int(getattr(self.encoder.config, "hidden_size"))  # noqa: B009
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if len(self._known) + len(new) > KEPT:
            self._known.clear()
            new = list(dict.fromkeys(texts))
        found = dict(zip(new, self._read(new, width), strict=True))
        if len(new) <= KEPT:
            self._known.update(found)
        states = np.empty((len(texts), width), dtype=np.float32)
        for row, text in enumerate(texts):
            states[row] = found[text] if text in found else self._known[text]
        return states

    def score_pairs(self, queries: Sequence[str], documents: Sequence[str]) -> Float64:
        """Return the cosine of each pair, [pairs]."""
        (words, rows), (others, other_rows) = distinct_texts(queries), distinct_texts(documents)
        return self.score_rows(words, others, rows, other_rows)

    def score_rows(self, queries: Sequence[str], documents: Sequence[str], rows: Int64, others: Int64) -> Float64:
        """Return the cosine of each pair, [pairs]; `rows` and `others` are the rows of its query and document."""
        states, other_states = self.embed(queries), self.embed(documents)
        scores = np.empty(len(rows))
        for start in range(0, len(rows), BUDGET):
            some = slice(start, start + BUDGET)
            scores[some] = np.einsum("ij,ij->i", states[rows[some]], other_states[others[some]])
        return scores

    def _read(self, texts: list[str], width: int) -> Float32:
        frame = self.tokenizer.encode("a")
        first, last = frame.special_tokens_mask.index(0), len(frame) - frame.special_tokens_mask[::-1].index(0)
        before, after = frame.ids[:first], frame.ids[last:]
        cut = tokenise(self.tokenizer, texts, most=self.tokens - len(before) - len(after))
        lengths = cut.lengths + len(before) + len(after)
        states = np.empty((len(texts), width), dtype=np.float32)
        with torch.inference_mode():
            for rows in by_length(lengths, budget=BUDGET):
                pieces = (cut.ids[cut.offsets[row] : cut.offsets[row + 1]].tolist() for row in rows)
                framed = [torch.tensor([*before, *piece, *after]) for piece in pieces]
                tokens = nn.utils.rnn.pad_sequence(framed, batch_first=True, padding_value=self.padding)
                mask = torch.arange(tokens.shape[1]) < torch.from_numpy(lengths[rows])[:, None]
                hidden = self.encoder(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
                states[rows] = nn.functional.normalize(mean_state(hidden, mask), dim=-1).numpy()
        return states


def mean_state(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean over the tokens that are not masked, [texts, width]."""
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp_min(1)
