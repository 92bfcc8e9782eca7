"""What attention matrices look like: the share of the identity in one, and how reliably tokens are selected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def identity_share(attention: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Fit A ~ rho I + (1 - rho) J, J = 11^T / P, by least squares (App. C.3).

    As I - J and J are orthogonal, rho = (tr A - 1^T A 1 / P) / (P - 1): 1 for the identity, 0 for uniform attention.

    Parameters
    ----------
    attention : array_like, shape (..., P, P)
        Attention of every context token (row) to every context token, P > 1.

    Returns
    -------
    rho : ndarray, shape (...)
    residual : ndarray, shape (...)
        Root mean square over the P^2 elements of A - rho I - (1 - rho) J.
    """
    matrices = np.asarray(attention, dtype=np.float64)
    size = matrices.shape[-1]
    trace = np.trace(matrices, axis1=-2, axis2=-1)
    rho = np.asarray((trace - matrices.sum(axis=(-2, -1)) / size) / (size - 1))
    share = rho[..., None, None]
    fitted = share * np.eye(size) + (1 - share) / size
    return rho, np.sqrt(np.square(matrices - fitted).mean(axis=(-2, -1)))


def selection_percentiles(
    selection_loss: xr.DataArray, percentiles: Sequence[float], seed: int, *, replicates: int = 200
) -> xr.Dataset:
    """Percentiles of the selection loss E_L(c) = |p_bar_L(c) - p*|^2 over contexts, and their fall with L (App. D.2).

    Q_L(q) is the mean over seeds of each model's own percentile. Its variance is that of a bootstrap over contexts plus
    that between seeds; a replicate draws the same contexts for every model, as all were evaluated on the same ones, so
    that what they share leaves the difference.

    Parameters
    ----------
    selection_loss : DataArray, dimensions L, seed, context
        E_L(c) with the depths as its coordinate L, at least two.
    percentiles : sequence of float
        In per cent, 0 to 100.
    seed : int
        Of the bootstrap.
    replicates : int
        Bootstrap samples.

    Returns
    -------
    Dataset
        ``selection_loss(L, percentile)``, ``difference(percentile)`` = Q of the shallowest less Q of the deepest, and
        their standard errors ``selection_loss_se``, ``difference_se``; attributes ``contexts`` and ``seeds`` are their
        numbers.

    Raises
    ------
    ValueError
        If there are fewer than two depths.
    """
    ordered = selection_loss.transpose("L", "seed", "context").sortby("L")
    losses = ordered.to_numpy().astype(np.float64)
    depths, seeds, contexts = losses.shape
    if depths < 2:
        raise ValueError(f"selection_loss has {depths} depths: a difference between depths needs at least 2")

    def quantiles(values: FloatArray) -> FloatArray:
        return np.moveaxis(np.percentile(values, percentiles, axis=-1), 0, -1)  # (L, seed, percentile)

    rng = np.random.default_rng(seed)
    found = quantiles(losses)
    resampled = np.stack(
        [quantiles(losses[..., rng.integers(contexts, size=contexts)]).mean(axis=1) for _ in range(replicates)]
    )
    between = found.var(axis=1, ddof=1) / seeds if seeds > 1 else np.zeros_like(found[:, 0])
    error = np.sqrt(resampled.var(axis=0, ddof=1) + between)
    # Models of one seed and different depths are trained independently: their variances add.
    fall = (resampled[:, 0] - resampled[:, -1]).var(axis=0, ddof=1) + between[0] + between[-1]
    mean = found.mean(axis=1)
    first, last = int(ordered["L"][0]), int(ordered["L"][-1])
    variables = {
        "selection_loss": (("L", "percentile"), mean, "percentile over contexts of the selection loss", "Q_L(q)"),
        "selection_loss_se": (("L", "percentile"), error, "standard error of selection_loss", ""),
        "difference": ("percentile", mean[0] - mean[-1], "fall of the percentile with depth", f"Q_{first} - Q_{last}"),
        "difference_se": ("percentile", np.sqrt(fall), "standard error of difference", ""),
    }
    dataset = xr.Dataset(
        {
            name: (dims, values, {"long_name": text, "units": "1"} | ({"equation": equation} if equation else {}))
            for name, (dims, values, text, equation) in variables.items()
        },
        {"L": ordered["L"], "percentile": ("percentile", np.asarray(percentiles, dtype=np.float64))},
        {"contexts": contexts, "seeds": seeds},
    )
    dataset["L"].attrs.update(long_name="depth, the number of residual layers", units="1")
    dataset["percentile"].attrs.update(long_name="percentile q over contexts", units="percent")
    return dataset
