"""Loss floor of linear attention on the difficult task, by Monte Carlo over contexts.

Linear attention predicts beta^T p(Sigma) q with a polynomial p of degree L and p(0) = 0, so that its loss cannot fall
below T - h^T G^+ h, with T = E t^T Omega t, h = E Phi^T Omega t, G = E Phi^T Omega Phi and Phi = [Sigma q, ...,
Sigma^L q] (Peng et al., arXiv 2610.11063, App. A.3). All of it is computed in the common eigenbasis of Sigma and Omega.

With q_j = sqrt(lambda_j) z_j, z_j standard normal, the prediction of mode j is v_j z_j / sqrt(omega_j), and the vectors
v that polynomials can reach form a Krylov space of dimension L at most. On an orthonormal basis Q of that space, G is
the identity: the floor is T - |Q^T m|^2 with m_j = sqrt(omega_j) E[z_j t_j], however ill-conditioned the monomials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from scipy.integrate import quad
from scipy.special import betainc, ndtr, ndtri

from inverse_depth.config import Floor
from inverse_depth.contexts import Family, generator, sample_contexts
from inverse_depth.devices import keep_freed_memory
from inverse_depth.spectra import FloatArray, power_law_spectrum

BLOCKS = 256
"""Disjoint blocks of contexts whose means give the standard errors."""

_NUMBERS_AT_ONCE = 2**20
"""Token coordinates drawn at once: small enough for the cache to help, large enough to hide the overhead of a call."""


@dataclass(frozen=True)
class Moments:
    """Second moments of query and target in the eigenbasis of Sigma, as means over disjoint blocks of contexts.

    Attributes
    ----------
    query : ndarray, shape (block, d)
        Means of z_j^2, whose expectation is one.
    target : ndarray, shape (block, k, d)
        Means of t_j^2.
    cross : ndarray, shape (block, k, d)
        Means of z_j t_j.
    """

    query: FloatArray
    target: FloatArray
    cross: FloatArray


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo estimate and its standard error."""

    value: float
    error: float


def sample_moments(
    dimension: int,
    context_length: int,
    a: float,
    target_sizes: Sequence[int],
    contexts: int,
    seed: int,
) -> Moments:
    """Moments of the difficult task for one input spectrum; one sample serves every teacher spectrum and target size.

    Parameters
    ----------
    dimension, context_length : int
        d and P.
    a : float
        Exponent of the input spectrum.
    target_sizes : sequence of int
        Numbers k of selected tokens.
    contexts : int
        Number n of independent contexts, a multiple of 256.
    seed : int
        Seed of the sample; the result depends on it and the sizes alone.

    Returns
    -------
    Moments
        Means in double precision of single-precision draws.

    Raises
    ------
    ValueError
        If the number of contexts is not a multiple of 256.
    """
    if contexts < BLOCKS or contexts % BLOCKS:
        raise ValueError(f"contexts is {contexts}: it must be a positive multiple of {BLOCKS}")
    family = Family("difficult", dimension, context_length, max(target_sizes), a)
    scale = torch.tensor(power_law_spectrum(dimension, a)).sqrt()
    counts = torch.arange(1, max(target_sizes) + 1, dtype=torch.float64)
    sizes = torch.tensor(target_sizes)
    chunk = max(1, _NUMBERS_AT_ONCE // (dimension * context_length))
    per_block = contexts // BLOCKS
    query, target, cross = [], [], []
    draw = 0
    for _ in range(BLOCKS):
        sums = torch.zeros((1 + 2 * len(target_sizes), dimension), dtype=torch.float64)
        for start in range(0, per_block, chunk):
            batch = sample_contexts(
                family, min(chunk, per_block - start), [generator("floor", seed, draw)], rotate=False
            )
            draw += 1
            assert batch.tokens is not None and batch.selected is not None
            q = batch.query[0]
            index = batch.selected[0][..., None].expand(-1, -1, dimension)
            chosen = batch.tokens[0].gather(1, index)
            alignment = (chosen @ q[..., None])[..., 0] / torch.linalg.vector_norm(chosen, dim=-1)
            ranked = chosen.gather(1, alignment.argsort(dim=1, descending=True)[..., None].expand(-1, -1, dimension))
            t = (ranked.double().cumsum(1) / counts[:, None])[:, sizes - 1]
            z = q.double() / scale
            sums += torch.cat([z.square()[:, None], t.square(), z[:, None] * t], dim=1).sum(0)
        means = (sums / per_block).cpu().numpy()
        query.append(means[0])
        target.append(means[1 : 1 + len(target_sizes)])
        cross.append(means[1 + len(target_sizes) :])
    return Moments(np.stack(query), np.stack(target), np.stack(cross))


def reachable_basis(eigenvalues: FloatArray, teacher: FloatArray, degree: int) -> FloatArray:
    """Build an orthonormal basis of the vectors (sqrt(omega_j lambda_j) p(lambda_j))_j, p(0) = 0, deg p <= degree.

    Parameters
    ----------
    eigenvalues, teacher : ndarray, shape (d,)
        lambda_j and omega_j.
    degree : int

    Returns
    -------
    ndarray, shape (d, r)
        r <= degree: the number of distinct eigenvalues if that is less.
    """
    vector = np.sqrt(teacher * eigenvalues) * eigenvalues
    basis = np.empty((eigenvalues.size, 0))
    for _ in range(degree):
        length = np.linalg.norm(vector)
        for _ in range(2):
            vector = vector - basis @ (basis.T @ vector)
        rest = np.linalg.norm(vector)
        if rest <= 1e-13 * length:
            break
        basis = np.column_stack([basis, vector / rest])
        vector = eigenvalues * basis[:, -1]
    return basis


def linear_floor(
    query: FloatArray, target: FloatArray, cross: FloatArray, eigenvalues: FloatArray, teacher: FloatArray, degree: int
) -> Estimate:
    """Floor T - h^T G^+ h from block means.

    The sample's own G gives the coefficients, since its fluctuation is that of h; the closed form of G then gives a
    control variate, the power of the prediction, sum_j v_j^2 z_j^2, whose mean |v|^2 is known. The standard error is
    that of the delta method: the floor is stationary in the coefficients, so each block contributes linearly.

    Parameters
    ----------
    query, target, cross : ndarray, shape (block, d)
        Block means of z_j^2, t_j^2 and z_j t_j.
    eigenvalues, teacher : ndarray, shape (d,)
        lambda_j and omega_j.
    degree : int
        L, the degree of the polynomial.

    Returns
    -------
    Estimate
    """
    root = np.sqrt(teacher)
    basis = reachable_basis(eigenvalues, teacher, degree)
    gram = basis.T @ (query.mean(0)[:, None] * basis)
    prediction = basis @ np.linalg.solve(gram, basis.T @ (root * cross.mean(0)))
    power = query @ prediction**2
    influence = target @ teacher - 2 * cross @ (root * prediction) + power
    control = power - prediction @ prediction
    centred = control - control.mean()
    variance = centred @ centred
    slope = centred @ influence / variance if variance > 0 else 0.0
    return _mean(influence - slope * control)


def top_k_mean(context_length: int, target_size: int) -> float:
    """Compute gamma_{P,k}, the expected mean of the k largest of P independent standard normals.

    A draw x is among the k largest if at most k - 1 of the others exceed it, which has the probability
    I_{Phi(x)}(P - k, k), a regularised incomplete beta function; gamma = (P / k) int x phi(x) I_{Phi(x)}(P - k, k) dx.
    """
    if not 1 <= target_size <= context_length:
        raise ValueError(f"target_size is {target_size}: it must be between 1 and context_length ({context_length})")
    if target_size == context_length:
        return 0.0

    def integrand(x: float) -> float:
        density = math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        return x * density * float(betainc(context_length - target_size, target_size, ndtr(x)))

    edge = -float(ndtri(target_size / context_length))
    integral, _ = quad(
        integrand, -40, 40, points=[-8.0, edge - 1, edge, edge + 1, 12.0], limit=500, epsabs=0, epsrel=1e-11
    )
    return context_length / target_size * float(integral)


def predictable_coefficient(eigenvalues: FloatArray, context_length: int, target_size: int) -> float:
    """Predict c = gamma_{P,k} / sqrt(tr Sigma^2) in the predictable part c Sigma q of the target (App. A.3)."""
    return top_k_mean(context_length, target_size) / float(np.linalg.norm(eigenvalues))


def measured_coefficient(cross: FloatArray, eigenvalues: FloatArray, teacher: FloatArray) -> Estimate:
    """Estimate the c that minimises E (t - c Sigma q)^T Omega (t - c Sigma q), from block means of z_j t_j."""
    weights = teacher * eigenvalues**1.5
    return _mean(cross @ weights / (weights @ eigenvalues**1.5))


def floor_dataset(settings: Floor, seed: int) -> xr.Dataset:
    """Floors for every pair of a spectrum and a target size.

    Parameters
    ----------
    settings : Floor
        Sizes, degree, spectra and target sizes.
    seed : int
        Seed of the contexts.

    Returns
    -------
    xarray.Dataset
        Over (a, b, k); pairs (a, b) not asked for hold NaN.
    """
    keep_freed_memory()
    exponents = [sorted(set(values)) for values in zip(*settings.spectra, strict=True)]
    sizes = sorted(settings.target_sizes)
    dims = ("a", "b", "k")
    shape = (len(exponents[0]), len(exponents[1]), len(sizes))
    described = {
        "floor": ("loss floor of linear attention", "T - h^T G^+ h"),
        "target_power": ("loss of the zero predictor", "T = E[t^T Omega t]"),
        "measured_coefficient": ("coefficient of the predictable part", "h_1 / G_11"),
    }
    values = {name: np.full(shape, np.nan) for base in described for name in (base, f"{base}_se")}
    for i, a in enumerate(exponents[0]):
        eigenvalues = power_law_spectrum(settings.dimension, a)
        moments = sample_moments(settings.dimension, settings.context_length, a, sizes, settings.contexts, seed)
        for j, b in enumerate(exponents[1]):
            if (a, b) not in settings.spectra:
                continue
            teacher = power_law_spectrum(settings.dimension, b)
            for n in range(len(sizes)):
                target, cross = moments.target[:, n], moments.cross[:, n]
                for name, estimate in (
                    ("floor", linear_floor(moments.query, target, cross, eigenvalues, teacher, settings.degree)),
                    ("target_power", _mean(target @ teacher)),
                    ("measured_coefficient", measured_coefficient(cross, eigenvalues, teacher)),
                ):
                    values[name][i, j, n], values[f"{name}_se"][i, j, n] = estimate.value, estimate.error
    dataset = xr.Dataset(
        coords={
            "a": ("a", exponents[0], {"long_name": "exponent of the input spectrum", "units": "1"}),
            "b": ("b", exponents[1], {"long_name": "exponent of the teacher spectrum", "units": "1"}),
            "k": ("k", sizes, {"long_name": "target size", "units": "1"}),
        },
        attrs={
            "title": "Loss floors of linear attention on the difficult task",
            "source": "Peng et al., arXiv 2610.11063, App. A.3",
            "dimension": settings.dimension,
            "context_length": settings.context_length,
            "degree": settings.degree,
            "contexts": settings.contexts,
            "seed": seed,
        },
    )
    for base, (long_name, equation) in described.items():
        dataset[base] = (dims, values[base], {"long_name": long_name, "units": "1", "equation": equation})
        dataset[f"{base}_se"] = (
            dims,
            values[f"{base}_se"],
            {
                "long_name": f"standard error of the {long_name}",
                "units": "1",
                "equation": f"delta method, {BLOCKS} blocks",
            },
        )
    dataset["top_k_mean"] = (
        "k",
        [top_k_mean(settings.context_length, k) for k in sizes],
        {
            "long_name": "expected mean of the k largest of P standard normals",
            "units": "1",
            "equation": "gamma_{P,k} = (P/k) int x phi(x) I_{Phi(x)}(P-k, k) dx",
        },
    )
    norms = [np.linalg.norm(power_law_spectrum(settings.dimension, a)) for a in exponents[0]]
    dataset["predictable_coefficient"] = (dataset["top_k_mean"] / xr.DataArray(norms, dims="a")).transpose("a", "k")
    dataset["predictable_coefficient"].attrs = {
        "long_name": "predicted coefficient of the predictable part",
        "units": "1",
        "equation": "c = gamma_{P,k} / sqrt(tr Sigma^2)",
    }
    return dataset


def _mean(blocks: FloatArray) -> Estimate:
    return Estimate(float(blocks.mean()), float(blocks.std(ddof=1) / np.sqrt(blocks.size)))
