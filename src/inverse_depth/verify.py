"""Check an archive: ``python -m inverse_depth.verify ARCHIVE.zip``.

Its check sums, the schema of every file, and every figure and table, made again from the archive alone, to equal data.
"""

from __future__ import annotations

import hashlib
import json
import stat
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from inverse_depth.archive import CRATE, PROVENANCE, SUMS
from inverse_depth.artifacts import ARTIFACTS, make
from inverse_depth.config import ConfigError, load_study
from inverse_depth.cubes import open_cube
from inverse_depth.figures.drawn_data import TOLERANCE, difference, drawn_data
from inverse_depth.fits import FIT_COLUMNS
from inverse_depth.markup import read_table
from inverse_depth.storage import StorageError, read_dataset, write_frame

MOST_ENTRIES, MOST_BYTES = 10_000, 4 * 2**30
"""Most files, and most bytes in all when unpacked, that an archive may hold."""


class ArchiveError(ValueError):
    """An archive that must not be unpacked, or does not hold what it says; the message names the file."""


def verify(path: Path, report: Callable[[str], None] = print) -> None:
    """Check an archive, and report each check that it passed.

    Raises
    ------
    ArchiveError
        At the first that it did not pass.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "archive"
        names = unpack(path, root)
        report(f"{len(names)} files unpacked, none with an unsafe name")
        check_sums(root, names)
        report("check sums: all files are as they were archived")
        check_schema(root, names)
        report("schema: configuration, cubes, other data, fits and metadata are whole and of this package's format")
        provenance = json.loads((root / PROVENANCE).read_text(encoding="utf-8"))
        for name in provenance["artifacts"]:
            remake(root, name, Path(folder))
            report(f"{name}: made again from the archive alone, equal data")


def unpack(path: Path, root: Path) -> list[str]:
    """Unpack an archive into a new folder, and list its files; nothing is written unless all of its entries are safe.

    Raises
    ------
    ArchiveError
        For names that are absolute or lead out of the folder, links, files twice, and absurd sizes.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _check_entries(entries)
            for entry in entries:
                target = root / entry.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source:  # which gives no more bytes than the entry says it has
                    target.write_bytes(source.read())
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
        raise ArchiveError(f"{path}: cannot be read as a zip: {error}") from error
    return [entry.filename for entry in entries]


def _check_entries(entries: list[zipfile.ZipInfo]) -> None:
    if len(entries) > MOST_ENTRIES:
        raise ArchiveError(f"{len(entries)} entries: at most {MOST_ENTRIES} are allowed")
    if (size := sum(entry.file_size for entry in entries)) > MOST_BYTES:
        raise ArchiveError(f"{size} bytes when unpacked: at most {MOST_BYTES} are allowed")
    seen = set()
    for entry in entries:
        name = entry.orig_filename
        parts = PurePosixPath(name).parts
        if not name or name.startswith("/") or ".." in parts or any(mark in name for mark in ("\\", ":", "\0")):
            raise ArchiveError(f"{name!r}: the name is absolute or leads out of the archive's folder")
        mode = entry.external_attr >> 16
        if entry.is_dir() or (mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
            raise ArchiveError(f"{name!r}: only plain files are allowed")
        if name in seen:
            raise ArchiveError(f"{name!r}: is there twice")
        seen.add(name)


def check_sums(root: Path, names: list[str]) -> None:
    """Check that the list of check sums holds every other file, as it is.

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
        if hashlib.sha256((root / name).read_bytes()).hexdigest() != digest:
            raise ArchiveError(f"{name}: its check sum is not the one in {SUMS}: the file was changed or damaged")


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
        crate = json.loads((root / CRATE).read_text(encoding="utf-8"))
        provenance = json.loads((root / PROVENANCE).read_text(encoding="utf-8"))
    except (StorageError, ConfigError, OSError, ValueError) as error:
        raise error if isinstance(error, ArchiveError) else ArchiveError(str(error)) from error
    described = {entity.get("@id") for entity in crate.get("@graph", [])}
    if left := sorted(set(names) - described - {SUMS, CRATE}):
        raise ArchiveError(f"{left[0]}: not described in {CRATE}")
    if provenance.get("study") != study.study or not isinstance(provenance.get("artifacts"), dict):
        raise ArchiveError(f"{PROVENANCE}: of the study {provenance.get('study')!r}, must be of {study.study!r}")


def _check_fits(path: Path, name: str) -> None:
    columns = list(pd.read_csv(path).columns)
    if columns != FIT_COLUMNS:
        raise ArchiveError(f"{name}: its columns are {', '.join(columns)}; must be {', '.join(FIT_COLUMNS)}")


def remake(root: Path, name: str, scratch: Path) -> None:
    """Make a figure or table again from the unpacked archive, and compare its numbers.

    Raises
    ------
    ArchiveError
        If it cannot be made, or shows other numbers.
    """
    if name not in ARTIFACTS:
        raise ArchiveError(f"{PROVENANCE}: the artifact {name!r} is not known to this version of the package")
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
        raise ArchiveError(f"tables/{name}: made again it holds other numbers: {error}") from error


def main(arguments: list[str]) -> int:
    """Check the archive that is named, and say what was found; 1 if it is not sound."""
    if len(arguments) != 1:
        print("usage: python -m inverse_depth.verify ARCHIVE.zip", file=sys.stderr)
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
