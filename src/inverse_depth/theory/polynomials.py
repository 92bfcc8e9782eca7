"""Covariance polynomials on the easy task: what a linear-attention model of depth L could reach.

With population covariance the loss of a residual polynomial r = 1 - p_L is sum_j lambda_j omega_j r(lambda_j)^2, where
r(0) = 1 and deg r <= L (Peng et al., arXiv 2610.11063, App. A.2). Repeating one update constrains r to
(1 - gamma lambda / L)^L; free polynomials choose all coefficients. On a dense spectrum they fall as L^-zeta and
L^-2zeta.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

from inverse_depth.spectra import FloatArray, power_law_spectrum, spectral_exponent


def optimal_step(eigenvalues: FloatArray, weights: FloatArray, depth: int) -> float:
    """Find the gamma that minimises sum_j w_j (1 - gamma lambda_j / L)^(2L).

    The loss is convex in gamma, and its derivative is negative at gamma = L / lambda_max and positive at
    L / lambda_min, so the minimum is the one root between them. Its two signs are summed in logarithms: at large L the
    terms span thousands of orders of magnitude.

    Parameters
    ----------
    eigenvalues, weights : ndarray, shape (d,)
        lambda_j > 0 and w_j = lambda_j omega_j > 0.
    depth : int
        Number L of repeated updates.

    Returns
    -------
    float
        gamma, in units of inverse eigenvalues.
    """
    low, high = 1 / eigenvalues.max(), 1 / eigenvalues.min()
    if np.isclose(low, high, rtol=1e-14, atol=0):
        return float(depth * low)

    def imbalance(log_rate: float) -> float:
        factor = 1 - np.exp(log_rate) * eigenvalues
        with np.errstate(divide="ignore"):
            terms = np.log(weights * eigenvalues) + (2 * depth - 1) * np.log(np.abs(factor))
        undershoot, overshoot = (logsumexp(terms[side]) if side.any() else -np.inf for side in (factor > 0, factor < 0))
        return float(np.clip(undershoot - overshoot, -1e4, 1e4))

    margin = 1e-14
    root = brentq(imbalance, np.log(low) + margin, np.log(high) - margin, xtol=1e-14, rtol=1e-14, maxiter=500)
    return float(depth * np.exp(root))


def constrained_loss(eigenvalues: FloatArray, weights: FloatArray, depth: int) -> float:
    """Loss of the repeated update, sum_j w_j (1 - gamma lambda_j / L)^(2L), at the best gamma.

    See `optimal_step` for the parameters. Falls as L^-zeta while 1 << L << lambda_1 / lambda_d.
    """
    factor = 1 - optimal_step(eigenvalues, weights, depth) / depth * eigenvalues
    return float(weights @ factor ** (2 * depth))


def exponential_superposition(weights: FloatArray, timescales: FloatArray, depths: FloatArray) -> FloatArray:
    """Power law from modes that each decay exponentially: R_L = sum_j w_j exp(-L / tau_j) (App. A.4).

    Parameters
    ----------
    weights, timescales : ndarray, shape (d,)
        w_j, and tau_j >= 0 in layers.
    depths : ndarray, shape (n,)

    Returns
    -------
    ndarray, shape (n,)
    """
    with np.errstate(divide="ignore"):
        return np.exp(-np.divide.outer(depths, timescales)) @ weights


def fixed_step_loss(eigenvalues: FloatArray, weights: FloatArray, depths: FloatArray) -> FloatArray:
    """Loss of the repeated update at gamma = L / lambda_1, the largest step that never overshoots.

    Mode j then decays as exp(-L / tau_j), tau_j = -1 / (2 log(1 - lambda_j / lambda_1)); the first mode at once.
    """
    with np.errstate(divide="ignore"):
        timescales = -0.5 / np.log1p(-eigenvalues / eigenvalues.max())
    return exponential_superposition(weights, np.abs(timescales), depths)


def free_losses(eigenvalues: FloatArray, weights: FloatArray, max_depth: int) -> FloatArray:
    """Least loss over all polynomials r with r(0) = 1 and deg r <= L, for L = 0..max_depth.

    It is 1 / sum_{n <= L} phi_n(0)^2, phi_n the orthonormal polynomials of the weights w_j on the lambda_j, and equally
    the squared residual of the least-squares problem diag(sqrt(lambda)) x = sqrt(w) after L Golub-Kahan steps (Paige
    and Saunders, ACM TOMS 8, 43, 1982). In that form the loss is a product of sines, without any cancellation; both
    Krylov bases are orthogonalised fully, twice.

    Parameters
    ----------
    eigenvalues, weights : ndarray, shape (d,)
        lambda_j > 0 and w_j = lambda_j omega_j > 0.
    max_depth : int

    Returns
    -------
    ndarray, shape (max_depth + 1,)
        Exactly zero from L = number of distinct eigenvalues on. Elsewhere the relative error is below 1e-9 for losses
        down to about 1e-40 of the target power; what is smaller is noise of double precision.
    """
    nodes, group = np.unique(eigenvalues, return_inverse=True)
    scale = np.sqrt(nodes)
    left = np.sqrt(np.bincount(group, weights=weights))
    losses = np.zeros(max_depth + 1)
    losses[0] = weights.sum()

    left /= np.linalg.norm(left)
    right = scale * left
    diagonal = float(np.linalg.norm(right))
    right /= diagonal
    lefts, rights = [left], [right]
    pivot = diagonal
    for depth in range(1, min(max_depth, nodes.size - 1) + 1):
        left, subdiagonal = _orthogonalise(scale * right, lefts)
        right, diagonal = _orthogonalise(scale * left, rights)
        hypotenuse = float(np.hypot(pivot, subdiagonal))
        losses[depth] = losses[depth - 1] * (subdiagonal / hypotenuse) ** 2
        pivot *= diagonal / hypotenuse
    return losses


def _orthogonalise(vector: FloatArray, basis: list[FloatArray]) -> tuple[FloatArray, float]:
    """Append to `basis` the direction of the part of `vector` outside its span; return it and that part's length."""
    rows = np.asarray(basis)
    for _ in range(2):
        vector = vector - rows.T @ (rows @ vector)
    length = float(np.linalg.norm(vector))
    unit = vector / length if length > 0 else vector
    basis.append(unit)
    return unit, length


def asymptotic_free_losses(a: float, b: float, depths: FloatArray) -> FloatArray:
    """Least loss over free polynomials on a dense spectrum, d -> infinity, lambda_1 = 1.

    The density of target power is (1/a) lambda^(zeta - 1) on [0, 1]; its orthonormal polynomials are shifted Jacobi
    polynomials with phi_n(0)^2 = a (2n + zeta) [Gamma(n + zeta) / (n! Gamma(zeta))]^2, which sum to
    R_L = [Gamma(zeta + 1) L! / Gamma(L + zeta + 1)]^2 / (a zeta), falling as L^-2zeta.

    Parameters
    ----------
    a, b : float
        Exponents of the input and the teacher spectrum.
    depths : ndarray, shape (n,)

    Returns
    -------
    ndarray, shape (n,)
        NaN unless zeta > 0: otherwise the target power has no dense limit.
    """
    zeta = spectral_exponent(a, b)
    if not zeta > 0:
        return np.full(np.shape(depths), np.nan)
    logarithm = gammaln(zeta + 1) + gammaln(depths + 1) - gammaln(depths + zeta + 1)
    losses: FloatArray = np.exp(2 * logarithm) / (a * zeta)
    return losses


def local_exponents(depths: FloatArray, losses: FloatArray) -> FloatArray:
    """Local exponent -d log R / d log L by central differences; NaN where the loss is zero or has one neighbour less.

    Parameters
    ----------
    depths, losses : ndarray, shape (n,)
        Rising depths, at least two.

    Returns
    -------
    ndarray, shape (n,)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = -np.gradient(np.log(losses), np.log(depths))
    return np.where(np.isfinite(slopes), slopes, np.nan)


def polynomial_dataset(dimension: int, spectra: Sequence[tuple[float, float]], depths: Sequence[int]) -> xr.Dataset:
    """Polynomial references of the easy task for several spectra.

    Parameters
    ----------
    dimension : int
        Number d of modes.
    spectra : sequence of (float, float)
        Pairs (a, b).
    depths : sequence of int
        At least two different depths L >= 1.

    Returns
    -------
    xarray.Dataset
        Losses and local exponents over (L, a, b) and reference exponents over (a, b); pairs not asked for hold NaN.

    Raises
    ------
    ValueError
        If fewer than two different depths are given or one is below 1.
    """
    grid = np.array(sorted(set(depths)), dtype=np.int64)
    if grid.size < 2 or grid[0] < 1:
        raise ValueError(f"depths is {list(depths)}: at least two different depths, each at least 1, are needed")
    a_values, b_values = (sorted({float(value) for value in values}) for values in zip(*spectra, strict=True))
    coords = {
        "L": ("L", grid, {"long_name": "depth", "units": "1"}),
        "a": ("a", a_values, {"long_name": "exponent of the input spectrum", "units": "1"}),
        "b": ("b", b_values, {"long_name": "exponent of the teacher spectrum", "units": "1"}),
    }
    layers = grid.astype(np.float64)
    losses = {
        "constrained": (
            "loss of the best repeated update",
            "min_gamma sum_k lambda_k omega_k (1 - gamma lambda_k / L)^(2L)",
        ),
        "fixed_step": (
            "loss of the repeated update that never overshoots",
            "gamma = L / lambda_1 in the constrained loss",
        ),
        "free": ("least loss over polynomials of degree L", "1 / sum_{n<=L} phi_n(0)^2, weights lambda_k omega_k"),
        "free_dense": (
            "least loss over polynomials of degree L on a dense spectrum",
            "[Gamma(zeta+1) L! / Gamma(L+zeta+1)]^2 / (a zeta)",
        ),
    }
    described: dict[str, tuple[str, str]] = {f"{name}_loss": text for name, text in losses.items()}
    described |= {
        f"{name}_exponent": (f"local exponent of the {text}", "-d log R_L / d log L")
        for name, (text, _) in losses.items()
    }
    described["step"] = ("best constant step", "gamma of the constrained loss")
    shape = (grid.size, len(a_values), len(b_values))
    dataset = xr.Dataset(
        {
            name: (
                ("L", "a", "b"),
                np.full(shape, np.nan),
                {"long_name": long_name, "units": "1", "equation": equation},
            )
            for name, (long_name, equation) in described.items()
        },
        coords=coords,
        attrs={
            "title": f"Covariance polynomials on the easy task, d = {dimension}",
            "source": "Peng et al., arXiv 2610.11063, App. A.2",
            "dimension": dimension,
        },
    )
    for name, factor, label in (("constrained_reference", 1, "zeta"), ("free_reference", 2, "2 zeta")):
        dataset[name] = (("a", "b"), np.full(shape[1:], np.nan))
        dataset[name].attrs = {
            "long_name": f"asymptotic exponent {label}",
            "units": "1",
            "equation": f"{label}, zeta = (a+b-1)/a",
        }
        for a, b in spectra:
            dataset[name].loc[{"a": a, "b": b}] = factor * spectral_exponent(a, b)
    for a, b in spectra:
        eigenvalues = power_law_spectrum(dimension, a)
        weights = eigenvalues * power_law_spectrum(dimension, b)
        curves = {
            "constrained": np.array([constrained_loss(eigenvalues, weights, int(depth)) for depth in grid]),
            "fixed_step": fixed_step_loss(eigenvalues, weights, layers),
            "free": free_losses(eigenvalues, weights, int(grid[-1]))[grid],
            "free_dense": asymptotic_free_losses(a, b, layers),
        }
        here = {"a": a, "b": b}
        for name, curve in curves.items():
            dataset[f"{name}_loss"].loc[here] = curve
            dataset[f"{name}_exponent"].loc[here] = local_exponents(layers, curve)
        dataset["step"].loc[here] = [optimal_step(eigenvalues, weights, int(depth)) for depth in grid]
    return dataset
