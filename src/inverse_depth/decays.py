"""Least squares in the logarithm for decaying curves with a floor: L_0 + A exp(-rate (t - t_0)), many curves at once.

With t = log L the curve is the power law L_0 + c L^-alpha, with t = L an exponential decay. The solver is batched, so
that a bootstrap costs little more than one fit, and starts each curve from the best of a grid of rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_ITERATIONS = 300


@dataclass(frozen=True)
class Decays:
    """Best curves L_0 + A exp(-rate (t - t_0)) through several rows of values over one abscissa.

    Attributes
    ----------
    t : ndarray, shape (n,)
        The abscissa; t_0 is its least value.
    scale : ndarray, shape (row,)
        Geometric mean of each row: parameters refer to values divided by it, so that no unit matters.
    parameters, lower, upper : ndarray, shape (row, 3)
        L_0, log A and log rate, and their bounds; equal bounds hold a given L_0.
    residual : ndarray, shape (row,)
        Sum of squared residuals of the log.
    """

    t: FloatArray
    scale: FloatArray
    parameters: FloatArray
    lower: FloatArray
    upper: FloatArray
    residual: FloatArray

    def natural(self) -> FloatArray:
        """L_0, c and alpha, shape (3, row)."""
        level, log_amplitude, log_rate = self.parameters.T
        rate = np.exp(log_rate)
        return np.stack([self.scale * level, self.scale * np.exp(log_amplitude + rate * self.t.min()), rate])

    def linearised(self, row: int) -> tuple[FloatArray, FloatArray]:
        """Log of the curve, shape (n,), and its derivatives by the parameters that are not given, shape (n, p)."""
        curve, jacobian = _model(self.t, self.parameters[row])
        return curve + np.log(self.scale[row]), jacobian[:, self.lower[row] < self.upper[row]]

    def _covariance(self, row: int) -> FloatArray:
        jacobian = self.linearised(row)[1]
        free = np.flatnonzero(self.lower[row] < self.upper[row])
        covariance = np.zeros((3, 3))
        _, values, axes = np.linalg.svd(jacobian, full_matrices=False)
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = (axes.T / values**2) @ axes
        covariance[np.ix_(free, free)] = inverse * self.residual[row] / (self.t.size - free.size)
        return covariance

    def standard_errors(self, row: int) -> FloatArray:
        """Errors of L_0, c and alpha by linear propagation."""
        _, amplitude, rate = self.natural()[:, row]
        jacobian = np.array([[1, 0, 0], [0, 1, rate * self.t.min()], [0, 0, rate]])
        relative = np.sqrt(np.diag(jacobian @ self._covariance(row) @ jacobian.T))
        errors: FloatArray = relative * [self.scale[row], amplitude, 1]
        return errors

    def amplitude_error(self, row: int) -> float:
        """Relative error of A, the depth-dependent part at the shallowest depth."""
        return math.sqrt(self._covariance(row)[1, 1])

    def at_bound(self, row: int) -> str:
        """Name of a fitted parameter at its bound, or nothing; a rate within a tenth of its bound counts as there."""
        value, lower, upper = self.parameters[row], self.lower[row], self.upper[row]
        reach = np.array([1e-9, 1e-2, 1e-1])
        bounded = (lower < upper) & ((value - lower < reach) | (upper - value < reach))
        return str(np.array(["floor", "amplitude", "exponent"])[bounded][0]) if bounded.any() else ""


def fit_decays(t: FloatArray, logs: FloatArray, floor: float | None, rates: tuple[float, float]) -> Decays:
    """Fit each row by least squares in the log, from several starts.

    Parameters
    ----------
    t : ndarray, shape (n,)
        Abscissa.
    logs : ndarray, shape (row, n)
        Logarithms of the values.
    floor : float or None
        L_0 if it is given; otherwise it may lie anywhere from zero to the largest value of the row.
    rates : (float, float)
        Bounds of the rate, in units of 1 / t.

    Returns
    -------
    Decays
    """
    centre = logs.mean(axis=1)
    scale = np.exp(centre)
    y = logs - centre[:, None]
    largest = np.exp(y.max(axis=1))
    lower, upper = np.empty((2, y.shape[0], 3))
    lower[:, 0], upper[:, 0] = (0, largest) if floor is None else (floor / scale, floor / scale)
    lower[:, 1], upper[:, 1] = math.log(1e-15), np.log(largest) + 3
    lower[:, 2], upper[:, 2] = np.log(rates)

    starts = _starts(t, y, lower, upper)
    rows, count = starts.shape[:2]
    tiled = (np.repeat(each, count, axis=0) for each in (y, lower, upper))
    ends, residuals = _descend(t, starts.reshape(-1, 3), *tiled)
    residuals = residuals.reshape(rows, count)
    best = np.arange(rows), residuals.argmin(axis=1)
    return Decays(t, scale, ends.reshape(starts.shape)[best], lower, upper, residuals[best])


def _model(t: FloatArray, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log of the law, shape (..., n), and its derivatives, shape (..., n, 3)."""
    level, log_amplitude, log_rate = (parameters[..., i, None] for i in range(3))
    decay = np.exp(log_rate) * (t - t.min())
    part = np.exp(log_amplitude - decay)
    value = np.maximum(level + part, np.finfo(np.float64).tiny)
    return np.log(value), np.stack([1 / value, part / value, -part * decay / value], axis=-1)


def _starts(t: FloatArray, y: FloatArray, lower: FloatArray, upper: FloatArray, keep: int = 3) -> FloatArray:
    """Find the best starts of each row, shape (row, keep, 3): the rate gives L_0 and A by relative least squares."""
    log_rates = np.linspace(lower[0, 2], upper[0, 2], 34)[1:-1]
    decays = np.exp(-np.exp(log_rates)[:, None] * (t - t.min()))
    weight = np.exp(-y)
    s0, s1, s2 = (np.square(weight) @ (decays**power).T for power in (0, 1, 2))
    b0, b1 = weight.sum(axis=1)[:, None], weight @ decays.T
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.nan_to_num((b0 * s2 - b1 * s1) / (s0 * s2 - s1**2))
    level = np.clip(level, lower[:, :1], upper[:, :1])
    amplitude = np.maximum((b1 - level * s1) / s2, 1e-12)
    candidates = np.stack(np.broadcast_arrays(level, np.log(amplitude), log_rates), axis=-1)
    candidates = np.clip(candidates, lower[:, None], upper[:, None])
    cost = np.square(_model(t, candidates)[0] - y[:, None]).sum(axis=-1)
    best = np.argsort(cost, axis=1)[:, :keep]
    return np.take_along_axis(candidates, best[..., None], axis=1)


def _descend(
    t: FloatArray, start: FloatArray, y: FloatArray, lower: FloatArray, upper: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Projected Levenberg-Marquardt steps on every row at once; parameters (row, 3) and residuals (row,)."""
    values, damping = start.copy(), np.full(y.shape[0], 1e-2)
    residual = np.square(_model(t, values)[0] - y).sum(axis=1)
    active = np.arange(y.shape[0])
    for _ in range(_ITERATIONS):
        here, low, high = values[active], lower[active], upper[active]
        log, jacobian = _model(t, here)
        gradient = np.einsum("rni,rn->ri", jacobian, log - y[active])
        # A parameter that is given, or that the gradient presses against its bound, stays.
        fixed = (low == high) | ((here <= low) & (gradient > 0)) | ((here >= high) & (gradient < 0))
        jacobian = np.where(fixed[:, None], 0, jacobian)
        matrix = np.einsum("rni,rnj->rij", jacobian, jacobian)
        diagonal = np.einsum("rii->ri", matrix)
        diagonal += damping[active, None] * diagonal + 1e-30 + fixed
        step = np.linalg.solve(matrix, np.where(fixed, 0, -gradient)[..., None])[..., 0]
        trial = np.clip(here + np.clip(step, -2, 2), low, high)
        reached = np.square(_model(t, trial)[0] - y[active]).sum(axis=1)
        better = reached < residual[active]
        gain = residual[active] - reached
        settled = (np.abs(gain) <= 1e-13 * residual[active]) | (damping[active] > 1e10)
        values[active[better]], residual[active[better]] = trial[better], reached[better]
        damping[active] = np.where(better, damping[active] / 5, damping[active] * 4)
        active = active[~settled]
        if not active.size:
            break
    return values, residual
