"""How documents bend the observation that a method learned, beside the truth: what reports say of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism._util.tables import Table
from clickprism.observation.lipschitz import Lipschitz, fitted_lipschitz, true_lipschitz
from clickprism.types import Clicks, Float32
from clickprism.users.base import User
from clickprism.users.coupled import CoupledUser
from clickprism.users.pbm import PositionUser

if TYPE_CHECKING:
    from clickprism.debias.base import Learner
    from clickprism.debias.steepness import Choice

SAMPLE: Final = 2_000
CURVE: Final = "the curve alone"


@final
@dataclass(frozen=True)
class Bend:
    """How fast log o_k(x) - log o_1(x), which is what clicks identify, changes with the features of a document.

    Attributes:
        documents: over how many of those shown.
        fitted: as the method learned it.
        truth: of the simulated users; None where it is not known.
        choices: what `lbd` tried, the chosen one first; empty for other methods.
        doubt: what speaks against the choice, with a remedy; empty where nothing does.
    """

    documents: int
    fitted: Lipschitz
    truth: Lipschitz | None
    choices: tuple[Choice, ...] = ()
    doubt: str = ""

    def plain(self) -> dict[str, Any]:
        """The Lipschitz constants for JSON."""
        ratio = None if self.truth is None else self.fitted.against(self.truth)["ratio"]
        truth = None if self.truth is None else asdict(self.truth)
        return {"documents": self.documents, "fitted": asdict(self.fitted), "truth": truth, "ratio": ratio}

    def plain_choices(self) -> list[dict[str, Any]]:
        """What was tried for JSON: the penalty of the curve alone is None, the likelihood too if nothing was held out.

        >>> from clickprism.debias.steepness import Choice
        >>> flat = Lipschitz("relative", 0.0, 0.0, (0.0,), (0.0,))
        >>> Bend(10, flat, None, (Choice(0, math.inf, -1.5, 3),)).plain_choices()
        [{'hidden': 0, 'penalty': None, 'likelihood': -1.5, 'epochs': 3, 'chosen': True}]
        """
        return [
            {name: _number(value) for name, value in asdict(choice).items()} | {"chosen": place == 0}
            for place, choice in enumerate(self.choices)
        ]


def bend_of(learner: Learner | None, clicks: Clicks, user: User | None) -> Bend | None:
    """How documents bend the observation of a trained learner, over documents of its log; None if they cannot.

    Args:
        learner: as `fit` returns it.
        clicks: the log: every document shown counts once, or a regular sample of them.
        user: who clicked, adapted to the documents; None where that is not known.
    """
    from clickprism.debias.document import DocumentLearner
    from clickprism.debias.lbd import DecoupledLearner

    if not isinstance(learner, DocumentLearner) or not learner.bends:
        return None
    rows = np.unique(clicks.rows)
    features = clicks.lists.features[rows[:: -(-len(rows) // SAMPLE)]]
    fitted = fitted_lipschitz(learner.log_observation, features, of="relative")
    truth = true_bend(user, features, positions=len(fitted.means))
    chosen = (learner.choices, learner.doubt) if isinstance(learner, DecoupledLearner) else ()
    return Bend(len(features), fitted, truth, *chosen)


def true_bend(user: User | None, features: Float32, *, positions: int) -> Lipschitz | None:
    """The same of users whose observation is known: none of the documents' doing for `pbm`; None for others."""
    if isinstance(user, PositionUser):
        flat = (0.0,) * positions
        return Lipschitz("relative", 0.0, 0.0, flat, flat)
    if isinstance(user, CoupledUser) and user.base.observation(np.arange(1, positions + 1)).all():
        return true_lipschitz(user, features, positions=positions, of="relative")
    return None


def mean_bend(bends: Sequence[Bend]) -> Bend:
    """The mean over runs, as far as the shortest goes; without choices, and without a truth unless all have one."""
    truths = [bend.truth for bend in bends if bend.truth is not None]
    truth = _mean(truths) if len(truths) == len(bends) else None
    return Bend(min(bend.documents for bend in bends), _mean([bend.fitted for bend in bends]), truth)


def choice_text(choices: Sequence[Choice]) -> str:
    """What was chosen and why, in a line.

    >>> from clickprism.debias.steepness import Choice
    >>> choice_text([Choice(0, 0.01, -1.4081, 9), Choice(0, math.inf, -1.4161, 7)])
    'observation bends linearly, penalty 0.01 (held-out log-likelihood -1.4081; the curve alone -1.4161)'
    >>> choice_text([Choice(0, math.inf, -1.5, 7), Choice(16, 0.0, -1.6, 9)])
    'observation is the curve alone (held-out log-likelihood -1.5000; the best bend -1.6000)'
    >>> choice_text([Choice(0, math.inf, math.nan, 60)])
    'observation is the curve alone (too few ranked lists with clicks, or positions, to choose by)'
    """
    chosen = choices[0]
    if math.isnan(chosen.likelihood):
        return f"observation {_verb(chosen)} (too few ranked lists with clicks, or positions, to choose by)"
    curve = chosen.penalty == math.inf
    others = [choice.likelihood for choice in choices[1:] if (choice.penalty < math.inf) == curve]
    beside = f"; {'the best bend' if curve else CURVE} {max(others):.4f}" if others else ""
    return f"observation {_verb(chosen)} (held-out log-likelihood {chosen.likelihood:.4f}{beside})"


def chosen_text(bends: Mapping[int, Bend]) -> str:
    """What was chosen with each seed, in a line; empty where there was no choice.

    >>> from clickprism.debias.steepness import Choice
    >>> flat = Lipschitz("relative", 0.0, 0.0, (0.0,), (0.0,))
    >>> line, curve = (Bend(1, flat, None, (Choice(0, each, -1.5, 3),)) for each in (0.01, math.inf))
    >>> chosen_text({0: line, 1: curve, 2: line})
    'observation bends linearly, penalty 0.01 (seeds 0, 2); is the curve alone (seed 1)'
    """
    seeds: dict[str, list[int]] = {}
    for seed, bend in bends.items():
        if bend.choices:
            seeds.setdefault(_verb(bend.choices[0]), []).append(seed)
    parts = [
        f"{verb} (seed{'s' * (len(each) > 1)} {', '.join(map(str, sorted(each)))})" for verb, each in seeds.items()
    ]
    return f"observation {'; '.join(parts)}" if parts else ""


def bend_tables(bends: Mapping[str, Mapping[int, Bend]]) -> list[Table]:
    """The Lipschitz constants of each method, a mean over seeds, and what was chosen with each seed."""
    rows = []
    for label, several in bends.items():
        mean = mean_bend(list(several.values()))
        true = (None, None) if mean.truth is None else (mean.truth.mean, mean.truth.maximum)
        cells = [_text(mean.fitted.mean), _text(true[0]), _text(mean.plain()["ratio"], digits=2)]
        rows.append([label, *cells, _text(mean.fitted.maximum), _text(true[1])])
    header = ["method", "mean", "true mean", "ratio", "maximum", "true maximum"]
    what = "Lipschitz constants: the slope of log o_k(x) - log o_1(x) in the features, over documents shown"
    found = [Table(what, header, rows)] if rows else []
    chosen = {f"{label}, seed {seed}": bend for label, of in bends.items() for seed, bend in of.items() if bend.choices}
    if chosen:
        kinds = sorted({_kind(choice) for bend in chosen.values() for choice in bend.choices})
        lines = [[name, *_likelihoods(bend, kinds)] for name, bend in chosen.items()]
        caption = "Log-likelihood a session of clicks held out, by how documents may bend the observation; * chosen"
        found.append(Table(caption, ["method", *[_name(*kind) for kind in kinds]], lines))
    return found


_Kind = tuple[bool, int, float]  # whether the curve alone, hidden units, penalty


def _kind(choice: Choice) -> _Kind:
    return choice.penalty == math.inf, choice.hidden, choice.penalty


def _name(curve: bool, hidden: int, penalty: float) -> str:
    return CURVE if curve else f"{f'{hidden} units' if hidden else 'linear'}, penalty {penalty:g}"


def _likelihoods(bend: Bend, kinds: Sequence[_Kind]) -> list[str]:
    found = {_kind(choice): _text(choice.likelihood) for choice in reversed(bend.choices)}
    found[_kind(bend.choices[0])] += " *"
    return [found.get(kind, "") for kind in kinds]


def _verb(choice: Choice) -> str:
    if choice.penalty == math.inf:
        return f"is {CURVE}"
    how = f"by a network of {choice.hidden} hidden units" if choice.hidden else "linearly"
    return f"bends {how}, penalty {choice.penalty:g}"


def _mean(several: Sequence[Lipschitz]) -> Lipschitz:
    depth = min(len(each.means) for each in several)
    means, maxima = (
        tuple(np.mean([getattr(each, name)[:depth] for each in several], axis=0).tolist())
        for name in ("means", "maxima")
    )
    mean, maximum = (float(np.mean([getattr(each, name) for each in several])) for name in ("mean", "maximum"))
    return Lipschitz(several[0].of, mean, maximum, means, maxima)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _text(value: float | None, *, digits: int = 4) -> str:
    return "n/a" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"
