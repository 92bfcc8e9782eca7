"""Figures of the generalised models (App. C) and of how reliably models of different depth select tokens (App. D.2)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from inverse_depth.curves import Spectrum, curve, plus_minus
from inverse_depth.figures.panels import (
    Look,
    draw_curve,
    draw_decomposition,
    draw_losses,
    draw_missing,
    finish,
    legend_above,
    looks,
    name_both,
    new_figure,
    note_below,
    note_open_markers,
    say_no_data,
    styled,
)
from inverse_depth.tables import published

FLAT: Spectrum = (0, 0)
TARGET_SIZES = (2, 16)


@styled
def depth_diagnostics(cube: xr.Dataset, fits: pd.DataFrame) -> Figure:
    """Figures 9 and 10: a generalised model's loss, and what its layers share, against depth.

    Parameters
    ----------
    cube : Dataset
        The model on the difficult task.
    fits : DataFrame
        Its fits.

    Returns
    -------
    Figure
        At a = b = 0, k = 2: (a) loss and fit; (b) C_L; (c) A_L - C_L.
    """
    figure, axes = new_figure(1, 3, panel_height=2.5)
    look = looks([FLAT])
    draw_losses(axes[0], cube, fits, (FLAT,), 2, look, name_both)
    draw_decomposition(axes[1:], cube, [(FLAT, 2)], {(FLAT, 2): look[FLAT]})
    note_open_markers(figure, axes)
    return figure


@styled
def figure_11(cube: xr.Dataset, fits: pd.DataFrame) -> Figure:
    """Softmax attention that updates the context: the gain from depth and the learned update depend on the target.

    Parameters
    ----------
    cube : Dataset
        The model with context updates on the difficult task; ``update_scale`` is the trained m of its mask M(m).
    fits : DataFrame
        Its fits.

    Returns
    -------
    Figure
        At a = b = 0: losses and fits for (a) k = 2 and (b) k = 16; m for (c) k = 2 and (d) k = 16, beside the published
        value where there is one.
    """
    figure, axes = new_figure(2, 2, panel_height=2.4)
    look = looks(TARGET_SIZES)
    for k, losses, scales in zip(TARGET_SIZES, axes[:2], axes[2:], strict=True):
        draw_losses(losses, cube, fits, (FLAT,), k, {FLAT: look[k]}, lambda _, k=k: f"top {k}")  # type: ignore[misc]
        _draw_update_scale(scales, cube, k, look[k])
    note_open_markers(figure, axes)
    return figure


@styled
def figure_12(attention: xr.Dataset) -> Figure:
    """Context-to-context attention of the first of two layers.

    Parameters
    ----------
    attention : Dataset
        ``attention(k, query, token)`` of one context, and ``rho``, ``rho_se``, ``fit_residual`` over k.

    Returns
    -------
    Figure
        A_1 for (a) k = 2 and (b) k = 16, on one logarithmic scale of colours, with rho of A_1 ~ rho I + (1 - rho) 11^T
        / P in the titles.
    """
    figure, axes = new_figure(1, 2, panel_height=3.5)
    paper = published("Fig. 12").set_index("k")["value"]
    images = [_draw_attention(ax, attention, k, paper[k]) for k, ax in zip(TARGET_SIZES, axes, strict=True)]
    drawn = [image for image in images if image is not None]
    if drawn:
        figure.colorbar(drawn[0], ax=axes, label="Attention weight", extend="min", shrink=0.8, pad=0.02)
    return figure


@styled
def figure_13(selection: xr.Dataset) -> Figure:
    """Depth makes the selection of tokens more reliable across contexts.

    Parameters
    ----------
    selection : Dataset
        ``selection_loss(L, percentile)``, ``difference(percentile)`` and their standard errors.

    Returns
    -------
    Figure
        (a) Q_L(q) of the shallowest and the deepest model; (b) the fall from one to the other. Shaded: standard
        errors.
    """
    figure, (levels, fall) = new_figure(1, 2, panel_height=2.6)
    first, last = (int(depth) for depth in (selection["L"].min(), selection["L"].max()))
    symbol = rf"$\Delta Q(q) = Q_{{{first}}}(q) - Q_{{{last}}}(q)$"
    for ax, label in ((levels, "Selection loss $Q_L(q)$"), (fall, symbol)):
        ax.set(xlabel="Percentile $q$ of contexts", ylabel=label, xlim=(0, 100))
    if selection["difference"].isnull().all():
        say_no_data(levels)
        say_no_data(fall)
        return figure
    look, q = looks([first, last]), selection["percentile"]
    for depth, style in ((first, "-"), (last, "--")):
        at = selection.sel(L=depth)
        _draw_band(levels, q, at["selection_loss"], at["selection_loss_se"], look[depth], style, f"$L = {depth}$")
    name = f"above zero: $L = {last}$ selects better"
    _draw_band(fall, q, selection["difference"], selection["difference_se"], Look("black", ""), "-", name)
    fall.axhline(0, color="0.4", linestyle=":", linewidth=0.9)
    levels.set_ylim(bottom=0)
    legend_above(levels)
    legend_above(fall)
    note_below(figure, f"{selection.attrs['contexts']:,} contexts common to both depths; shaded: standard errors")
    return figure


def _draw_update_scale(ax: Axes, cube: xr.Dataset, k: int, look: Look) -> None:
    """Draw the trained m against depth, from two layers: with one, no layer reads the updated context.

    As m has no error of evaluation, bars are the spread between seeds.
    """
    exact = cube.assign(update_scale_se=xr.zeros_like(cube["update_scale"]))
    points = curve(exact, "update_scale", FLAT, k).between(2, int(cube["L"].max()))
    if len(points):
        draw_curve(ax, points, look, f"top {k}", signed=True)
        paper = published("Fig. 11")
        for value in paper["value"][(paper["k"] == k) & (paper["quantity"] == "mask_scalar")]:
            ax.axhline(value, color="0.4", linestyle=":", label=f"published: ${value:g}$")
    draw_missing(ax, [] if len(points) else [f"top {k}"], "not run from two layers")
    finish(ax, "Learned update scale $m$", signed=True)


def _draw_attention(ax: Axes, attention: xr.Dataset, k: int, paper: float) -> AxesImage | None:
    """Draw one attention matrix under its rho; nothing but a note if it was not measured."""
    ax.set(xlabel="Attended token", ylabel="Attending token", box_aspect=1)
    at = attention.sel(k=k) if k in attention["k"] else None
    if at is None or at["attention"].isnull().any():
        ax.set_title(f"top {k}: not measured\npublished: {paper:g}", loc="left")
        say_no_data(ax)
        return None
    matrix = at["attention"].transpose("query", "token").to_numpy()
    # From a hundredth of the uniform weight 1/P to all of it: a logarithm shows the diagonal and the broad part alike.
    norm = LogNorm(0.01 / len(matrix), 1, clip=True)
    image = ax.imshow(matrix, cmap=sns.color_palette("mako_r", as_cmap=True), norm=norm, interpolation="nearest")
    ax.grid(False)
    rho = plus_minus(float(at["rho"]), float(at["rho_se"]), r"\pm")
    residual = np.format_float_positional(float(at["fit_residual"]), precision=2, fractional=False, trim="-")
    state = "" if at["converged"] == 1 else ", not converged"
    ax.set_title(f"top {k}{state}: $\\rho = {rho}$\npublished: {paper:g}; residual: {residual}", loc="left")
    return image


def _draw_band(
    ax: Axes, q: xr.DataArray, value: xr.DataArray, error: xr.DataArray, look: Look, style: str, label: str
) -> None:
    """Draw a curve over percentiles, its standard error to either side of it shaded."""
    ax.fill_between(q, value - error, value + error, color=look.color, alpha=0.2, linewidth=0, zorder=1.5)
    ax.plot(q, value, style, color=look.color, label=label)
