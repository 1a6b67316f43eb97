"""How fast observation changes with the features: of simulated truth in closed form, of a fitted model by autograd.

Of o_p ("observation"), which the theorems of LBD bound (`decoupling`), of log o_p ("log"), or of log o_p - log o_1
("relative"). Only the last does not depend on the s(x) that a fitted model happens to have: clicks r o are those of
r / s and s o too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final, get_args

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.types import Float32, Float64, Lists
from clickprism.users.coupled import CoupledUser

if TYPE_CHECKING:
    import torch

Of: TypeAlias = Literal["observation", "log", "relative"]

DOCUMENTS = 4096  # documents differentiated at once


@final
@dataclass(frozen=True)
class Lipschitz:
    """Gradient norms of an observation model with respect to the features, over documents.

    Attributes:
        of: what was differentiated.
        mean: over documents and positions.
        maximum: the same; the least Lipschitz constant that these documents allow.
        means: over documents, [positions].
        maxima: the same, [positions].
    """

    of: Of
    mean: float
    maximum: float
    means: tuple[float, ...]
    maxima: tuple[float, ...]

    def against(self, truth: Lipschitz) -> dict[str, Any]:
        """This beside the truth's, of the same kind and positions: both, and the ratio of their means.

        A ratio above 1 is an observation model that takes more of the features' effect than there is, below 1 one that
        is too stiff; None where the truth's is 0.
        """
        if self.of != truth.of or len(self.means) != len(truth.means):
            kinds = f"{self.of}, {len(self.means)} positions, and {truth.of}, {len(truth.means)} positions"
            raise DataError(f"only Lipschitz constants of the same kind can be compared, got {kinds}")
        return {"fitted": asdict(self), "truth": asdict(truth), "ratio": self.mean / truth.mean if truth.mean else None}


def true_lipschitz(user: CoupledUser, features: Float32, *, positions: int, of: Of = "observation") -> Lipschitz:
    """Those of coupled users, in closed form, over these documents."""
    return _summarised(true_gradients(user, features, positions=positions, of=of), of)


def true_gradients(user: CoupledUser, features: Float32, *, positions: int, of: Of = "observation") -> Float64:
    """Gradient norms of coupled observation o_k = v_k^max(1 + w.x, 0), [documents, positions].

    |grad log o_k| = |log v_k| |w| and |grad o_k| = o_k |log v_k| |w| where 1 + w.x is above 0, both 0 where it is not.

    >>> user = CoupledUser(eta=1.0, columns=(0,), weights=(-0.5,))
    >>> true_gradients(user, np.array([[0.0], [3.0]], np.float32), positions=2, of="log").round(4).tolist()
    [[0.1928, 0.2471], [0.0, 0.0]]
    """
    _check_kind(of)
    weights = crux_weights(user, features.shape[1])
    curve = user.base.observation(np.arange(1, positions + 1))
    if not curve.all():
        raise DataError("observation must be above 0 at every position", remedy="Ask for fewer positions.")
    exponent = 1 + features.astype(np.float64) @ weights
    logs = np.log(curve)
    slopes = np.abs(logs - logs[0]) if of == "relative" else np.abs(logs)
    norms = np.where(exponent[:, None] > 0, slopes * np.linalg.norm(weights), 0.0)
    if of == "observation":
        norms *= curve ** np.maximum(exponent, 0)[:, None]
    return norms


def fitted_lipschitz(
    log_observation: Callable[[torch.Tensor], torch.Tensor], features: Float32, *, of: Of = "observation"
) -> Lipschitz:
    """Those of a fitted observation model over these documents, by autograd, one backward pass a position.

    Args:
        log_observation: features [documents, features] to log o [documents, positions], each document for itself; a
            learner's `log_observation`, in evaluation mode. What does not depend on the features has 0.
        features: of the documents, as the model takes them.
        of: what to differentiate.
    """
    import torch

    _check_kind(of)
    parts = []
    for start in range(0, len(features), DOCUMENTS):
        x = torch.from_numpy(np.array(features[start : start + DOCUMENTS])).requires_grad_()
        with torch.enable_grad():
            out = log_observation(x)
            if of == "observation":
                out = out.exp()
            elif of == "relative":
                out = out - out[..., :1]
        norms = torch.zeros(out.shape, dtype=torch.float64)
        for place in range(out.shape[-1] if out.requires_grad else 0):
            (slope,) = torch.autograd.grad(out[:, place].sum(), x, retain_graph=True, allow_unused=True)
            if slope is not None:
                norms[:, place] = slope.double().norm(dim=-1)
        parts.append(norms.numpy())
    return _summarised(np.concatenate(parts) if parts else np.zeros((0, 0)), of)


def crux_weights(user: CoupledUser, features: int) -> Float64:
    """The weight w of every feature, 0 outside the crux, [features]; refuses a user who is not adapted."""
    user.exponent(Lists(np.zeros((0, features), np.float32), np.zeros(1, np.int64), np.zeros(0, np.str_)))
    weights = np.zeros(features)
    np.add.at(weights, list(user.columns), user.weights)
    return weights


def _summarised(norms: Float64, of: Of) -> Lipschitz:
    if norms.size == 0:
        raise DataError("there are no documents to differentiate the observation at")
    columns = tuple(norms.mean(axis=0).tolist()), tuple(norms.max(axis=0).tolist())
    return Lipschitz(of, float(norms.mean()), float(norms.max()), *columns)


def _check_kind(of: str) -> None:
    if of not in get_args(Of):
        raise SettingError("of", of, f"be one of {', '.join(get_args(Of))}")
