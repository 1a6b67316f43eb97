"""What a log says about relevance, prepared for rankers: corrected clicks, and how the engine ranks.

The log of a good engine has two traps. The model of the log (`LogModel`) repairs position bias: it gives the exposure
E_d of each pair. Selection is the other: a document with poor features was shown only because the engine knew something
in its favour that no feature shows, so among shown documents poor features seem good. It is repaired by keeping the
engine's score s_d in the model of the clicks (a control function):

    log E[clicks of d]  =  log E_d + w(x_d) + rho s_d + effect of the query
    s_d                 =  e(x_d) + what the engine knows beyond the features
    score of a ranker   =  w(x) + (rho / theta) e(x)

s_d is minus the log of the position at which d was first shown. w is what clicks say about documents that the engine
ranks alike, e imitates the engine, and rho is how much relevance the engine's order carries. A regression on the shown
documents finds theta e, theta = v + (1 - v) R^2 (Goldberger 1981, `attenuation`). docs/research/choice.md explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np
from scipy.linalg import block_diag

from clickprism.data.logged import Logged
from clickprism.debias.query_regression import LEAST_UNSHOWN, centred, linear_clicks, log_shares
from clickprism.log_model.counts import first_positions, placed_by_engine
from clickprism.log_model.model import LogModel
from clickprism.types import Float32, Float64, Int64, Lists, slices

if TYPE_CHECKING:
    import torch

    from clickprism.model import Model

FOLDS: Final = 5
FEW_QUERIES: Final = 20  # with fewer queries, documents are held out instead
HIDDEN: Final = (32, 16)
ENGINE_HIDDEN: Final = (64, 32)  # the engine's order is known without noise: larger networks pay
RATE: Final = 0.005
DECAY: Final = 0.001
EPOCHS: Final = 200  # number of epochs of one step each; fewer if an epoch has several steps
PATIENCE: Final = 25
BATCH: Final = 16_384  # pairs
HELD_OUT: Final = 0.15  # share of the queries whose loss decides when training stops
TREES: Final = {"trees": 120, "learning_rate": 0.06, "leaves": 12, "min_data_in_leaf": 20, "l2": 5.0}
GROUP: Final = 1000  # rows of a group of trees

Network: TypeAlias = tuple[Float32, Float32, Float32, Float32, Float32, Float32]  # weights and biases of three layers


@final
@dataclass(frozen=True, eq=False)
class Evidence:
    """The shown pairs of a log with their clicks, exposure and the engine's score; pairs of a query are consecutive.

    Attributes:
        lists: All documents that the log names, with normalised features.
        rows: Row of each shown pair in `lists`, increasing, [pairs].
        query: Query of each pair, from 0, not decreasing, [pairs].
        clicks: Clicks of each pair; those of pairs with much evidence are scaled down with their exposure, [pairs].
        exposure: Impressions of each pair in units of the first position, scaled by the same factor, [pairs].
        engine: Score of the engine, minus the log of the first-shown position, centred within queries, [pairs].
        prior: Relevance of each pair before its clicks, by the model of the log, [pairs].
        posterior: Relevance of each pair, by the model of the log, [pairs].
        impressions: Impressions of each pair, not scaled, [pairs].
        raw_clicks: Clicks of each pair, not scaled, [pairs].
        unshown: Rows of candidates that the log names and that were never shown, [documents].
        fold: Part in which each pair is held out, [pairs].
    """

    lists: Lists
    rows: Int64
    query: Int64
    clicks: Float64
    exposure: Float64
    engine: Float64
    prior: Float64
    posterior: Float64
    impressions: Float64
    raw_clicks: Float64
    unshown: Int64
    fold: Int64

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, logged: Logged, model: LogModel, lists: Lists, *, seed: int = 0) -> Evidence:
        """Return the evidence of a log, over its documents with normalised features."""
        found, rng = model.relevance, np.random.default_rng([seed, 51])
        query = np.unique(lists.list_of[found.rows], return_inverse=True)[1].astype(np.int64)
        queries = int(query.max(initial=-1)) + 1
        shown = np.zeros(lists.documents, dtype=np.bool_)
        shown[found.rows] = True
        searched = np.zeros(len(lists), dtype=np.bool_)
        searched[lists.list_of[found.rows]] = True
        few = queries < FEW_QUERIES
        fold = rng.integers(0, FOLDS, len(found)) if few else rng.permutation(np.arange(queries) % FOLDS)[query]
        clicks = found.clicks
        if model.form.trust:  # clicks that trust adds are no evidence of relevance
            strength = found.weight * (1 - found.share) / np.maximum(found.share, 1e-9)
            clicks = np.maximum(found.value * (found.weight + strength) - strength * found.prior, 0.0)
        click_value = np.ones(len(found)) if logged.values is None else logged.values[found.rows]
        # a pair with endless clicks says as much as its prior strength: features do not explain all of relevance
        scale = 1 - found.share
        return cls(
            lists=lists,
            rows=found.rows,
            query=query,
            clicks=clicks * scale * click_value,
            exposure=np.maximum(found.weight * scale, 1e-9),
            engine=_engine_scores(logged, found.rows, query),
            prior=found.prior,
            posterior=found.value,
            impressions=found.impressions,
            raw_clicks=found.clicks * click_value,
            unshown=np.flatnonzero(~shown & searched[lists.list_of]).astype(np.int64),
            fold=fold.astype(np.int64),
        )

    @property
    def queries(self) -> int:
        """Return the number of queries."""
        return int(self.query.max(initial=-1)) + 1

    @property
    def holds_out_documents(self) -> bool:
        """Return whether documents are held out instead of queries, of which there are too few."""
        return self.queries < FEW_QUERIES

    @cached_property
    def features(self) -> Float64:
        """Return the features of the pairs, [pairs, columns]."""
        return self.lists.features[self.rows].astype(np.float64)

    @property
    def names_candidates(self) -> bool:
        """Return whether the log names candidates that were not shown."""
        return len(self.unshown) > LEAST_UNSHOWN * len(self.rows)

    @property
    def shown_share(self) -> float | None:
        """Return the share of the candidates that was shown, or None if the log does not name the others."""
        return len(self.rows) / (len(self.rows) + len(self.unshown)) if self.names_candidates else None

    def by_query(self, values: Float64) -> Float64:
        """Return the sums of values of pairs over each query, [queries]."""
        return np.bincount(self.query, weights=values, minlength=self.queries).astype(np.float64)

    def held_out_likelihood(self, scores: Float64) -> Float64:
        """Return the log-likelihood of the clicks of each query if scores are log click rates, [queries].

        sum of c_d log(E_d exp(f_d) / sum of E exp(f)), where the sum is over the pairs of the query that are held out
        together with d: all of them, unless documents are held out.
        """
        order = np.argsort(self.query * FOLDS + self.fold, kind="stable")
        query, fold, clicks = self.query[order], self.fold[order], self.clicks[order]
        shares = log_shares((scores + np.log(self.exposure))[order], query * FOLDS + fold)
        return np.bincount(query, weights=clicks * shares, minlength=self.queries).astype(np.float64)

    def last_coefficient(self, columns: Float64, ridge: Float64) -> tuple[float, float]:
        """Return the coefficient of the last column in the log click rate, and its standard error, over queries.

        Args:
            columns: [pairs, columns].
            ridge: Penalty of each coefficient, [columns].
        """
        offset = np.log(self.exposure)
        found = linear_clicks(columns, self.clicks, offset, self.query, ridge=ridge)
        share = np.exp(log_shares(columns @ found + offset, self.query))
        total = self.by_query(self.clicks)[self.query]
        mean, scores = np.zeros((2, self.queries, columns.shape[1]))
        np.add.at(mean, self.query, columns * share[:, None])
        own = columns - mean[self.query]
        independent = (own * (total * share)[:, None]).T @ own
        np.add.at(scores, self.query, own * (self.clicks - total * share)[:, None])
        inverse = np.linalg.pinv(independent + np.diag(ridge), hermitian=True)
        # with few queries the spread over queries is itself uncertain: not below the error of independent clicks
        variance = max((inverse @ each @ inverse)[-1, -1] for each in (scores.T @ scores, independent))
        return float(found[-1]), float(np.sqrt(max(variance, 0.0)))


def _engine_scores(logged: Logged, rows: Int64, query: Int64) -> Float64:
    """Return the engine's score of pairs, centred within queries; 0 for pairs that only chance has placed, [pairs]."""
    scores, placed = -first_positions(logged)[rows], placed_by_engine(logged, rows)
    if placed is None:
        return centred(scores, query)
    found = np.zeros(len(rows))
    found[placed] = centred(scores[placed], np.unique(query[placed], return_inverse=True)[1].astype(np.int64))
    return found


@final
@dataclass(frozen=True, eq=False)
class Scorer:
    """A weighted sum of a linear function and of small networks.

    Attributes:
        linear: Coefficients, [columns].
        networks: Weight and layers of each network.
        held_out: Scores of the shown pairs by copies that did not learn from their query, [pairs]; empty if there are
            no copies.
    """

    linear: Float64
    networks: tuple[tuple[float, Network], ...] = ()
    held_out: Float64 = field(default_factory=lambda: np.zeros(0))

    def __call__(self, features: Float64 | Float32) -> Float64:
        """Return the scores of documents, [documents]."""
        scores = features @ self.linear
        for weight, (first, bias, second, bias_2, last, bias_3) in self.networks:
            hidden = np.maximum(features @ first.T + bias, 0.0)
            hidden = np.maximum(hidden @ second.T + bias_2, 0.0)
            scores = scores + weight * (hidden @ last[0] + bias_3[0])
        return np.asarray(scores, dtype=np.float64)

    @classmethod
    def of(cls, network: Network) -> Scorer:
        """Return one network."""
        return cls(np.zeros(network[0].shape[1]), ((1.0, network),))

    def plus(self, other: Scorer, weight: float = 1.0) -> Scorer:
        """Return this function plus `weight` times another."""
        parts = {id(network): (share, network) for share, network in self.networks}
        for share, network in other.networks:  # a network that is in both is evaluated once
            before = parts.get(id(network), (0.0, network))[0]
            parts[id(network)] = before + weight * share, network
        held_out = self.held_out + weight * other.held_out
        return Scorer(self.linear + weight * other.linear, tuple(parts.values()), held_out)

    def times(self, factor: float) -> Scorer:
        """Return a multiple of this function."""
        networks = tuple((factor * share, network) for share, network in self.networks)
        return Scorer(factor * self.linear, networks, factor * self.held_out)

    def model(self, method: str = "log_model") -> Model:
        """Return the function as a ranker: linear, or one network whose weights between members are 0.

        `method` is what trained it, for the model card: "log_model", "click" or "imitation".
        """
        import torch

        from clickprism.model import Model
        from clickprism.rankers.linear import Linear, LinearNetwork
        from clickprism.rankers.mlp import MLP

        columns, about = len(self.linear), {"name": method}
        if not self.networks:
            network = LinearNetwork(columns)
            with torch.no_grad():
                network.output.weight.copy_(torch.from_numpy(self.linear[None].astype(np.float32)))
            return Model(Linear(), network.eval(), features=columns, method=about)
        # a linear function is max(w.x, 0) - max(-w.x, 0): two units of each layer
        own = self.linear[None].astype(np.float32)
        nothing = np.zeros(2, dtype=np.float32)
        two: Network = (
            np.concatenate([own, -own]), nothing, np.eye(2, dtype=np.float32), nothing,
            np.array([[1.0, -1.0]], dtype=np.float32), np.zeros(1, dtype=np.float32),
        )  # fmt: skip
        parts = [(1.0, two), *self.networks]
        ranker = MLP(
            hidden=(sum(len(part[1]) for _, part in parts), sum(len(part[3]) for _, part in parts)),
            activation="relu",
            layer_norm="none",
        )
        made = ranker.build(columns)
        arrays = (
            np.concatenate([part[0] for _, part in parts]),
            np.concatenate([part[1] for _, part in parts]),
            block_diag(*(part[2] for _, part in parts)),
            np.concatenate([part[3] for _, part in parts]),
            np.concatenate([weight * part[4] for weight, part in parts], axis=1),
            np.sum([weight * part[5] for weight, part in parts], axis=0),
        )
        state = {
            name: torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
            for name, values in zip(made.state_dict(), arrays, strict=True)
        }
        made.load_state_dict(state)
        return Model(ranker, made.eval(), features=columns, method=about)


def average(scorers: Sequence[Scorer], shares: Sequence[float] | Float64 | None = None) -> Scorer:
    """Return the average of several functions with these shares, by default equal ones."""
    shares = np.full(len(scorers), 1 / len(scorers)) if shares is None else shares
    total = scorers[0].times(float(shares[0]))
    for each, share in zip(scorers[1:], shares[1:], strict=True):
        total = total.plus(each, float(share))
    return total


def network_clicks(features: Float64, clicks: Float64, offset: Float64, query: Int64, *, seed: int) -> Network:
    """Return a small network trained by the likelihood of clicks within queries (as `linear_clicks`)."""
    import torch

    counts, fixed = torch.from_numpy(clicks.astype(np.float32)), torch.from_numpy(offset.astype(np.float32))

    def loss(scores: torch.Tensor, at: torch.Tensor, group: torch.Tensor, groups: int) -> torch.Tensor:
        logits, own = scores + fixed[at], counts[at]
        top = torch.full((groups,), -torch.inf).scatter_reduce(0, group, logits.detach(), "amax")[group]
        norm = torch.zeros(groups).index_add(0, group, torch.exp(logits - top))
        return -(own * (logits - top - torch.log(norm)[group])).sum() / own.sum().clamp(min=1e-6)

    return _train(features, query, loss, hidden=HIDDEN, seed=seed)


def network_engine(features: Float64, values: Float64, query: Int64, *, seed: int) -> Network:
    """Return a small network trained by the squared error of values, both centred within queries."""
    import torch

    target = torch.from_numpy(values.astype(np.float32))

    def loss(scores: torch.Tensor, at: torch.Tensor, group: torch.Tensor, groups: int) -> torch.Tensor:
        error = scores - target[at]
        size = torch.zeros(groups).index_add(0, group, torch.ones_like(error)).clamp(min=1.0)
        mean = torch.zeros(groups).index_add(0, group, error) / size
        return ((error - mean[group]) ** 2).mean()

    return _train(features, query, loss, hidden=ENGINE_HIDDEN, seed=seed)


def _train(
    features: Float64,
    query: Int64,
    loss: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], torch.Tensor],
    *,
    hidden: tuple[int, int],
    seed: int,
) -> Network:
    """Train a network of two hidden layers until the loss of held-out queries stops falling."""
    import torch

    rng = np.random.default_rng([seed, 53])
    query = np.unique(query, return_inverse=True)[1].astype(np.int64)
    size = int(query.max(initial=-1)) + 1
    starts = np.append(np.searchsorted(query, np.arange(size)), len(query)).astype(np.int64)
    order = rng.permutation(size)
    few = max(1, round(HELD_OUT * size))
    held, kept = (order[:few], order[few:]) if size > 2 else (order, order)
    x = torch.from_numpy(features.astype(np.float32))
    first, second = hidden
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = torch.nn.Sequential(
            torch.nn.Linear(features.shape[1], first), torch.nn.ReLU(),
            torch.nn.Linear(first, second), torch.nn.ReLU(), torch.nn.Linear(second, 1),
        )  # fmt: skip
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)

    def value(queries: Int64) -> torch.Tensor:
        rows, ends = slices(starts, queries)
        at, group = torch.from_numpy(rows), torch.from_numpy(np.repeat(np.arange(len(queries)), np.diff(ends)))
        return loss(network(x[at]).squeeze(-1), at, group, len(queries))

    parts = max(1, round(len(query) / BATCH))
    best, state, waited = float("inf"), network.state_dict(), 0
    for _ in range(max(EPOCHS // parts, 10)):
        for batch in np.array_split(rng.permutation(kept), parts):
            optimiser.zero_grad()
            value(batch).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.no_grad():
            now = float(value(held))
        if now < best - 1e-6:
            best, waited = now, 0
            state = {name: each.clone() for name, each in network.state_dict().items()}
        else:
            waited += 1
            if waited >= max(PATIENCE // parts, 3):
                break
    one, two, three, four, five, six = (each.numpy() for each in state.values())
    return one, two, three, four, five, six


@final
class _ClickLikelihood:
    """The negative log-likelihood of clicks within queries, by its derivatives at the scores of trees."""

    def __init__(self, clicks: Float64, offset: Float64, query: Int64) -> None:
        self.clicks, self.offset, self.query = clicks, offset, query
        self.total = np.bincount(query, weights=clicks)[query]

    def __call__(self, scores: Float64) -> tuple[Float64, Float64]:
        """Return the first and second derivative by each score, [pairs] each."""
        share = np.exp(log_shares(scores + self.offset, self.query))
        return self.total * share - self.clicks, np.maximum(self.total * share * (1 - share), 1e-6)

    def observation(self) -> None:
        """Return None: the exposure is given."""
        return


def tree_clicks(
    features: Float64, clicks: Float64, offset: Float64, query: Int64, *, seed: int, method: str = "log_model"
) -> Model:
    """Return trees that are grown by the likelihood of clicks within queries (as `linear_clicks`)."""
    from clickprism.model import Model
    from clickprism.rankers.lambdamart import Boosting, LambdaMART

    rows = np.arange(len(query), dtype=np.int64)
    lengths = np.diff(np.append(np.arange(0, len(query), GROUP), len(query)))  # the objective knows the queries
    objective = _ClickLikelihood(clicks, offset, query)
    boosting = Boosting(features.astype(np.float32), rows, lengths, clicks, objective=objective)
    ranker: Any = LambdaMART(**TREES)  # type: ignore[arg-type]
    trees = ranker.train(boosting, seed=seed, threads=1)
    return Model(ranker, trees, features=features.shape[1], method={"name": method})
