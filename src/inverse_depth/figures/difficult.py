"""Figures of the difficult task: averaging the labels of the k tokens of largest cosine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from inverse_depth.curves import (
    Spectrum,
    curve,
    find_fit,
    is_determined,
    plateau,
    plus_minus,
    with_added,
)
from inverse_depth.figures.panels import (
    draw_curve,
    draw_decomposition,
    draw_law,
    draw_losses,
    draw_missing,
    finish,
    looks,
    name_a,
    name_b,
    name_both,
    new_figure,
    note_open_markers,
    styled,
)
from inverse_depth.modes import relative_reducible

VARYING_B: tuple[Spectrum, ...] = ((0, 0), (0, 0.25), (0, 0.5), (0, 1))
VARYING_A: tuple[Spectrum, ...] = ((0, 0), (0.25, 0), (0.5, 0), (1, 0))
BROADER_2: tuple[Spectrum, ...] = ((0.25, 0.25), (0.25, 0.5), (0.5, 0.5))
BROADER_16: tuple[Spectrum, ...] = ((0, 0.25), (0, 0.5), (0.25, 0.25), (0.25, 0.5))
MODES_OF: Spectrum = (1, 0)
MODES = (1, 2, 4, 8, 16)


def varying(cube: xr.Dataset) -> tuple[list[Spectrum], list[Spectrum]]:
    """List the spectra of a cube at k = 2 in which b varies at a = 0, and those in which a varies at b = 0."""
    return (
        with_added(VARYING_B, cube, 2, lambda spectrum: spectrum[0] == 0),
        with_added(VARYING_A, cube, 2, lambda spectrum: spectrum[1] == 0),
    )


@styled
def figure_5(cube: xr.Dataset) -> Figure:
    """Linear attention reaches a plateau within a layer or two.

    Parameters
    ----------
    cube : Dataset
        Linear attention on the difficult task.

    Returns
    -------
    Figure
        (a) b varies at a = 0; (b) a varies at b = 0; the legend gives the mean loss of the deepest depths.
    """
    figure, axes = new_figure(1, 2, panel_height=2.7)
    families = varying(cube)
    look = looks(*families)
    for ax, spectra, name in zip(axes, families, (name_b, name_a), strict=True):
        curves = {spectrum: curve(cube, "loss", spectrum, 2) for spectrum in spectra}
        for spectrum, points in curves.items():
            if len(points):
                level = plateau(cube, spectrum, 2)
                label = f"{name(spectrum)}: plateau ${plus_minus(level.value, level.error, chr(92) + 'pm')}$"
                draw_curve(ax, points, look[spectrum], label)
        draw_missing(ax, [name(spectrum) for spectrum, points in curves.items() if not len(points)])
        finish(ax, "Loss $\\mathcal{R}_L$")
    note_open_markers(figure, axes)
    return figure


@styled
def figure_6(cube: xr.Dataset, fits: pd.DataFrame) -> Figure:
    """Softmax attention keeps improving with depth for every spectrum.

    Parameters
    ----------
    cube : Dataset
        Softmax attention on the difficult task.
    fits : DataFrame
        Its fits.

    Returns
    -------
    Figure
        (a, b) losses and fits, b varying at a = 0 and a at b = 0; (c) C_L; (d) A_L - C_L; (e, f) the losses of (a, b)
        less their fitted floors, where an inverse-depth law is a straight line of slope -1.
    """
    figure, axes = new_figure(3, 2, panel_height=2.5)
    varying_b, varying_a = varying(cube)
    look = looks(varying_b, varying_a)
    draw_losses(axes[0], cube, fits, varying_b, 2, look, name_b)
    draw_losses(axes[1], cube, fits, varying_a, 2, look, name_a)
    draw_decomposition(axes[2:4], cube, [(spectrum, 2) for spectrum in look], {(s, 2): look[s] for s in look})
    _draw_reducible(axes[4], cube, fits, varying_b, look, name_b)
    _draw_reducible(axes[5], cube, fits, varying_a, look, name_a)
    note_open_markers(figure, axes)
    return figure


@styled
def figure_7(cube: xr.Dataset, fits: pd.DataFrame) -> Figure:
    """With softmax attention strong and weak modes are learned in parallel.

    Parameters
    ----------
    cube : Dataset
        Softmax attention on the difficult task.
    fits : DataFrame
        Its fits.

    Returns
    -------
    Figure
        At a = 1, b = 0, k = 2: (a) the loss R_j of some modes; (b) (R_j(L) - R_j(inf)) over its value at the shallowest
        depth. R_j(inf) is the floor of a fit to each mode by itself, over the depths of the fit of the total loss.
    """
    figure, (raw, normalised) = new_figure(1, 2, panel_height=2.7)
    shown = [mode for mode in MODES if mode in cube["mode"]]
    look = looks(shown)
    unlimited: list[str] = []
    for mode in shown:
        points, name = curve(cube, "mode_loss", MODES_OF, 2, mode=mode), f"$j = {mode}$"
        if not len(points):
            continue
        draw_curve(raw, points, look[mode], name)
        share, _ = relative_reducible(cube, fits, MODES_OF, 2, mode)
        if share is not None:
            draw_curve(normalised, share, look[mode], name)
        else:
            unlimited.append(name)
    if not raw.get_lines():
        draw_missing(raw, [name_both(MODES_OF)])
        draw_missing(normalised, [name_both(MODES_OF)])
    draw_missing(normalised, unlimited, "limit not determined")
    finish(raw, r"Mode loss $\mathcal{R}_j$")
    finish(normalised, "Reducible mode loss (relative)")
    note_open_markers(figure, [raw, normalised])
    return figure


@styled
def figure_14(cube: xr.Dataset, fits: pd.DataFrame) -> Figure:
    """Broader targets and spectra in which both exponents differ from zero.

    Parameters
    ----------
    cube : Dataset
        Softmax attention on the difficult task.
    fits : DataFrame
        Its fits.

    Returns
    -------
    Figure
        Losses and fits for (a) k = 2 and (b) k = 16; (c) C_L and (d) A_L - C_L of the same models.
    """
    figure, axes = new_figure(2, 2, panel_height=2.7)
    keys = (
        [(s, 2) for s in with_added(BROADER_2, cube, 2, lambda s: min(s) > 0)],
        [(s, 16) for s in with_added(BROADER_16, cube, 16, lambda s: True)],
    )
    look = looks(*keys)
    for ax, family in zip(axes, keys, strict=False):
        at = {spectrum: look[spectrum, k] for spectrum, k in family}
        draw_losses(ax, cube, fits, list(at), family[0][1], at, name_both)
    draw_decomposition(axes[2:4], cube, [*keys[0], *keys[1]], look)
    note_open_markers(figure, axes)
    return figure


def _draw_reducible(
    ax: Axes, cube: xr.Dataset, fits: pd.DataFrame, spectra: Sequence[Spectrum], look: dict[Any, Any], name: Any
) -> None:
    """Draw the loss less its fitted floor: a straight line for a power law."""
    absent: list[str] = []
    for spectrum in spectra:
        points, fit = curve(cube, "loss", spectrum, 2), find_fit(fits, "loss", spectrum, 2)
        if not len(points) or not is_determined(fit):
            absent.append(name(spectrum))
            continue
        draw_curve(ax, points - fit["floor"], look[spectrum], name(spectrum), join=False)
        draw_law(ax, fit, look[spectrum], minus=fit["floor"])
    draw_missing(ax, absent, "no floor determined")
    finish(ax, "Loss less floor, $\\mathcal{R}_L - L_0$")
