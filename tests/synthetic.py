"""Cubes, frames of fits and theory files in the study's schema, made from laws that are known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from inverse_depth.attention_structure import identity_share, selection_percentiles

Key = tuple[float, float, int]


@dataclass(frozen=True)
class Law:
    """R_L = floor + amplitude L^-exponent; C_L is the floor less gap L^-exponent."""

    floor: float
    amplitude: float
    exponent: float
    gap: float = 0.05

    def loss(self, depth):
        return self.floor + self.amplitude * np.asarray(depth, dtype=float) ** -self.exponent


def softmax_laws() -> dict[Key, Law]:
    floors = {
        (0, 0, 2): 2.007, (0, 0.25, 2): 1.268, (0, 0.5, 2): 0.836, (0, 1, 2): 0.424, (0.25, 0, 2): 1.255,
        (0.5, 0, 2): 0.798, (1, 0, 2): 0.341, (0.25, 0.25, 2): 0.818, (0.25, 0.5, 2): 0.56, (0.5, 0.5, 2): 0.382,
        (0, 0.25, 16): 0.173, (0, 0.5, 16): 0.1144, (0.25, 0.25, 16): 0.1152, (0.25, 0.5, 16): 0.0798,
    }  # fmt: skip
    return {
        key: Law(floor, 0.055 * floor, 0.98 - 0.02 * i, 0.02 * floor) for i, (key, floor) in enumerate(floors.items())
    }


def linear_easy_laws() -> dict[Key, Law]:
    spectra = [(2, 0.5), (2, 1), (2, 1.5), (2, 2), (0.5, 2), (1, 2), (1.5, 2)]
    return {(a, b, 1): Law(0.0, 1.0, 1.3 * (a + b - 1) / a) for a, b in spectra}


def linear_difficult_laws() -> dict[Key, Law]:
    floors = {
        (0, 0, 2): 59.85, (0, 0.25, 2): 23.06, (0, 0.5, 2): 9.77, (0, 1, 2): 2.5, (0.25, 0, 2): 22.96,
        (0.5, 0, 2): 9.5, (1, 0, 2): 2.12, (0.25, 0.25, 2): 9.739, (0.5, 0.5, 2): 2.327, (1, 0.25, 2): 1.226,
        (1, 1, 2): 0.504, (0.5, 0.5, 16): 0.308, (1, 0, 16): 0.445, (1, 0.25, 16): 0.322, (1.25, 0, 16): 0.366,
    }  # fmt: skip
    return {key: Law(floor, 0.3 * floor, 4.0) for key, floor in floors.items()}


def softmax_easy_laws() -> dict[Key, Law]:
    return {(a, b, 1): Law(1e-5 * (1 + a + b), 0.0, 1.0) for a, b in [(0, 0), (0.5, 0), (1, 0), (0, 0.5), (0, 1)]}


def make_cube(
    laws: dict[Key, Law],
    depths: Sequence[int],
    seeds: Sequence[int] = (0, 1),
    steps: Sequence[int] = (2000, 6000, 14000),
    modes: int = 16,
    noise: float = 2e-4,
    converged: bool = True,
    seed: int = 0,
    size: tuple[int, int | str] = (16, 64),
) -> xr.Dataset:
    """A cube whose runs follow the laws, with relative noise; deeper models need longer to train."""
    rng = np.random.default_rng(seed)
    coords = {
        "L": np.array(depths, dtype=np.int64),
        "a": np.unique([a for a, _, _ in laws]).astype(float),
        "b": np.unique([b for _, b, _ in laws]).astype(float),
        "k": np.unique([k for _, _, k in laws]).astype(np.int64),
        "seed": np.array(seeds, dtype=np.int64),
    }
    more = {
        "mode": np.arange(1, modes + 1),
        "step": np.array(steps, dtype=np.int64),
        "block": np.arange(256),
        "history": np.unique(np.geomspace(1, steps[-1], 40).astype(int)),
    }
    shape = tuple(len(values) for values in coords.values())

    def empty(*extra: str) -> tuple[tuple[str, ...], np.ndarray]:
        return (*coords, *extra), np.full(shape + tuple(len(more[name]) for name in extra), np.nan)

    names = ["loss", "loss_difference", "shared_error", "disagreement"]
    names += [f"{name}_se" for name in names] + ["converged", "steps", "seconds"]
    attrs = {"config": json.dumps({"dimension": size[0], "context_length": size[1]})}
    cube = xr.Dataset({name: empty() for name in names}, {**coords, **more}, attrs)
    for name in ("mode_loss", "mode_loss_se"):
        cube[name] = empty("mode")
    for name in ("loss_by_step", "loss_by_step_se", "validation_loss"):
        cube[name] = empty("step")
    for name in ("loss_block", "shared_error_block"):
        cube[name] = empty("block")
    cube["selected_mass"] = empty("history")
    number = cube["mode"].astype(float)
    cube["eigenvalue"] = number ** -cube["a"]
    cube["teacher_eigenvalue"] = number ** -cube["b"]
    cube["target_power"] = (cube["eigenvalue"] * cube["teacher_eigenvalue"]).sum("mode") * (cube["k"] * 0 + 1)

    depth = cube["L"].astype(float)
    for (a, b, k), law in laws.items():
        at = dict(a=a, b=b, k=k)
        jitter = xr.DataArray(1 + noise * rng.standard_normal((len(depths), len(seeds))), dims=("L", "seed"))
        loss = (law.floor + law.amplitude * depth**-law.exponent) * jitter
        cube["loss"].loc[at] = loss.transpose(*cube["loss"].loc[at].dims)
        cube["loss_se"].loc[at] = noise * law.loss(1)
        cube["loss_difference"].loc[at] = (loss - loss.isel(L=-1)).transpose("L", "seed")
        cube["loss_difference_se"].loc[at] = noise * law.loss(1) / 10
        shared = (law.floor - law.gap * depth**-law.exponent).where(depth > 1)
        cube["shared_error"].loc[at] = (shared * jitter).transpose("L", "seed")
        cube["shared_error_se"].loc[at] = noise * law.loss(1)
        cube["disagreement"].loc[at] = ((loss - shared * jitter) * depth).transpose("L", "seed")
        cube["disagreement_se"].loc[at] = noise * law.loss(1)
        wobble = rng.standard_normal(256)
        blocks = xr.DataArray(1 + noise * (wobble - wobble.mean()), dims="block")
        cube["loss_block"].loc[at] = (loss * blocks).transpose("L", "seed", "block")
        cube["shared_error_block"].loc[at] = (shared * jitter * blocks).transpose("L", "seed", "block")
        share = cube["eigenvalue"].sel(a=a) * cube["teacher_eigenvalue"].sel(b=b)
        cube["mode_loss"].loc[at] = (loss * share / share.sum()).transpose("L", "seed", "mode")
        cube["mode_loss_se"].loc[at] = noise * (share / share.sum()) * law.loss(1)
        late = 1 + 0.02 * (cube["step"][0] / cube["step"]) * np.log2(2 * depth)
        cube["loss_by_step"].loc[at] = (loss * late / late.isel(step=-1)).transpose("L", "seed", "step")
        cube["loss_by_step_se"].loc[at] = noise * law.loss(1)
        # attention leaves the uniform distribution over 64 tokens; deeper models take longer, and stop later
        mass = 1 - (1 - 1 / 64) / (1 + cube["history"] / (30 * depth))
        mass = mass.where(cube["history"] <= steps[-1] * depth / depth.max())
        cube["selected_mass"].loc[at] = mass.expand_dims(seed=len(seeds)).transpose("L", "seed", "history")
        for name, value in (("converged", float(converged)), ("steps", steps[-1]), ("seconds", 1.0)):
            cube[name].loc[at] = value
    return cube


def make_fits(
    laws: dict[Key, Law],
    depths: Sequence[int],
    steps: Sequence[int] = (2000, 6000, 14000),
    undetermined: dict[Key, str] | None = None,
) -> pd.DataFrame:
    """Fits that recover the laws, at every training length; exponents grow with training."""
    rows = []
    for (a, b, k), law in laws.items():
        reason = (undetermined or {}).get((a, b, k), "")
        for quantity in ("loss", "shared_error_gap"):
            for i, step in enumerate([*steps, "final"]):
                exponent = law.exponent * (0.7 + 0.3 * (i + 1) / len(steps) if i < len(steps) else 1.0)
                rows.append(
                    {
                        "experiment": "synthetic", "quantity": quantity, "a": a, "b": b, "k": k, "step": str(step),
                        "depth_min": min(depths), "depth_max": max(depths), "points": len(depths), "seeds": 2,
                        "floor": law.floor, "floor_se": 0.001 * law.floor, "floor_low": 0.998 * law.floor,
                        "floor_high": 1.002 * law.floor,
                        "amplitude": law.amplitude if quantity == "loss" else law.gap, "amplitude_se": 0.001,
                        "exponent": exponent, "exponent_se": 0.02, "exponent_low": exponent - 0.05,
                        "exponent_high": exponent + 0.04, "r_squared": 0.9991, "determined": not reason,
                        "reason": reason, "misfit": "",
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def make_floors(values: dict[Key, float], se: float = 0.002, size: tuple[int, int] = (128, 1024)) -> xr.Dataset:
    """Theoretical floors; pairs that are not given are NaN."""
    coords = {
        "a": np.unique([a for a, _, _ in values]).astype(float),
        "b": np.unique([b for _, b, _ in values]).astype(float),
        "k": np.unique([k for _, _, k in values]).astype(np.int64),
    }
    floor = xr.DataArray(np.full([len(value) for value in coords.values()], np.nan), coords, tuple(coords))
    for (a, b, k), value in values.items():
        floor.loc[dict(a=a, b=b, k=k)] = value
    attrs = {"dimension": size[0], "context_length": size[1]}
    return xr.Dataset({"floor": floor, "floor_se": floor * 0 + se}, attrs=attrs)


def with_update_scale(cube: xr.Dataset, scales: dict[Key, Sequence[float]]) -> xr.Dataset:
    """The cube of a model with context updates: m at every depth, seeds 0.1 apart, and no layers to compare."""
    cube = cube.assign(update_scale=xr.full_like(cube["loss"], np.nan))
    for (a, b, k), values in scales.items():
        spread = np.asarray(values)[:, None] + 0.1 * np.arange(cube.sizes["seed"])
        cube["update_scale"].loc[dict(a=a, b=b, k=k)] = spread
    for name in ("shared_error", "disagreement", "shared_error_se", "disagreement_se", "shared_error_block"):
        cube[name][:] = np.nan
    return cube


def make_context_attention(shares: dict[int, float], tokens: int = 64, noise: float = 0.3, seed: int = 0) -> xr.Dataset:
    """Attention between context tokens, rho I + (1 - rho) J with rows of uneven weights, for each target size."""
    rng = np.random.default_rng(seed)
    uneven = np.exp(noise * rng.standard_normal((len(shares), tokens, tokens)))
    share = np.array(list(shares.values()))[:, None, None]
    matrices = share * np.eye(tokens) + (1 - share) * uneven / uneven.sum(axis=-1, keepdims=True)
    rho, residual = identity_share(matrices)
    return xr.Dataset(
        {
            "attention": (("k", "query", "token"), matrices),
            "rho": ("k", rho),
            "rho_se": ("k", 0.02 * np.minimum(rho, 1 - rho)),
            "fit_residual": ("k", residual),
            "converged": ("k", np.ones(len(shares), dtype=np.int8)),
        },
        {"k": np.array(list(shares), dtype=np.int64)},
    )


def make_selection(
    depths: Sequence[int] = (1, 256), seeds: int = 2, contexts: int = 2000, percentiles: Sequence[float] = range(1, 100)
) -> xr.Dataset:
    """Selection losses of a shallow model that is uneven across contexts and of a deep one that is not."""
    rng = np.random.default_rng(0)
    hardness = rng.standard_normal(contexts)
    own = 0.2 * rng.standard_normal((2, seeds, contexts))
    level, spread = np.array([0.3, 0.25])[:, None, None], np.array([0.5, 0.2])[:, None, None]
    losses = level * np.exp(spread * (hardness + own))
    coords = {"L": np.array(depths, dtype=np.int64), "seed": np.arange(seeds)}
    return selection_percentiles(xr.DataArray(losses, coords, ("L", "seed", "context")), percentiles, seed=0)
