"""One function per table: our values beside the published ones (Peng et al., arXiv:2610.11063) and their difference.

A value ``x`` has its standard error in the column ``x_se`` and the published one in ``x_published``. A value that was
not measured or is not determined is NaN, and the column ``x_note`` (``note``, where all values of a row share it) says
why; it also says how many of the runs behind a value did not converge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import resources
from typing import Any

import pandas as pd
import xarray as xr

from inverse_depth.curves import (
    Spectrum,
    find_fit,
    is_determined,
    join_notes,
    misfit,
    model_size,
    plateau,
    theoretical_floor,
    unconverged,
    why_undetermined,
)
from inverse_depth.spectra import spectral_exponent

PUBLISHED_SIZE: dict[str, tuple[int, int]] = {"softmax": (16, 64), "linear": (128, 1024)}
"""Dimension and context length of the published models of the difficult task, as far as their numbers tell."""


def another_size(dataset: xr.Dataset, attention: str) -> str:
    """Say that models or theory are not of the published size; nothing if they are."""
    (d, length), (ours_d, ours_length) = PUBLISHED_SIZE[attention], model_size(dataset)
    if (d, length) == (ours_d, ours_length):
        return ""
    return f"ours has d = {ours_d}, P = {ours_length}, the published d = {d}, P = {length}"


def published(place: str = "") -> pd.DataFrame:
    """Read the published numbers of a place, such as "Table 1" or "Fig. 12"; of all places by default.

    Returns
    -------
    DataFrame
        Columns place, quantity, attention, task, k, a, b, value, se (NaN where none is given), note.

    Raises
    ------
    ValueError
        If nothing is recorded for the place.
    """
    with resources.files("inverse_depth").joinpath("data/published.csv").open(encoding="utf-8") as file:
        frame = pd.read_csv(file)
    if not place:
        return frame
    if place not in set(frame["place"]):
        raise ValueError(f"place is {place!r}: allowed are {', '.join(sorted(set(frame['place'])))}")
    return frame[frame["place"] == place].reset_index(drop=True)


def table_1(softmax: xr.Dataset, fits: pd.DataFrame, linear: xr.Dataset, matched: xr.Dataset) -> pd.DataFrame:
    """Tabulate loss floors of softmax and linear attention on the difficult task, k = 2.

    Parameters
    ----------
    softmax, linear : Dataset
        Cubes of the difficult task.
    fits : DataFrame
        Fits of the softmax cube: L_0 of R_L = L_0 + c L^-alpha.
    matched : Dataset
        Theoretical linear floors (App. A.3) at the dimension and context length of the softmax models.

    Returns
    -------
    DataFrame
        The published table compares models of different sizes; the column ``matched`` compares like with like. A
        difference is NaN where our models do not have the published size, on which the loss depends.
    """
    paper = published("Table 1")
    other_softmax, other_linear = another_size(softmax, "softmax"), another_size(linear, "linear")

    def row(a: float, b: float, k: int) -> dict[str, Any]:
        fit, level = find_fit(fits, "loss", (a, b), k), plateau(linear, (a, b), k)
        floor, floor_se = _fitted(fit, "floor")
        theory, theory_se = theoretical_floor(matched, (a, b), k)
        paper_softmax, paper_linear = (_paper(paper, "floor", a, b, k, attention=one) for one in ("softmax", "linear"))
        return {
            **_value("softmax", floor, floor_se, paper_softmax, comparable=not other_softmax),
            **_value("linear", level.value, level.error, paper_linear, comparable=not other_linear),
            **_ratio("ratio", level.value, level.error, floor, floor_se),
            "matched": theory,
            "matched_se": theory_se,
            **_ratio("matched_ratio", theory, theory_se, floor, floor_se),
            "softmax_note": join_notes([other_softmax, _fit_note(softmax, fit, (a, b), k)]),
            "linear_note": join_notes([other_linear, level.note]),
            "matched_note": "" if math.isfinite(theory) else "not computed",
        }

    return _frame(paper, row).drop(columns="k")


def table_2(cube: xr.Dataset, fits: pd.DataFrame) -> pd.DataFrame:
    """Tabulate depth exponents of linear attention on the easy task beside the polynomial references (App. A.2).

    Parameters
    ----------
    cube : Dataset
        Linear attention on the easy task.
    fits : DataFrame
        Its fits, of c L^-alpha.

    Returns
    -------
    DataFrame
        zeta = (a + b - 1) / a is the exponent of constrained, 2 zeta that of free polynomials; ``between`` judges the
        95 % interval of the measured exponent.
    """
    paper = published("Table 2")

    def row(a: float, b: float, k: int) -> dict[str, Any]:
        fit, zeta = find_fit(fits, "loss", (a, b), k), spectral_exponent(a, b)
        exponent, exponent_se = _fitted(fit, "exponent")
        low, high = _fitted(fit, "exponent_low")[0], _fitted(fit, "exponent_high")[0]
        inside = "yes" if zeta <= low and high <= 2 * zeta else "no" if high < zeta or low > 2 * zeta else "in part"
        return {
            "zeta": zeta,
            **_value("exponent", exponent, exponent_se, _paper(paper, "exponent", a, b, k), percent=False),
            "exponent_low": low,
            "exponent_high": high,
            "two_zeta": 2 * zeta,
            "between": inside if math.isfinite(low) and math.isfinite(high) else "not determined",
            "note": _fit_note(cube, fit, (a, b), k),
        }

    return _frame(paper, row).drop(columns="k")


def table_3(cube: xr.Dataset, floors: xr.Dataset) -> pd.DataFrame:
    """Tabulate theoretical loss floors of linear attention on the difficult task beside the measured plateaus.

    Parameters
    ----------
    cube : Dataset
        Linear attention on the difficult task.
    floors : Dataset
        Floors at the same dimension and context length: floor, floor_se over (a, b, k).

    Returns
    -------
    DataFrame
        ``difference_percent`` is (measured - theory) / measured; the published one has no sign.
    """
    paper = published("Table 3")

    def row(a: float, b: float, k: int) -> dict[str, Any]:
        (theory, theory_se), level = theoretical_floor(floors, (a, b), k), plateau(cube, (a, b), k)
        theory_paper, theory_paper_se = _paper(paper, "theory_floor", a, b, k)
        return {
            "theory": theory,
            "theory_se": theory_se,
            "theory_published": theory_paper,
            "theory_published_se": theory_paper_se,
            "plateau": level.value,
            "plateau_se": level.error,
            "plateau_published": _paper(paper, "plateau", a, b, k)[0],
            "difference_percent": 100 * (level.value - theory) / level.value,
            "difference_percent_published": _paper(paper, "difference_percent", a, b, k)[0],
            "theory_note": another_size(floors, "linear") if math.isfinite(theory) else "not computed",
            "plateau_note": join_notes([another_size(cube, "linear"), level.note]),
        }

    return _frame(paper, row)


def table_4(cube: xr.Dataset, fits: pd.DataFrame) -> pd.DataFrame:
    """Tabulate fits of R_L = L_0 + c L^-alpha for softmax attention with broader targets and spectra (App. D.3).

    Parameters
    ----------
    cube : Dataset
        Softmax attention on the difficult task.
    fits : DataFrame
        Its fits.

    Returns
    -------
    DataFrame
    """
    paper = published("Table 4")

    def row(a: float, b: float, k: int) -> dict[str, Any]:
        fit = find_fit(fits, "loss", (a, b), k)
        paper_floor, other = _paper(paper, "floor", a, b, k), another_size(cube, "softmax")
        floor = _value("floor", *_fitted(fit, "floor"), paper_floor, comparable=not other)
        exponent = _exponent(cube, fit, paper, "exponent", a, b, k)
        return floor | exponent | {"note": join_notes([other, exponent["note"]])}

    return _frame(paper, row)


def table_5(cube: xr.Dataset, fits: pd.DataFrame) -> pd.DataFrame:
    """Tabulate exponents of the gap L_0 - C_L between the floor and the shared error of softmax attention (App. D.4).

    Parameters
    ----------
    cube : Dataset
        Softmax attention on the difficult task.
    fits : DataFrame
        Its fits; the gap's takes L_0 from the fit of the loss.

    Returns
    -------
    DataFrame
    """
    paper = published("Table 5")

    def row(a: float, b: float, k: int) -> dict[str, Any]:
        return _exponent(cube, find_fit(fits, "shared_error_gap", (a, b), k), paper, "gap_exponent", a, b, k)

    return _frame(paper, row).drop(columns="k")


def _frame(paper: pd.DataFrame, row: Callable[[float, float, int], dict[str, Any]]) -> pd.DataFrame:
    """Make a row for every spectrum and target size of a published table, in its order."""
    keys = dict.fromkeys(
        (int(k), float(a), float(b)) for k, a, b in zip(paper["k"], paper["a"], paper["b"], strict=True)
    )
    return pd.DataFrame([{"k": k, "a": a, "b": b, **row(a, b, k)} for k, a, b in keys])


def _paper(
    paper: pd.DataFrame, quantity: str, a: float, b: float, k: int, attention: str | None = None
) -> tuple[float, float]:
    """Look up a published value and its standard error, NaN where none is given."""
    rows = paper[(paper["quantity"] == quantity) & (paper["a"] == a) & (paper["b"] == b) & (paper["k"] == k)]
    rows = rows if attention is None else rows[rows["attention"] == attention]
    return float(rows["value"].item()), float(rows["se"].item())


def _value(
    name: str, value: float, se: float, paper: tuple[float, float], percent: bool = True, comparable: bool = True
) -> dict[str, float]:
    """Set ours, the published value and, where comparable, the difference, in per cent of the latter or as it is."""
    difference = value - paper[0] if comparable else math.nan
    columns = {name: value, f"{name}_se": se, f"{name}_published": paper[0]}
    if math.isfinite(paper[1]):
        columns[f"{name}_published_se"] = paper[1]
    key, number = ("_difference_percent", 100 * difference / paper[0]) if percent else ("_difference", difference)
    return columns | {name + key: number}


def _ratio(name: str, over: float, over_se: float, under: float, under_se: float) -> dict[str, float]:
    """Compute a ratio and its standard error, the two errors being independent."""
    if not under > 0:
        return {name: math.nan, f"{name}_se": math.nan}
    return {name: over / under, f"{name}_se": math.hypot(over_se, over * under_se / under) / under}


def _exponent(
    cube: xr.Dataset, fit: Any, paper: pd.DataFrame, quantity: str, a: float, b: float, k: int
) -> dict[str, Any]:
    """Set the exponent of a fit and its R squared beside the published ones, with a note on the fit."""
    return {
        **_value("exponent", *_fitted(fit, "exponent"), _paper(paper, quantity, a, b, k), percent=False),
        "r_squared": _fitted(fit, "r_squared")[0],
        "r_squared_published": _paper(paper, "r_squared", a, b, k)[0],
        "note": _fit_note(cube, fit, (a, b), k),
    }


def _fitted(fit: Any, name: str) -> tuple[float, float]:
    """Read a fitted number and its standard error; NaN unless the fit is determined."""
    if not is_determined(fit):
        return math.nan, math.nan
    return float(fit[name]), float(fit.get(f"{name}_se", math.nan))


def _fit_note(cube: xr.Dataset, fit: Any, spectrum: Spectrum, k: int) -> str:
    """Say what a reader must know of a fit: nothing was run, not determined, misses the data, runs not converged."""
    runs = unconverged(cube, spectrum, k)
    return runs if runs == "not run" else join_notes([why_undetermined(fit), misfit(fit), runs])
