"""Published numbers and claims (Peng et al., arXiv:2610.11063) beside ours, each with a verdict.

``docs/comparison.md`` states the rule and the tolerances; `ENTRIES` holds the tolerances and what is measured.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd
import xarray as xr

from inverse_depth.measures import DEEP, DEEP_GENERALISED, Place, Source, diagonal, floor
from inverse_depth.tables import another_size, published
from inverse_depth.verdicts import AGREES, DIFFERS, UNDECIDED, Kind, Measured, judge

SIZED = ("Table 1", "Table 3", "Table 4", "Table 5")
"""Places whose numbers depend on the size of the models, as published."""

MODELS = {
    "Fig. 9": "softmax, single stream",
    "Fig. 10": "softmax, decoupled values",
    "Fig. 11": "softmax, context updates",
    "Fig. 12": "softmax, context updates",
}
"""The generalised models, by place."""


def comparison(
    softmax: xr.Dataset,
    softmax_fits: pd.DataFrame,
    linear: xr.Dataset,
    floors: xr.Dataset,
    linear_easy: xr.Dataset,
    linear_easy_fits: pd.DataFrame,
    softmax_easy: xr.Dataset,
    single_stream: xr.Dataset,
    decoupled_values: xr.Dataset,
    context_updates: xr.Dataset,
    context_attention: xr.Dataset,
) -> pd.DataFrame:
    """List every published number and decidable claim beside ours, with a verdict.

    Parameters
    ----------
    softmax, linear : Dataset
        Cubes of the difficult task.
    floors : Dataset
        Theoretical floors of linear attention: floor, floor_se over (a, b, k).
    linear_easy, softmax_easy : Dataset
        Cubes of the easy task.
    softmax_fits, linear_easy_fits : DataFrame
        Fits of those cubes.
    single_stream, decoupled_values, context_updates : Dataset
        Cubes of the generalised models (App. C); the last holds update_scale, the scalar m.
    context_attention : Dataset
        rho, rho_se over k, of A_1 = rho I + (1 - rho) 11^T / P (App. C.3).

    Returns
    -------
    DataFrame
        ``difference`` is ours less the published value, in the ``unit`` "%" of the published value or "1"; ``sigmas``
        is the difference over both standard errors in quadrature; ``verdict`` and ``why`` as `judge` gives them.
    """
    study = SimpleNamespace(
        softmax=Source(softmax, softmax_fits),
        linear=Source(linear),
        floors=floors,
        linear_easy=Source(linear_easy, linear_easy_fits),
        softmax_easy=Source(softmax_easy),
        single_stream=Source(single_stream),
        decoupled_values=Source(decoupled_values),
        context_updates=Source(context_updates),
        context_attention=context_attention,
    )
    numbers = published()
    rows = []
    for (place, quantity, attention), (kind, measure) in ENTRIES.items():
        found = (numbers["place"] == place) & (numbers["quantity"] == quantity) & (numbers["attention"] == attention)
        for number in numbers[found].to_dict("records"):
            at = (float(number["a"]), float(number["b"])), int(number["k"])
            source = floors if quantity == "theory_floor" else getattr(study, attention).cube
            other = another_size(source, attention) if place in SIZED else ""
            ours = measure(study, at)
            ours = replace(ours, refused=other or ours.refused)
            rows.append(_row(number, kind, ours))
    return pd.DataFrame(rows)


def comparison_summary(**inputs: Any) -> pd.DataFrame:
    """Count the verdicts of `comparison`, whose inputs it takes, for every place of the paper."""
    frame = comparison(**inputs)
    verdicts = [AGREES, DIFFERS, UNDECIDED]
    counts = pd.crosstab(frame["place"], frame["verdict"]).reindex(
        index=frame["place"].drop_duplicates(), columns=verdicts, fill_value=0
    )
    counts.loc["all"] = counts.sum()
    counts.insert(0, "numbers", counts.sum(axis=1))
    return counts.rename_axis(columns=None).reset_index()


functools.update_wrapper(comparison_summary, comparison, assigned=(), updated=())  # the same parameters


def _row(number: dict[Any, Any], kind: Kind, ours: Measured) -> dict[str, Any]:
    """Make a row of the comparison."""
    paper, paper_se = float(number["value"]), float(number["se"])
    verdict, why = judge(kind, ours, paper, paper_se)
    difference = ours.value - paper
    error = math.hypot(*(se for se in (ours.error, paper_se) if math.isfinite(se)))
    return {
        "place": number["place"],
        "quantity": kind.name,
        "attention": MODELS.get(number["place"], number["attention"]),
        **{name: number[name] for name in ("k", "a", "b")},
        "ours": ours.value,
        "ours_se": ours.error if ours.error else math.nan,
        "paper": paper,
        "paper_se": paper_se,
        "difference": 100 * difference / paper if kind.relative else difference,
        "unit": "%" if kind.relative else "1",
        "sigmas": difference / error if error > 0 else math.nan,
        "verdict": verdict,
        "why": why,
    }


_GROWTH = Kind("growth of the disagreement", 0.05)
_APPROXIMATE = Kind("exponent of the loss", 0.25, varies=True)
_WV = "only m times W_v acts, and the scale of the published W_v is not given"

ENTRIES: dict[tuple[str, str, str], tuple[Kind, Callable[[Any, Place], Measured]]] = {
    ("Table 1", "floor", "softmax"): (
        Kind("softmax floor", 0.01, relative=True),
        lambda study, at: study.softmax.fitted("floor", at),
    ),
    ("Table 1", "floor", "linear"): (
        Kind("linear plateau", 0.02, relative=True),
        lambda study, at: study.linear.plateau(at),
    ),
    ("Table 2", "exponent", "linear"): (
        Kind("exponent of the loss", 0.15, relative=True, varies=True),
        lambda study, at: study.linear_easy.fitted("exponent", at),
    ),
    ("Table 3", "theory_floor", "linear"): (
        Kind("theoretical floor", 0.015, relative=True),
        lambda study, at: floor(study.floors, at),
    ),
    ("Table 3", "plateau", "linear"): (
        Kind("linear plateau", 0.03, relative=True),
        lambda study, at: study.linear.plateau(at),
    ),
    ("Table 4", "floor", "softmax"): (
        Kind("softmax floor", 0.02, relative=True),
        lambda study, at: study.softmax.fitted("floor", at),
    ),
    ("Table 4", "exponent", "softmax"): (
        Kind("exponent of the loss", 0.1, varies=True),
        lambda study, at: study.softmax.fitted("exponent", at),
    ),
    ("Table 4", "r_squared", "softmax"): (
        Kind("R squared of the loss", 0.99, side="at least"),
        lambda study, at: study.softmax.r_squared("loss", at),
    ),
    ("Table 5", "gap_exponent", "softmax"): (
        Kind("exponent of the gap", 0.1),
        lambda study, at: study.softmax.gap("exponent", at),
    ),
    ("Table 5", "r_squared", "softmax"): (
        Kind("R squared of the gap", 0.99, side="at least"),
        lambda study, at: study.softmax.r_squared("shared_error_gap", at),
    ),
    ("Sec. 3.2", "loss_over_power", "softmax"): (
        Kind("loss of one layer", 0.01, side="at most"),
        lambda study, at: study.softmax_easy.one_layer(at),
    ),
    ("Sec. 4.1", "late_change", "linear"): (
        Kind("change after two layers", 0.01),
        lambda study, at: study.linear.late_change(at),
    ),
    ("Fig. 6", "exponent", "softmax"): (
        Kind("exponent of the loss", 0.1, varies=True),
        lambda study, at: study.softmax.fitted("exponent", at),
    ),
    ("Fig. 6", "disagreement_growth", "softmax"): (_GROWTH, lambda study, at: study.softmax.growth(at, DEEP)),
    ("Fig. 9", "exponent", "softmax"): (
        _APPROXIMATE,
        lambda study, at: study.single_stream.beyond_moderate_depth(at),
    ),
    ("Fig. 9", "disagreement_growth", "softmax"): (
        _GROWTH,
        lambda study, at: study.single_stream.growth(at, DEEP_GENERALISED),
    ),
    ("Fig. 10", "exponent", "softmax"): (
        _APPROXIMATE,
        lambda study, at: study.decoupled_values.beyond_moderate_depth(at),
    ),
    ("Fig. 10", "disagreement_growth", "softmax"): (
        _GROWTH,
        lambda study, at: study.decoupled_values.growth(at, DEEP_GENERALISED),
    ),
    ("Fig. 11", "exponent", "softmax"): (
        _APPROXIMATE,
        lambda study, at: study.context_updates.beyond_moderate_depth(at),
    ),
    ("Fig. 11", "late_fall", "softmax"): (
        Kind("fall after two layers", 0.01, side="at most"),
        lambda study, at: study.context_updates.late_change(at),
    ),
    ("Fig. 11", "mask_scalar", "softmax"): (
        Kind("mask scalar m", 0.2, silent=_WV),
        lambda study, at: study.context_updates.mask_scalar(at),
    ),
    ("Fig. 12", "rho", "softmax"): (
        Kind("weight of the diagonal", 0.02),
        lambda study, at: diagonal(study.context_attention, at[1]),
    ),
    ("Fig. 14", "disagreement_growth", "softmax"): (_GROWTH, lambda study, at: study.softmax.growth(at, DEEP)),
}
"""By place, quantity and attention of ``published.csv``: the kind of quantity and what we measure for it. Numbers that
are arithmetic on others (zeta, the differences of Table 3) have no entry."""
