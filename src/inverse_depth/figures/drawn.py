"""Figures drawn from one sampled context of each task: what the tasks are, and what of a target is predictable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from inverse_depth.figures.panels import head_legend, legend_above, new_figure, styled

Vector = NDArray[np.float64]

COLORMAP = "cividis"
GREEN, BLUE, RED = "#009e73", "#0072b2", "#d55e00"
"""Of target, predictable part and residual (Okabe and Ito): they differ for readers with any colour deficiency."""
QUERY = r"x_\mathrm{test}"
ORIGIN = np.zeros(2)
CLEAR = 9.0
"""Pixels, at the figure's 100 to an inch, between a name and what it must not hide."""
SIDES = np.array([-1, 1])
TURNED = ("Along the query", "Across the query")


@styled
def figure_2(contexts: xr.Dataset) -> Figure:
    """Draw the two tasks in one sampled context each.

    Parameters
    ----------
    contexts : Dataset
        A context of each task in two dimensions.

    Returns
    -------
    Figure
        (a) easy task, copy the label of the matching token; (b) difficult task, average the labels of the k tokens of
        largest cosine with the query. Tokens are coloured by label; rings mark the selected ones, whose labels are
        named.
    """
    figure, axes = new_figure(1, 2, panel_height=3.7)
    span = float(abs(contexts["labels"]).max())
    colors = ScalarMappable(Normalize(-span, span), COLORMAP)
    for ax, task in zip(axes, ("easy", "difficult"), strict=True):
        context = contexts.sel(task=task)
        tokens, query, chosen = _selection(context)
        for x in tokens[chosen]:
            ax.plot(*np.transpose([ORIGIN, x]), ":", color="0.45", linewidth=0.9, zorder=1)
        # An arrow to a token ends at its ring.
        tip = query * (1 - 0.045 * np.ptp(tokens) / np.linalg.norm(query)) if task == "easy" else query
        _arrow(ax, ORIGIN, tip, "black", "-", f"query ${QUERY}$")
        face = colors.to_rgba(context["labels"].to_numpy())
        ax.scatter(tokens[:, 0], tokens[:, 1], s=36, c=face, edgecolors="0.3", linewidths=0.6, zorder=3)
        ax.plot(*tokens[chosen].T, "o", color="black", markersize=10, markerfacecolor="none", label=" selected token")
        ax.plot([], [], "o", color="0.3", markerfacecolor="0.7", markersize=6, label="token, coloured by label")
        _frame(ax, np.vstack([tokens, query, ORIGIN]), ("Input component 1", "Input component 2"))
        legend_above(ax)
        head_legend(ax, _task_in_words(context, chosen))
    figure.colorbar(colors, ax=axes, label="Label $y_i$", shrink=0.75, aspect=28)
    figure.draw_without_rendering()
    for ax, task in zip(axes, ("easy", "difficult"), strict=True):
        context = contexts.sel(task=task)
        tokens, query, chosen = _selection(context)
        names = [(tokens[i], f"$y_{{{i + 1}}} = {_number(context['labels'][i])}$") for i in chosen]
        names.append((query, f"${QUERY} = x_{{{chosen[0] + 1}}}$" if task == "easy" else f"${QUERY}$"))
        lines = [_along(ORIGIN, end) for end in (query, *tokens[chosen])]
        _write_names(ax, names, np.vstack([tokens, *lines]))
    return figure


def _selection(context: xr.Dataset) -> tuple[Vector, Vector, NDArray[np.int64]]:
    """Read the tokens, shape (P, 2), the query, shape (2,), and the indices of the selected tokens."""
    return context["tokens"].to_numpy(), context["query"].to_numpy(), np.flatnonzero(context["selected"])


def _task_in_words(context: xr.Dataset, chosen: NDArray[np.int64]) -> str:
    """Say what the task asks for, and the number that it gives here."""
    target = _number(context["target"])
    if len(chosen) == 1:
        return f"Easy: copy the matching token's label\n$y^* = y_{{{chosen[0] + 1}}} = {target}$"
    mean = " + ".join(f"y_{{{i + 1}}}" for i in chosen)
    return f"Difficult: average the nearest {len(chosen)} labels\n$y^* = ({mean}) / {len(chosen)} = {target}$"


@styled
def figure_8(contexts: xr.Dataset) -> Figure:
    """Draw the target of the difficult task, its predictable part and the residual of one context.

    Parameters
    ----------
    contexts : Dataset
        A context of each task in two dimensions, with the mean of the target over other contexts with the same query.

    Returns
    -------
    Figure
        Turned so that the query is horizontal. (a) t, the mean of the selected inputs, as OC, its mean over contexts
        with this query, and the residual Ct. (b) The same vectors among the t of other contexts.
    """
    context = contexts.sel(task="difficult")
    tokens, query, chosen = _selection(context)
    turn = np.array([[query[0], -query[1]], [query[1], query[0]]]) / np.linalg.norm(query)
    inputs = tokens[chosen] @ turn
    query, target, mean, approximate, others = (
        context[name].to_numpy() @ turn
        for name in ("query", "target_input", "predictable_part", "approximate_part", "other_targets")
    )

    figure, (one, many) = new_figure(1, 2, panel_height=3.6)
    for ax in (one, many):
        ax.axhline(0, color="0.5", linestyle=(0, (1, 2)), linewidth=0.9, zorder=0.5)
        _arrow(ax, ORIGIN, target, GREEN, "-", r"target $t$", 1.8)
        _arrow(ax, ORIGIN, mean, BLUE, "-", r"predictable part $\bar t$", 1.8)
        _arrow(ax, mean, target, RED, (0, (4, 1.5)), r"residual $t - \bar t$", 1.8)
    for x in inputs:
        _arrow(one, ORIGIN, x, "black", "-", "_hidden", 0.9)
    one.plot(*inputs.T, ":", color="0.35", linewidth=0.9, zorder=1)
    one.plot([], [], "-", color="black", linewidth=0.9, label="selected input $x_i$")
    one.plot(*query, "s", color="black", markersize=4, zorder=4, label=f"query ${QUERY}$")
    one.plot(
        *approximate, "D", color=BLUE, markerfacecolor="white", markersize=5, zorder=4,
        label=rf"$c\,\Sigma\,{QUERY}$, $c = {_number(context['coefficient'])}$",
    )  # fmt: skip
    for line in many.get_lines():
        line.set_label("_hidden")  # named in the other panel
    many.plot(*others.T, "o", color="0.7", markersize=2.2, markeredgewidth=0, zorder=1, label="$t$ of other contexts")
    _frame(one, np.vstack([inputs, target, mean, query, approximate, ORIGIN]), TURNED)
    _frame(many, np.vstack([others, target, mean, ORIGIN]), TURNED)
    residual = float(context["residual_power"])
    predictable = float(context["target_power"]) - residual
    legend_above(one)
    legend_above(many)
    head_legend(
        many,
        "The same query in other contexts:\n"
        rf"$|\bar t|^2 = {_number(predictable)}$, $E|t - \bar t|^2 = {_number(residual)}$",
    )
    figure.draw_without_rendering()

    arrows = [
        _along(*ends) for ends in ((ORIGIN, target), (ORIGIN, mean), (mean, target), *((ORIGIN, x) for x in inputs))
    ]
    names = [(target, "$t$"), (mean, "$C$"), (ORIGIN, "$O$")]
    own = [(query, f"${QUERY}$"), *((x, f"$x_{{{i + 1}}}$") for i, x in zip(chosen, inputs, strict=True))]
    ray = _along(*(np.array([edge, 0]) for edge in one.get_xlim()))
    _write_names(one, names + own, np.vstack([*arrows, ray, approximate]))
    _write_names(many, names, np.vstack([*arrows[:3], ray]))
    return figure


def _arrow(ax: Axes, start: Vector, end: Vector, color: str, line: Any, label: str, width: float = 1.1) -> None:
    """Draw a vector: a shaft, which the legend shows, and a head at its end."""
    ax.plot(*np.transpose([start, end]), color=color, linestyle=line, linewidth=width, label=label, zorder=2)
    neck = end + 1e-3 * (start - end)
    ax.add_patch(
        FancyArrowPatch(
            tuple(neck), tuple(end), arrowstyle="-|>", mutation_scale=8, color=color, shrinkA=0, shrinkB=0, zorder=2.5
        )
    )


def _frame(ax: Axes, points: Vector, labels: tuple[str, str]) -> None:
    """Set equal scales and room for the points and their names."""
    centre, half = (points.min(0) + points.max(0)) / 2, 0.62 * np.ptp(points, axis=0).max()
    ax.set(xlim=centre[0] + half * SIDES, ylim=centre[1] + half * SIDES, xlabel=labels[0], ylabel=labels[1])
    ax.set_aspect("equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def _along(start: Vector, end: Vector) -> Vector:
    """Points along a line, shape (n, 2), to be kept clear of."""
    return start + np.linspace(0, 1, 40)[:, None] * (end - start)


def _write_names(ax: Axes, names: Sequence[tuple[Vector, str]], obstacles: Vector) -> None:
    """Write names beside their points where they hide nothing: each at the clearest of 64 places.

    Parameters
    ----------
    names : sequence of (ndarray of shape (2,), str)
        Points, in the units of the axes, with what is to stand beside them.
    obstacles : ndarray, shape (n, 2)
        Points to be kept clear of.
    """
    taken = ax.transData.transform(np.vstack([obstacles, *(point for point, _ in names)]))
    for point, text in names:
        note = ax.annotate(text, tuple(point), (0, 0), textcoords="offset points", ha="center", va="center", zorder=5)
        note.set_path_effects([withStroke(linewidth=2, foreground="white")])
        note.set_in_layout(False)
        places = [_beside(note, gap, angle) for gap, angle in product((5, 8, 14, 22), np.arange(16) * math.pi / 8)]
        note.set_position(max(places, key=partial(_worth, ax, note, taken)))
        box = note.get_window_extent()
        corners = product(np.linspace(box.x0, box.x1, 9), np.linspace(box.y0, box.y1, 5))
        taken = np.vstack([taken, *corners])


def _worth(ax: Axes, note: Annotation, taken: Vector, place: tuple[float, float]) -> float:
    """Judge a place for a name: clear of what is taken (pixels, shape (n, 2)), then near, and inside the panel."""
    note.set_position(place)
    box, panel = note.get_window_extent(), ax.get_window_extent()
    inside = panel.x0 < box.x0 and box.x1 < panel.x1 and panel.y0 < box.y0 and box.y1 < panel.y1
    gaps = np.maximum(0, np.maximum([box.x0, box.y0] - taken, taken - [box.x1, box.y1]))
    clear = min(float(np.linalg.norm(gaps, axis=1).min()), CLEAR)
    return clear - 0.15 * math.hypot(*place) - (0 if inside else 100)


def _beside(note: Annotation, gap: float, angle: float) -> tuple[float, float]:
    """Offset, in points, of a text's centre that leaves a gap to its point in the direction of the angle."""
    box = note.get_window_extent()
    scale = 72 / note.figure.dpi
    return (
        math.cos(angle) * (gap + scale * box.width / 2),
        math.sin(angle) * (gap + scale * box.height / 2),
    )


def _number(value: Any) -> str:
    return f"{float(value):.2f}"
