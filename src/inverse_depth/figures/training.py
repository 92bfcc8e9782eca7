"""Figures of the depth law against training length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from inverse_depth.curves import (
    Spectrum,
    curve,
    find_fit,
    is_determined,
    spectra_in,
    trained_for,
)
from inverse_depth.figures.panels import (
    MARKERS,
    Look,
    draw_curve,
    draw_missing,
    finish,
    legend_above,
    looks,
    name_both,
    new_figure,
    note_open_markers,
    say_no_data,
    styled,
)
from inverse_depth.spectra import spectral_exponent

SPECTRUM: Spectrum = (0, 0)
OPEN = "open markers: models that had not converged by then, fits of such models"


@styled
def training_length_softmax(cube: xr.Dataset, fits: pd.DataFrame) -> Figure:
    """Show the softmax depth law at a = b = 0, k = 2 after each training length.

    Parameters
    ----------
    cube : Dataset
        Softmax attention on the difficult task.
    fits : DataFrame
        Its fits, at every training length.

    Returns
    -------
    Figure
        (a) loss against depth; (b) fitted exponent and (c) floor against training length, with standard errors; shaded:
        95 % bootstrap intervals of the final models.
    """
    figure, (losses, exponent, floor) = new_figure(1, 3, panel_height=2.7)
    steps = _steps(cube, SPECTRUM, 2)
    _draw_lengths(losses, cube, SPECTRUM, 2, _step_looks(steps))
    if not steps:
        draw_missing(losses, [name_both(SPECTRUM)])
    finish(losses, "Loss $\\mathcal{R}_L$")
    final = find_fit(fits, "loss", SPECTRUM, 2)
    for ax, quantity, label in (
        (exponent, "exponent", r"Fitted exponent $\alpha$"),
        (floor, "floor", "Fitted floor $L_0$"),
    ):
        if is_determined(final):
            low, high = final[f"{quantity}_low"], final[f"{quantity}_high"]
            ax.axhspan(low, high, color="0.85", linewidth=0, zorder=0.5, label="final models, 95 %")
        _draw_against_length(ax, cube, fits, quantity, SPECTRUM, 2, steps, Look("black", "o"))
        _finish_length(ax, label, steps, {1.0: r"$\alpha = 1$"} if quantity == "exponent" else {})
    note_open_markers(figure, [losses, exponent, floor], OPEN)
    return figure


@styled
def training_length_linear(cube: xr.Dataset, fits: pd.DataFrame) -> Figure:
    """Show the depth law of linear attention on the easy task after each training length.

    Parameters
    ----------
    cube : Dataset
        Linear attention on the easy task.
    fits : DataFrame
        Its fits, at every training length.

    Returns
    -------
    Figure
        A panel of losses for every spectrum, and a last one with alpha / zeta against training length: 1 is the
        exponent of constrained polynomials, 2 that of free ones (App. A.2).
    """
    spectra = [spectrum for spectrum in spectra_in(cube, 1) if spectral_exponent(*spectrum) > 0]
    figure, axes = new_figure(math.ceil((len(spectra) + 1) / 3), 3, panel_height=2.2)
    steps = sorted({step for spectrum in spectra for step in _steps(cube, spectrum, 1)})
    step_look, look = _step_looks(steps), looks(spectra)
    ratio = axes[len(spectra)]
    for i, (ax, spectrum) in enumerate(zip(axes, spectra, strict=False)):
        _draw_lengths(ax, cube, spectrum, 1, step_look)
        if ax is axes[0]:
            figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=len(steps))
        # Each panel's own legend is the marker of its spectrum in the last panel.
        for line in ax.get_lines():
            line.set_label("_hidden")
        ax.plot([], [], look[spectrum].marker, color=look[spectrum].color, label=f"$(a, b) = {name_both(spectrum)[1:]}")
        finish(ax, "Loss $\\mathcal{R}_L$")
        zeta = spectral_exponent(*spectrum)
        # Markers stand a little beside each other: they would hide one another.
        beside = 2 ** (0.11 * (i - (len(spectra) - 1) / 2))
        name = name_both(spectrum)
        _draw_against_length(ratio, cube, fits, "exponent", spectrum, 1, steps, look[spectrum], zeta, name, beside)
    ratio.plot([], [], " ", label=f"markers as above (a) to ({'abcdefghijkl'[len(spectra) - 1]})")
    references = {1.0: "1 constrained, 2 free", 2.0: ""}
    _finish_length(ratio, r"Exponent $\alpha / \zeta$", steps, references)
    note_open_markers(figure, axes[: len(spectra) + 1], OPEN)
    for ax in axes[len(spectra) + 1 :]:
        ax.remove()
    return figure


def _steps(cube: xr.Dataset, spectrum: Spectrum, k: int) -> list[int]:
    """List the training lengths at which a spectrum has a loss."""
    return [int(step) for step in cube["step"] if len(curve(cube, "loss_by_step", spectrum, k, step=int(step)))]


def _step_looks(steps: Sequence[int]) -> dict[int, Look]:
    colors = sns.color_palette("flare", len(steps))
    return {
        step: Look(color, MARKERS[i % len(MARKERS)]) for i, (step, color) in enumerate(zip(steps, colors, strict=True))
    }


def _draw_lengths(ax: Axes, cube: xr.Dataset, spectrum: Spectrum, k: int, look: dict[int, Look]) -> None:
    """Draw loss against depth after each training length."""
    for step in look:
        points = curve(trained_for(cube, step), "loss", spectrum, k)
        draw_curve(ax, points, look[step], f"{step:,} steps".replace(",", "\u202f"))


def _draw_against_length(
    ax: Axes,
    cube: xr.Dataset,
    fits: pd.DataFrame,
    quantity: str,
    spectrum: Spectrum,
    k: int,
    steps: Sequence[int],
    look: Look,
    unit: float = 1.0,
    name: str = "",
    beside: float = 1.0,
) -> None:
    """Draw a fitted quantity with its standard error against training length; name the lengths that determine none."""
    rows: dict[int, Any] = {step: find_fit(fits, "loss", spectrum, k, step) for step in steps}
    known = {step: fit for step, fit in rows.items() if is_determined(fit)}
    value, error = (
        np.array([float(fit[column]) for fit in known.values()]) / unit for column in (quantity, f"{quantity}_se")
    )
    place = beside * np.array(list(known), dtype=float)
    ax.errorbar(place, value, error, fmt="-", color=look.color, linewidth=0.7, elinewidth=0.8)
    done = np.array([_all_converged(cube, fit, spectrum, k, step) for step, fit in known.items()], dtype=bool)
    for shown, face in ((done, look.color), (~done, "white")):
        ax.plot(place[shown], value[shown], look.marker, color=look.color, markerfacecolor=face, zorder=3)
    missing = [_short(step) for step in steps if step not in known]
    draw_missing(ax, missing, f"{name}: no fit at" if name else "no fit at")


def _all_converged(cube: xr.Dataset, fit: Any, spectrum: Spectrum, k: int, step: int) -> bool:
    """Tell whether all models that a fit after a training length rests on had converged by then."""
    points = curve(trained_for(cube, step), "loss", spectrum, k).between(fit["depth_min"], fit["depth_max"])
    return bool(points.converged.all())


def _short(step: float) -> str:
    """Write a training length, thousands as k."""
    return f"{step / 1000:g}k" if step >= 1000 else f"{step:g}"


def _finish_length(ax: Axes, ylabel: str, steps: Sequence[int], references: Mapping[float, str]) -> None:
    """Set a panel against training length once everything is drawn; ``references`` are levels to their names."""
    empty = not any(np.size(line.get_xdata()) for line in ax.get_lines())
    for reference, name in {} if empty else references.items():
        ax.axhline(reference, color="0.4", linestyle=":", linewidth=0.9, label=name or None)
    legend_above(ax)
    ax.set(xlabel="Training steps", ylabel=ylabel)
    if empty:
        say_no_data(ax)
        return
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(steps))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda step, _: _short(step)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.set_xlim(steps[0] / 1.4, steps[-1] * 1.4)
