"""Figures of the easy task: copying the label of the matching token."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from inverse_depth.curves import Curve, Spectrum, curve, spectra_in
from inverse_depth.figures.panels import (
    draw_curve,
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

VARYING_B: tuple[Spectrum, ...] = ((2, 0.5), (2, 1), (2, 1.5), (2, 2))
VARYING_A: tuple[Spectrum, ...] = ((0.5, 2), (1, 2), (1.5, 2), (2, 2))
MODES_OF: Spectrum = (2, 2)
MODES = (1, 2, 4, 8, 16, 32)
THRESHOLD = 0.02


@styled
def figure_3(cube: xr.Dataset, fits: pd.DataFrame) -> Figure:
    """Linear attention: power laws in depth that depend on the spectrum, and modes learned one after another.

    Parameters
    ----------
    cube : Dataset
        Linear attention on the easy task.
    fits : DataFrame
        Its fits.

    Returns
    -------
    Figure
        (a) b varies at a = 2; (b) a varies at b = 2; (c) R_k / (lambda_k omega_k) of some modes, 1 at zero prediction,
        displayed at 2 % where it is below.
    """
    figure, (left, right, modes) = new_figure(1, 3, panel_height=2.7)
    look = looks(VARYING_B, VARYING_A)
    draw_losses(left, cube, fits, VARYING_B, 1, look, name_b)
    draw_losses(right, cube, fits, VARYING_A, 1, look, name_a)

    shown = [mode for mode in MODES if mode in cube["mode"]]
    mode_look = looks(shown)
    for mode in shown:
        points = curve(cube, "mode_loss", MODES_OF, 1, mode=mode)
        if len(points):
            scale = float(cube["eigenvalue"].sel(a=MODES_OF[0], mode=mode)) * float(
                cube["teacher_eigenvalue"].sel(b=MODES_OF[1], mode=mode)
            )
            share = points / scale
            raised = Curve(share.depth, share.value.clip(min=THRESHOLD), share.error, share.converged)
            draw_curve(modes, raised, mode_look[mode], f"$k = {mode}$")
    if modes.get_lines():
        modes.axhline(THRESHOLD, color="0.4", linestyle="--", linewidth=0.8)
    else:
        draw_missing(modes, [name_both(MODES_OF)])
    finish(modes, r"Mode loss $\mathcal{R}_k / (\lambda_k \omega_k)$")
    note_open_markers(figure, [left, right, modes])
    return figure


@styled
def figure_4(cube: xr.Dataset) -> Figure:
    """Softmax attention solves the easy task with one layer.

    Parameters
    ----------
    cube : Dataset
        Softmax attention on the easy task.

    Returns
    -------
    Figure
        (a) a varies at b = 0; (b) b varies at a = 0. A loss that is not above zero is drawn at its standard error.
        Dotted: the loss of the zero predictor.
    """
    figure, axes = new_figure(1, 2, panel_height=2.7)
    spectra = spectra_in(cube, 1)
    families = [[s for s in spectra if s[1] == 0], [s for s in spectra if s[0] == 0]]
    look = looks(*families)
    for ax, family, name in zip(axes, families, (name_a, name_b), strict=True):
        for spectrum in family:
            points = curve(cube, "loss", spectrum, 1)
            bounded = Curve(
                points.depth, np.where(points.value > 0, points.value, points.error), points.error, points.converged
            )
            draw_curve(ax, bounded, look[spectrum], name(spectrum))
            ax.axhline(
                float(cube["target_power"].sel(a=spectrum[0], b=spectrum[1], k=1)),
                color=look[spectrum].color, linestyle=":", linewidth=0.9,
            )  # fmt: skip
        if not family:
            draw_missing(ax, ["any spectrum"])
        finish(ax, "Loss $\\mathcal{R}_L$")
    note_open_markers(figure, axes)
    return figure
