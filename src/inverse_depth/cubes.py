"""Cubes: all losses of one experiment, indexed by (L, a, b, k, seed); NaN where a combination was never run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from inverse_depth.provenance import attributes
from inverse_depth.spectra import power_law_spectrum
from inverse_depth.storage import StorageError, read_dataset

DIMENSIONS = ("L", "a", "b", "k", "seed")

_COORDINATES = {
    "L": {"long_name": "depth, the number of residual layers", "units": "1"},
    "a": {"long_name": "exponent of the input spectrum, lambda_k = k^-a", "units": "1"},
    "b": {"long_name": "exponent of the teacher spectrum, omega_k = k^-b", "units": "1"},
    "k": {"long_name": "target size, the number of tokens averaged into the target", "units": "1"},
    "seed": {"long_name": "seed of initialisation and training data", "units": "1"},
    "mode": {"long_name": "spectral mode, from the strongest", "units": "1"},
    "step": {"long_name": "training length, the step at which a round ends", "units": "1"},
    "history": {"long_name": "step along training at which the run was looked at", "units": "1"},
    "block": {"long_name": "block of the common evaluation contexts", "units": "1"},
}


def build_cube(evaluations: Sequence[xr.Dataset], experiment: str, settings: Mapping[str, Any]) -> xr.Dataset:
    """Assemble the cube of an experiment.

    Parameters
    ----------
    evaluations : sequence of xarray.Dataset
        Over (L, seed) and more, with coordinates a, b and k: scalars, or b an axis of its own.
    experiment : str
        The experiment's name.
    settings : mapping
        All that its numbers depend on, for the attributes.

    Returns
    -------
    xarray.Dataset
        With dimensions L, a, b, k and seed, and mode, step and block where needed.
    """
    pieces = [data.expand_dims([name for name in "abk" if name not in data.dims]) for data in evaluations]
    cube = xr.merge(pieces, join="outer", compat="no_conflicts", combine_attrs="override")
    order = [*DIMENSIONS, *(name for name in cube.dims if name not in DIMENSIONS)]
    cube = cube.transpose(*order, missing_dims="ignore").sortby(list(cube.indexes))
    meanings = {
        "eigenvalue": "eigenvalue of the inputs' covariance",
        "teacher_eigenvalue": "eigenvalue of the teacher's",
    }
    for axis, name in (("a", "eigenvalue"), ("b", "teacher_eigenvalue")):
        spectra = np.stack([power_law_spectrum(cube.sizes["mode"], exponent) for exponent in cube[axis].values])
        symbol = "lambda" if axis == "a" else "omega"
        cube[name] = (
            (axis, "mode"),
            spectra,
            {"long_name": meanings[name], "units": "1", "equation": f"{symbol}_k = k^-{axis}"},
        )
    for name, described in _COORDINATES.items():
        cube[name].attrs.update(described)
    for variable in cube.data_vars.values():
        if (error := f"{variable.name}_se") in cube:
            variable.attrs["ancillary_variables"] = error
    own = {"experiment": experiment}
    for name in ("device", "training_commits"):
        own[name] = "; ".join(sorted({one for dataset in evaluations for one in dataset.attrs[name].split("; ")}))
    title = f"Losses of the experiment {experiment} against depth"
    return cube.assign_attrs(attributes(title, settings) | own)


def open_cube(path: str | Path) -> xr.Dataset:
    """Open a cube, whole, in memory.

    Parameters
    ----------
    path : str or Path
        A cube of this package; plain ``xarray.open_dataset`` reads it too.

    Returns
    -------
    xarray.Dataset
        ``loss`` and the other variables over (L, a, b, k, seed); NaN where a combination was never run.

    Raises
    ------
    StorageError
        If the path is no file's, or the file cannot be read, is damaged, no cube, or holds what no cube of this package
        does; the message names it, what was found and what is allowed.
    """
    cube = read_dataset(path)
    missing = [name for name in DIMENSIONS if name not in cube.dims or name not in cube.coords]
    if missing or "loss" not in cube or cube["loss"].dims != DIMENSIONS:
        found = ", ".join(map(str, cube.dims)) or "none"
        raise StorageError(
            f"{path}: not a cube: its dimensions are {found}; allowed is a variable 'loss' over {', '.join(DIMENSIONS)}"
        )
    if (kind := cube["loss"].dtype).kind != "f":
        raise StorageError(f"{path}: not a cube: its loss holds {kind.name}; allowed are floats")
    for name in DIMENSIONS:
        values = cube[name].values
        if values.dtype.kind not in "iuf":
            raise StorageError(f"{path}: not a cube: the coordinate {name} holds no numbers")
        values = values.astype(float)  # of unsigned numbers a difference is never negative
        if not (np.isfinite(values).all() and (np.diff(values) > 0).all()):
            raise StorageError(f"{path}: not a cube: the coordinate {name} is no increasing list of finite numbers")
    return cube
