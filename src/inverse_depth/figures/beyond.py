"""Figures of what the paper does not say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from inverse_depth.beyond import fits_over_ranges
from inverse_depth.curves import Spectrum, spectra_in, unconverged
from inverse_depth.figures.difficult import BROADER_2, BROADER_16, VARYING_A
from inverse_depth.figures.panels import (
    Look,
    draw_missing,
    legend_above,
    looks,
    name_both,
    new_figure,
    note_open_markers,
    say_no_data,
    styled,
)

FLAT_INPUTS: tuple[Spectrum, ...] = ((0, 0), (0, 0.25), (0, 0.5), (0, 1))


@styled
def depth_range(cube: xr.Dataset) -> Figure:
    """Show how the fitted exponent depends on the shallowest depth of the fit.

    Parameters
    ----------
    cube : Dataset
        Softmax attention on the difficult task.

    Returns
    -------
    Figure
        (a) k = 2, one of a and b zero; (b) k = 2, both above zero, and k = 16. At a = 0 the losses of all b are
        proportional: one curve stands for them.
    """
    figure, axes = new_figure(1, 2, panel_height=3.0)
    flat = next((spectrum for spectrum in FLAT_INPUTS if spectrum in spectra_in(cube, 2)), FLAT_INPUTS[0])
    flat_16 = next((spectrum for spectrum in FLAT_INPUTS if spectrum in spectra_in(cube, 16)), FLAT_INPUTS[1])
    left = [(flat, 2), *((spectrum, 2) for spectrum in VARYING_A if spectrum[0] > 0)]
    right_2 = [(spectrum, 2) for spectrum in BROADER_2]
    right_16 = [(flat_16, 16), *((spectrum, 16) for spectrum in BROADER_16 if spectrum[0] > 0)]
    _draw(axes[0], cube, left, looks(left))
    _draw(axes[1], cube, right_2 + right_16, looks(right_2, right_16))
    note_open_markers(figure, axes, "open markers: fits of models not all of which have converged")
    return figure


def _draw(
    ax: Axes, cube: xr.Dataset, keys: Sequence[tuple[Spectrum, int]], look: dict[tuple[Spectrum, int], Look]
) -> None:
    absent, starts = [], set()
    for i, (spectrum, k) in enumerate(keys):
        name = "$a = 0$, all $b$" if spectrum[0] == 0 else name_both(spectrum)
        name += f", top {k}"
        if spectrum not in spectra_in(cube, k):
            absent.append(name)
            continue
        fits = list(fits_over_ranges(cube, spectrum, k))
        deepest = fits[0][0][-1]
        fits = [(depths, fit) for depths, fit in fits if depths[-1] == deepest]
        known = [(depths[0], fit) for depths, fit in fits if fit.determined]
        missing = len(fits) - len(known)
        starts |= {depths[0] for depths, _ in fits}
        # Curves stand a little beside each other: their bars would hide one another.
        place = np.array([start for start, _ in known], dtype=float) * 2 ** (0.06 * (i - (len(keys) - 1) / 2))
        value = np.array([fit.exponent for _, fit in known])
        error = np.array([fit.exponent_se for _, fit in known])
        color, marker = look[spectrum, k].color, look[spectrum, k].marker
        ax.errorbar(place, value, error, fmt="none", ecolor=color, elinewidth=0.8)
        label = name + (f" ({missing} of {len(fits)} not determined)" if missing else "")
        ax.plot(place, value, "-", color=color, linewidth=0.7)
        done = np.array([not unconverged(cube.sel(L=depths), spectrum, k) for depths, fit in fits if fit.determined])
        for shown, face in ((done.astype(bool), color), (~done.astype(bool), "white")):
            ax.plot(place[shown], value[shown], marker, color=color, markerfacecolor=face)
        ax.plot([], [], marker, color=color, label=label)
    draw_missing(ax, absent)
    if starts:
        ax.axhline(1, color="0.4", linestyle=":", linewidth=0.9, label=r"$\alpha = 1$")
    legend_above(ax)
    ax.set(xlabel="Shallowest depth fitted", ylabel=r"Fitted exponent $\alpha$")
    if not starts:
        say_no_data(ax)
        return
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(sorted(starts)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda depth, _: f"{depth:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.set_xlim(min(starts) / 1.5, max(starts) * 1.5)
