"""Fits of every curve of an experiment's cube against depth: one long table, one row per fit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import xarray as xr

from inverse_depth.bootstrap import Bootstrap, bootstrap_power_law, refit_rows, resample_means
from inverse_depth.config import Fit
from inverse_depth.curves import join_notes
from inverse_depth.decays import FloatArray
from inverse_depth.misfit import lack_of_fit
from inverse_depth.power_law import LOSSES, PowerLawFit, fit_power_law, undetermined

__all__ = ["FIT_COLUMNS", "Bootstrap", "PowerLawFit", "bootstrap_power_law", "fit_cube", "fit_power_law"]

FIT_COLUMNS = [
    *("experiment", "quantity", "a", "b", "k", "step", "depth_min", "depth_max", "points", "seeds"),
    *("floor", "floor_se", "floor_low", "floor_high", "amplitude", "amplitude_se"),
    *("exponent", "exponent_se", "exponent_low", "exponent_high", "r_squared", "determined", "reason", "misfit"),
]
"""Where the curve stands, what was fitted, and the law with its errors; `seeds` is the least number at any depth."""

LEAST_GAPS = 4
"""Least number of depths at which the shared-error gap must stand out of its noise."""


def fit_cube(cube: xr.Dataset, settings: Fit, *, replicates: int = 200, seed: int = 0) -> pd.DataFrame:
    """Fit every curve of an experiment: the loss at the end and at each training length, and the shared-error gap.

    The mean over seeds is fitted. At a training length (`step`), a model whose training had already stopped keeps its
    last loss. The gap L_0 - C_L = c L^-alpha is fitted, with L_0 from the fit of the loss, at the depths where it
    exceeds twice its bootstrap error, which includes that of L_0; the floor in its row is that L_0. Where the floor is
    set to zero there is no gap to fit.

    A determined law may still miss the losses by more than their noise: `misfit` then says so. The final loss is tested
    against the spread between seeds and blocks (`lack_of_fit`); the others only for a bend.

    Parameters
    ----------
    cube : xarray.Dataset
        An experiment's cube, dimensions (L, a, b, k, seed, ...).
    settings : Fit
        Whether the floor is fitted, and the range of depths.
    replicates, seed : int
        Of the bootstrap over seeds and blocks of contexts; intervals are NaN at training lengths, which have no blocks.

    Returns
    -------
    pandas.DataFrame
        One row per fit, with the columns `FIT_COLUMNS`.
    """
    floor = 0.0 if settings.floor == "zero" else None
    experiment = str(cube.attrs.get("experiment", ""))
    cube = cube.isel(L=(cube["L"].values >= settings.min_depth) & (cube["L"].values <= settings.max_depth)).sortby("L")
    rows: list[dict[str, object]] = []
    for point in _points(cube):
        place = {"experiment": experiment, **{name: point[name].item() for name in ("a", "b", "k")}}
        rows += [place | row for row in _fit_point(point, floor, replicates, seed)]
    return pd.DataFrame(rows, columns=FIT_COLUMNS)


def _points(cube: xr.Dataset) -> Iterator[xr.Dataset]:
    for a, b, k in itertools.product(cube["a"].values, cube["b"].values, cube["k"].values):
        point = cube.sel(a=a, b=b, k=k)
        if point["loss"].notnull().any():
            yield point


def _fit_point(point: xr.Dataset, floor: float | None, replicates: int, seed: int) -> Iterator[dict[str, object]]:
    depths = point["L"].values.astype(np.float64)

    def read(name: str) -> FloatArray:
        return np.asarray(point[name].transpose("L", "seed", ...), dtype=np.float64)

    loss, blocks = _Curve(depths, read("loss")), read("loss_block")
    resampled = resample_means(blocks, replicates, seed)
    law = loss.fit(floor)
    if law.determined:
        law = replace(law, misfit=join_notes([law.misfit, loss.lack_of_fit(law, blocks)]))
    laws = refit_rows(loss.depths, resampled[:, loss.present], floor)
    yield {"quantity": "loss", "step": "final"} | loss.row(law, laws)

    for length, losses in zip(point["step"].values, _last_known(read("loss_by_step")), strict=True):
        partial = _Curve(depths, losses)
        if partial.depths.size:
            yield {"quantity": "loss", "step": str(length)} | partial.row(partial.fit(floor))

    if floor is None and point["shared_error"].notnull().any():
        shared = read("shared_error")
        gaps = laws.floor[:, None] - resample_means(read("shared_error_block"), replicates, seed)
        yield {"quantity": "shared_error_gap", "step": "final"} | _fit_gap(depths, shared, gaps, law, laws)


def _fit_gap(
    depths: FloatArray, shared: FloatArray, gaps: FloatArray, law: PowerLawFit, laws: Bootstrap
) -> dict[str, object]:
    everywhere = _Curve(depths, shared)
    if not law.determined:
        return everywhere.row(undetermined(f"no L_0 from the loss: {law.reason}"))
    noise = np.nanstd(gaps[:, everywhere.present], axis=0, ddof=1)
    clear = np.zeros(depths.size, dtype=bool)
    clear[everywhere.present] = law.floor - everywhere.means > 2 * noise
    gap = _Curve(depths[clear], law.floor - shared[clear])
    if gap.depths.size < LEAST_GAPS:
        reason = f"L_0 - C_L is above its noise at {gap.depths.size} depths: at least {LEAST_GAPS} are needed"
        return gap.row(undetermined(reason))
    row = gap.row(gap.fit(0.0), refit_rows(gap.depths, gaps[:, clear], 0.0))
    low, high = laws.interval("floor")
    return row | {"floor": law.floor, "floor_se": law.floor_se, "floor_low": low, "floor_high": high}


class _Curve:
    """A curve over depth: the mean over the seeds that were run, at the depths where there is one."""

    def __init__(self, depths: FloatArray, losses: FloatArray) -> None:
        """Take losses of shape (L, seed), NaN where not run."""
        self.present = np.isfinite(losses).any(axis=1)
        self.depths = depths[self.present]
        self.seeds = np.isfinite(losses[self.present]).sum(axis=1)
        self.means = np.nansum(losses[self.present], axis=1) / self.seeds

    def fit(self, floor: float | None) -> PowerLawFit:
        if (wrong := self.means <= max(floor or 0, LOSSES[0])).any():
            return undetermined(f"the loss is not above {floor or 0:g} at depth {self.depths[wrong][0]:g}")
        return fit_power_law(self.depths, self.means, floor=floor)

    def lack_of_fit(self, law: PowerLawFit, samples: FloatArray) -> str:
        residual = np.log(self.means) - np.log(law.predict(self.depths))
        return lack_of_fit(residual, law.log_derivatives(self.depths), samples[self.present])

    def row(self, law: PowerLawFit, laws: Bootstrap | None = None) -> dict[str, object]:
        bounds = {
            f"{name}_{end}": value
            for name in ("floor", "exponent")
            for end, value in zip(("low", "high"), laws.interval(name) if laws else (math.nan, math.nan), strict=True)
        }
        some = self.depths.size > 0
        return {
            "depth_min": int(self.depths[0]) if some else 0,
            "depth_max": int(self.depths[-1]) if some else 0,
            "points": self.depths.size,
            "seeds": int(self.seeds.min()) if some else 0,
            **bounds,
            **vars(law),
        }


def _last_known(losses: FloatArray) -> Iterator[FloatArray]:
    """Losses (L, seed) at each training length, from (L, seed, step); where training had stopped, the last ones."""
    known = np.full(losses.shape[:2], np.nan)
    for now in np.moveaxis(losses, 2, 0):
        known = np.where(np.isfinite(now), now, known)
        yield known
