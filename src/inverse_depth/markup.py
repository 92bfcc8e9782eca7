"""Tables as files: CSV for machines, Markdown and LaTeX for readers, all from one frame; and in a page as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from tabulate import tabulate

from inverse_depth.curves import join_notes, plus_minus
from inverse_depth.notation import to_html
from inverse_depth.storage import write_frame, write_text

HEADINGS = {
    "a": "$a$",
    "b": "$b$",
    "k": "top $k$",
    "softmax": "softmax $L_0$",
    "linear": "linear plateau",
    "ratio": "linear / softmax",
    "matched": "linear floor at the softmax model's size",
    "matched_ratio": "its ratio to softmax",
    "zeta": r"constrained $\zeta$",
    "exponent": r"exponent $\alpha$",
    "exponent_low": r"95 % from",
    "exponent_high": "95 % to",
    "two_zeta": r"free $2\zeta$",
    "between": "between them",
    "theory": "theory",
    "plateau": "measured plateau",
    "difference_percent": "difference, %",
    "floor": "$L_0$",
    "r_squared": "$R^2$",
    "place": "place",
    "quantity": "quantity",
    "ours": "ours",
    "paper": "published",
    "difference": "difference",
    "unit": "in",
    "sigmas": "difference / its error",
    "attention": "attention",
    "verdict": "verdict",
    "why": "why",
    "numbers": "numbers",
    "d": "$d$",
    "P": "$P$",
    "softmax_is": "which is",
    "first": "$R_1$",
    "share": "$(R_1 - L_0) / R_1$",
    "deepest": "deepest $L$",
    "share_deepest": "$(R_1 - R_L) / R_1$",
    "mean": "mean of $j^{-b}$",
    "collapse": "$R(0, b) / R(0, 0)$",
    "implied": "published floor / mean",
    "depths": "depths",
    "points": "number",
    "agrees": "agrees",
    "differs": "differs",
    "cannot be decided": "cannot be decided",
    "at": "at",
    "linear_easy": "linear, easy task, $(2, 2)$",
    "softmax_difficult": "softmax, difficult task, $(1, 0)$",
}
"""Headings of the written tables; a column ``x_published`` or ``x_difference`` is headed after ``x``."""

WITHOUT_NOTE = ("sigmas", "exponent_low", "exponent_high", "ours", "difference")
"""Columns in which a number may be missing without a note on it."""

PAGE = 45
"""Rows above which a LaTeX table must break across pages."""


def write_table(frame: pd.DataFrame, csv: Path, md: Path, tex: Path, caption: str = "") -> None:
    r"""Write a table as CSV (every digit), Markdown and LaTeX (a tabular that needs the package booktabs).

    The caption stands above the table in Markdown, and as a comment in LaTeX.

    A table of more than `PAGE` rows becomes a longtable, of the package of that name, in LaTeX.
    Notes stand numbered below the table in Markdown, where a long cell would widen every row.
    In Markdown and LaTeX a value and its standard error share a cell, rounded to the error's precision.
    """
    write_frame(frame, csv)
    plain, texts = _numbered(_cells(frame, "±").map(lambda text: text.replace("|", r"\|")))
    pipes = tabulate(plain, headers="keys", tablefmt="pipe", showindex=False, disable_numparse=True)
    below = "".join(f"\n{number}. {text}" for number, text in enumerate(texts, 1))
    write_text(f"{caption}\n\n{pipes}\n{below}\n".strip() + "\n", md)
    latex = _cells(frame, r"$\pm$").map(_escape).rename(columns=_escape)
    # latex_raw: tabulate's own booktabs format would escape the mathematics, which is LaTeX already.
    text = tabulate(latex, headers="keys", tablefmt="latex_raw", showindex=False, disable_numparse=True)
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        text = text.replace(r"\hline", rule, 1)
    if len(frame) > PAGE:
        text = text.replace("{tabular}", "{longtable}")
    write_text(f"% {caption}\n{text}\n".removeprefix("% \n"), tex)


def read_table(csv: Path) -> pd.DataFrame:
    """Read a table that `write_table` wrote: missing numbers are NaN, and text that says nothing is empty."""
    frame = pd.read_csv(csv)
    text = [name for name in frame.columns if name.endswith("note") or not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.assign(**{name: frame[name].astype(object).fillna("") for name in text})


def html_table(frame: pd.DataFrame) -> str:
    """Write a table as HTML, cells and notes as in Markdown; cells of the column "verdict" have it as their class."""
    cells, texts = _numbered(_cells(frame, "±"))
    head = "".join(f"<th scope='col'>{to_html(name)}</th>" for name in cells.columns)
    rows = []
    for _, row in cells.iterrows():
        kinds = (f" class='{text.split()[0]}'" if name == "verdict" else "" for name, text in row.items())
        rows.append("".join(f"<td{kind}>{_html(text)}</td>" for kind, text in zip(kinds, row, strict=True)))
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    notes = "".join(f"\n<li>{_html(text)}</li>" for text in texts)
    below = f"\n<ol class='notes'>{notes}\n</ol>" if notes else ""
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>{below}"


def _html(text: str) -> str:
    """Write a cell as HTML; what stands between dollar signs is mathematics."""
    parts = text.split("$")
    parts[::2] = [html.escape(part) for part in parts[::2]]
    parts[1::2] = [to_html(part) for part in parts[1::2]]
    return "".join(parts)


def _cells(frame: pd.DataFrame, sign: str) -> pd.DataFrame:
    """Turn the frame into text: a value and its standard error in one cell, all notes of a row in the last."""
    notes = [name for name in frame.columns if name.endswith("note")]
    columns: dict[str, Sequence[str]] = {}
    for name in frame.columns:
        if not name.endswith(("_se", "note")):
            errors = frame.get(f"{name}_se", pd.Series(math.nan, index=frame.index))
            cells = [_cell(name, value, error, sign) for value, error in zip(frame[name], errors, strict=True)]
            columns[_heading(name)] = cells
    if notes:
        columns["note"] = [
            join_notes([f"{_subject(name)}{line[name]}" if line[name] else "" for name in notes])
            for line in frame.to_dict("records")
        ]
    return pd.DataFrame(columns)


def _numbered(cells: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Put a number in the place of every note and reason, and return these texts, each once."""
    columns = [name for name in ("why", "note") if name in cells]
    texts = list(dict.fromkeys(text for name in columns for text in cells[name] if text))
    number = {text: str(place) for place, text in enumerate(texts, 1)} | {"": ""}
    return cells.assign(**{name: cells[name].map(number) for name in columns}), texts


def _subject(note: str) -> str:
    """What a note is about: nothing for the note of a whole row."""
    return "" if note == "note" else f"{_heading(note.removesuffix('_note'))}: "


def _cell(name: str, value: Any, error: float, sign: str) -> str:
    if isinstance(value, str):
        return value
    if math.isnan(value):
        return "none" if name in WITHOUT_NOTE else "see note"
    if name.endswith(("_published", "paper")) and not math.isfinite(error):
        return f"{value:.10g}"  # as it was printed
    if name == "difference":
        return f"{value:+.3g}"
    if name.endswith(("_difference", "_percent")):
        return f"{value:+.3f}" if name.endswith("_difference") else f"{value:+.2f}"
    if name == "sigmas":
        return f"{value:+.1f}"
    if name.startswith("r_squared"):
        return f"{value:.5f}"
    if name.endswith(("_low", "_high", "zeta")):
        return f"{value:.3f}"
    if 0 < abs(value) < 1e-4:
        return f"{value:.2g} {sign} {error:.1g}" if math.isfinite(error) else f"{value:.2g}"
    return plus_minus(value, error, sign)


def _heading(name: str) -> str:
    for suffix, words in (
        ("_published", "published"),
        ("_difference_percent", "difference, %"),
        ("_difference", "difference"),
    ):
        if name.endswith(suffix) and name not in HEADINGS:
            return f"{_heading(name.removesuffix(suffix))}: {words}"
    return HEADINGS[name]


def _escape(text: str) -> str:
    """Escape text for LaTeX; what stands between dollar signs is LaTeX already."""
    parts = text.split("$")
    parts[::2] = [part.translate(_LATEX) for part in parts[::2]]
    return "$".join(parts)


_LATEX = str.maketrans(
    {
        "%": r"\%",
        "&": r"\&",
        "_": r"\_",
        "#": r"\#",
        "^": r"\^{}",
        "<": "$<$",
        ">": "$>$",
        "\u03b1": r"$\alpha$",
        "±": r"$\pm$",
    }
)
