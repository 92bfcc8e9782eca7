"""Figures of the easy task: copying the label of the matching token."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from inverse_depth.curves import Curve, Spectrum, at_least_error, curve, spectra_in, with_added
from inverse_depth.figures import difficult
from inverse_depth.figures.panels import (
    draw_curve,
    draw_losses,
    draw_missing,
    finish,
    legend_above,
    looks,
    name_a,
    name_b,
    name_both,
    new_figure,
    note_open_markers,
    say_no_data,
    styled,
)
from inverse_depth.modes import relative_to_zero_prediction

VARYING_B: tuple[Spectrum, ...] = ((2, 0.5), (2, 1), (2, 1.5), (2, 2))
VARYING_A: tuple[Spectrum, ...] = ((0.5, 2), (1, 2), (1.5, 2), (2, 2))
MODES_OF: Spectrum = (2, 2)
MODES = (1, 2, 4, 8, 16, 32)
THRESHOLD = 0.02
ATTENTION_OF: Spectrum = (1, 0)
DEPTHS_SHOWN = 4


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
        (a) b varies at a = 2; (b) a varies at b = 2; (c) R_j / (lambda_j omega_j) of some modes, 1 at zero prediction,
        displayed at 2 % where it is below.
    """
    figure, (left, right, modes) = new_figure(1, 3, panel_height=2.7)
    varying_b = with_added(VARYING_B, cube, 1, lambda spectrum: spectrum[0] == 2)
    varying_a = with_added(VARYING_A, cube, 1, lambda spectrum: spectrum[1] == 2)
    look = looks(varying_b, varying_a)
    draw_losses(left, cube, fits, varying_b, 1, look, name_b)
    draw_losses(right, cube, fits, varying_a, 1, look, name_a)

    shown = [mode for mode in MODES if mode in cube["mode"]]
    mode_look = looks(shown)
    for mode in shown:
        share = relative_to_zero_prediction(cube, MODES_OF, mode)
        if len(share):
            raised = Curve(share.depth, share.value.clip(min=THRESHOLD), share.error, share.converged)
            draw_curve(modes, raised, mode_look[mode], f"$j = {mode}$")
    if modes.get_lines():
        modes.axhline(THRESHOLD, color="0.4", linestyle="--", linewidth=0.8, label=f"{100 * THRESHOLD:g} % or less")
    else:
        draw_missing(modes, [name_both(MODES_OF)])
    finish(modes, r"Mode loss $\mathcal{R}_j / (\lambda_j \omega_j)$")
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
        (a) a varies at b = 0; (b) b varies at a = 0. A loss that is not above zero is drawn at its standard error. The
        legend gives the loss of the shallowest model. Dotted: the loss of the zero predictor. (c) The attention paid to
        the matching token along training, at (a, b) = (1, 0).
    """
    figure, (left, right, attention) = new_figure(1, 3, panel_height=2.7)
    spectra = spectra_in(cube, 1)
    families = [[s for s in spectra if s[1] == 0], [s for s in spectra if s[0] == 0]]
    # the looks of the figures of the difficult task, where the same spectra are shown
    look = looks([*difficult.VARYING_B, *families[1]], [*difficult.VARYING_A, *families[0]])
    for ax, family, name in zip((left, right), families, (name_a, name_b), strict=True):
        for spectrum in family:
            points = at_least_error(curve(cube, "loss", spectrum, 1))
            label = rf"{name(spectrum)}: $\mathcal{{R}}_{{{points.depth[0]}}} {_reached(cube, spectrum)}$"
            draw_curve(ax, points, look[spectrum], label)
            ax.axhline(
                float(cube["target_power"].sel(a=spectrum[0], b=spectrum[1], k=1)),
                color=look[spectrum].color, linestyle=":", linewidth=0.9,
            )  # fmt: skip
        if family:
            ax.plot([], [], ":", color="0.4", linewidth=0.9, label="predicting zero")
        else:
            draw_missing(ax, ["any spectrum"])
        finish(ax, "Loss $\\mathcal{R}_L$")
    _draw_attention(attention, cube)
    note_open_markers(figure, [left, right])
    return figure


def _reached(cube: xr.Dataset, spectrum: Spectrum) -> str:
    """Say which loss the shallowest model reaches, or the error that it does not exceed."""
    points = curve(cube, "loss", spectrum, 1)
    value, error = points.value[0], points.error[0]
    factor, _, power = f"{max(value, error):.1e}".partition("e")
    return rf"{'=' if value > error else '<'} {factor} \times 10^{{{int(power)}}}"


def _draw_attention(ax: Axes, cube: xr.Dataset) -> None:
    """Draw the attention paid to the target's token against the step of training, for a few depths."""
    histories = attention_histories(cube) if "selected_mass" in cube else {}
    for depth, look in looks(list(histories)).items():
        step, mass = histories[depth]
        every = max(1, len(step) // 8)
        ax.plot(step, mass, f"-{look.marker}", color=look.color, markevery=every, label=f"$L = {depth}$")
    legend_above(ax)
    ax.set(xlabel="Training step", ylabel="Attention on the match")
    if not histories:
        say_no_data(ax)
        return
    ax.set(xscale="log", ylim=(0, 1.02))


def attention_histories(cube: xr.Dataset) -> dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Read the attention mass on the target's tokens along training.

    Returns
    -------
    dict
        For at most four depths from the shallowest to the deepest: steps, and means over the seeds, of which one that
        had stopped keeps its last value; up to the step at which the last of them stopped.
    """
    try:
        mass = cube["selected_mass"].sel(a=ATTENTION_OF[0], b=ATTENTION_OF[1], k=1).dropna("L", how="all")
    except KeyError:
        return {}
    depths = np.sort(mass["L"].to_numpy())
    kept = depths[np.unique(np.linspace(0, len(depths) - 1, DEPTHS_SHOWN).round().astype(int))] if len(depths) else []
    found = {}
    for depth in kept:
        runs = mass.sel(L=depth).dropna("seed", how="all").transpose("seed", "history").to_numpy()
        place = np.where(np.isfinite(runs), np.arange(runs.shape[1]), 0)
        held = np.take_along_axis(runs, np.maximum.accumulate(place, axis=1), axis=1)
        last = place.max() + 1
        found[int(depth)] = (mass["history"].to_numpy()[:last], held.mean(0)[:last])
    return found
