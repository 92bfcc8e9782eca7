"""The numbers that a figure shows, so that two drawings can be compared whatever the library that drew them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

TOLERANCE = 1e-9
"""Relative difference up to which two numbers count as equal: rounding of other machines' arithmetic."""


def drawn_data(figure: Figure) -> list[dict[str, Any]]:
    """Read the data out of a figure.

    Returns
    -------
    list of dict
        For each panel its labels, and the numbers of its ``lines``, ``collections`` (error bars, bands, points) and
        ``images``, in the order drawn; plain values that JSON can hold, NaN as None.
    """
    return [
        {
            "title": ax.get_title(),
            "x_label": ax.get_xlabel(),
            "y_label": ax.get_ylabel(),
            "legend": [text.get_text() for text in legend.get_texts()] if (legend := ax.get_legend()) else [],
            "lines": [[_numbers(line.get_xdata()), _numbers(line.get_ydata())] for line in ax.get_lines()],
            "collections": [
                {
                    "paths": [_numbers(path.vertices) for path in collection.get_paths()],
                    "points": _numbers(collection.get_offsets()),
                    "values": [] if (values := collection.get_array()) is None else _numbers(values),
                }
                for collection in ax.collections
            ],
            "images": [_numbers(image.get_array()) for image in ax.images],
        }
        for ax in figure.axes
    ]


def difference(found: Any, expected: Any, place: str = "figure") -> str:
    """Say where two drawings' data first differ; nothing if they are equal up to `TOLERANCE`."""
    if isinstance(expected, dict) and isinstance(found, dict) and set(found) == set(expected):
        parts = ((found[key], expected[key], f"{place}, {key}") for key in expected)
        return next(filter(None, (difference(*part) for part in parts)), "")
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        parts = ((a, b, f"{place} {i + 1}") for i, (a, b) in enumerate(zip(found, expected, strict=True)))
        return next(filter(None, (difference(*part) for part in parts)), "")
    numbers = all(isinstance(value, float | int) for value in (found, expected))
    same = math.isclose(found, expected, rel_tol=TOLERANCE, abs_tol=1e-15) if numbers else found == expected
    return "" if same else f"{place}: {str(found)[:60]!r} instead of {str(expected)[:60]!r}"


def _numbers(values: Any) -> Any:
    array: Any = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    plain = array.astype(object)
    plain[~np.isfinite(array)] = None
    return plain.tolist()
