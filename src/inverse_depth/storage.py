"""Files that are whole or absent: atomic writing, and reading that says what is wrong."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inverse_depth.contents import MOST_FILE_BYTES, ContentsError, FormatError, check_contents

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

FORMAT = "inverse-depth 1"
"""Value of the global attribute ``format`` of every NetCDF file the package writes."""

_SEAL = b"\ninverse-depth sha256 "
_SEAL_BYTES = len(_SEAL) + 64 + 1

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

    Raises
    ------
    StorageError
        If it cannot be written: a disk that is full or read-only, a missing permission.
    """
    path = Path(path)
    temporary = path.with_name(f".{secrets.token_hex(6)}.tmp{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
        _flush(path.parent)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}{_free(path)}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def seal(path: str | Path) -> None:
    """Append the SHA-256 of a file to it, as a line of text.

    Programs that read NetCDF-4 ignore what follows its last block, so the file opens everywhere as before.
    """
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    with open(path, "ab") as file:
        file.write(_SEAL + digest.encode() + b"\n")


def write_dataset(dataset: xr.Dataset, path: str | Path) -> None:
    """Write a dataset as a compressed NetCDF-4 file with a checksum of the whole at its end, atomically.

    The same content gives the same bytes. Every array also carries a checksum that any reader of NetCDF verifies.

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
        if dataset[name].dtype.kind == "U":  # names, as arrays of characters: their size is declared, unlike strings'
            encoding[name]["dtype"] = "S1"
    with atomic_path(path) as temporary:
        try:
            dataset.assign_attrs(format=FORMAT).to_netcdf(
                temporary, format="NETCDF4", engine="netcdf4", encoding=encoding
            )
        except RuntimeError as error:  # HDF5's word for a disk that is full
            raise StorageError(f"{path}: cannot be written: {error}{_free(Path(path))}") from error
        seal(temporary)


def read_dataset(path: str | Path) -> xr.Dataset:
    """Read a dataset that this package wrote, whole, into memory.

    The file is read once: what was summed and checked is what NetCDF meets, and its name means nothing to it.

    Raises
    ------
    StorageError
        If the path is none or no file's, or the file cannot be read, is truncated, fails its checksum, was not written
        by this package in this format, or holds what no file of this package does (``contents.py``).
    """
    import netCDF4
    import xarray as xr

    path = _existing_file(path)
    try:
        body = _sealed(path)
        check_contents(body)
        opened = xr.backends.NetCDF4DataStore(netCDF4.Dataset("in memory", memory=body))
        dataset = xr.load_dataset(opened, decode_times=False)
    except StorageError:
        raise
    except MemoryError as error:
        raise StorageError(f"{path}: reading it takes more memory than there is") from error
    except FormatError as error:
        raise StorageError(f"{path}: damaged, or not a NetCDF-4 file; delete it and run again ({error})") from error
    except ContentsError as error:
        raise StorageError(f"{path}: {error}") from error
    except Exception as error:  # h5py, netCDF4 and xarray raise many kinds; each of them means an unreadable file
        raise StorageError(f"{path}: damaged, or not a NetCDF-4 file; delete it and run again ({error})") from error
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
    raise StorageError(f"{path}: no such file; {_how_to_make(Path(str(path)))}")


def _how_to_make(path: Path) -> str:
    """Give the command that makes a file of a study, if it is one, by its place under results/<study>/."""
    match path.parts:
        case ("results", "paper", _, *_):
            return f"make it with `snakemake --profile local {path}`"
        case ("results", study, _, *_):
            return f"make it with `snakemake --profile local {path} --configfile config/{study}.yaml`"
    return "a study's files are named results/<study>/..., as seen from the repository"


def _sealed(path: Path) -> bytes:
    """Read a file and verify the checksum at its end; return all before it."""
    try:
        with path.open("rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > MOST_FILE_BYTES:
                raise StorageError(f"{path}: {size:,} bytes; allowed are at most {MOST_FILE_BYTES:,}")
            body, end = file.read(max(0, size - _SEAL_BYTES)), file.read(_SEAL_BYTES + 1)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not end.startswith(_SEAL):
        raise StorageError(
            f"{path}: damaged, or not written by this package: no checksum at its end; if the workflow made it, delete "
            "it and run again (xarray.open_dataset reads NetCDF files of any origin)"
        )
    if end != _SEAL + hashlib.sha256(body).hexdigest().encode() + b"\n":
        raise StorageError(f"{path}: damaged: its content does not match its checksum; delete it and run again")
    return body


def _free(path: Path) -> str:
    """What is left on a disk, for a message: of a full one, HDF5 says that permission was denied."""
    with suppress(OSError):
        free = shutil.disk_usage(path.parent).free
        return f" (the disk is full: {free:,} bytes are free)" if free < 2**16 else f" ({free:,} bytes are free there)"
    return ""


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
