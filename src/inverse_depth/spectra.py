"""Power-law spectra of inputs and teacher, and the numbers that summarise them.

The inputs have covariance Sigma with eigenvalues lambda_j = j^-a, the teacher Omega with omega_j = j^-b, j = 1..d, in
one common eigenbasis (Peng et al., arXiv 2610.11063, Sec. 2.1 and App. A.2; both prefactors are one).
"""

from __future__ import annotations

import math

import numpy as np
import xarray as xr
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def power_law_spectrum(dimension: int, exponent: float) -> FloatArray:
    """Eigenvalues j^-exponent, j = 1..d.

    Parameters
    ----------
    dimension : int
        Number d of modes.
    exponent : float
        The paper's a (inputs) or b (teacher); 0 is the isotropic spectrum.

    Returns
    -------
    ndarray, shape (d,)
        Falling eigenvalues; the largest is one.

    Raises
    ------
    ValueError
        If the dimension is below one, or the exponent is negative or not finite.
    """
    if dimension < 1:
        raise ValueError(f"dimension is {dimension}: it must be at least 1")
    if not (math.isfinite(exponent) and exponent >= 0):
        raise ValueError(f"exponent is {exponent}: it must be a finite number, at least 0")
    return np.arange(1, dimension + 1, dtype=np.float64) ** -float(exponent)


def spectral_exponent(a: float, b: float) -> float:
    """Exponent zeta = (a + b - 1) / a of the spectral density of the easy task (App. A.2).

    The target power at eigenvalues below lambda falls as lambda^zeta. NaN at a = 0, where all eigenvalues are equal.
    """
    return (a + b - 1) / a if a > 0 else math.nan


def participation_ratio(eigenvalues: FloatArray) -> float:
    """Effective dimension (sum_j lambda_j)^2 / sum_j lambda_j^2, between 1 and d."""
    return float(eigenvalues.sum() ** 2 / np.square(eigenvalues).sum())


def stable_rank(eigenvalues: FloatArray) -> float:
    """Effective dimension sum_j lambda_j / max_j lambda_j, between 1 and d."""
    return float(eigenvalues.sum() / eigenvalues.max())


def spectrum_dataset(dimension: int, a: float, b: float) -> xr.Dataset:
    """One spectrum with everything derived from it.

    Parameters
    ----------
    dimension : int
        Number d of modes.
    a, b : float
        Exponents of the input and the teacher spectrum.

    Returns
    -------
    xarray.Dataset
        Eigenvalues over ``mode`` (1..d) and scalars: ``spectral_exponent``, effective dimensions, ``target_power``.
    """
    eigenvalue = power_law_spectrum(dimension, a)
    teacher = power_law_spectrum(dimension, b)
    variables = {
        "eigenvalue": ("mode", eigenvalue, "eigenvalue of the input covariance", "lambda_k = k^-a"),
        "teacher_eigenvalue": ("mode", teacher, "eigenvalue of the teacher covariance", "omega_k = k^-b"),
        "spectral_exponent": (
            (),
            spectral_exponent(a, b),
            "spectral exponent of the easy task",
            "zeta = (a + b - 1) / a",
        ),
        "target_power": (
            (),
            float(eigenvalue @ teacher),
            "power of the easy target",
            "E[y*^2] = sum_k lambda_k omega_k",
        ),
    }
    for prefix, label, symbol, values in (
        ("input", "the input covariance", "lambda_k", eigenvalue),
        ("teacher", "the teacher covariance", "omega_k", teacher),
    ):
        variables[f"{prefix}_participation_ratio"] = (
            (),
            participation_ratio(values),
            f"participation ratio of {label}",
            f"(sum_k {symbol})^2 / sum_k {symbol}^2",
        )
        variables[f"{prefix}_stable_rank"] = (
            (),
            stable_rank(values),
            f"stable rank of {label}",
            f"sum_k {symbol} / max_k {symbol}",
        )
    return xr.Dataset(
        {
            name: (dims, data, {"long_name": long_name, "units": "1", "equation": equation})
            for name, (dims, data, long_name, equation) in variables.items()
        },
        coords={
            "mode": (
                "mode",
                np.arange(1, dimension + 1),
                {"long_name": "spectral mode k, strongest first", "units": "1"},
            ),
            "a": ((), float(a), {"long_name": "exponent of the input spectrum", "units": "1"}),
            "b": ((), float(b), {"long_name": "exponent of the teacher spectrum", "units": "1"}),
        },
        attrs={"title": f"Power-law spectrum with a = {a:g}, b = {b:g} in {dimension} dimensions"},
    )
