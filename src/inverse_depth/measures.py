"""What is measured in cubes, fits and theory to be set against a published number."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from inverse_depth.curves import (
    PLATEAU_DEPTHS,
    Spectrum,
    a_round_earlier,
    curve,
    find_fit,
    is_determined,
    plateau,
    theoretical_floor,
    unconverged,
    why_undetermined,
)
from inverse_depth.fits import fit_power_law
from inverse_depth.verdicts import Measured, refuse

Place = tuple[Spectrum, int]
"""A spectrum (a, b) and a target size k."""

DEEP, DEEP_GENERALISED = 64, 16
"""Depths that must be reached to judge a law in depth: controlled models, generalised models (App. C)."""

MODERATE_DEPTH = 4
"""Where "beyond moderate depth" (App. C) is taken to begin."""


@dataclass(frozen=True)
class Source:
    """A cube, with the fits of its losses where they are needed, and what is measured in them.

    Everywhere ``at`` is a spectrum (a, b) and a target size.
    """

    cube: xr.Dataset
    fits: pd.DataFrame | None = None

    @functools.cached_property
    def earlier(self) -> xr.Dataset:
        """The cube as it was a round of training earlier."""
        return a_round_earlier(self.cube)

    def measured(
        self,
        at: Place,
        value: float,
        error: float,
        before: Callable[[xr.Dataset], float],
        depths: Iterable[int] | None = None,
    ) -> Measured:
        """Add what unconverged runs did of late.

        Parameters
        ----------
        at, value, error
            See `Measured`.
        before : callable
            Gives the value from the cube as it was a round of training earlier; NaN where it is not known.
        depths : iterable of int, optional
            The depths that the value rests on; all by default.
        """
        kept = self.cube["L"].values.tolist() if depths is None else [int(depth) for depth in depths]
        now, earlier = self.cube.sel(L=kept), self.earlier.sel(L=kept)
        runs = unconverged(now, *at)
        if not runs:
            return Measured(value, error)
        known = len(curve(earlier, "loss", *at)) == len(curve(now, "loss", *at))
        moved = abs(value - before(self.earlier)) if known else math.nan
        return Measured(value, error, unconverged=runs, moved=moved)

    def fitted(self, name: str, at: Place) -> Measured:
        """Measure the floor or the exponent of the fit of the loss."""
        fit = find_fit(self.fits, "loss", *at)
        if refused := self._no_law(fit, at):
            return refuse(refused)

        def before(cube: xr.Dataset) -> float:
            return self.refitted(cube, name, at, fit["depth_min"], fit["depth_max"], 0.0 if fit["floor"] == 0 else None)

        steps = [step for step in self.fits["step"].astype(str).unique() if step != "final"]  # type: ignore[index]
        known = [find_fit(self.fits, "loss", *at, step) for step in steps]
        reached = tuple(float(row[name]) for row in known if is_determined(row))
        ours = self.measured(at, float(fit[name]), float(fit[f"{name}_se"]), before)
        return replace(ours, reached=reached, refused=_too_shallow(fit["depth_max"], DEEP))

    def gap(self, name: str, at: Place) -> Measured:
        """Measure the exponent of the fit of L_0 - C_L, or R squared; C_L is known for the final models only."""
        fit = find_fit(self.fits, "shared_error_gap", *at)
        if refused := self._no_law(fit, at):
            return refuse(refused)
        ours = self.measured(at, float(fit[name]), float(fit[f"{name}_se"]), lambda _: math.nan)
        return replace(ours, refused=_too_shallow(fit["depth_max"], DEEP))

    def r_squared(self, quantity: str, at: Place) -> Measured:
        """Measure how much of the variance of the logarithm a fit explains; the number has no error of its own."""
        fit = find_fit(self.fits, quantity, *at)
        if refused := self._no_law(fit, at):
            return refuse(refused)
        ours = self.measured(at, float(fit["r_squared"]), 0.0, lambda _: math.nan)
        return replace(ours, refused=_too_shallow(fit["depth_max"], DEEP))

    def _no_law(self, fit: Any, at: Place) -> str:
        """Say why a fit gives no number; nothing if it does."""
        runs = unconverged(self.cube, *at)
        return runs if runs == "not run" else why_undetermined(fit)

    @staticmethod
    def refitted(
        cube: xr.Dataset, name: str, at: Place, shallowest: int, deepest: int, floor: float | None = None
    ) -> float:
        """Fit the loss again over a range of depths: a parameter, NaN if it is not determined."""
        points = curve(cube, "loss", *at).between(shallowest, deepest)
        law = fit_power_law(points.depth, points.value, floor=floor) if len(points) else None
        return float(getattr(law, name)) if law and law.determined else math.nan

    def beyond_moderate_depth(self, at: Place) -> Measured:
        """Measure the exponent of the loss from moderate depth on."""
        points = curve(self.cube, "loss", *at).between(MODERATE_DEPTH, 2**62)
        if not len(points):
            return refuse(f"not run at L >= {MODERATE_DEPTH}")
        law = fit_power_law(points.depth, points.value)
        if refused := why_undetermined(vars(law)) or _too_shallow(points.depth[-1], DEEP_GENERALISED):
            return refuse(refused)
        deepest = int(points.depth[-1])
        return self.measured(
            at,
            law.exponent,
            law.exponent_se,
            lambda cube: self.refitted(cube, "exponent", at, MODERATE_DEPTH, deepest),
            points.depth,
        )

    def plateau(self, at: Place) -> Measured:
        """Measure the mean loss of the deepest models."""
        level = plateau(self.cube, *at)
        if not math.isfinite(level.value):
            return refuse(level.note)
        deepest = curve(self.cube, "loss", *at).depth[-PLATEAU_DEPTHS:]
        return self.measured(at, level.value, level.error, lambda cube: plateau(cube, *at).value, deepest)

    def late_change(self, at: Place) -> Measured:
        """Measure (R_2 - R_L) / R_L at the deepest L."""

        def change(cube: xr.Dataset) -> float:
            losses = curve(cube, "loss", *at)
            if not len(losses) or losses.depth[-1] <= 2 or 2 not in losses.depth:
                return math.nan
            return float(losses.value[losses.depth == 2].item() / losses.value[-1] - 1)

        value = change(self.cube)
        if math.isnan(value):
            return refuse("not run at L = 2 and a greater depth")
        # The two depths share their contexts: the error of their difference is the smaller.
        difference = curve(self.cube, "loss_difference", *at)
        error = float(difference.error[difference.depth == 2].item() / curve(self.cube, "loss", *at).value[-1])
        deepest = int(curve(self.cube, "loss", *at).depth[-1])
        return self.measured(at, value, error, change, [2, deepest])

    def one_layer(self, at: Place) -> Measured:
        """Measure the loss at L = 1 over the loss of predicting zero."""
        losses = curve(self.cube, "loss", *at).between(1, 1)
        if not len(losses):
            return refuse("not run at L = 1")
        power = float(self.cube["target_power"].sel(a=at[0][0], b=at[0][1], k=at[1]))
        scaled = losses / power

        def before(cube: xr.Dataset) -> float:
            earlier = curve(cube, "loss", *at).between(1, 1)
            return float(earlier.value[0] / power) if len(earlier) else math.nan

        return self.measured(at, float(scaled.value[0]), float(scaled.error[0]), before, [1])

    def growth(self, at: Place, least: int) -> Measured:
        """Measure the relative growth of A_L - C_L over the last doubling of depth."""
        points = curve(self.cube, "disagreement", *at)
        if len(points) < 2:
            return refuse("not run at two depths above 1")
        if refused := _too_shallow(points.depth[-1], least):
            return refuse(refused)
        doublings = math.log2(points.depth[-1] / points.depth[-2])
        factor = float(points.value[-1] / points.value[-2]) ** (1 / doublings)
        relative = points.error[-2:] / points.value[-2:]
        error = factor * math.hypot(*relative) / doublings
        return self.measured(at, factor - 1, error, lambda _: math.nan, points.depth[-2:])

    def mask_scalar(self, at: Place) -> Measured:
        """Average m over the depths at which it acts, L >= 2; the error is that of the mean over depths."""
        if (refused := unconverged(self.cube, *at)) == "not run":
            return refuse(refused)
        scalar = self.cube["update_scale"].sel(a=at[0][0], b=at[0][1], k=at[1])
        values = scalar.where(scalar["L"] >= 2).mean("seed").dropna("L").to_numpy()
        error = float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else math.nan
        value = float(np.mean(values)) if values.size else math.nan
        return self.measured(at, value, error, lambda _: math.nan, [L for L in self.cube["L"].values if L >= 2])


def diagonal(attention: xr.Dataset, k: int) -> Measured:
    """Measure rho, the weight of the diagonal in the first layer's context-to-context attention."""
    if k not in attention["k"]:
        return refuse("not run")
    one = attention.sel(k=k)
    if one["converged"] == 1:
        return Measured(float(one["rho"]), float(one["rho_se"]))
    return Measured(float(one["rho"]), float(one["rho_se"]), unconverged="runs not converged", moved=math.nan)


def floor(floors: xr.Dataset, at: Place) -> Measured:
    """Measure the theoretical floor of linear attention."""
    value, error = theoretical_floor(floors, *at)
    return Measured(value, error) if math.isfinite(value) else refuse("not computed")


def _too_shallow(deepest: float, least: int) -> str:
    return f"depths end at {deepest:g}, {least} is needed" if deepest < least else ""
