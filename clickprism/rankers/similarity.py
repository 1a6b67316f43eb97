"""How alike two texts are to a language model that was never shown a click: the cosine of their mean states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np
import torch
from torch import nn

from clickprism.rankers.language_model import MINILM, load_language_model
from clickprism.rankers.text_tokens import by_length, distinct_texts, tokenise
from clickprism.types import Float32, Float64, Int64

BUDGET: Final = 8192
KEPT: Final = 1 << 15  # texts whose states are remembered: 50 MB at a width of 384


@final
class Similarity:
    """The untuned baseline: each text read by itself, its states averaged, pairs scored by the cosine.

    A text is read once; its mean state is remembered, so that scoring more pairs of known texts costs next to nothing.

    Args:
        model: a folder, a name on the hub, or "minilm".
        tokens: the most that are read of a text.
        parts: the encoder, the tokenizer and the padding token, where they are loaded already; `model` is not read.
    """

    def __init__(
        self, model: str = MINILM, *, tokens: int = 128, parts: tuple[nn.Module, Any, int] | None = None
    ) -> None:
        self.encoder, self.tokenizer, self.padding = load_language_model(model) if parts is None else parts
        self.encoder.requires_grad_(False).eval()
        self.tokens = tokens
        self._known: dict[str, Float32] = {}

    def embed(self, texts: Sequence[str]) -> Float32:
        """The mean state of each text, of length 1, [texts, width]."""
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
        """The cosine of each pair, [pairs]; a text that stands several times is read once."""
        (words, rows), (others, other_rows) = distinct_texts(queries), distinct_texts(documents)
        return self.score_rows(words, others, rows, other_rows)

    def score_rows(self, queries: Sequence[str], documents: Sequence[str], rows: Int64, others: Int64) -> Float64:
        """The cosine of pairs, by the rows of their texts, [pairs]."""
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
                tokens, mask = self._batch(cut.ids, cut.offsets, rows, before, after)
                hidden = self.encoder(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
                weights = mask.unsqueeze(-1).to(hidden.dtype)
                mean = (hidden * weights).sum(1) / weights.sum(1)
                states[rows] = nn.functional.normalize(mean, dim=-1).numpy()
        return states

    def _batch(
        self, ids: Any, offsets: Int64, rows: Int64, before: list[int], after: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        lengths = np.diff(offsets)[rows]
        longest = int(lengths.max()) + len(before) + len(after)
        place = np.arange(longest)[None, :]
        tokens = np.full((len(rows), longest), self.padding, dtype=np.int64)
        tokens[:, : len(before)] = before
        inside = (place >= len(before)) & (place < (lengths + len(before))[:, None])
        tokens[inside] = ids[((offsets[rows] - len(before))[:, None] + place)[inside]]
        for step, token in enumerate(after):
            tokens[np.arange(len(rows)), lengths + len(before) + step] = token
        mask = place < (lengths + len(before) + len(after))[:, None]
        return torch.from_numpy(tokens), torch.from_numpy(mask)
