"""Losses of single spectral modes, normalised so that modes can be compared (Secs. 3 and 4.2)."""

from __future__ import annotations

import pandas as pd
import xarray as xr

from inverse_depth.curves import Curve, Spectrum, curve, find_fit
from inverse_depth.power_law import fit_power_law


def relative_to_zero_prediction(cube: xr.Dataset, spectrum: Spectrum, mode: int) -> Curve:
    """R_j / (lambda_j omega_j) of the easy task against depth: 1 at zero prediction, 0 once the mode is learned.

    Parameters
    ----------
    cube : Dataset
        An experiment on the easy task.
    spectrum : (a, b)
    mode : int
        Its index j, 1 for the strongest.

    Returns
    -------
    Curve
        Of length 0 if the cube does not hold the spectrum or the mode.
    """
    points = curve(cube, "mode_loss", spectrum, 1, mode=mode)
    if not len(points):
        return points
    return points / float(
        cube["eigenvalue"].sel(a=spectrum[0], mode=mode) * cube["teacher_eigenvalue"].sel(b=spectrum[1], mode=mode)
    )


def relative_reducible(
    cube: xr.Dataset, fits: pd.DataFrame, spectrum: Spectrum, target_size: int, mode: int
) -> tuple[Curve | None, str]:
    """(R_j(L) - R_j(inf)) over its value at the shallowest depth.

    Parameters
    ----------
    cube : Dataset
        An experiment on the difficult task.
    fits : DataFrame
        Its fits. The limit R_j(inf) is the floor of a fit to the mode alone, over the depths of the fit of the loss.
    spectrum : (a, b)
    target_size : int
        Number of tokens averaged into the target.
    mode : int
        Its index j, 1 for the strongest.

    Returns
    -------
    Curve or None
        Whose errors leave out that of the limit; None if there is none.
    str
        Why there is none.
    """
    points = curve(cube, "mode_loss", spectrum, target_size, mode=mode)
    total = find_fit(fits, "loss", spectrum, target_size)
    fitted = points if total is None else points.between(total["depth_min"], total["depth_max"])
    if not len(fitted):
        return None, "not run"
    if fitted.value.min() <= 0:
        return None, "the loss of the mode is not above zero"
    law = fit_power_law(fitted.depth, fitted.value)
    if not law.determined:
        return None, f"limit not determined: {law.reason}"
    excess = points - law.floor
    if excess.value[0] <= 0:
        return None, "limit not determined: the shallowest model is below it"
    return excess / excess.value[0], ""
