"""The cross-encoder: pairs a second by length against fixed padding, and how it ranks after learning from clicks.

`python -m benchmarks cross_encoder` measures the speed; `python -m benchmarks.cross_encoder FOLDER` fine-tunes on
simulated clicks of a randomised first slot over the texts of NFCorpus in that folder, and ranks its test queries.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.base import Result, seconds
from clickprism.click_models.trust import TrustUser
from clickprism.data.bm25 import BM25
from clickprism.evaluation.measures import evaluate
from clickprism.evaluation.significance import interval, paired_randomisation, paired_t
from clickprism.rankers.cross_encoder import BUDGET, CrossEncoderNetwork, probabilities
from clickprism.rankers.language_model import CrossEncoder
from clickprism.rankers.prior import Similarity
from clickprism.rankers.text_tokens import Pairs, by_length
from clickprism.relevance.imputation import TextImputation, pairs_of
from clickprism.relevance.pairs import FirstSlot
from clickprism.settings import build, plain
from clickprism.training.text import fit_text
from clickprism.training.text_settings import TextFitSettings
from clickprism.types import Float32, Float64, JudgedLists, Lists, Text
from reproduce.common.nfcorpus import Collection, nfcorpus

FOUND = 50  # candidates of a test query that BM25 finds, and as many that the untuned language model finds
PAGE = 10  # the same of a training query, whose first slot is explored
HIGHEST = 3
MEASURE = "nDCG(exp)@10"


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidates of each query as lists with grades, and their scores by BM25 and by the untuned model."""

    texts: Collection
    judged: JudgedLists
    bm25: Float64
    untuned: Float64

    @property
    def ids(self) -> tuple[Text, Text]:
        """The query and the document of each row."""
        lists = self.judged.lists
        return lists.query_ids[lists.list_of], lists.query_ids if lists.document_ids is None else lists.document_ids


def candidates(found: Collection, similarity: Similarity, states: Float32, *, most: int = FOUND) -> Candidates:
    """The best documents of each query by BM25 and by the untuned model: neither is favoured by how they were found.

    Judged documents that neither finds are left out: among candidates that were added because they are relevant BM25
    ranks worse than chance, since what it did not find is better than what it did.
    """
    corpus = BM25().corpus(found.documents)
    words = corpus.scores(found.queries.texts, found.documents.texts).toarray()
    cosine = similarity.embed(found.queries.texts) @ states.T
    pairs = []
    for scores in (words, cosine):
        best = np.argpartition(-scores, most, axis=1)[:, :most]
        query = np.repeat(np.arange(len(best)), most)
        kept = scores[query, best.ravel()] > 0
        pairs.append(query[kept] * len(found.documents) + best.ravel()[kept])
    query, document = np.divmod(np.unique(np.concatenate(pairs)), len(found.documents))
    present, lengths = np.unique(query, return_counts=True)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = found.queries.ids[query], found.documents.ids[document]
    lists = Lists(np.zeros((len(query), 1), np.float32), offsets, found.queries.ids[present], ids[1])
    judged = JudgedLists(lists, found.judgements.grades_of(*ids))
    return Candidates(found, judged, words[query, document], cosine[query, document].astype(np.float64))


def explored(train: JudgedLists, *, pairs: int, impressions: int, seed: int) -> FirstSlot:
    """Clicks of a randomised first slot: pairs at random, queries by Zipf, trust bias at position 1.

    P(click) = theta_1 (plus_1 y / 3 + minus_1 (1 - y / 3)): .65 where the grade is 0, 1 where it is 3.
    """
    rng = np.random.default_rng(seed)
    lists = train.lists
    chosen = np.sort(rng.permutation(lists.documents)[:pairs])
    share = 1 / (1 + rng.permutation(len(lists)))[lists.list_of[chosen]]
    shown = 1 + rng.multinomial(max(impressions - len(chosen), 0), share / share.sum())
    first = np.ones(1, np.int64)
    theta, (plus, minus) = TrustUser("hyperbolic").observation(first), TrustUser("hyperbolic").trust(first)
    relevance = train.grades[chosen] / HIGHEST
    clicks = rng.binomial(shown, theta * (plus * relevance + minus * (1 - relevance)))
    documents = lists.document_ids if lists.document_ids is not None else lists.query_ids[:0]
    return FirstSlot.of(lists.query_ids[lists.list_of[chosen]], documents[chosen], clicks, impressions=shown)


def assignments(words: Iterable[str]) -> dict[str, str]:
    """Return `key=value` words as settings; `build` reads the values."""
    return {key.strip(): value for key, _, value in (word.partition("=") for word in words)}


def quality(folder: Path, arguments: argparse.Namespace) -> None:
    """Fit the prior, fine-tune, rank the test queries, compare in pairs."""
    encoder = build(
        CrossEncoder, {**(plain(CrossEncoder.paper()) if arguments.paper else {}), **assignments(arguments.encoder)}
    )
    given = plain(TextFitSettings.paper()) if arguments.paper else {}
    settings = build(TextFitSettings, {"epochs": 1, **given, "seed": arguments.seed, **assignments(arguments.set)})
    train, test = nfcorpus(folder, "train"), nfcorpus(folder, "test")
    network = encoder.build(train.documents)
    similarity = Similarity(tokens=encoder.tokens) if network.prior is None else network.prior.similarity
    states = similarity.embed(train.documents.texts)
    known = candidates(train, similarity, states, most=PAGE).judged
    chosen = some(candidates(test, similarity, states), arguments.queries)
    print(f"{len(chosen.judged)} test queries, {len(chosen.bm25)} candidates; {encoder}", flush=True)
    scores = {"BM25": chosen.bm25, "untuned": chosen.untuned}
    for name, values in scores.items():
        report(chosen.judged, name, values, scores)
    pairs = pairs_of(network, test.queries, test.documents, *chosen.ids)

    def fit(name: str, settings: TextFitSettings) -> None:
        slot = explored(known, pairs=arguments.pairs, impressions=arguments.impressions, seed=settings.seed)
        print(f"{name}: {slot}, click rate {slot.rate:.3f}; {settings}", flush=True)
        shown = pairs_of(network, train.queries, train.documents, slot.query_ids, slot.document_ids)
        start = time.perf_counter(), time.process_time()
        fitted = fit_text(
            network,
            shown,
            slot.clicks,
            slot.impressions,
            settings=settings,
            note=lambda text: print(text, flush=True),
        )
        spent = time.perf_counter() - start[0], time.process_time() - start[1]
        print(f"trained in {spent[0]:.0f} s, {spent[1]:.0f} s of CPU; {fitted.stopped}, best step {fitted.best_step}")
        losses = f"constant {fitted.constant:.4f}, untrained {fitted.untrained:.4f}, best {fitted.best:.4f}"
        print(f"loss on measured queries: {losses}", flush=True)
        if arguments.save is not None and network.residual:
            TextImputation(network, train.queries, train.documents).save(arguments.save)
        scores[name] = reranked(network, pairs, chosen.judged, most=arguments.rerank)
        report(chosen.judged, name, scores[name], scores)
        read = scores[name] > -500
        calibrated(probabilities(scores[name][read]), 0.65 + 0.35 * chosen.judged.grades[read] / HIGHEST)

    for seed in range(arguments.seeds if encoder.prior else 0):
        fit(f"prior {seed}", replace(settings, epochs=0, seed=settings.seed + seed))
    if settings.epochs:
        fit("fine-tuned", settings)


def reranked(network: CrossEncoderNetwork, pairs: Pairs, judged: JudgedLists, *, most: int) -> Float64:
    """Log odds; where the language model has a say and there is a prior, of its best so many only, others behind."""
    odds = network.prior_odds(pairs)
    if not network.residual:
        return odds
    owner = judged.lists.list_of
    order = np.lexsort((-odds, owner))
    place = np.arange(len(order)) - judged.lists.offsets[owner[order]]
    first = order[place < most] if most and network.prior is not None else order
    final = odds - 1e3
    final[first] = network.odds(pairs.take(first))
    return final


def calibrated(estimates: Float64, true: Float64) -> None:
    """How the estimates go with the true click probabilities."""
    print(f"correlation with the true click probability {np.corrcoef(estimates, true)[0, 1]:.3f}")
    bins = np.digitize(estimates, np.quantile(estimates, [0.2, 0.4, 0.6, 0.8]))
    means = [(estimates[bins == each].mean(), true[bins == each].mean()) for each in np.unique(bins)]
    print("estimate and truth by fifths: " + ", ".join(f"{mean:.3f} {truth:.3f}" for mean, truth in means), flush=True)


def some(chosen: Candidates, most: int) -> Candidates:
    """So many of the queries, at random; all for 0."""
    lists = np.sort(np.random.default_rng(0).permutation(len(chosen.judged))[: most or None])
    rows = np.isin(chosen.judged.lists.list_of, lists)
    return Candidates(chosen.texts, chosen.judged.take(lists), chosen.bm25[rows], chosen.untuned[rows])


def report(judged: JudgedLists, name: str, values: Float64, scores: dict[str, Float64]) -> None:
    """The measure of one ranking, and how it differs from the others."""
    mine = evaluate(judged, values, MEASURE)[MEASURE]
    print(f"{name}: {MEASURE} {np.nanmean(mine):.4f}", flush=True)
    for other, theirs in scores.items():
        if other == name:
            continue
        them = evaluate(judged, theirs, MEASURE)[MEASURE]
        span, t = interval(mine - them), paired_t(mine, them)
        p = paired_randomisation(mine, them).p_value
        span_text = f"{span.low:+.4f} to {span.high:+.4f}"
        print(f"  against {other}: {t.difference:+.4f} ({span_text}), p {t.p_value:.2g} (t), {p:.2g} (randomisation)")


def run() -> Iterable[Result]:
    """Pairs a second: batches of like length against batches in the order of the pairs, padded to the most tokens."""
    rng = np.random.default_rng(0)
    words = np.array(["heart", "diet", "cancer", "protein", "study", "risk", "milk", "vitamin", "plant", "blood"])
    lengths = np.minimum(rng.lognormal(3.3, 0.8, 192).astype(np.int64) + 3, 120)
    queries = [" ".join(rng.choice(words, 3)) for _ in lengths]
    documents = [" ".join(rng.choice(words, length)) for length in lengths]
    network = CrossEncoder(tokens=128, prior=False).build().requires_grad_(False).eval()
    torch.nn.init.normal_(network.head.weight)
    pairs = network.pairs(queries, documents)
    by_buckets = seconds(lambda: network.odds(pairs), repeats=2)

    def fixed() -> None:
        with torch.inference_mode():
            for start in range(0, len(pairs), 64):
                tokens, types, kinds, prior = network.batch(pairs.take(np.arange(start, min(start + 64, len(pairs)))))
                short = 128 - tokens.shape[1]
                pad = torch.nn.functional.pad
                network(pad(tokens, (0, short)), pad(types, (0, short)), pad(kinds, (0, short), value=-1), prior)

    padded = seconds(fixed, repeats=2)
    rates = len(pairs) / by_buckets, len(pairs) / padded
    yield Result("cross-encoder: length buckets", *rates, 1.5, "pairs/s, fixed padding")
    filled = sum(int(pairs.lengths[rows].max()) * len(rows) for rows in by_length(pairs.lengths, budget=BUDGET))
    whole = float(pairs.lengths.sum())
    yield Result("cross-encoder: tokens not padding", whole, float(filled), 0.85, "tokens, with padding")


def main() -> None:
    """What the module says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=12_000)
    parser.add_argument("--impressions", type=int, default=400_000)
    parser.add_argument("--queries", type=int, default=0, help="test queries, 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3, help="draws of clicks by which the prior alone is fitted")
    parser.add_argument("--rerank", type=int, default=30, help="candidates that the language model reads, 0 for all")
    parser.add_argument("--paper", action="store_true", help="the paper's form: [CLS], no prior, its schedule")
    parser.add_argument("--encoder", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--save", type=Path)
    quality(parser.parse_args().folder, parser.parse_args())


if __name__ == "__main__":
    main()
