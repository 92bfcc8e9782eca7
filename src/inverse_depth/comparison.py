"""Published numbers and claims (Peng et al., arXiv:2610.11063) beside ours, each with a verdict.

``docs/comparison.md`` states the rule and the tolerances; `ENTRIES` holds the tolerances and what is measured.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from inverse_depth.curves import (
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
from inverse_depth.tables import another_size, published
from inverse_depth.verdicts import AGREES, DIFFERS, UNDECIDED, Kind, Measured, judge, refuse

Place = tuple[Spectrum, int]
"""A spectrum (a, b) and a target size k."""

SIZED = ("Table 1", "Table 3", "Table 4", "Table 5")
"""Places whose numbers depend on that size."""

DEEP, DEEP_GENERALISED = 64, 16
"""Depths that must be reached to judge a law in depth: controlled models, generalised models (App. C)."""

MODERATE_DEPTH = 4
"""Where "beyond moderate depth" (App. C) is taken to begin."""

MODELS = {
    "Fig. 9": "softmax, single stream",
    "Fig. 10": "softmax, decoupled values",
    "Fig. 11": "softmax, context updates",
    "Fig. 12": "softmax, context updates",
}
"""The generalised models, by place."""


def comparison(
    softmax: xr.Dataset,
    softmax_fits: pd.DataFrame,
    linear: xr.Dataset,
    floors: xr.Dataset,
    linear_easy: xr.Dataset,
    linear_easy_fits: pd.DataFrame,
    softmax_easy: xr.Dataset,
    single_stream: xr.Dataset,
    decoupled_values: xr.Dataset,
    context_updates: xr.Dataset,
    context_attention: xr.Dataset,
) -> pd.DataFrame:
    """List every published number and decidable claim beside ours, with a verdict.

    Parameters
    ----------
    softmax, linear : Dataset
        Cubes of the difficult task.
    floors : Dataset
        Theoretical floors of linear attention: floor, floor_se over (a, b, k).
    linear_easy, softmax_easy : Dataset
        Cubes of the easy task.
    softmax_fits, linear_easy_fits : DataFrame
        Fits of those cubes.
    single_stream, decoupled_values, context_updates : Dataset
        Cubes of the generalised models (App. C); the last holds update_scale, the scalar m.
    context_attention : Dataset
        rho, rho_se over k, of A_1 = rho I + (1 - rho) 11^T / P (App. C.3).

    Returns
    -------
    DataFrame
        ``difference`` is ours less the published value, in the ``unit`` "%" of the published value or "1"; ``sigmas``
        is the difference over both standard errors in quadrature; ``verdict`` and ``why`` as `judge` gives them.
    """
    study = SimpleNamespace(
        softmax=_Source(softmax, softmax_fits),
        linear=_Source(linear),
        floors=floors,
        linear_easy=_Source(linear_easy, linear_easy_fits),
        softmax_easy=_Source(softmax_easy),
        single_stream=_Source(single_stream),
        decoupled_values=_Source(decoupled_values),
        context_updates=_Source(context_updates),
        context_attention=context_attention,
    )
    numbers = published()
    rows = []
    for (place, quantity, attention), (kind, measure) in ENTRIES.items():
        found = (numbers["place"] == place) & (numbers["quantity"] == quantity) & (numbers["attention"] == attention)
        for number in numbers[found].to_dict("records"):
            at = (float(number["a"]), float(number["b"])), int(number["k"])
            source = floors if quantity == "theory_floor" else getattr(study, attention).cube
            other = another_size(source, attention) if place in SIZED else ""
            ours = measure(study, at)
            ours = replace(ours, refused=other or ours.refused)
            rows.append(_row(number, kind, ours))
    return pd.DataFrame(rows)


def comparison_summary(**inputs: Any) -> pd.DataFrame:
    """Count the verdicts of `comparison`, whose inputs it takes, for every place of the paper."""
    frame = comparison(**inputs)
    verdicts = [AGREES, DIFFERS, UNDECIDED]
    counts = pd.crosstab(frame["place"], frame["verdict"]).reindex(
        index=frame["place"].drop_duplicates(), columns=verdicts, fill_value=0
    )
    counts.loc["all"] = counts.sum()
    counts.insert(0, "numbers", counts.sum(axis=1))
    return counts.rename_axis(columns=None).reset_index()


functools.update_wrapper(comparison_summary, comparison, assigned=(), updated=())  # the same parameters


@dataclass(frozen=True)
class _Source:
    """A cube, with the fits of its losses where they are needed, and what is measured in them.

    Everywhere ``at`` is a spectrum (a, b) and a target size.
    """

    cube: xr.Dataset
    fits: pd.DataFrame | None = None

    @functools.cached_property
    def earlier(self) -> xr.Dataset:
        return a_round_earlier(self.cube)

    def measured(self, at: Place, value: float, error: float, before: Callable[[xr.Dataset], float]) -> Measured:
        """Add what unconverged runs did of late; ``before`` takes the cube as it was a round of training earlier."""
        runs = unconverged(self.cube, *at)
        if not runs:
            return Measured(value, error)
        known = len(curve(self.earlier, "loss", *at)) == len(curve(self.cube, "loss", *at))
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
        )

    def plateau(self, at: Place) -> Measured:
        """Measure the mean loss of the deepest models."""
        level = plateau(self.cube, *at)
        if not math.isfinite(level.value):
            return refuse(level.note)
        return self.measured(at, level.value, level.error, lambda cube: plateau(cube, *at).value)

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
        return self.measured(at, value, error, change)

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

        return self.measured(at, float(scaled.value[0]), float(scaled.error[0]), before)

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
        return self.measured(at, factor - 1, factor * math.hypot(*relative) / doublings, lambda _: math.nan)

    def mask_scalar(self, at: Place) -> Measured:
        """Average m over the depths at which it acts, L >= 2; the error is that of the mean over depths."""
        if (refused := unconverged(self.cube, *at)) == "not run":
            return refuse(refused)
        scalar = self.cube["update_scale"].sel(a=at[0][0], b=at[0][1], k=at[1])
        values = scalar.where(scalar["L"] >= 2).mean("seed").dropna("L").to_numpy()
        error = float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else math.nan
        return self.measured(at, float(np.mean(values)) if values.size else math.nan, error, lambda _: math.nan)


def _diagonal(attention: xr.Dataset, k: int) -> Measured:
    """Read rho, the weight of the diagonal in the first layer's context-to-context attention."""
    if k not in attention["k"]:
        return refuse("not run")
    one = attention.sel(k=k)
    if one["converged"] == 1:
        return Measured(float(one["rho"]), float(one["rho_se"]))
    return Measured(float(one["rho"]), float(one["rho_se"]), unconverged="runs not converged", moved=math.nan)


def _floor(floors: xr.Dataset, at: Place) -> Measured:
    value, error = theoretical_floor(floors, *at)
    return Measured(value, error) if math.isfinite(value) else refuse("not computed")


def _too_shallow(deepest: float, least: int) -> str:
    return f"depths end at {deepest:g}, {least} is needed" if deepest < least else ""


def _row(number: dict[Any, Any], kind: Kind, ours: Measured) -> dict[str, Any]:
    """Make a row of the comparison."""
    paper, paper_se = float(number["value"]), float(number["se"])
    verdict, why = judge(kind, ours, paper, paper_se)
    difference = ours.value - paper
    error = math.hypot(*(se for se in (ours.error, paper_se) if math.isfinite(se)))
    return {
        "place": number["place"],
        "quantity": kind.name,
        "attention": MODELS.get(number["place"], number["attention"]),
        **{name: number[name] for name in ("k", "a", "b")},
        "ours": ours.value,
        "ours_se": ours.error if ours.error else math.nan,
        "paper": paper,
        "paper_se": paper_se,
        "difference": 100 * difference / paper if kind.relative else difference,
        "unit": "%" if kind.relative else "1",
        "sigmas": difference / error if error > 0 else math.nan,
        "verdict": verdict,
        "why": why,
    }


_GROWTH = Kind("growth of the disagreement", 0.05)
_APPROXIMATE = Kind("exponent of the loss", 0.25, varies=True)
_WV = "only m times W_v acts, and the scale of the published W_v is not given"

ENTRIES: dict[tuple[str, str, str], tuple[Kind, Callable[[Any, Place], Measured]]] = {
    ("Table 1", "floor", "softmax"): (
        Kind("softmax floor", 0.01, relative=True),
        lambda study, at: study.softmax.fitted("floor", at),
    ),
    ("Table 1", "floor", "linear"): (
        Kind("linear plateau", 0.02, relative=True),
        lambda study, at: study.linear.plateau(at),
    ),
    ("Table 2", "exponent", "linear"): (
        Kind("exponent of the loss", 0.15, relative=True, varies=True),
        lambda study, at: study.linear_easy.fitted("exponent", at),
    ),
    ("Table 3", "theory_floor", "linear"): (
        Kind("theoretical floor", 0.015, relative=True),
        lambda study, at: _floor(study.floors, at),
    ),
    ("Table 3", "plateau", "linear"): (
        Kind("linear plateau", 0.03, relative=True),
        lambda study, at: study.linear.plateau(at),
    ),
    ("Table 4", "floor", "softmax"): (
        Kind("softmax floor", 0.02, relative=True),
        lambda study, at: study.softmax.fitted("floor", at),
    ),
    ("Table 4", "exponent", "softmax"): (
        Kind("exponent of the loss", 0.1, varies=True),
        lambda study, at: study.softmax.fitted("exponent", at),
    ),
    ("Table 4", "r_squared", "softmax"): (
        Kind("R squared of the loss", 0.99, side="at least"),
        lambda study, at: study.softmax.r_squared("loss", at),
    ),
    ("Table 5", "gap_exponent", "softmax"): (
        Kind("exponent of the gap", 0.1),
        lambda study, at: study.softmax.gap("exponent", at),
    ),
    ("Table 5", "r_squared", "softmax"): (
        Kind("R squared of the gap", 0.99, side="at least"),
        lambda study, at: study.softmax.r_squared("shared_error_gap", at),
    ),
    ("Sec. 3.2", "loss_over_power", "softmax"): (
        Kind("loss of one layer", 0.01, side="at most"),
        lambda study, at: study.softmax_easy.one_layer(at),
    ),
    ("Sec. 4.1", "late_change", "linear"): (
        Kind("change after two layers", 0.01),
        lambda study, at: study.linear.late_change(at),
    ),
    ("Fig. 6", "exponent", "softmax"): (
        Kind("exponent of the loss", 0.1, varies=True),
        lambda study, at: study.softmax.fitted("exponent", at),
    ),
    ("Fig. 6", "disagreement_growth", "softmax"): (_GROWTH, lambda study, at: study.softmax.growth(at, DEEP)),
    ("Fig. 9", "exponent", "softmax"): (
        _APPROXIMATE,
        lambda study, at: study.single_stream.beyond_moderate_depth(at),
    ),
    ("Fig. 9", "disagreement_growth", "softmax"): (
        _GROWTH,
        lambda study, at: study.single_stream.growth(at, DEEP_GENERALISED),
    ),
    ("Fig. 10", "exponent", "softmax"): (
        _APPROXIMATE,
        lambda study, at: study.decoupled_values.beyond_moderate_depth(at),
    ),
    ("Fig. 10", "disagreement_growth", "softmax"): (
        _GROWTH,
        lambda study, at: study.decoupled_values.growth(at, DEEP_GENERALISED),
    ),
    ("Fig. 11", "exponent", "softmax"): (
        _APPROXIMATE,
        lambda study, at: study.context_updates.beyond_moderate_depth(at),
    ),
    ("Fig. 11", "late_fall", "softmax"): (
        Kind("fall after two layers", 0.01, side="at most"),
        lambda study, at: study.context_updates.late_change(at),
    ),
    ("Fig. 11", "mask_scalar", "softmax"): (
        Kind("mask scalar m", 0.2, silent=_WV),
        lambda study, at: study.context_updates.mask_scalar(at),
    ),
    ("Fig. 12", "rho", "softmax"): (
        Kind("weight of the diagonal", 0.02),
        lambda study, at: _diagonal(study.context_attention, at[1]),
    ),
    ("Fig. 14", "disagreement_growth", "softmax"): (_GROWTH, lambda study, at: study.softmax.growth(at, DEEP)),
}
"""By place, quantity and attention of ``published.csv``: the kind of quantity and what we measure for it. Numbers that
are arithmetic on others (zeta, the differences of Table 3) have no entry."""
