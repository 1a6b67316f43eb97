"""How alike two texts are to a language model that was never shown a click: the cosine of their mean states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from torch import nn

from clickprism.rankers.language_model import MINILM, load_language_model
from clickprism.rankers.text_tokens import by_length, tokenise
from clickprism.types import Float32, Float64, Int64

BUDGET = 8192


@final
class Similarity:
    """The untuned baseline: each text read by itself, its states averaged, pairs scored by the cosine.

    Args:
        model: a folder, a name on the hub, or "minilm".
        tokens: the most that are read of a text.
    """

    def __init__(self, model: str = MINILM, *, tokens: int = 128) -> None:
        self.encoder, self.tokenizer, self.padding = load_language_model(model)
        self.encoder.requires_grad_(False).eval()
        self.tokens = tokens

    def embed(self, texts: Sequence[str]) -> Float32:
        """The mean state of each text, of length 1, [texts, width]."""
        frame = self.tokenizer.encode("a")
        first, last = frame.special_tokens_mask.index(0), len(frame) - frame.special_tokens_mask[::-1].index(0)
        before, after = frame.ids[:first], frame.ids[last:]
        cut = tokenise(self.tokenizer, texts, most=self.tokens - len(before) - len(after))
        lengths = cut.lengths + len(before) + len(after)
        states = np.empty((len(texts), int(self._config("hidden_size"))), dtype=np.float32)
        with torch.inference_mode():
            for rows in by_length(lengths, budget=BUDGET):
                tokens, mask = self._batch(cut.ids, cut.offsets, rows, before, after)
                hidden = self.encoder(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
                weights = mask.unsqueeze(-1).to(hidden.dtype)
                mean = (hidden * weights).sum(1) / weights.sum(1)
                states[rows] = nn.functional.normalize(mean, dim=-1).numpy()
        return states

    def score_pairs(self, queries: Sequence[str], documents: Sequence[str]) -> Float64:
        """The cosine of each pair, [pairs]; a text that stands several times is read once."""
        sides = []
        for texts in (queries, documents):
            seen: dict[str, int] = {}
            rows = np.fromiter((seen.setdefault(text, len(seen)) for text in texts), np.int64, len(texts))
            sides.append(self.embed(list(seen))[rows])
        scores: Float64 = np.einsum("ij,ij->i", sides[0], sides[1], dtype=np.float64)
        return scores

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

    def _config(self, name: str) -> Any:
        return getattr(self.encoder.config, name)
