"""A study on one page, in a single file: the claim, figures, tables, the comparison with the paper, what was run."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pandas as pd
from jinja2 import Environment, StrictUndefined

from inverse_depth.account import account, origins
from inverse_depth.artifacts import ARTIFACTS, Artifact
from inverse_depth.config import Study
from inverse_depth.cubes import open_cube
from inverse_depth.curves import is_determined
from inverse_depth.markup import html_table, read_table
from inverse_depth.notation import to_html
from inverse_depth.times import duration, job_times
from inverse_depth.verdicts import AGREES, DIFFERS, UNDECIDED

COMPARED = ("comparison_summary", "comparison")
"""The tables that set the study against the paper; they have a section of their own."""


@dataclass(frozen=True)
class Shown:
    """A figure or table on the page; ``content`` is a data URI or a table's HTML."""

    name: str
    title: str
    caption: str
    content: str


def study_report(results: Path, study: Study) -> str:
    """Write the page of a study from the files that are there; what is missing is named.

    Parameters
    ----------
    results : Path
        The study's folder: cubes/, fits/, figures/, tables/ and, where there are any, benchmarks/.
    study : Study

    Returns
    -------
    str
        HTML that needs no other file and no network.
    """
    shown = {
        name: _show(results, artifact) for name, artifact in ARTIFACTS.items() if _file(results, artifact).exists()
    }
    paths = {name: results / f"cubes/{name}.nc" for name in study.experiments}
    cubes = {name: open_cube(path) for name, path in paths.items() if path.exists()}
    accounts = {name: account(cube, study, name) for name, cube in cubes.items()}
    template = resources.files("inverse_depth").joinpath("data/report.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        study=study.study,
        findings=_findings(results),
        compared=[shown[name] for name in COMPARED if name in shown],
        figures=[shown[name] for name, a in ARTIFACTS.items() if a.kind == "figure" and name in shown],
        tables=[shown[n] for n, a in ARTIFACTS.items() if a.kind == "table" and n in shown and n not in COMPARED],
        accounts=accounts,
        points=sum(one.points for one in accounts.values()),
        jobs=sum(one.jobs for one in accounts.values()),
        models=sum(one.models for one in accounts.values()),
        unconverged_models=sum(one.unconverged_models for one in accounts.values()),
        seconds=math.fsum(one.seconds for one in accounts.values()),
        duration=duration,
        stages=job_times(results / "benchmarks"),
        origins=origins(cubes),
        absent_cubes=[name for name in study.experiments if name not in cubes],
        absent=[
            (ARTIFACTS[name].title, _why_absent(results, ARTIFACTS[name])) for name in ARTIFACTS if name not in shown
        ],
    )


def _file(results: Path, artifact: Artifact) -> Path:
    return results / f"{artifact.kind}s" / f"{artifact.name}.{'png' if artifact.kind == 'figure' else 'csv'}"


def _show(results: Path, artifact: Artifact) -> Shown:
    path = _file(results, artifact)
    if artifact.kind == "figure":
        content = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    else:
        content = html_table(read_table(path))
    return Shown(artifact.name, artifact.title, to_html(artifact.caption), content)


def _why_absent(results: Path, artifact: Artifact) -> str:
    missing = [path for path in artifact.inputs.values() if not (results / path).exists()]
    return f"not there to make it from: {', '.join(missing)}" if missing else "could be made, but was not yet"


def _findings(results: Path) -> list[str]:
    """Say in a few sentences, as HTML, what the fits and the comparison of this study give."""
    lines = []
    fits = results / "fits/softmax_difficult.csv"
    if fits.exists():
        lines.append(_exponents(pd.read_csv(fits)))
    summary = results / "tables/comparison_summary.csv"
    if summary.exists():
        lines.append(_verdicts(read_table(summary)))
    return lines or ["There are neither fits nor a comparison yet."]


def _exponents(fits: pd.DataFrame) -> str:
    losses = fits[(fits["quantity"] == "loss") & (fits["step"].astype(str) == "final")]
    known = losses[[is_determined(row) for row in losses.to_dict("records")]]
    words = f"Softmax attention, difficult task: a power law in depth is determined for {len(known)} of {len(losses)}"
    words += " pairs of spectra and target size"
    if known.empty:
        return f"{words}, so that no exponent is given."
    low, high = known["exponent"].min(), known["exponent"].max()
    return (
        f"{words}; there the exponent α of <i>L</i><sub>0</sub> + <i>c</i> <i>L</i><sup>−α</sup> lies between "
        f"{low:.2f} and {high:.2f} (depths {int(known['depth_min'].min())} to {int(known['depth_max'].max())}), "
        "where the paper reports values close to 1."
    )


def _verdicts(summary: pd.DataFrame) -> str:
    total = summary[summary["place"] == "all"].iloc[0]
    return (
        f"Of {total['numbers']} published numbers and claims, {total[AGREES]} agree within tolerances fixed "
        f"beforehand, {total[DIFFERS]} differ, and {total[UNDECIDED]} cannot be decided by this study."
    )
