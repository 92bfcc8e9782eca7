"""What the figures share: the style, colours and markers, curves with errors, fits, and axes that stay readable."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib.style
import numpy as np
import pandas as pd
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogFormatterMathtext, LogLocator, MaxNLocator, NullLocator

from inverse_depth.curves import (
    Curve,
    Spectrum,
    curve,
    find_fit,
    is_determined,
    law,
    plus_minus,
)
from inverse_depth.storage import atomic_path

STYLE = Path(__file__).with_name("style.mplstyle")
MARKERS = ("o", "s", "^", "D", "v", "P", "<", ">", "h", "*")
PAGE_WIDTH = 7.0  # inches: two columns of a page

# Start and rotation in seaborn's cubehelix circle: blue-green, then red-brown. Both differ for readers with any of the
# common colour deficiencies, and within each the lightness falls steadily, so the order survives in grey.
_FAMILIES = ((2.9, -0.25), (0.6, 0.35), (1.9, -0.3))

Arguments = ParamSpec("Arguments")


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Draw a figure in the project's style, leaving the caller's settings alone."""

    @functools.wraps(draw)
    def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        with matplotlib.style.context(STYLE, after_reset=True):
            return draw(*args, **kwargs)

    return wrapper


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PDF or PNG, atomically; the same figure gives the same bytes."""
    kind = path.suffix.removeprefix(".")
    undated = {"CreationDate": None} if kind == "pdf" else {}
    with matplotlib.style.context(STYLE, after_reset=True), atomic_path(path) as temporary:
        figure.savefig(temporary, format=kind, metadata=undated)


@dataclass(frozen=True)
class Look:
    """How one curve is drawn."""

    color: Any
    marker: str


def looks(*families: Sequence[Hashable]) -> dict[Any, Look]:
    """Choose a colour and a marker for every key; a key in several families keeps its first.

    Parameters
    ----------
    *families : sequences of hashable
        Each has a hue of its own and runs from dark to light.
    """
    chosen: dict[Any, Look] = {}
    for (start, rotation), family in zip(_FAMILIES, families, strict=False):
        new = [key for key in dict.fromkeys(family) if key not in chosen]
        # Later families are half a step lighter, so that no two curves are equal in grey.
        dark, light = (0.12, 0.57) if not chosen else (0.19, 0.72)
        count = max(len(new), 2)  # a single curve has the dark end
        colors = sns.cubehelix_palette(count, start, rotation, hue=1.1, dark=dark, light=light, reverse=True)
        for key, color in zip(new, colors, strict=False):
            chosen[key] = Look(color, MARKERS[len(chosen) % len(MARKERS)])
    return chosen


def new_figure(
    rows: int, columns: int, panel_height: float = 2.2, width: float = PAGE_WIDTH
) -> tuple[Figure, list[Axes]]:
    """Make a figure of equal panels, lettered (a), (b), ... row by row."""
    figure = Figure(figsize=(PAGE_WIDTH, rows * panel_height), layout="constrained")
    FigureCanvasAgg(figure)  # text is measured while the figure is composed
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.05)  # type: ignore[union-attr, call-arg]
    axes = list(np.ravel(figure.subplots(rows, columns)))
    for letter, ax in zip("abcdefghijkl", axes, strict=False):
        ax.annotate(
            f"({letter})", (0, 1), xytext=(-30, 5), xycoords="axes fraction", textcoords="offset points", weight="bold"
        )
    return figure, axes


def draw_curve(ax: Axes, points: Curve, look: Look, label: str, join: bool = True, signed: bool = False) -> None:
    """Draw points with error bars; open markers where training did not converge.

    Parameters
    ----------
    join : bool
        Connect the points by a thin line, for curves without a fit.
    signed : bool
        Draw values that are not above zero, too; a logarithmic axis has no place for them.
    """
    shown = (points.value > 0) | signed
    depth, value, error = points.depth[shown], points.value[shown], points.error[shown]
    filled = points.converged[shown]
    if join:
        ax.plot(depth, value, "-", color=look.color, linewidth=0.7, zorder=2)
    ax.errorbar(depth, value, yerr=error, fmt="none", ecolor=look.color, elinewidth=0.8, zorder=2.5)
    # the ends of the bars count for the axis, but one that reaches zero would stretch a logarithmic axis without end
    ends = np.concatenate([value + error, value - error if signed else np.maximum(value - error, value / 2)])
    ax.plot(np.tile(depth, 2), ends, " ")
    for mask, face in ((filled, look.color), (~filled, "white")):
        ax.plot(depth[mask], value[mask], look.marker, color=look.color, markerfacecolor=face, zorder=3)
    ax.plot([], [], look.marker, color=look.color, label=label)


def draw_missing(ax: Axes, names: Sequence[str], what: str = "not run") -> None:
    """Name in the legend what has no points, two or three names to a line; nothing if there are no names."""
    if names:
        count = 2 if max(map(len, names)) > 16 else 3
        lines = [", ".join(names[i : i + count]) for i in range(0, len(names), count)]
        ax.plot([], [], " ", label=f"{what}: " + ",\n".join(lines))


def draw_law(ax: Axes, fit: Any, look: Look, minus: float = 0.0) -> None:
    """Draw the fitted law, dashed, over the depths it was fitted to."""
    depth = np.geomspace(fit["depth_min"], fit["depth_max"], 100)
    ax.plot(depth, law(fit, depth) - minus, "--", color=look.color, zorder=2)


def draw_losses(
    ax: Axes,
    cube: xr.Dataset,
    fits: pd.DataFrame,
    spectra: Sequence[Spectrum],
    k: int,
    look: dict[Any, Look],
    name: Callable[[Spectrum], str],
) -> None:
    """Draw losses against depth with their fits; the legend gives each exponent, or says that there is none."""
    absent: list[str] = []
    for spectrum in spectra:
        points, fit = curve(cube, "loss", spectrum, k), find_fit(fits, "loss", spectrum, k)
        if not len(points):
            absent.append(name(spectrum))
            continue
        label = f"{name(spectrum)}: {exponent_text(fit)}"
        draw_curve(ax, points, look[spectrum], label, join=not is_determined(fit))
        if is_determined(fit):
            draw_law(ax, fit, look[spectrum])
    draw_missing(ax, absent)
    finish(ax, "Loss $\\mathcal{R}_L$")


def draw_decomposition(
    axes: Sequence[Axes], cube: xr.Dataset, keys: Sequence[tuple[Spectrum, int]], look: dict[Any, Look]
) -> None:
    """Draw C_L in one panel and A_L - C_L in the other, for pairs of a spectrum and a target size.

    A panel with a value that is not above zero has a linear axis.
    """
    several = len({k for _, k in keys}) > 1
    names = {key: f"{name_both(key[0])}, top {key[1]}" if several else name_both(key[0]) for key in keys}
    panels = (("shared_error", "Shared error $C_L$"), ("disagreement", "Disagreement $A_L - C_L$"))
    for ax, (quantity, symbol) in zip(axes, panels, strict=True):
        curves = {key: curve(cube, quantity, *key) for key in keys}
        signed = any((points.value <= 0).any() for points in curves.values())
        for key, points in curves.items():
            if len(points):
                draw_curve(ax, points, look[key], names[key], signed=signed)
        draw_missing(ax, [names[key] for key, points in curves.items() if not len(points)])
        finish(ax, symbol, signed)


def exponent_text(fit: Any) -> str:
    """Say the fitted exponent with its standard error, or that there is none."""
    if is_determined(fit):
        return rf"$\alpha = {plus_minus(fit['exponent'], fit['exponent_se'], chr(92) + 'pm')}$"
    return "no fit" if fit is None else r"$\alpha$ not determined"


def name_a(spectrum: Spectrum) -> str:
    """Name a spectrum by its a alone."""
    return f"$a = {spectrum[0]:g}$"


def name_b(spectrum: Spectrum) -> str:
    """Name a spectrum by its b alone."""
    return f"$b = {spectrum[1]:g}$"


def name_both(spectrum: Spectrum) -> str:
    """Name a spectrum by the pair (a, b)."""
    return f"$({spectrum[0]:g}, {spectrum[1]:g})$"


def finish(ax: Axes, ylabel: str, signed: bool = False) -> None:
    """Set a panel against depth once everything is drawn: logarithmic axes, ticks to read from, the legend above.

    Parameters
    ----------
    signed : bool
        Make the vertical axis linear, with zero on it.
    """
    legend_above(ax)
    ax.set(xlabel="Depth $L$", ylabel=ylabel)
    lines = _drawn([ax])
    # Lines across the whole panel (axhline) have an x in units of the panel.
    x = _positive([line.get_xdata() for line in lines if line.get_transform() is ax.transData])
    y = _positive([line.get_ydata() for line in lines])
    if not len(x) or not (len(y) or signed):
        say_no_data(ax)
        return
    ax.set_xscale("log", base=2)
    ax.set_xlim(x.min() / 1.25, x.max() * 1.25)
    powers = range(math.floor(math.log2(x.min())), math.ceil(math.log2(x.max())) + 1)
    every = 2 if len(powers) * 0.24 > _panel_width(ax) else 1
    ax.xaxis.set_major_locator(FixedLocator([2.0**power for power in powers[::every]]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda depth, _: f"{depth:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    if signed:
        ax.axhline(0, color="0.4", linewidth=0.6, zorder=1)
        ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        return
    ax.set_yscale("log")
    pad = max(0.06 * math.log(y.max() / y.min()), 0.003)
    ax.set_ylim(y.min() * math.exp(-pad), y.max() * math.exp(pad))
    _value_ticks(ax)


def say_no_data(ax: Axes) -> None:
    """Write into an empty panel that it is empty."""
    ax.set(xticks=[], yticks=[])
    ax.text(0.5, 0.5, "no data", transform=ax.transAxes, ha="center", va="center", color="0.4")


def legend_above(ax: Axes) -> None:
    """Put the legend above the panel, where it hides no data, in as many columns as the panel is wide."""
    entries = len(ax.get_legend_handles_labels()[1])
    for rows in range(1, entries + 1):
        legend = ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=math.ceil(entries / rows))
        extent = legend.get_window_extent(ax.figure.canvas.get_renderer())  # type: ignore[attr-defined]
        if extent.width / ax.figure.dpi <= _panel_width(ax):
            return


def head_legend(ax: Axes, heading: str) -> None:
    """Set a heading over the legend of a panel."""
    legend = ax.get_legend()
    legend.set_title(heading)  # type: ignore[union-attr]
    legend.set_alignment("left")  # type: ignore[union-attr]


def share_values(axes: Sequence[Axes]) -> None:
    """Give those panels that hold data the same logarithmic scale of values."""
    drawn = [ax for ax in axes if ax.get_yscale() == "log"]
    limits = np.array([ax.get_ylim() for ax in drawn])
    for ax in drawn:
        ax.set_ylim(limits.min(), limits.max())
        _value_ticks(ax)


def _panel_width(ax: Axes) -> float:
    """Guess the width of a panel, in inches, before the layout fixes it."""
    return PAGE_WIDTH / ax.get_subplotspec().get_gridspec().ncols - 0.6  # type: ignore[union-attr]


def _value_ticks(ax: Axes) -> None:
    """Ticks on a logarithmic axis that may span anything from a few per cent to many decades."""
    low, high = ax.get_ylim()
    ax.yaxis.set_minor_locator(NullLocator())
    if high / low > 1000:
        ax.yaxis.set_major_locator(LogLocator(numticks=8))
        ax.yaxis.set_major_formatter(LogFormatterMathtext())
    elif high / low > 10:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        decimals = max(len(f"{tick:.8g}".partition(".")[2]) for tick in ticks)
        ax.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.{decimals}f}"))


def note_open_markers(
    figure: Figure, axes: Sequence[Axes], what: str = "filled markers: training converged; open: not converged"
) -> None:
    """Say below the figure what filled and open markers are, if there are open ones."""
    if any(line.get_markerfacecolor() == "white" for line in _drawn(axes)):
        note_below(figure, what)


def note_below(figure: Figure, text: str) -> None:
    """Write a small note at the lower right."""
    figure.supxlabel(text, x=0.99, ha="right", fontsize=7, color="0.35")


def _drawn(axes: Sequence[Axes]) -> list[Line2D]:
    """List the lines that have points; entries of a legend have none."""
    return [line for ax in axes for line in ax.get_lines() if np.size(line.get_xdata())]


def _positive(arrays: Sequence[Any]) -> Any:
    values = np.concatenate([np.asarray(array, dtype=float) for array in arrays]) if arrays else np.array([])
    return values[np.isfinite(values) & (values > 0)]
