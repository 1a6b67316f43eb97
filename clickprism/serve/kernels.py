"""A short list by a small network, in one call of compiled code: rows of the store in, a ranking out.

Around a list of 50 documents, calling ONNX Runtime and numpy a dozen times costs more than the products themselves
(`python -m benchmarks serve`).
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from clickprism._util.compiled import reordered
from clickprism.types import Float32, Float64, Int64

SHORT: Final = 128
"""Documents up to which a list is sorted here; its time grows with their square."""
STEP: Final = 1 << 18
"""Products in one call of BLAS, up to which it takes one thread."""
ELU: Final = 1
RELU: Final = 2

Network: TypeAlias = tuple[Int64, Float32, Float64]
"""Of each hidden layer its inputs, units, activation, and whether a norm follows, [layers, 4]; what a missing feature
is taken for, [F], then each hidden layer's weights, [inputs, units], and bias; those of the last, [inputs + 1]."""

_LOG2E, _HIGH, _LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
_P0, _P1, _P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_P3, _P4, _P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)
_LEAST, _BIAS, _BITS = np.float32(-87.0), np.int32(127), np.int32(23)
_EPSILON = np.float32(1e-5)  # that of torch's LayerNorm


@reordered
def _elu(x: np.float32) -> np.float32:
    """X above 0, exp(x) - 1 below; the exponential by Cephes' polynomial (Moshier, expf.c), within 1e-7."""
    below = max(min(x, _ZERO), _LEAST)
    whole = np.floor(below * _LOG2E + _HALF)
    rest = below - whole * _HIGH - whole * _LOW
    value = ((((_P0 * rest + _P1) * rest + _P2) * rest + _P3) * rest + _P4) * rest + _P5
    value = value * rest * rest + rest + _ONE
    power = np.int32((np.int32(whole) + _BIAS) << _BITS).view(np.float32)
    return max(x, value * power - _ONE)


@reordered
def _hidden(values: Float32, bias: Float32, activation: int, norm: int) -> None:
    """The bias, the activation and, where there is one, the norm of a layer, in place, [n, units]."""
    units = values.shape[1]
    for document in range(len(values)):
        row, mean, spread = values[document], _ZERO, _ZERO
        if activation == ELU:
            for unit in range(units):
                value = _elu(row[unit] + bias[unit])
                row[unit] = value
                mean += value
        else:
            for unit in range(units):
                value = max(row[unit] + bias[unit], _ZERO)
                row[unit] = value
                mean += value
        if norm:
            mean /= np.float32(units)
            for unit in range(units):
                spread += (row[unit] - mean) * (row[unit] - mean)
            factor = _ONE / np.sqrt(spread / np.float32(units) + _EPSILON)
            for unit in range(units):
                row[unit] = (row[unit] - mean) * factor


@reordered
def ranked(rows: Float32, places: Int64, first: int, network: Network, answer: tuple[Int64, Float64]) -> bool:
    """Score some rows, and rank them if they are few; whether every score is finite.

    A feature that stays without a number makes its document's score none, whatever a ReLU would make of it.

    Args:
        rows: raw features and what stands beside them, [m, L].
        places: of the documents among the rows, [n].
        first: the column of the first feature.
        network: whose layers fit together.
        answer: is written: the ranking as places among the documents, best first, ties in their order, [n]; and the
            scores of the documents, in their order and in that of the ranking, [2, n].
    """
    plan, weights, last = network
    order, out = answer
    count, width, most = len(places), len(last) - 1, 1
    if len(plan):
        width = plan[0, 0]
    for layer in range(len(plan)):
        most = max(most, plan[layer, 0] * plan[layer, 1])
    step = max(1, STEP // most)
    scores, sorted_scores = out[0], out[1]
    finite = True
    for start in range(0, count, step):
        some = places[start : start + step]
        values, probes = np.empty((len(some), width), np.float32), np.empty(len(some))
        for document in range(len(some)):
            row, filled, probe = rows[some[document], first : first + width], values[document], _ZERO
            for feature in range(width):
                value = row[feature]
                value = weights[feature] if np.isnan(value) else value
                filled[feature] = value
                probe += value * _ZERO
            probes[document] = probe
        read = width
        for layer in range(len(plan)):
            inputs, units = plan[layer, 0], plan[layer, 1]
            values = np.dot(values, weights[read : read + inputs * units].reshape(inputs, units))
            read += inputs * units
            _hidden(values, weights[read : read + units], plan[layer, 2], plan[layer, 3])
            read += units
        for document in range(len(some)):
            row, total = values[document], last[-1] + probes[document]
            for unit in range(len(row)):
                total += row[unit] * last[unit]
            scores[start + document] = total
            finite &= bool(np.isfinite(total))
    if count <= SHORT:
        for document in range(count):
            score, place = scores[document], document
            while place > 0 and sorted_scores[place - 1] < score:
                sorted_scores[place], order[place] = sorted_scores[place - 1], order[place - 1]
                place -= 1
            sorted_scores[place], order[place] = score, document
    return finite
