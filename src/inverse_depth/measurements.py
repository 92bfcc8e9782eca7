"""What is measured on trained models beside their losses: how they select tokens, and how they update the context."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from inverse_depth.attention_structure import identity_share, selection_percentiles
from inverse_depth.config import ContextAttention, Experiment, Selection
from inverse_depth.contexts import family_of, generator, sample_contexts
from inverse_depth.devices import prepare_device
from inverse_depth.models.base import Model
from inverse_depth.models.context_updates import ContextUpdates
from inverse_depth.runs import load_model
from inverse_depth.training import parts

Array = NDArray[np.float64]
PERCENTILES = tuple(range(1, 100))


def selection_dataset(
    runs: Sequence[xr.Dataset], experiment: Experiment, settings: Selection, *, device: str = "auto"
) -> xr.Dataset:
    """Measure E_L = |p_L - p*|^2, p_L the layers' mean attention, on fresh contexts common to all models (App. D.2).

    Parameters
    ----------
    runs : sequence of xarray.Dataset
        Training runs of both depths.
    experiment : Experiment
    settings : Selection
    device : str
        ``auto``, ``cpu`` or ``cuda``.

    Returns
    -------
    xarray.Dataset
        See :func:`inverse_depth.attention_structure.selection_percentiles`.
    """
    place = prepare_device(device)
    family = family_of(experiment, settings.spectrum[0], settings.target_size)
    contexts = sample_contexts(family, settings.contexts, [generator("selection", 0, 0, place)])
    assert contexts.selected is not None and family.context_length is not None
    ideal = torch.zeros(1, settings.contexts, family.context_length, device=place)
    ideal.scatter_(2, contexts.selected, 1 / settings.target_size)
    by_depth: dict[int, list[Array]] = {depth: [] for depth in settings.depths}
    for run in runs:
        model = _final(run, place)
        attention = torch.cat([model.mean_attention(part) for part in parts(model, contexts)], dim=1)
        by_depth[_point(run)["depth"]] += list((attention - ideal).square().sum(-1).double().cpu().numpy())
    seeds = min(map(len, by_depth.values()))
    losses = xr.DataArray(
        np.stack([values[:seeds] for values in by_depth.values()]),
        dims=("L", "seed", "context"),
        coords={"L": settings.depths},
    )
    return selection_percentiles(losses, PERCENTILES, seed=0)


def context_attention_dataset(
    runs: Sequence[xr.Dataset], experiment: Experiment, settings: ContextAttention, *, device: str = "auto"
) -> xr.Dataset:
    """Measure A_1, the first layer's attention among context tokens, and its share of the identity (App. C.3).

    Parameters
    ----------
    runs : sequence of xarray.Dataset
        Training runs with context updates, of one depth and every target size.
    experiment : Experiment
    settings : ContextAttention
    device : str
        ``auto``, ``cpu`` or ``cuda``.

    Returns
    -------
    xarray.Dataset
        ``attention`` (k, query, token) of one context and the first seed; ``rho`` (k), the mean over contexts and seeds
        of the least-squares fit A_1 = rho I + (1 - rho) 11^T / P, with ``rho_se``, the standard error over contexts and
        seeds; ``fit_residual`` (k), its root mean square residual; ``converged`` (k).
    """
    place = prepare_device(device)
    found: dict[int, list[Array]] = {}
    converged: dict[int, bool] = {}
    residuals: dict[int, list[Array]] = {}
    shown: dict[int, Array] = {}
    for run in runs:
        k = _point(run)["k"]
        family = family_of(experiment, settings.spectrum[0], k)
        contexts = sample_contexts(family, settings.contexts, [generator("context attention", 0, 0, place)])
        model = _final(run, place)
        converged[k] = converged.get(k, True) and bool(run["converged"].all())
        assert isinstance(model, ContextUpdates)
        fits = []
        for part in parts(model, contexts):
            attention = model.context_attention(part, 0).double().cpu().numpy()
            fits.append(identity_share(attention))
            shown.setdefault(k, attention[0, 0])
        for kept, values in zip((found, residuals), zip(*fits, strict=True), strict=True):
            kept.setdefault(k, []).append(np.concatenate(values, axis=1))
    sizes = sorted(found)
    shares, rests = ({k: np.concatenate(kept[k]) for k in sizes} for kept in (found, residuals))  # (seed, context)
    number = {"units": "1"}
    return xr.Dataset(
        {
            "attention": (
                ("k", "query", "token"),
                np.stack([shown[k] for k in sizes]),
                number
                | {"long_name": "attention of one context token to another in the first layer", "equation": "A_1"},
            ),
            "rho": (
                "k",
                [float(shares[k].mean()) for k in sizes],
                number | {"long_name": "share of the identity", "equation": "A_1 = rho I + (1 - rho) 1 1^T / P"},
            ),
            "rho_se": ("k", [_error(shares[k]) for k in sizes], number | {"long_name": "standard error of rho"}),
            "fit_residual": (
                "k",
                [float(np.sqrt(np.mean(np.square(rests[k])))) for k in sizes],
                number | {"long_name": "root mean square of A_1 less its fit"},
            ),
            "converged": (
                "k",
                np.array([converged[k] for k in sizes], dtype=np.int8),
                number | {"long_name": "1 if the training of every seed converged"},
            ),
        },
        {"k": sizes},
        {"contexts": settings.contexts, "depth": settings.depth},
    )


def _point(run: xr.Dataset) -> dict[str, Any]:
    """The fields of the run, as its file holds them."""
    point: dict[str, Any] = json.loads(run.attrs["config"])["run"]
    return point


def _final(run: xr.Dataset, device: torch.device) -> Model:
    return load_model(run, int(run["step"][-1]), device).requires_grad_(False)


def _error(shares: Array) -> float:
    """Standard error of the mean of (seed, context): of seeds and of contexts, which seeds share, in quadrature."""
    seeds, contexts = shares.shape
    of_seeds = shares.mean(1).std(ddof=1) / np.sqrt(seeds) if seeds > 1 else 0.0
    return float(np.hypot(of_seeds, shares.mean(0).std(ddof=1) / np.sqrt(contexts)))
