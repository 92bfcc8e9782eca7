"""Power laws of the loss against depth, with their errors, and a refusal where the data do not determine them.

R_L = L_0 + c L^-alpha is fitted by minimising sum_i [log R_i - log(L_0 + c L_i^-alpha)]^2, c, alpha > 0 (Peng et al.,
arXiv 2610.11063, App. D.1). On the easy task L_0 = 0; the shared-error gap L_0 - C_L = c L^-alpha takes L_0 from the
fit of the loss (App. D.4).
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from inverse_depth.decays import Decays, FloatArray, fit_decays
from inverse_depth.misfit import CERTAINTY, bends, drift, exponential_preferred, is_exact

EXPONENT_BOUNDS = (0.01, 16.0)
"""Allowed alpha: below, c L^-alpha is a logarithm; above, only the shallowest depth differs from the floor."""

DEPTHS, LOSSES = (1.0, 1e15), (1e-30, 1e30)
"""Allowed depths and losses: no square or power of them leaves the range of double precision."""

LEAST_R_SQUARED = 0.9
"""A law that leaves more than a tenth of the variance of the log loss unexplained is refused."""

DEPTHS_PER_PARAMETER = 2
"""Least number of depths for each fitted parameter, if the losses have noise. With fewer, those fits pass whose
residuals are small by luck: in simulations with a free floor and relative noise of 1e-4 to 1e-2, 31 to 95 % of the
exponents that passed were off by more than two standard errors with 4 depths, 20 to 51 % with 5, 15 to 21 % with 6."""

CONFIDENCE = 0.95
"""Level of the intervals."""


@dataclass(frozen=True)
class PowerLawFit:
    """A fitted law R_L = L_0 + c L^-alpha.

    Attributes
    ----------
    floor, amplitude, exponent : float
        L_0, c and alpha; NaN where no falling law could be fitted.
    floor_se, amplitude_se, exponent_se : float
        Standard errors from the residual variance over n - p and the Jacobian; zero for a given floor, NaN where a
        parameter sits at its bound or no residual is left to measure the noise. See `interval`.
    r_squared : float
        Share of the variance of the log loss that the law explains.
    freedom : int
        Degrees of freedom n - p of the standard errors.
    determined : bool
        Whether the data determine the law; if not, the numbers are to be shown with the reason or not at all.
    reason : str
        Why they do not; empty if they do.
    misfit : str
        How the data depart from the law beyond their noise; empty as far as none is found. A law that is determined
        all the same stands for the depths it was fitted to, and its errors do not bound its extrapolation.
    """

    floor: float
    amplitude: float
    exponent: float
    floor_se: float
    amplitude_se: float
    exponent_se: float
    r_squared: float
    freedom: int
    determined: bool
    reason: str
    misfit: str

    def predict(self, depth: ArrayLike) -> FloatArray:
        """Evaluate the law at the given depths."""
        return self.floor + self.amplitude * np.asarray(depth, dtype=np.float64) ** -self.exponent

    def log_derivatives(self, depth: ArrayLike) -> FloatArray:
        """Evaluate the derivatives of the log of the law by L_0 (unless given), c and alpha, shape (n, p)."""
        depths = np.asarray(depth, dtype=np.float64)
        power = depths**-self.exponent
        columns = [np.ones_like(power), power, -self.amplitude * power * np.log(depths)]
        given = self.floor_se == 0
        return np.stack(columns[given:], axis=1) / self.predict(depths)[:, None]

    def interval(self, parameter: str) -> tuple[float, float]:
        """Give the 95 % interval of a parameter by name: Student's t with n - p degrees of freedom.

        Two standard errors are less: with 3 degrees of freedom, as of 6 depths and a free floor, they cover 86 %.
        """
        if self.freedom < 1:
            return math.nan, math.nan
        value = getattr(self, parameter)
        reach = float(stdtrit(self.freedom, (1 + CONFIDENCE) / 2)) * getattr(self, f"{parameter}_se")
        return value - reach, value + reach


def fit_power_law(depth: ArrayLike, loss: ArrayLike, *, floor: float | None = None) -> PowerLawFit:
    """Fit R_L = L_0 + c L^-alpha in log space.

    The floor may lie anywhere from zero to the largest loss: with noise, the smallest loss may well be below the floor.

    Parameters
    ----------
    depth : array_like of real numbers, shape (n,)
        Different depths L from 1 to 1e15, in any order.
    loss : array_like of real numbers, shape (n,)
        Losses from 1e-30 to 1e30.
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

    Notes
    -----
    A curve that lies near a power law without being one is not always told from it by a few depths: over L = 1, 2, ...,
    128 the fit takes 1 / log(L + 1.7) for alpha = 0.50 above a floor of 0.13, and a curve above a floor of 0.1 whose
    exponent falls from 1 to 0.3 at L = 8 for alpha = 1.17 above 0.16. Fits over other ranges of depth show it.
    """
    depths, losses, floor = checked_curve(depth, loss, floor)
    count, parameters = depths.size, 2 if floor is not None else 3
    logs = np.log(losses)
    if count <= parameters:
        return undetermined(
            f"{count} {'depth' if count == 1 else 'depths'} cannot determine {parameters} parameters and their errors"
        )
    if np.ptp(logs) <= 16 * np.finfo(np.float64).eps:
        return undetermined("the loss is the same at every depth")
    if np.polyfit(np.log(depths), logs - logs.mean(), 1)[0] >= 0:
        return undetermined("the loss does not fall with depth")

    law = fit_decays(np.log(depths), logs[None], floor, EXPONENT_BOUNDS)
    misfit, too_bent = drift(depths, losses, floor, EXPONENT_BOUNDS) if bends(law, logs) else ("", False)
    reason = _why_not(law, depths, logs, floor) or (misfit if too_bent else "") or _what_is_open(law, losses, floor)
    level, amplitude, exponent = map(float, law.natural()[:, 0])
    level_se, amplitude_se, exponent_se = map(float, law.standard_errors(0))
    if law.at_bound(0):
        level_se = amplitude_se = exponent_se = math.nan
    return PowerLawFit(
        floor=level if floor is None else floor,
        amplitude=amplitude,
        exponent=exponent,
        floor_se=level_se,
        amplitude_se=amplitude_se,
        exponent_se=exponent_se,
        r_squared=_r_squared(law, logs),
        freedom=count - parameters,
        determined=not reason,
        reason=reason,
        misfit=misfit,
    )


def undetermined(reason: str) -> PowerLawFit:
    """Refuse a fit: all numbers NaN, and the reason."""
    nan = math.nan
    return PowerLawFit(nan, nan, nan, nan, nan, nan, nan, freedom=0, determined=False, reason=reason, misfit="")


def _why_not(law: Decays, depths: FloatArray, logs: FloatArray, floor: float | None) -> str:
    """Say why the fitted curve is no law of these data; empty if it may be one."""
    count, needed = depths.size, DEPTHS_PER_PARAMETER * (2 if floor is not None else 3)
    residual, r_squared = float(law.residual[0]), _r_squared(law, logs)
    if bounded := law.at_bound(0):
        return f"the best {bounded} is at its bound"
    if not r_squared >= LEAST_R_SQUARED:
        return f"the law explains only {max(r_squared, 0):.0%} of the variance of the log loss"
    if exponential_preferred(depths, logs, floor, residual):
        return "an exponential decay with depth describes the loss better"
    if count < needed and not is_exact(residual, float(np.square(logs - logs.mean()).sum())):
        return f"{count} depths with noise: at least {needed} are needed to know the errors"
    return ""


def _what_is_open(law: Decays, losses: FloatArray, floor: float | None) -> str:
    """Name a parameter whose error leaves it open; empty if none is."""
    quantile = float(stdtrit(losses.size - (2 if floor is not None else 3), (1 + CERTAINTY) / 2))
    exponent, (floor_se, _, exponent_se) = float(law.natural()[2, 0]), law.standard_errors(0)
    if not quantile * exponent_se < exponent:
        return f"the exponent is not determined: {exponent:.2g} ± {exponent_se:.2g} from {losses.size} depths"
    if floor is None and not quantile * law.amplitude_error(0) < 1:
        # (with the floor given, all of the loss above it depends on depth, and its fall is the exponent's)
        return "the depth-dependent part is not distinguishable from noise"
    if not quantile * floor_se < losses.min():
        return "the floor could be anything below the smallest loss"
    return ""


def _r_squared(law: Decays, logs: FloatArray) -> float:
    return 1 - float(law.residual[0]) / float(np.square(logs - logs.mean()).sum())


def checked_curve(
    depth: ArrayLike, loss: ArrayLike, floor: float | None
) -> tuple[FloatArray, FloatArray, float | None]:
    """Give depths in rising order, their losses and the floor, or say by a ValueError which of them is wrong."""
    depths, losses = real_numbers("depth", depth), real_numbers("loss", loss)
    if depths.ndim != 1 or depths.shape != losses.shape:
        raise ValueError(
            f"depth has shape {depths.shape} and loss {losses.shape}: both must be one axis of equal length"
        )
    if not depths.size:
        raise ValueError("depth and loss are empty: at least one point is needed")
    for name, values, (least, most) in (
        ("depth", depths, DEPTHS),
        ("loss", losses, LOSSES),
    ):
        if (wrong := ~((values >= least) & (values <= most))).any():
            raise ValueError(f"{name} holds {values[wrong][0]:g}: every {name} must lie from {least:g} to {most:g}")
    order = np.argsort(depths)
    depths, losses = depths[order], losses[order]
    if (repeated := depths[1:] == depths[:-1]).any():
        raise ValueError(f"depth holds {depths[1:][repeated][0]:g} twice: average repeated measurements first")
    if floor is None:
        return depths, losses, None
    level = real_numbers("floor", floor)
    if level.ndim:
        raise ValueError(f"floor has shape {level.shape}: it must be one number, or None to be fitted")
    if not 0 <= level < losses.min():
        raise ValueError(f"floor is {level:g}: it must be at least 0 and below the smallest loss ({losses.min():g})")
    return depths, losses, float(level)


def real_numbers(name: str, values: object) -> FloatArray:
    """Convert an argument to floats; a ValueError that names it if it holds anything but real numbers."""
    allowed = "allowed are real numbers, none of them masked"
    if np.ma.isMaskedArray(values) and np.ma.getmaskarray(values).any():
        masked = int(np.ma.getmaskarray(values).sum())
        raise ValueError(f"{name} is masked at {masked} of {np.size(values)} points: {allowed}")
    try:
        kind = np.asarray(values).dtype
        found = {type(value) for value in np.ravel(np.asarray(values, dtype=object))}
        if kind.kind in "iufO" and all(map(_is_real, found)):
            return np.asarray(values, dtype=np.float64)
    except Exception as error:  # ragged nesting, numbers too large for a float, objects that refuse to be arrays
        raise ValueError(f"{name} cannot be read as numbers ({error}): {allowed}") from error
    wrong = sorted(each.__name__ for each in found if not _is_real(each))
    raise ValueError(f"{name} holds {', '.join(wrong) or kind}: {allowed}")


def _is_real(kind: type) -> bool:
    return issubclass(kind, numbers.Real) and not issubclass(kind, bool)
