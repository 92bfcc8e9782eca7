"""What figures and tables read out of a cube and a frame of fits: curves over depth, plateaus, fitted laws."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

Spectrum = tuple[float, float]
"""A pair (a, b): input eigenvalues j^-a, teacher eigenvalues j^-b."""

PLATEAU_DEPTHS = 2
"""Number of deepest depths whose mean loss is called the plateau."""

STILL_FALLING = 0.01
"""Relative fall of the loss over those depths above which it is not called flat."""


@dataclass(frozen=True)
class Curve:
    """A quantity against depth, averaged over seeds.

    Attributes
    ----------
    depth : array of int, shape (n,)
        Depths L at which at least one seed has a value.
    value : array of float, shape (n,)
        Mean over seeds.
    error : array of float, shape (n,)
        Standard error of that mean: the spread between seeds and the evaluation error, in quadrature. All seeds are
        evaluated on the same contexts, so the evaluation error is not divided by their number.
    converged : array of bool, shape (n,)
        Whether the training of every seed converged.
    """

    depth: NDArray[np.int64]
    value: NDArray[np.float64]
    error: NDArray[np.float64]
    converged: NDArray[np.bool_]

    def __len__(self) -> int:
        """Count the depths."""
        return len(self.depth)

    def __truediv__(self, scale: float) -> Curve:
        """Divide the values and their errors."""
        return replace(self, value=self.value / scale, error=self.error / scale)

    def __sub__(self, offset: float) -> Curve:
        """Lower the values; the offset is taken to be exact."""
        return replace(self, value=self.value - offset)

    def between(self, shallowest: int, deepest: int) -> Curve:
        """Keep the depths of a range, its ends included."""
        kept = (self.depth >= shallowest) & (self.depth <= deepest)
        return Curve(self.depth[kept], self.value[kept], self.error[kept], self.converged[kept])


def curve(cube: xr.Dataset, quantity: str, spectrum: Spectrum, k: int, **where: int) -> Curve:
    """Read a quantity of one spectrum and target size against depth.

    Parameters
    ----------
    cube : Dataset
        Dimensions L, a, b, k, seed; combinations that were never run hold NaN.
    quantity : str
        Name of a variable that has a companion ``<quantity>_se``.
    spectrum : (a, b)
    k : int
        Target size.
    **where : int
        Labels of further dimensions, such as ``mode=3``.

    Returns
    -------
    Curve
        Of length 0 if the cube does not hold the spectrum.
    """
    points = _points(cube[[quantity, f"{quantity}_se", "converged"]], spectrum, k, **where)
    if points is None:
        return Curve(np.array([], dtype=np.int64), np.array([]), np.array([]), np.array([], dtype=bool))
    value, error, converged = (
        points[name].transpose("L", "seed").to_numpy() for name in (quantity, f"{quantity}_se", "converged")
    )
    run = np.isfinite(value)
    kept, seeds = run.any(axis=1), np.maximum(run.sum(axis=1), 1)
    mean = np.where(run, value, 0).sum(axis=1) / seeds
    # A single seed shows no spread.
    variance = np.square(np.where(run, value - mean[:, None], 0)).sum(axis=1) / np.maximum(seeds - 1, 1)
    evaluation = np.where(run, error, 0).sum(axis=1) / seeds
    total = np.sqrt(variance / seeds + evaluation**2)
    return Curve(points["L"].to_numpy()[kept], mean[kept], total[kept], ((converged == 1) | ~run).all(axis=1)[kept])


def at_least_error(points: Curve) -> Curve:
    """Raise values that are not above zero to their standard error, for a logarithmic axis."""
    return replace(points, value=np.where(points.value > 0, points.value, points.error))


def trained_for(cube: xr.Dataset, step: int) -> xr.Dataset:
    """Return the cube of the models as they were after a training of at most ``step`` steps.

    A run that had stopped earlier keeps the loss it stopped with.

    Returns
    -------
    Dataset
        The cube, its loss, loss_se and converged (L, a, b, k, seed) replaced: a run that went on had not converged.
    """
    known = cube[["loss_by_step", "loss_by_step_se"]].sel(step=slice(None, step))
    rounds = xr.DataArray(np.arange(known.sizes["step"]), dims="step")
    last = rounds.where(known["loss_by_step"].notnull(), 0).max("step").astype(int)
    latest = known.isel(step=last).drop_vars("step")
    ended = (cube["converged"] == 1) & (cube["steps"] <= step)
    converged = ended.astype(float).where(cube["converged"].notnull())
    return cube.assign(loss=latest["loss_by_step"], loss_se=latest["loss_by_step_se"], converged=converged)


def a_round_earlier(cube: xr.Dataset) -> xr.Dataset:
    """Return the cube with the loss that runs which have not converged had before their last round of training.

    Returns
    -------
    Dataset
        The cube, its loss (L, a, b, k, seed) replaced; NaN for such a run with a single round.
    """
    losses = cube["loss_by_step"]
    rounds = xr.DataArray(np.arange(losses.sizes["step"]), dims="step").where(losses.notnull(), -1)
    before = rounds.where(rounds < rounds.max("step"), -1).max("step")
    known = losses.isel(step=before.clip(0).astype(int)).drop_vars("step").where(before >= 0)
    return cube.assign(loss=cube["loss"].where(cube["converged"] == 1, known))


def model_size(dataset: xr.Dataset) -> tuple[int, int | str]:
    """Read the dimension and the context length to which a cube or a file of theoretical floors belongs."""
    settings = json.loads(dataset.attrs["config"]) if "config" in dataset.attrs else dataset.attrs
    length = settings["context_length"]
    return int(settings["dimension"]), length if isinstance(length, str) else int(length)


def theoretical_floor(floors: xr.Dataset, spectrum: Spectrum, k: int) -> tuple[float, float]:
    """Read a theoretical floor and its standard error; NaN if it was not computed."""
    try:
        found = floors.sel(a=spectrum[0], b=spectrum[1], k=k, method="nearest", tolerance=1e-9)
    except KeyError:
        return math.nan, math.nan
    return float(found["floor"]), float(found["floor_se"])


def spectra_in(cube: xr.Dataset, k: int) -> list[Spectrum]:
    """List the spectra (a, b) for which the cube holds a loss at target size k, in the order of a, then b."""
    if k not in cube["k"]:
        return []
    run = cube["loss"].sel(k=k).notnull().any(["L", "seed"])
    return [(float(a), float(b)) for a in np.sort(cube["a"]) for b in np.sort(cube["b"]) if run.sel(a=a, b=b)]


def with_added(
    listed: Sequence[Spectrum], cube: xr.Dataset, k: int, belongs: Callable[[Spectrum], bool]
) -> list[Spectrum]:
    """Follow the spectra of a published figure by those that the cube holds beside them and that belong there too."""
    return list(dict.fromkeys([*listed, *filter(belongs, spectra_in(cube, k))]))


def unconverged(cube: xr.Dataset, spectrum: Spectrum, k: int) -> str:
    """Say how many runs of a spectrum did not converge; nothing if all did; 'not run' if there is none."""
    points = _points(cube[["loss", "converged"]], spectrum, k)
    total = 0 if points is None else int(points["loss"].notnull().sum())
    if points is None or not total:
        return "not run"
    count = int((points["loss"].notnull() & (points["converged"] != 1)).sum())
    return f"{count} of {total} runs not converged" if count else ""


@dataclass(frozen=True)
class Plateau:
    """The loss at the deepest depths.

    Attributes
    ----------
    value, error : float
        Mean over the depths and its standard error; NaN if nothing was run.
    note : str
        What a reader must know before trusting it; empty if nothing.
    """

    value: float
    error: float
    note: str


def plateau(cube: xr.Dataset, spectrum: Spectrum, k: int) -> Plateau:
    """Average the loss of the deepest depths.

    The error joins that of the losses, which the depths share, with the spread between depths.
    """
    losses = curve(cube, "loss", spectrum, k)
    if not len(losses):
        return Plateau(math.nan, math.nan, "not run")
    values, errors = losses.value[-PLATEAU_DEPTHS:], losses.error[-PLATEAU_DEPTHS:]
    value = float(values.mean())
    spread = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    fall = (values[0] - values[-1]) / value
    notes = [
        "one depth only" if len(values) == 1 else "",
        f"still falls by {100 * fall:.1f} % over the deepest depths" if fall > STILL_FALLING else "",
        unconverged(cube, spectrum, k),
    ]
    return Plateau(value, math.hypot(float(errors.mean()), spread), join_notes(notes))


def find_fit(fits: pd.DataFrame, quantity: str, spectrum: Spectrum, k: int, step: int | str = "final") -> Any:
    """Find the row of a fit, a Series, or None if no such fit was made.

    Parameters
    ----------
    fits : DataFrame
        One row per fit.
    quantity : {"loss", "shared_error_gap"}
    spectrum : (a, b)
    k : int
    step : int or "final"
        Training length.
    """
    a, b = spectrum
    same = np.isclose(fits["a"].astype(float), a) & np.isclose(fits["b"].astype(float), b) & (fits["k"] == k)
    rows = fits[same & (fits["quantity"] == quantity) & (fits["step"].astype(str) == str(step))]
    return None if rows.empty else rows.iloc[0]


def is_determined(fit: Any) -> bool:
    """Tell whether a fit was made and its law is determined."""
    return fit is not None and str(fit["determined"]) == "True"


def why_undetermined(fit: Any) -> str:
    """Say why a fit gives no law; nothing if it gives one."""
    if fit is None:
        return "no fit"
    if is_determined(fit):
        return ""
    reason = fit["reason"]
    return f"not determined: {reason}" if isinstance(reason, str) and reason else "not determined"


def misfit(fit: Any) -> str:
    """Say how the data depart from a determined law beyond their noise; nothing if they do not."""
    found = fit["misfit"] if is_determined(fit) else ""
    return found if isinstance(found, str) else ""


def law(fit: Any, depth: ArrayLike) -> NDArray[np.float64]:
    """Evaluate the fitted L_0 + c L^-alpha (App. D.1) at the given depths."""
    return np.asarray(fit["floor"] + fit["amplitude"] * np.asarray(depth, dtype=float) ** -fit["exponent"])


def plus_minus(value: float, error: float, sign: str = "±") -> str:
    """Write a number with its standard error, rounded to the error's first digit (second, if the first is 1)."""
    if not math.isfinite(error) or error <= 0:
        return f"{value:.5g}"
    exponent = math.floor(math.log10(error))
    digits = (1 if error / 10.0**exponent < 2 else 0) - exponent
    # A published error of 0.01 stays 0.01: no digit is shown that was not there.
    written = len(np.format_float_positional(error, trim="-").partition(".")[2])
    digits = max(0, min(digits, written))
    return f"{value:.{digits}f} {sign} {error:.{digits}f}"


def join_notes(notes: Sequence[str]) -> str:
    """Join the notes that say something, each once."""
    return "; ".join(dict.fromkeys(note for note in notes if note))


def _points(cube: xr.Dataset, spectrum: Spectrum, k: int, **where: int) -> xr.Dataset | None:
    """Select the runs of a spectrum and target size, from shallow to deep; None if the cube has no such place."""
    try:
        return cube.sel(a=spectrum[0], b=spectrum[1], k=k, method="nearest", tolerance=1e-9).sel(where).sortby("L")
    except KeyError:
        return None
