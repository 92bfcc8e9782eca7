"""The figure that sets the two tasks and the two kinds of attention beside each other."""

from __future__ import annotations

import xarray as xr
from matplotlib.figure import Figure

from inverse_depth.curves import Spectrum, at_least_error, curve, spectra_in
from inverse_depth.figures.panels import (
    draw_curve,
    draw_missing,
    finish,
    head_legend,
    looks,
    name_both,
    new_figure,
    note_open_markers,
    share_values,
    styled,
)


@styled
def figure_1(
    linear_easy: xr.Dataset, softmax_easy: xr.Dataset, linear_difficult: xr.Dataset, softmax_difficult: xr.Dataset
) -> Figure:
    """Compare linear and softmax attention on both tasks.

    Parameters
    ----------
    linear_easy, softmax_easy, linear_difficult, softmax_difficult : Dataset
        The cubes.

    Returns
    -------
    Figure
        Loss against depth for (a) linear and (b) softmax attention on the easy task, (c) linear and (d) softmax
        attention on the difficult task with k = 2; a spectrum (a, b) looks the same everywhere. On the easy task a loss
        that is not above zero is drawn at its standard error. On the difficult task losses are divided by that at the
        shallowest depth: between spectra they differ more than depth changes any of them, and the curves of all b at
        a = 0 coincide. A row shares its scale.
    """
    panels = [
        ("Linear attention, easy task", linear_easy, 1),
        ("Softmax attention, easy task", softmax_easy, 1),
        ("Linear attention, difficult task", linear_difficult, 2),
        ("Softmax attention, difficult task", softmax_difficult, 2),
    ]
    figure, axes = new_figure(2, 2, panel_height=3.0)
    shown = [_shown(cube, k) for _, cube, k in panels]
    known = [spectrum for spectra in shown for spectrum in spectra]
    look = looks(
        sorted({s for s in known if s[0] == 0}),
        sorted({s for s in known if s[1] == 0}),
        sorted({s for s in known if min(s) > 0}),
    )
    for ax, (title, cube, k), spectra in zip(axes, panels, shown, strict=True):
        curves = {spectrum: curve(cube, "loss", spectrum, k) for spectrum in spectra}
        first = min((points.depth[0] for points in curves.values()), default=1)
        absent = []
        for spectrum, points in curves.items():
            if k > 1 and points.depth[0] > first:
                absent.append(name_both(spectrum))
                continue
            points = at_least_error(points) if k == 1 else points / points.value[0]
            draw_curve(ax, points, look[spectrum], name_both(spectrum))
        drawn = [spectrum for spectrum in curves if name_both(spectrum) not in absent]
        if k > 1 and sum(spectrum[0] == 0 for spectrum in drawn) > 1:
            ax.plot([], [], " ", label="$a = 0$: curves of all $b$ coincide")
        draw_missing(ax, absent if spectra else ["any spectrum"], f"no $L = {first}$" if spectra else "not run")
        finish(
            ax, r"Loss $\mathcal{R}_L$" if k == 1 else rf"Relative loss $\mathcal{{R}}_L / \mathcal{{R}}_{{{first}}}$"
        )
        head_legend(ax, f"{title}, $(a, b)$:")
    share_values(axes[:2])
    share_values(axes[2:])
    note_open_markers(figure, axes)
    return figure


def _shown(cube: xr.Dataset, k: int) -> list[Spectrum]:
    """List the spectra of a panel: all of the easy task, those with a = 0 or b = 0 of the difficult one."""
    return [spectrum for spectrum in spectra_in(cube, k) if k == 1 or min(spectrum) == 0]
