"""What a reader of an archive must know: every file, and every variable in it, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from inverse_depth.artifacts import ARTIFACTS
from inverse_depth.provenance import REFERENCE
from inverse_depth.storage import read_dataset

FIT_MEANINGS = {
    "experiment": "the experiment, as the cube is named",
    "quantity": "what was fitted: loss (R_L) or shared_error_gap (L_0 - C_L)",
    "a": "exponent of the input spectrum j^-a",
    "b": "exponent of the teacher spectrum j^-b",
    "k": "target size, the number of tokens averaged into the target",
    "step": "training length in steps, or final",
    "depth_min": "shallowest depth L fitted",
    "depth_max": "deepest depth L fitted",
    "points": "number of depths fitted",
    "seeds": "least number of seeds at any depth",
    "floor": "L_0 of L_0 + c L^-alpha",
    "floor_se": "its standard error",
    "floor_low": "lower end of its 95 % bootstrap interval",
    "floor_high": "upper end of its 95 % bootstrap interval",
    "amplitude": "c",
    "amplitude_se": "its standard error",
    "exponent": "alpha",
    "exponent_se": "its standard error",
    "exponent_low": "lower end of its 95 % bootstrap interval",
    "exponent_high": "upper end of its 95 % bootstrap interval",
    "r_squared": "R squared of the logarithm of the quantity",
    "determined": "whether the depths determine the law; if not, its numbers mean nothing",
    "reason": "why not",
    "misfit": "how the data depart from a determined law beyond their noise",
}
"""The columns of fits/*.csv."""

_FILES = {
    "README.md": "this page",
    "LICENSE-CODE.txt": "licence of the code: MIT",
    "LICENSE-DATA.txt": "licence of data, figures, tables and text: CC BY 4.0",
    "CITATION.cff": "how to cite this work",
    "config.yaml": "the whole configuration of the study, every default filled in",
    "requirements.lock": "exact versions of all libraries, for pip",
    "environment.yml": "the environment, for conda",
    "provenance.json": "for every file of results the settings, code, versions and inputs behind it, with check sums",
    "ro-crate-metadata.json": "the archive's metadata as an RO-Crate",
    "SHA256SUMS": "check sums of all other files: sha256sum -c SHA256SUMS",
    "report.html": "the study on one page",
    "illustration/contexts.nc": "sampled contexts that Figures 2 and 8 draw",
}
_FOLDERS = {
    "cubes": "losses of the experiment {stem}, over depth, spectra, target size and seed",
    "fits": "fits of the losses of the experiment {stem} against depth",
    "theory": "theoretical references: {stem}",
    "measurements": "measurement beside the losses: {stem}",
}


def describe(name: str) -> str:
    """Say in a line what a file of an archive is.

    Raises
    ------
    ValueError
        If archives hold no such file.
    """
    if name in _FILES:
        return _FILES[name]
    folder, stem, suffix = str(Path(name).parent), Path(name).stem, Path(name).suffix
    if folder in _FOLDERS:
        return _FOLDERS[folder].format(stem=stem)
    if folder not in ("figures", "tables") or stem not in ARTIFACTS:
        raise ValueError(f"name is {name!r}: archives hold no such file")
    form = {".csv": ", every digit", ".json": ", the numbers drawn, panel by panel"}.get(suffix, "")
    return f"{ARTIFACTS[stem].title} ({suffix.removeprefix('.').upper()}{form})"


def readme(study: str, datasets: Mapping[str, Path], names: Iterable[str]) -> str:
    """Write the archive's README, in Markdown.

    Parameters
    ----------
    study : str
    datasets : mapping of str to Path
        Name in the archive of every NetCDF file to the file; their variables are explained from their attributes.
    names : iterable of str
        Names of all files.
    """
    lines = [
        f"# inverse-depth: the study {study}",
        "",
        "Losses of linear and softmax attention models against their depth, fits of the depth law, figures and tables:",
        f"the experiments of {REFERENCE}.",
        "",
        "Data, figures, tables and text: CC BY 4.0 (LICENSE-DATA.txt). Code: MIT (LICENSE-CODE.txt). Please cite as",
        "CITATION.cff says, and the paper.",
        "",
        "NetCDF files open in any program that reads NetCDF-4, for example",
        '`xarray.open_dataset("cubes/softmax_difficult.nc")` in Python. Combinations that were never run hold NaN.',
        "Check the files with `sha256sum -c SHA256SUMS`; with the package inverse-depth installed,",
        "`python -m inverse_depth.verify ARCHIVE.zip` also makes every figure and table again and compares numbers.",
        "",
        "## Files",
        "",
        *_table(
            ("file", "what it is"),
            [(f"`{name}`", describe(name)) for name in sorted({*names, "README.md", "SHA256SUMS", *_LATE})],
        ),
        "",
        "## Captions",
        "",
    ]
    for name, artifact in ARTIFACTS.items():
        if f"{artifact.kind}s/{name}.{'png' if artifact.kind == 'figure' else 'csv'}" in names:
            lines += [f"- **{artifact.kind}s/{name}**: {artifact.caption}"]
    lines += ["", "In tables `x_se` is the standard error of `x`, `x_published` the paper's value, `x_note` a remark."]
    lines += ["", "## Variables", "", "Dimensionless where no unit is given.", ""]
    for file, path in sorted(datasets.items()):
        dataset = read_dataset(path)
        rows = []
        for name, variable in zip(map(str, dataset.variables), dataset.variables.values(), strict=True):
            unit = variable.attrs.get("units", "")
            words = [str(variable.attrs[key]) for key in ("long_name", "equation") if variable.attrs.get(key)]
            about = ": ".join(words) + ("" if unit in ("", "1") else f" [{unit}]")
            rows.append((f"`{name}`", ", ".join(map(str, variable.dims)) or "scalar", about))
        lines += [f"### {file}", "", *_table(("variable", "over", "what it is"), rows), ""]
    lines += ["### fits/*.csv", "", *_table(("column", "what it is"), list(FIT_MEANINGS.items())), ""]
    return "\n".join(lines)


_LATE = ("ro-crate-metadata.json",)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    cells = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in cells]
