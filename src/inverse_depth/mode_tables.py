"""The table of mode-wise learning: whether strong modes come first, or all in parallel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from inverse_depth.curves import Curve, Spectrum, join_notes, unconverged
from inverse_depth.modes import relative_reducible, relative_to_zero_prediction

LINEAR: Spectrum = (2, 2)
SOFTMAX: Spectrum = (1, 0)
TARGET_SIZE = 2
MODES = (1, 2, 4, 8, 16, 32)
LEVELS = (0.5, 0.1)
"""Shares of a mode's loss still to be learned whose depths are tabulated."""

NO_MODE = "no such mode"


def modes(linear: xr.Dataset, softmax: xr.Dataset, fits: pd.DataFrame) -> pd.DataFrame:
    """Tabulate how deep a model must be to learn a mode, and how far apart the modes are at each depth.

    Parameters
    ----------
    linear : Dataset
        Linear attention on the easy task; read at (a, b) = (2, 2), as R_j / (lambda_j omega_j).
    softmax : Dataset
        Softmax attention on the difficult task; read at (1, 0), as (R_j(L) - R_j(inf)) over its value at the shallowest
        depth.
    fits : DataFrame
        Fits of the softmax cube.

    Returns
    -------
    DataFrame
        ``quantity`` and ``at`` say what a row holds: the depth at which a mode falls below a share of its normalised
        loss, by log-log interpolation; the standard deviation over modes at a depth, of those modes that both models
        have; its mean over all but the shallowest depth, where softmax curves are 1 by construction.
    """
    curves = {
        "linear_easy": {mode: _easy(linear, mode) for mode in MODES},
        "softmax_difficult": {mode: _difficult(softmax, fits, mode) for mode in MODES},
    }
    runs = {
        "linear_easy": unconverged(linear, LINEAR, 1),
        "softmax_difficult": unconverged(softmax, SOFTMAX, TARGET_SIZE),
    }
    common = [mode for mode in MODES if mode in linear["mode"] and mode in softmax["mode"]]
    known = {
        name: [points for mode in common if (points := found[mode][0]) is not None] for name, found in curves.items()
    }
    spreads = {name: _spread(found) for name, found in known.items()}
    rows: list[dict[str, Any]] = []

    def add(quantity: str, at: str, values: dict[str, tuple[float, float, str]]) -> None:
        row: dict[str, Any] = {"quantity": quantity, "at": at}
        for name, (value, error, note) in values.items():
            row |= {name: value, f"{name}_se": error, f"{name}_note": join_notes([note, runs[name]])}
        rows.append(row)

    for level in LEVELS:
        for mode in MODES:
            depths = {name: depth_below(*found[mode], level) for name, found in curves.items()}
            add(f"depth at which {100 * level:g} % remain", f"j = {mode}", depths)
    left_out = {
        name: "" if len(found) == len(common) else f"of {len(found)} of {len(common)} modes"
        for name, found in known.items()
    }
    for depth in sorted(set().union(*spreads.values())):
        values = {
            name: (
                spread.get(depth, math.nan),
                math.nan,
                left_out[name] if depth in spread else "not run or no limit",
            )
            for name, spread in spreads.items()
        }
        add("spread over modes", f"L = {depth}", values)
    means = {}
    for name, spread in spreads.items():
        deeper = list(spread.values())[1:]
        known_mean = (float(np.mean(deeper)), math.nan, left_out[name]) if deeper else None
        means[name] = known_mean or (math.nan, math.nan, "fewer than two modes or depths")
    add("spread over modes", "mean over L", means)
    return pd.DataFrame(rows)


def depth_below(points: Curve | None, missing: str, level: float) -> tuple[float, float, str]:
    """Find the depth at which a curve falls below a level, interpolating log value in log depth.

    Parameters
    ----------
    points : Curve or None
        Values not above zero are left out.
    missing : str
        Why there is no curve.
    level : float

    Returns
    -------
    depth, error : float
        NaN if the curve never falls below; the error, from those of the two values, is NaN where no two enclose it.
    note : str
        What a reader must know; empty if nothing.
    """
    if points is None:
        return math.nan, math.nan, missing
    kept = points.value > 0
    depth, value, error = points.depth[kept], points.value[kept], points.error[kept]
    below = np.flatnonzero(value < level)
    if not len(below):
        last = f": {value[-1]:.3g} at L = {depth[-1]}" if len(value) else ""
        return math.nan, math.nan, f"stays above {100 * level:g} %{last}"
    i = below[0]
    if i == 0:
        return float(depth[0]), math.nan, f"at most: {value[0]:.3g} already at L = {depth[0]}"
    x, y, e = np.log(depth[i - 1 : i + 1]), np.log(value[i - 1 : i + 1]), error[i - 1 : i + 1] / value[i - 1 : i + 1]
    share = (math.log(level) - y[0]) / (y[1] - y[0])
    slope = (y[1] - y[0]) / (x[1] - x[0])
    found = math.exp(x[0] + share * (x[1] - x[0]))
    return found, found * math.hypot((1 - share) * e[0], share * e[1]) / abs(slope), ""


def _easy(cube: xr.Dataset, mode: int) -> tuple[Curve | None, str]:
    if mode not in cube["mode"]:
        return None, NO_MODE
    points = relative_to_zero_prediction(cube, LINEAR, mode)
    return (points, "") if len(points) else (None, "not run")


def _difficult(cube: xr.Dataset, fits: pd.DataFrame, mode: int) -> tuple[Curve | None, str]:
    if mode not in cube["mode"]:
        return None, NO_MODE
    return relative_reducible(cube, fits, SOFTMAX, TARGET_SIZE, mode)


def _spread(curves: list[Curve]) -> dict[int, float]:
    """Compute the standard deviation over curves at every depth that two of them have."""
    values: dict[int, list[float]] = {}
    for points in curves:
        for depth, value in zip(points.depth, points.value, strict=True):
            values.setdefault(int(depth), []).append(float(value))
    return {depth: float(np.std(held, ddof=1)) for depth, held in sorted(values.items()) if len(held) > 1}
