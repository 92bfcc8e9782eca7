"""Tables of what the paper (Peng et al., arXiv:2610.11063) does not say, from the same cubes.

Columns are as in `inverse_depth.tables`: ``x`` with its standard error ``x_se``, the published ``x_published``, and
notes for what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from inverse_depth.curves import (
    Plateau,
    Spectrum,
    curve,
    find_fit,
    is_determined,
    join_notes,
    model_size,
    plateau,
    spectra_in,
    unconverged,
    why_undetermined,
)
from inverse_depth.fits import PowerLawFit, fit_power_law
from inverse_depth.spectra import power_law_spectrum
from inverse_depth.tables import another_size, published

RANGES = ((1, None), (2, None), (4, None), (8, None), (16, None), (1, 32), (2, 64), (4, 128))
"""Ranges of depth, their ends included; None is the deepest. In powers of two, six depths determine a law (fits)."""

AT_LARGE_SIZE: tuple[Spectrum, ...] = ((0, 0), (0, 1), (1, 0))


def like_for_like(
    softmax: xr.Dataset, fits: pd.DataFrame, matched: xr.Dataset, large: xr.Dataset, linear: xr.Dataset
) -> pd.DataFrame:
    """Tabulate the floors of Table 1 with both kinds of attention at the same size.

    Parameters
    ----------
    softmax, matched : Dataset
        Cubes of softmax and linear attention at one size.
    fits : DataFrame
        Fits of the softmax cube.
    large, linear : Dataset
        Cubes of softmax and linear attention at another size.

    Returns
    -------
    DataFrame
        Of softmax attention the fitted L_0 where it is determined, else the loss of the deepest models.
    """
    paper = published("Table 1").pivot(index=["a", "b"], columns="attention", values="value")
    rows = []
    for cube, laws, other, spectra in (
        (softmax, fits, matched, list(paper.index)),
        (large, None, linear, AT_LARGE_SIZE),
    ):
        (d, length), other_size = model_size(cube), model_size(other)
        for a, b in spectra:
            value, error, what, note = _softmax_level(cube, laws, (a, b))
            level = plateau(other, (a, b), 2)
            if other_size != (d, length):
                level = Plateau(math.nan, math.nan, f"has d = {other_size[0]}, P = {other_size[1]}")
            rows.append(
                {
                    "d": d,
                    "P": length,
                    "a": a,
                    "b": b,
                    "softmax": value,
                    "softmax_se": error,
                    "softmax_is": what,
                    "linear": level.value,
                    "linear_se": level.error,
                    "ratio": level.value / value,
                    "ratio_se": level.value / value * math.hypot(level.error / level.value, error / value),
                    "ratio_published": round(paper.loc[(a, b), "linear"] / paper.loc[(a, b), "softmax"], 3),
                    "softmax_note": note,
                    "linear_note": level.note,
                }
            )
    return pd.DataFrame(rows)


def depth_share(softmax: xr.Dataset, fits: pd.DataFrame, linear: xr.Dataset) -> pd.DataFrame:
    """Tabulate the share of the loss of one layer that depth removes.

    Parameters
    ----------
    softmax, linear : Dataset
        Cubes of the difficult task.
    fits : DataFrame
        Fits of the softmax cube.

    Returns
    -------
    DataFrame
        ``share`` is (R_1 - L_0)/R_1 and ``share_deepest`` (R_1 - R_L)/R_1 at the greatest depth L. All depths share
        their evaluation contexts, so the error of R_1 - R_L is that of the difference; the error that R_1 and L_0
        have in common drops out of their difference, which takes the error of the fit and that of R_1 - R_L.
    """
    rows = []
    for attention, cube in (("softmax", softmax), ("linear", linear)):
        for k in map(int, cube["k"]):
            for spectrum in spectra_in(cube, k):
                fit = find_fit(fits, "loss", spectrum, k) if attention == "softmax" else None
                rows.append(_share(cube, fit, spectrum, k, attention))
    return pd.DataFrame(rows)


def b_collapse(softmax: xr.Dataset, linear: xr.Dataset) -> pd.DataFrame:
    """Tabulate R_L(0, b) / R_L(0, 0), ours and published, against the exact mean of j^-b.

    Parameters
    ----------
    softmax, linear : Dataset
        Cubes of the difficult task.

    Returns
    -------
    DataFrame
        ``collapse`` is ours at the greatest depth that both spectra have; ``implied`` is the published floor at b over
        the mean of j^-b: what it says the floor at b = 0 is.
    """
    paper = published("Table 1")
    rows = []
    for attention, cube in (("softmax", softmax), ("linear", linear)):
        (d, _), other = model_size(cube), another_size(cube, attention)
        floors = paper[(paper["attention"] == attention) & (paper["a"] == 0)].set_index("b")["value"]
        flat = curve(cube, "loss", (0, 0), 2)
        for b, floor in floors.items():
            exact = float(power_law_spectrum(d, float(b)).mean())
            losses = curve(cube, "loss", (0, float(b)), 2)
            common = np.intersect1d(losses.depth, flat.depth)
            ours = math.nan
            if common.size:
                ours = float((losses.value[losses.depth == common[-1]] / flat.value[flat.depth == common[-1]]).item())
            rows.append(
                {
                    "attention": attention,
                    "d": d,
                    "b": b,
                    "mean": exact,
                    "collapse": ours,
                    "collapse_published": round(floor / floors[0], 5),
                    "collapse_published_difference_percent": (
                        math.nan if other else 100 * (floor / floors[0] / exact - 1)
                    ),
                    "floor_published": floor,
                    "implied": math.nan if other else floor / exact,
                    "note": join_notes([other, "" if common.size else "not run"]),
                }
            )
    return pd.DataFrame(rows)


def depth_range(cube: xr.Dataset) -> pd.DataFrame:
    """Tabulate the law of the loss fitted over different ranges of depth, for every spectrum and target size.

    Parameters
    ----------
    cube : Dataset
        Softmax attention on the difficult task.

    Returns
    -------
    DataFrame
        One row for every range of `RANGES` that holds depths of its own.
    """
    rows = []
    for k in map(int, cube["k"]):
        for spectrum in spectra_in(cube, k):
            for depths, fit in fits_over_ranges(cube, spectrum, k):
                rows.append(
                    {
                        "k": k,
                        "a": spectrum[0],
                        "b": spectrum[1],
                        "depths": f"{depths[0]} to {depths[-1]}",
                        "points": len(depths),
                        "exponent": fit.exponent if fit.determined else math.nan,
                        "exponent_se": fit.exponent_se if fit.determined else math.nan,
                        "floor": fit.floor if fit.determined else math.nan,
                        "floor_se": fit.floor_se if fit.determined else math.nan,
                        "r_squared": fit.r_squared if fit.determined else math.nan,
                        "note": join_notes([fit.reason, unconverged(cube.sel(L=depths), spectrum, k)]),
                    }
                )
    return pd.DataFrame(rows)


def fits_over_ranges(cube: xr.Dataset, spectrum: Spectrum, k: int) -> Iterator[tuple[list[int], PowerLawFit]]:
    """Fit the loss over each range of depths, the same depths once; the fit says whether they determine the law."""
    losses = curve(cube, "loss", spectrum, k)
    seen = set()
    for shallowest, deepest in RANGES:
        points = losses.between(shallowest, int(losses.depth[-1]) if deepest is None else deepest)
        depths = tuple(int(depth) for depth in points.depth)
        if depths and depths not in seen:
            seen.add(depths)
            yield list(depths), fit_power_law(points.depth, points.value)


def _softmax_level(cube: xr.Dataset, fits: pd.DataFrame | None, spectrum: Spectrum) -> tuple[float, float, str, str]:
    """Find the fitted floor or, where there is none, the loss of the deepest models: value, error, what it is, note."""
    fit: Any = None if fits is None else find_fit(fits, "loss", spectrum, 2)
    runs = unconverged(cube, spectrum, 2)
    if is_determined(fit):
        return float(fit["floor"]), float(fit["floor_se"]), "$L_0$", runs
    losses = curve(cube, "loss", spectrum, 2)
    if not len(losses):
        return math.nan, math.nan, "none", "not run"
    note = "" if fits is None else why_undetermined(fit)
    return float(losses.value[-1]), float(losses.error[-1]), f"$R_{{{losses.depth[-1]}}}$", join_notes([note, runs])


def _share(cube: xr.Dataset, fit: Any, spectrum: Spectrum, k: int, attention: str) -> dict[str, Any]:
    losses, differences = curve(cube, "loss", spectrum, k), curve(cube, "loss_difference", spectrum, k)
    row: dict[str, Any] = {"attention": attention, "k": k, "a": spectrum[0], "b": spectrum[1]}
    notes = [unconverged(cube, spectrum, k)]
    first = error = floor = floor_se = math.nan
    if 1 in losses.depth:
        first, error = float(losses.value[0]), float(differences.error[0])
    else:
        notes.insert(0, "not run at L = 1")
    if is_determined(fit):
        floor, floor_se = float(fit["floor"]), float(fit["floor_se"])
    else:
        notes.insert(0, "no fit: linear attention has a plateau" if attention == "linear" else why_undetermined(fit))
    return row | {
        "first": first,
        "first_se": float(losses.error[0]) if math.isfinite(first) else math.nan,
        "share": 1 - floor / first,
        "share_se": math.hypot(floor_se, error) / first,
        "deepest": int(losses.depth[-1]),
        "share_deepest": 1 - float(losses.value[-1]) / first,
        "share_deepest_se": error / first,
        "note": join_notes(notes),
    }
