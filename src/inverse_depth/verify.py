"""Check an archive: ``python -m inverse_depth.verify ARCHIVE.zip``.

Its check sums, the schema of every file, that its provenance lists all that is there and no more, every fit, made again
from its cube, and every figure and table, made again from the archive alone, to equal data; and what was not checked.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from inverse_depth.archive import CRATE, PROVENANCE, SUMS, origins, whole_artifacts
from inverse_depth.artifacts import ARTIFACTS, make
from inverse_depth.config import ConfigError, load_study
from inverse_depth.cubes import open_cube
from inverse_depth.figures.drawn_data import TOLERANCE, difference, drawn_data
from inverse_depth.fits import FIT_COLUMNS, fit_cube
from inverse_depth.markup import read_table
from inverse_depth.storage import StorageError, read_dataset, write_frame
from inverse_depth.unpacking import ArchiveError, unpack

REFIT_TOLERANCE = 1e-4
"""Relative difference up to which a fit made again is the same: an iteration on another machine ends elsewhere."""


def verify(path: Path, report: Callable[[str], None] = print) -> None:
    """Check an archive, and report each check that it passed, and what was not checked.

    Raises
    ------
    ArchiveError
        At the first that it did not pass.
    """
    with tempfile.TemporaryDirectory() as folder:
        root, scratch = Path(folder) / "archive", Path(folder)
        names = unpack(path, root)
        report(f"{len(names)} files unpacked, none with an unsafe name")
        sums = check_sums(root, names)
        report("check sums: all files are as they were archived")
        check_schema(root, names)
        report("schema: configuration, cubes, other data, fits and metadata are whole and of this package's format")
        check_origins(root, sums)
        report(f"{PROVENANCE}: lists all data, fits, figures and tables that are there, with their sums, and no others")
        for name in sorted(name for name in names if name.startswith("fits/")):
            refit(root, name, scratch)
            report(f"{name}: fitted again from its cube, equal numbers")
        for name in whole_artifacts(names):
            remake(root, name, scratch)
            report(f"{name}: made again from the archive alone, equal data")
        report(f"not checked: {_unchecked(names)}")


def _unchecked(names: list[str]) -> str:
    """Say what an archive's checks leave open, naming every file that was only summed."""
    looked_into = ("config.yaml", PROVENANCE, CRATE, SUMS)
    rest = [name for name in names if name not in looked_into and not name.endswith((".nc", ".csv", ".json"))]
    named = [name for name in rest if not name.startswith(("figures/", "tables/"))]
    return (
        "whether training, evaluation and theory give these data, for nothing is trained again; who made them, and the "
        f"commits and versions that they name; {len(rest) - len(named)} images of figures and printed forms of tables, "
        f"and {', '.join(named)}, were only summed"
    )


def check_sums(root: Path, names: list[str]) -> dict[str, str]:
    """Check that the list of check sums holds every other file, as it is, and return it by name.

    Raises
    ------
    ArchiveError
    """
    if SUMS not in names:
        raise ArchiveError(f"{SUMS}: missing")
    listed = {}
    for line in (root / SUMS).read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest
    if odd := sorted(set(listed) ^ (set(names) - {SUMS})):
        raise ArchiveError(f"{odd[0]}: {'missing' if odd[0] in listed else f'not listed in {SUMS}'}")
    for name, digest in listed.items():
        with (root / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise ArchiveError(f"{name}: its check sum is not the one in {SUMS}: the file was changed or damaged")
    return listed


def check_schema(root: Path, names: list[str]) -> None:
    """Check that every file is of the format that its place in the archive says.

    Raises
    ------
    ArchiveError
    """
    try:
        study = load_study(root / "config.yaml")
        for name in names:
            if name.startswith("cubes/"):
                open_cube(root / name)
            elif name.endswith(".nc"):
                read_dataset(root / name)
            elif name.startswith("fits/"):
                _check_fits(root / name, name)
            elif name.endswith(".json"):
                json.loads((root / name).read_text(encoding="utf-8"))
        crate, provenance = _mapping(root, CRATE), _mapping(root, PROVENANCE)
        described = _described(crate)
    except (StorageError, ConfigError, OSError, ValueError, RecursionError) as error:
        raise error if isinstance(error, ArchiveError) else ArchiveError(str(error)) from error
    if left := sorted(set(names) - described - {SUMS, CRATE}):
        raise ArchiveError(f"{left[0]}: not described in {CRATE}")
    if provenance.get("study") != study.study:
        raise ArchiveError(f"{PROVENANCE}: of the study {provenance.get('study')!r}, must be of {study.study!r}")


def _described(crate: Mapping[str, Any]) -> set[str]:
    """Give the identifiers of all that a crate's metadata describe."""
    graph = crate.get("@graph")
    if not isinstance(graph, list) or not all(isinstance(entity, dict) for entity in graph):
        raise ArchiveError(f"{CRATE}: its @graph must be a list of mappings")
    return {str(entity.get("@id")) for entity in graph}


def _check_fits(path: Path, name: str) -> None:
    columns = list(pd.read_csv(path).columns)
    if columns != FIT_COLUMNS:
        raise ArchiveError(f"{name}: its columns are {', '.join(columns)}; must be {', '.join(FIT_COLUMNS)}")


def check_origins(root: Path, sums: Mapping[str, str]) -> None:
    """Check that the list of origins holds all that is in the archive, as it is, and nothing else.

    Raises
    ------
    ArchiveError
    """
    provenance = _mapping(root, PROVENANCE)
    datasets = {name: read_dataset(root / name).attrs for name in sums if name.endswith(".nc")}
    compared = {"datasets": None, "fits": ("fitted_from",), "artifacts": ("inputs", "outputs")}  # None: all there is
    for section, there in origins(datasets, sums).items():
        listed = provenance.get(section)
        if not isinstance(listed, dict):
            raise ArchiveError(f"{PROVENANCE}: its {section} are {type(listed).__name__}, must be a mapping of names")
        if odd := sorted(set(listed) ^ set(there)):
            words = f"listed in {PROVENANCE}, but missing" if odd[0] in listed else f"not listed in {PROVENANCE}"
            raise ArchiveError(f"{odd[0]}: {words}")
        for name, origin in there.items():
            for key in compared[section] or origin:
                if not isinstance(listed[name], dict) or listed[name].get(key) != origin[key]:
                    raise ArchiveError(f"{PROVENANCE}: the {key} that it gives of {name} is not that of the archive")
    made = whole_artifacts(sums)
    known = {file for files in made.values() for file in files}
    known |= {f"figures/{name}.json" for name in made if ARTIFACTS[name].kind == "figure"}
    found = {name for name in sums if name.startswith(("figures/", "tables/"))}
    if odd := sorted(found ^ known):
        words = f"of no figure or table in {PROVENANCE}" if odd[0] in found else "missing"
        raise ArchiveError(f"{odd[0]}: {words}")


def _mapping(root: Path, name: str) -> dict[str, Any]:
    """Read a JSON file that must hold a mapping."""
    if not (root / name).is_file():
        raise ArchiveError(f"{name}: missing")
    found = json.loads((root / name).read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ArchiveError(f"{name}: holds {type(found).__name__}, must hold a mapping")
    return found


def refit(root: Path, name: str, scratch: Path) -> None:
    """Fit an experiment's cube again, as the archive's configuration says, and compare with the archived fits.

    Raises
    ------
    ArchiveError
        If the cube or its settings are not in the archive, or other numbers come out.
    """
    experiment, study = Path(name).stem, load_study(root / "config.yaml")
    cube = f"cubes/{experiment}.nc"
    if experiment not in study.experiments or not (root / cube).is_file():
        raise ArchiveError(f"{name}: cannot be fitted again: {cube} or its experiment in config.yaml is missing")
    write_frame(fit_cube(open_cube(root / cube), study.experiments[experiment].fit), scratch / "fits.csv")
    try:
        pd.testing.assert_frame_equal(
            pd.read_csv(scratch / "fits.csv"), pd.read_csv(root / name), rtol=REFIT_TOLERANCE, atol=1e-12
        )
    except AssertionError as error:
        raise ArchiveError(f"{name}: fitted again it holds other numbers: {_one_line(error)}") from error


def remake(root: Path, name: str, scratch: Path) -> None:
    """Make a figure or table again from the unpacked archive, and compare its numbers.

    Raises
    ------
    ArchiveError
        If it cannot be made, or shows other numbers.
    """
    artifact = ARTIFACTS[name]
    made: Any = make(name, {argument: root / file for argument, file in artifact.inputs.items()})
    if artifact.kind == "figure":
        expected = json.loads((root / f"figures/{name}.json").read_text(encoding="utf-8"))
        if found := difference(drawn_data(made), expected):
            raise ArchiveError(f"figures/{name}: made again it shows other data: {found}")
        return
    write_frame(made, scratch / "table.csv")
    try:
        pd.testing.assert_frame_equal(
            read_table(scratch / "table.csv"), read_table(root / f"tables/{name}.csv"), rtol=TOLERANCE, atol=1e-15
        )
    except AssertionError as error:
        raise ArchiveError(f"tables/{name}: made again it holds other numbers: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return "; ".join(str(error).split("\n"))


def main(arguments: list[str]) -> int:
    """Check the archive that is named, and say what was found; 1 if it is not sound."""
    if len(arguments) != 1 or not Path(arguments[0]).is_file():
        found = f"{arguments[0]} is no file" if arguments and arguments[0] else "no archive is named"
        print(f"{found}: make verify ARCHIVE=results/<study>/inverse-depth-<study>.zip", file=sys.stderr)
        return 2
    try:
        verify(Path(arguments[0]))
    except Exception as error:  # what a stranger's file can make its readers raise has no end
        words = str(error) if isinstance(error, ArchiveError) else f"{type(error).__name__}: {error}"
        print(f"{arguments[0]} is not sound.\n  {words}\n  Fetch it again, or make it anew.", file=sys.stderr)
        return 1
    print(f"{arguments[0]} is sound.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
