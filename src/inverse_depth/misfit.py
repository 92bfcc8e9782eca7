"""Where curves of loss against depth depart from a fitted law: in what a single power law cannot follow.

Residuals are those of log R_L. A departure is called significant at the level `CERTAINTY`; that much of exact laws with
independent noise seems to depart by chance.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import fdtri, stdtrit

from inverse_depth.decays import Decays, FloatArray, fit_decays

CERTAINTY = 0.99
"""Level at which a departure, and a parameter's difference from nothing, must be significant: among many curves that
almost determine a law, those selected by luck would show errors that are too small."""

EVIDENCE = 20.0
"""Likelihood ratio from which an exponential decay in depth is preferred to the power law."""

LARGEST_RATIO_OF_ENDS = 2.0
"""Ratio of the local exponents at the shallowest and the deepest depth, about a given floor, up to which one exponent
stands for both."""

LARGEST_RATIO_OF_HALVES = 1.1
"""The same for exponents fitted to the shallow and to the deep half of the depths, each with a floor of its own; these
differ less than the ends do, and a free floor takes up much of a bend and is wrong by it."""

EXACT = 1e-9
"""Residuals that are this small a part of the variation of the log loss are rounding: the curve has no noise."""


def is_exact(residual: float, spread: float) -> bool:
    """Tell whether a sum of squared residuals is rounding beside the variation of the log loss."""
    return residual <= EXACT**2 * spread


def exponential_preferred(depths: FloatArray, logs: FloatArray, floor: float | None, residual: float) -> bool:
    """Tell whether L_0 + c exp(-L / tau) is more likely than the power law that leaves the given sum of squares."""
    rates = (0.01 / np.ptp(depths), 16 / float(np.diff(depths).min()))
    other = float(fit_decays(depths, logs[None], floor, rates).residual[0])
    rounding = depths.size * (16 * np.finfo(np.float64).eps) ** 2
    return depths.size / 2 * math.log((residual + rounding) / (other + rounding)) > math.log(EVIDENCE)


def bends(law: Decays, logs: FloatArray) -> bool:
    """Test whether log (R - L_0) is curved in log L: whether g differs from 0 in L_0 + c L^-alpha exp(g (log L)^2).

    Only the first order in g counts (a score test): Student's t with n - p - 1 degrees of freedom, since its noise is
    what the residuals hold besides. Where no depth is left to measure that noise, nothing is significant.
    """
    curve, jacobian = law.linearised(0)
    residual = logs - curve
    freedom = logs.size - jacobian.shape[1] - 1
    if freedom < 1 or is_exact(float(law.residual[0]), float(np.square(logs - logs.mean()).sum())):
        return False
    axes, _ = np.linalg.qr(jacobian)
    share = np.exp(curve - np.log(law.scale[0])) - law.parameters[0, 0]
    column = share / (share + law.parameters[0, 0]) * np.square(law.t - law.t.mean())
    column, residual = (vector - axes @ (axes.T @ vector) for vector in (column, residual))
    along = float(column @ residual) ** 2 / float(column @ column)
    noise = (float(residual @ residual) - along) / freedom
    return along > float(stdtrit(freedom, (1 + CERTAINTY) / 2)) ** 2 * noise


def drift(depths: FloatArray, losses: FloatArray, floor: float | None, bounds: tuple[float, float]) -> tuple[str, bool]:
    """Say from what to what the exponent of a bent curve runs, and whether that is too far for one exponent.

    About a given floor these are the local exponents at the ends of a quadratic through log (R - L_0) over log L; with
    the floor unknown, the exponents of fits to the shallow and to the deep half.
    """
    t = np.log(depths)
    if floor is not None:
        curvature, slope, _ = np.polyfit(t, np.log(losses - floor), 2)
        ends = [-float(2 * curvature * end + slope) for end in t[[0, -1]]]
        said, allowed = f"the exponent runs from {ends[0]:.2g} to {ends[1]:.2g} over the depths", LARGEST_RATIO_OF_ENDS
    else:
        half = max(4, (depths.size + 1) // 2)
        parts = slice(0, half), slice(depths.size - half, None)
        ends = [float(fit_decays(t[part], np.log(losses[part])[None], None, bounds).natural()[2, 0]) for part in parts]
        where = [f"L = {depths[part][0]:g} to {depths[part][-1]:g}" for part in parts]
        said = f"the exponent is {ends[0]:.2g} over {where[0]}, {ends[1]:.2g} over {where[1]}"
        allowed = LARGEST_RATIO_OF_HALVES
    return f"{said}: not one power law", max(ends) > allowed * min(ends)


def lack_of_fit(residual: FloatArray, jacobian: FloatArray, samples: FloatArray) -> str:
    """Say by how many times its noise a fitted law misses the losses, if significantly; the noise is that of samples.

    The classical F test of lack of fit. Both sums of squares are of what the parameters cannot follow, the projection
    M = 1 - J (J^T J)^-1 J^T: noise that all depths share, or that only tilts the curve, makes no law wrong. The
    numerator is |M r|^2, with n - p degrees of freedom. The denominator is the same of the noise: between seeds,
    sum_s |M (y_s - mean y)|^2 / (S (S - 1)) with y_s the log loss of seed s, and between blocks of contexts, which the
    seeds share. In simulations with 2 and 4 seeds it noted 1 to 2 % of exact laws, whether or not the depths of a seed
    deviate together.

    Parameters
    ----------
    residual : ndarray, shape (L,)
        Of the mean log loss.
    jacobian : ndarray, shape (L, p)
        Derivatives of the law's log by its parameters.
    samples : ndarray, shape (L, seed, block)
        Positive losses. Seeds that are absent at a depth are left out; with fewer than two nothing is said.

    Returns
    -------
    str
        Empty if the law is within the noise.
    """
    complete = samples[:, np.isfinite(samples).all(axis=(0, 2))]
    _, seeds, blocks = complete.shape
    freedom = residual.size - jacobian.shape[1]
    if seeds < 2 or freedom < 1 or not (complete.mean(axis=2) > 0).all():
        return ""
    axes, _ = np.linalg.qr(jacobian)

    def unexplained(deviations: FloatArray) -> float:
        return float(np.square(deviations - axes @ (axes.T @ deviations)).sum())

    logs, shared = np.log(complete.mean(axis=2)), complete.mean(axis=1)
    noise = unexplained(logs - logs.mean(axis=1, keepdims=True)) / (seeds * (seeds - 1))
    if blocks > 1:
        noise += unexplained(shared / shared.mean(axis=1, keepdims=True) - 1) / (blocks * (blocks - 1))
    misses = unexplained(residual[:, None])
    if misses <= fdtri(freedom, freedom * (seeds - 1), CERTAINTY) * noise:
        return ""
    size, times = math.sqrt(misses / residual.size), math.sqrt(misses / noise) if noise else math.inf
    return f"the law misses the losses by {100 * size:.2g} % (rms), {times:.2g} times their noise"
