"""Power laws of the loss against depth, with their errors, and a refusal where the data do not determine them.

R_L = L_0 + c L^-alpha is fitted by minimising sum_i [log R_i - log(L_0 + c L_i^-alpha)]^2, c, alpha > 0 (Peng et al.,
arXiv 2610.11063, App. D.1). On the easy task L_0 = 0; the shared-error gap L_0 - C_L = c L^-alpha takes L_0 from the
fit of the loss (App. D.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from inverse_depth.decays import FloatArray, fit_decays

EXPONENT_BOUNDS = (0.01, 16.0)
"""Allowed alpha: below, c L^-alpha is a logarithm; above, only the shallowest depth differs from the floor."""

LEAST_R_SQUARED = 0.9
"""A law that leaves more than a tenth of the variance of the log loss unexplained is refused."""

EVIDENCE = 20.0
"""Likelihood ratio from which an exponential decay in depth is preferred to the power law."""

CONFIDENCE = 0.95
"""Level of the bootstrap intervals."""

CERTAINTY = 0.99
"""Level at which a parameter must differ from nothing: among many curves that almost determine a law, those selected by
luck would show errors that are too small."""

_ROUNDING = 16 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class PowerLawFit:
    """A fitted law R_L = L_0 + c L^-alpha.

    Attributes
    ----------
    floor, amplitude, exponent : float
        L_0, c and alpha; NaN where no falling law could be fitted.
    floor_se, amplitude_se, exponent_se : float
        Standard errors from the residual variance over n - p and the Jacobian; zero for a given floor, NaN where a
        parameter sits at its bound or no residual is left to measure the noise.
    r_squared : float
        Share of the variance of the log loss that the law explains.
    determined : bool
        Whether the data determine the law; if not, the numbers are to be shown with the reason or not at all.
    reason : str
        Why they do not; empty if they do.
    """

    floor: float
    amplitude: float
    exponent: float
    floor_se: float
    amplitude_se: float
    exponent_se: float
    r_squared: float
    determined: bool
    reason: str

    def predict(self, depth: ArrayLike) -> FloatArray:
        """Evaluate the law at the given depths."""
        return self.floor + self.amplitude * np.asarray(depth, dtype=np.float64) ** -self.exponent


@dataclass(frozen=True)
class Bootstrap:
    """Replicates of the parameters of a power law, each an array of shape (replicate,)."""

    floor: FloatArray
    amplitude: FloatArray
    exponent: FloatArray

    def interval(self, parameter: str) -> tuple[float, float]:
        """Give the central 95 % interval of a parameter by name; NaN if a tenth of the replicates failed."""
        values = getattr(self, parameter)
        finite = values[np.isfinite(values)]
        if finite.size < 0.9 * values.size:
            return math.nan, math.nan
        low, high = np.quantile(finite, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return float(low), float(high)


def fit_power_law(depth: ArrayLike, loss: ArrayLike, *, floor: float | None = None) -> PowerLawFit:
    """Fit R_L = L_0 + c L^-alpha in log space.

    The floor may lie anywhere from zero to the largest loss: with noise, the smallest loss may well be below the floor.

    Parameters
    ----------
    depth : array_like, shape (n,)
        Different depths L >= 1, in any order.
    loss : array_like, shape (n,)
        Positive losses.
    floor : float, optional
        L_0 if it is known, such as 0 on the easy task; fitted jointly by default.

    Returns
    -------
    PowerLawFit
        With ``determined`` False and a reason if the data do not determine the parameters.

    Raises
    ------
    ValueError
        If the input is not a curve of positive, finite losses at different depths, or the given floor is negative or
        not below every loss.
    """
    depths, losses = _checked(depth, loss, floor)
    count, parameters = depths.size, 2 if floor is not None else 3
    logs = np.log(losses)
    spread = float(np.square(logs - logs.mean()).sum())
    if count <= parameters:
        return undetermined(f"{count} depths cannot determine {parameters} parameters and their errors")
    if np.ptp(logs) <= _ROUNDING:
        return undetermined("the loss is the same at every depth")
    if np.polyfit(np.log(depths), logs - logs.mean(), 1)[0] >= 0:
        return undetermined("the loss does not fall with depth")

    law = fit_decays(np.log(depths), logs[None], floor, EXPONENT_BOUNDS)
    errors, bounded = law.standard_errors(0), law.at_bound(0)
    if bounded:
        errors = np.full(3, math.nan)
    r_squared = 1 - float(law.residual[0]) / spread
    quantile = float(stdtrit(count - parameters, (1 + CERTAINTY) / 2))
    level, amplitude, exponent = (float(column[0]) for column in law.natural())
    level = level if floor is None else float(floor)
    amplitude_error = float(law.amplitude_error(0))
    reason = ""
    if bounded:
        reason = f"the best {bounded} is at its bound"
    elif not r_squared >= LEAST_R_SQUARED:
        reason = f"the law explains only {max(r_squared, 0):.0%} of the variance of the log loss"
    elif _exponential_preferred(depths, logs, floor, float(law.residual[0])):
        reason = "an exponential decay with depth describes the loss better"
    elif bend := _bend(depths, losses, floor):
        reason = bend
    elif not quantile * errors[2] < exponent:
        reason = f"the exponent is not determined: {exponent:.2g} ± {errors[2]:.2g} from {count} depths"
    elif floor is None and not quantile * amplitude_error < 1:
        # (with the floor given, all of the loss above it depends on depth, and its fall is the exponent's)
        reason = "the depth-dependent part is not distinguishable from noise"
    elif not quantile * errors[0] < losses.min():
        reason = "the floor could be anything below the smallest loss"
    level_se, amplitude_se, exponent_se = map(float, errors)
    return PowerLawFit(level, amplitude, exponent, level_se, amplitude_se, exponent_se, r_squared, not reason, reason)


def bootstrap_power_law(
    depth: ArrayLike, samples: ArrayLike, *, floor: float | None = None, replicates: int = 200, seed: int = 0
) -> Bootstrap:
    """Refit the law to resampled seeds and blocks of evaluation contexts.

    Parameters
    ----------
    depth : array_like, shape (L,)
        Different depths.
    samples : array_like, shape (L, seed, block)
        Loss of each seed on disjoint blocks of contexts; seeds that were not run hold NaN. See `resample_means`.
    floor : float, optional
        Known L_0.
    replicates : int
        Number of bootstrap replicates.
    seed : int
        Seed of the resampling.

    Returns
    -------
    Bootstrap
        NaN in replicates that are not above the floor at every depth.

    Raises
    ------
    ValueError
        As `fit_power_law`, for the means over seeds and blocks, or if `samples` does not have three axes.
    """
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 3:
        raise ValueError(f"samples has shape {values.shape}: three axes (L, seed, block) are needed")
    _checked(depth, np.nanmean(values, axis=(1, 2)), floor)
    return refit_rows(np.asarray(depth, dtype=np.float64), resample_means(values, replicates, seed), floor)


def resample_means(samples: FloatArray, replicates: int, seed: int) -> FloatArray:
    """Bootstrap replicates of the mean over seeds and blocks of contexts.

    Blocks are resampled jointly for all depths and seeds, which share their contexts. Seeds are resampled at each depth
    on their own, since models of different depths are trained independently, and their deviations are scaled by
    sqrt(n / (n - 1)), without which n seeds would show only (n - 1) / n of their variance. A single seed shows none.

    Parameters
    ----------
    samples : ndarray, shape (L, seed, block)
        Seeds that were not run hold NaN in every block.
    replicates, seed : int
        Number of replicates, and seed of the resampling: it draws the same blocks and seeds for every quantity.

    Returns
    -------
    ndarray, shape (replicate, L)
        NaN at depths without any seed.
    """
    rng = np.random.default_rng(seed)
    depths, seeds, blocks = samples.shape
    shares = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=replicates) / blocks
    draws = rng.random((depths, replicates, seeds))
    result = np.full((replicates, depths), np.nan)
    for i, values in enumerate(samples):
        present = values[np.isfinite(values).all(axis=1)]
        count = present.shape[0]
        if count:
            result[:, i] = shares @ present.mean(axis=0)
        if count > 1:
            runs = present.mean(axis=1)
            drawn = runs[(draws[i, :, :count] * count).astype(int)].mean(axis=1)
            result[:, i] += math.sqrt(count / (count - 1)) * (drawn - runs.mean())
    return result


def _checked(depth: ArrayLike, loss: ArrayLike, floor: float | None) -> tuple[FloatArray, FloatArray]:
    depths, losses = np.asarray(depth, dtype=np.float64), np.asarray(loss, dtype=np.float64)
    if depths.ndim != 1 or depths.shape != losses.shape:
        raise ValueError(
            f"depth has shape {depths.shape} and loss {losses.shape}: both must be one axis of equal length"
        )
    if not depths.size:
        raise ValueError("depth and loss are empty: at least one point is needed")
    for name, values, least, allowed in (
        ("depth", depths, depths >= 1, "at least 1"),
        ("loss", losses, losses > 0, "above 0"),
    ):
        if (wrong := ~(np.isfinite(values) & least)).any():
            raise ValueError(f"{name} holds {values[wrong][0]:g}: every {name} must be finite and {allowed}")
    order = np.argsort(depths)
    depths, losses = depths[order], losses[order]
    if (repeated := depths[1:] == depths[:-1]).any():
        raise ValueError(f"depth holds {depths[1:][repeated][0]:g} twice: average repeated measurements first")
    if floor is not None and not 0 <= floor < losses.min():
        raise ValueError(f"floor is {floor:g}: it must be at least 0 and below the smallest loss ({losses.min():g})")
    return depths, losses


def undetermined(reason: str) -> PowerLawFit:
    """Refuse a fit: all numbers NaN, and the reason."""
    nan = math.nan
    return PowerLawFit(nan, nan, nan, nan, nan, nan, nan, False, reason)


def refit_rows(depths: FloatArray, losses: FloatArray, floor: float | None) -> Bootstrap:
    """Fit each row of losses, shape (replicate, L), at once; NaN for rows that are not above the floor everywhere."""
    valid = (losses > (floor or 0)).all(axis=1)
    parameters = np.full((3, losses.shape[0]), np.nan)
    if valid.any() and depths.size > 1:
        parameters[:, valid] = fit_decays(np.log(depths), np.log(losses[valid]), floor, EXPONENT_BOUNDS).natural()
    if floor is not None:
        parameters[0, valid] = floor
    return Bootstrap(*parameters)


def _exponential_preferred(depths: FloatArray, logs: FloatArray, floor: float | None, residual: float) -> bool:
    gaps = np.diff(depths)
    rates = (0.01 / np.ptp(depths), 16 / float(gaps.min()))
    other = float(fit_decays(depths, logs[None], floor, rates).residual[0])
    rounding = depths.size * _ROUNDING**2
    return depths.size / 2 * math.log((residual + rounding) / (other + rounding)) > math.log(EVIDENCE)


def _bend(depths: FloatArray, losses: FloatArray, floor: float | None) -> str:
    """Say whether the slope of log (R - L_0) over log L, at a given floor, changes more than twofold; empty if not."""
    if floor is None or depths.size < 4:
        return ""
    t = np.log(depths)
    basis = np.vander(t, 3)
    y = np.log(losses - floor)
    coefficients, *_ = np.linalg.lstsq(basis, y)
    residual = float(np.square(basis @ coefficients - y).sum())
    error = math.sqrt(residual / (t.size - 3) * np.linalg.inv(basis.T @ basis)[0, 0])
    slopes = -(2 * coefficients[0] * t[[0, -1]] + coefficients[1])
    significant = abs(coefficients[0]) > float(stdtrit(t.size - 3, (1 + CERTAINTY) / 2)) * error
    if significant and slopes.max() > 2 * slopes.min():
        return f"the exponent runs from {slopes[0]:.2g} to {slopes[1]:.2g} over the depths: not one power law"
    return ""
