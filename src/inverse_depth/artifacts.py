"""Every figure and table of a study: what it is made from, and the function that makes it; captions are beside it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from inverse_depth.captions import CAPTIONS


@dataclass(frozen=True)
class Artifact:
    """A figure or a table.

    Attributes
    ----------
    name : str
        Its file name without a suffix.
    kind : {"figure", "table"}
    title : str
        A heading.
    inputs : mapping of str to str
        Argument of the function to the path of a file under results/<study>/.
    function : str
        ``module:function``, called with the opened inputs by name.
    """

    name: str
    kind: Literal["figure", "table"]
    title: str
    inputs: Mapping[str, str]
    function: str

    @property
    def caption(self) -> str:
        """What it shows, for a reader who sees nothing else."""
        return CAPTIONS[self.name]


def _experiment(name: str) -> dict[str, str]:
    return {"cube": f"cubes/{name}.nc", "fits": f"fits/{name}.csv"}


_COMPARED = {
    "softmax": "cubes/softmax_difficult.nc",
    "softmax_fits": "fits/softmax_difficult.csv",
    "linear": "cubes/linear_difficult.nc",
    "floors": "theory/linear_floor.nc",
    "linear_easy": "cubes/linear_easy.nc",
    "linear_easy_fits": "fits/linear_easy.csv",
    "softmax_easy": "cubes/softmax_easy.nc",
    "single_stream": "cubes/single_stream.nc",
    "decoupled_values": "cubes/decoupled_values.nc",
    "context_updates": "cubes/context_updates.nc",
    "context_attention": "measurements/context_attention.nc",
}

_ALL = (
    Artifact(
        "fig1",
        "figure",
        "Overview: two tasks, two kinds of attention",
        {name: f"cubes/{name}.nc" for name in ("linear_easy", "softmax_easy", "linear_difficult", "softmax_difficult")},
        "inverse_depth.figures.overview:figure_1",
    ),
    Artifact(
        "fig2",
        "figure",
        "The two tasks",
        {"contexts": "illustration/contexts.nc"},
        "inverse_depth.figures.drawn:figure_2",
    ),
    Artifact(
        "fig3",
        "figure",
        "Linear attention, easy task",
        _experiment("linear_easy"),
        "inverse_depth.figures.easy:figure_3",
    ),
    Artifact(
        "fig4",
        "figure",
        "Softmax attention, easy task",
        {"cube": "cubes/softmax_easy.nc"},
        "inverse_depth.figures.easy:figure_4",
    ),
    Artifact(
        "fig5",
        "figure",
        "Linear attention, difficult task",
        {"cube": "cubes/linear_difficult.nc"},
        "inverse_depth.figures.difficult:figure_5",
    ),
    Artifact(
        "fig6",
        "figure",
        "Softmax attention, difficult task",
        _experiment("softmax_difficult"),
        "inverse_depth.figures.difficult:figure_6",
    ),
    Artifact(
        "fig7",
        "figure",
        "Softmax attention, difficult task: modes",
        _experiment("softmax_difficult"),
        "inverse_depth.figures.difficult:figure_7",
    ),
    Artifact(
        "fig8",
        "figure",
        "Target, predictable part and residual",
        {"contexts": "illustration/contexts.nc"},
        "inverse_depth.figures.drawn:figure_8",
    ),
    Artifact(
        "fig9",
        "figure",
        "Single stream",
        _experiment("single_stream"),
        "inverse_depth.figures.variants:depth_diagnostics",
    ),
    Artifact(
        "fig10",
        "figure",
        "Decoupled values",
        _experiment("decoupled_values"),
        "inverse_depth.figures.variants:depth_diagnostics",
    ),
    Artifact(
        "fig11",
        "figure",
        "Context updates",
        _experiment("context_updates"),
        "inverse_depth.figures.variants:figure_11",
    ),
    Artifact(
        "fig12",
        "figure",
        "Attention between context tokens",
        {"attention": "measurements/context_attention.nc"},
        "inverse_depth.figures.variants:figure_12",
    ),
    Artifact(
        "fig13",
        "figure",
        "Selection of tokens across contexts",
        {"selection": "measurements/selection.nc"},
        "inverse_depth.figures.variants:figure_13",
    ),
    Artifact(
        "fig14",
        "figure",
        "Softmax attention: broader targets and spectra",
        _experiment("softmax_difficult"),
        "inverse_depth.figures.difficult:figure_14",
    ),
    Artifact(
        "training_length_softmax",
        "figure",
        "Depth law against training length: softmax",
        _experiment("softmax_difficult"),
        "inverse_depth.figures.training:training_length_softmax",
    ),
    Artifact(
        "training_length_linear",
        "figure",
        "Depth law against training length: linear",
        _experiment("linear_easy"),
        "inverse_depth.figures.training:training_length_linear",
    ),
    Artifact(
        "table1",
        "table",
        "Loss floors, difficult task",
        {
            "softmax": "cubes/softmax_difficult.nc",
            "fits": "fits/softmax_difficult.csv",
            "linear": "cubes/linear_difficult.nc",
            "matched": "theory/linear_floor_matched.nc",
        },
        "inverse_depth.tables:table_1",
    ),
    Artifact(
        "table2",
        "table",
        "Depth exponents, linear attention, easy task",
        _experiment("linear_easy"),
        "inverse_depth.tables:table_2",
    ),
    Artifact(
        "table3",
        "table",
        "Linear loss floors: theory and measurement",
        {"cube": "cubes/linear_difficult.nc", "floors": "theory/linear_floor.nc"},
        "inverse_depth.tables:table_3",
    ),
    Artifact(
        "table4",
        "table",
        "Depth law for broader targets and spectra",
        _experiment("softmax_difficult"),
        "inverse_depth.tables:table_4",
    ),
    Artifact(
        "table5",
        "table",
        "Convergence of the shared error",
        _experiment("softmax_difficult"),
        "inverse_depth.tables:table_5",
    ),
    Artifact(
        "modes",
        "table",
        "Modes: one after another, or in parallel",
        {
            "linear": "cubes/linear_easy.nc",
            "softmax": "cubes/softmax_difficult.nc",
            "fits": "fits/softmax_difficult.csv",
        },
        "inverse_depth.mode_tables:modes",
    ),
    Artifact(
        "comparison",
        "table",
        "Published and measured",
        _COMPARED,
        "inverse_depth.comparison:comparison",
    ),
    Artifact(
        "comparison_summary",
        "table",
        "Published and measured: counts",
        _COMPARED,
        "inverse_depth.comparison:comparison_summary",
    ),
    Artifact(
        "like_for_like",
        "table",
        "Linear and softmax attention at equal sizes",
        {
            "softmax": "cubes/softmax_difficult.nc",
            "fits": "fits/softmax_difficult.csv",
            "matched": "cubes/linear_matched.nc",
            "large": "cubes/softmax_large.nc",
            "linear": "cubes/linear_difficult.nc",
        },
        "inverse_depth.beyond:like_for_like",
    ),
    Artifact(
        "depth_share",
        "table",
        "The share of the loss that depth removes",
        {
            "softmax": "cubes/softmax_difficult.nc",
            "fits": "fits/softmax_difficult.csv",
            "linear": "cubes/linear_difficult.nc",
        },
        "inverse_depth.beyond:depth_share",
    ),
    Artifact(
        "b_collapse",
        "table",
        "The loss at a = 0 for all teacher spectra",
        {"softmax": "cubes/softmax_difficult.nc", "linear": "cubes/linear_difficult.nc"},
        "inverse_depth.beyond:b_collapse",
    ),
    Artifact(
        "depth_range",
        "table",
        "The depth law against the range of depths fitted",
        {"cube": "cubes/softmax_difficult.nc"},
        "inverse_depth.beyond:depth_range",
    ),
    Artifact(
        "depth_range_exponents",
        "figure",
        "The exponent against the shallowest depth fitted",
        {"cube": "cubes/softmax_difficult.nc"},
        "inverse_depth.figures.beyond:depth_range",
    ),
)

ARTIFACTS: dict[str, Artifact] = {artifact.name: artifact for artifact in _ALL}


def render(name: str, inputs: Mapping[str, str | Path], outputs: Sequence[str | Path]) -> None:
    """Make one artifact and write it.

    Parameters
    ----------
    name : str
        A key of ``ARTIFACTS``.
    inputs : mapping of str to path
        The files for the arguments of its function: NetCDF opened as a Dataset, CSV as a DataFrame.
    outputs : sequence of path
        For a figure .pdf and .png, in any order; for a table .csv, .md and .tex.

    Raises
    ------
    ValueError
        If the name, the inputs' names or an output's suffix is not one of the artifact's.
    """
    artifact = _find(name)
    if set(inputs) != set(artifact.inputs):
        raise ValueError(
            f"inputs of {name} are {', '.join(sorted(inputs))}: must be {', '.join(sorted(artifact.inputs))}"
        )
    paths = {Path(path).suffix.removeprefix("."): Path(path) for path in outputs}
    allowed = {"pdf", "png"} if artifact.kind == "figure" else {"csv", "md", "tex"}
    if set(paths) != allowed or len(outputs) != len(allowed):
        raise ValueError(f"outputs of {name} end in {', '.join(sorted(paths))}: must be {', '.join(sorted(allowed))}")

    made = make(name, inputs)
    if artifact.kind == "table":
        text = f"{artifact.title}. {artifact.caption}"
        importlib.import_module("inverse_depth.markup").write_table(made, **paths, caption=text)
        return
    for path in paths.values():
        importlib.import_module("inverse_depth.figures.panels").save(made, path)


def make(name: str, inputs: Mapping[str, str | Path]) -> Any:
    """Make one artifact of the given files, as :func:`render` does, and return it: a Figure or a DataFrame."""
    module, function = _find(name).function.split(":")
    opened = {key: _open(Path(path)) for key, path in inputs.items()}
    return getattr(importlib.import_module(module), function)(**opened)


def _find(name: str) -> Artifact:
    if name not in ARTIFACTS:
        raise ValueError(f"name is {name!r}: allowed are {', '.join(ARTIFACTS)}")
    return ARTIFACTS[name]


def _open(path: Path) -> Any:
    if path.suffix == ".nc":
        from inverse_depth.storage import read_dataset

        return read_dataset(path)
    import pandas as pd

    return pd.read_csv(path)
