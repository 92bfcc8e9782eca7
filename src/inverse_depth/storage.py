"""Files that are whole or absent: atomic writing, and reading that says what is wrong."""

from __future__ import annotations

import os
import secrets
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

FORMAT = "inverse-depth 1"
"""Value of the global attribute ``format`` of every NetCDF file the package writes."""

_DATASET_ENCODING = {"zlib": True, "complevel": 4, "shuffle": True, "fletcher32": True}


class StorageError(OSError):
    """A file that is missing, damaged or not one of ours; the message names it and says what to do."""


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary path to write to, and put it in place of `path` when the block ends without an error.

    The file appears under its name whole and on disk, or not at all; readers of an older file of that name are not
    disturbed. Missing parent folders are made.

    Parameters
    ----------
    path : str or Path

    Yields
    ------
    Path
        In the same folder, with the same suffix.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(6)}.tmp{path.suffix}")
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
        _flush(path.parent)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_dataset(dataset: xr.Dataset, path: str | Path) -> None:
    """Write a dataset as a compressed NetCDF-4 file with a checksum on every array, atomically.

    The same content gives the same bytes.

    Parameters
    ----------
    dataset : xarray.Dataset
    path : str or Path
        Ends in ``.nc``.
    """
    numeric = [name for name, variable in dataset.variables.items() if variable.ndim and variable.dtype.kind in "biuf"]
    encoding: dict[Hashable, dict[str, Any]] = {name: dict(_DATASET_ENCODING) for name in numeric}
    for name in dataset.coords:  # of which none is ever missing, so CF allows them no fill value
        encoding.setdefault(name, {})["_FillValue"] = None
    with atomic_path(path) as temporary:
        dataset.assign_attrs(format=FORMAT).to_netcdf(temporary, format="NETCDF4", engine="netcdf4", encoding=encoding)


def read_dataset(path: str | Path) -> xr.Dataset:
    """Read a dataset that this package wrote, whole, into memory.

    Raises
    ------
    StorageError
        If the path is none or no file's, or the file is truncated, fails a checksum, or was not written by this package
        in this format.
    """
    import xarray as xr

    path = _existing_file(path)
    try:
        dataset = xr.load_dataset(path, engine="netcdf4", decode_times=False)
    except Exception as error:  # netCDF4, HDF5 and xarray raise many kinds; each of them means an unreadable file
        message = f"{path}: damaged, or not a NetCDF-4 file; delete it and run again ({error})"
        raise StorageError(message) from error
    found = dataset.attrs.get("format", "absent")
    if not isinstance(found, str) or found != FORMAT:  # an array of numbers has no truth value to compare by
        raise StorageError(f"{path}: not written by this package: its 'format' is {found!r}, must be {FORMAT!r}")
    return dataset


def write_text(text: str, path: str | Path) -> None:
    """Write a text file in UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def write_frame(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a table as CSV without its index, atomically; floats keep every digit."""
    write_text(frame.to_csv(index=False, lineterminator="\n"), path)


def _existing_file(path: object) -> Path:
    """Give the path of a file that exists, or say what it is instead."""
    if not isinstance(path, str | Path):
        raise StorageError(f"{path!r}: not a path but {type(path).__name__}; allowed is a str or Path of a file")
    try:
        found = "" if not Path(path).exists() else "a folder" if Path(path).is_dir() else "no regular file"
        if Path(path).is_file():
            return Path(path)
    except (OSError, ValueError) as error:  # no permission, a name too long, a null character
        raise StorageError(f"{str(path)!r}: cannot be looked up ({error}); allowed is a NetCDF file's path") from error
    if found:
        raise StorageError(f"{str(path) or repr(path)}: {found}; allowed is a NetCDF file, such as <folder>/<name>.nc")
    raise StorageError(f"{path}: no such file; make it with `snakemake --profile local {path}`")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
