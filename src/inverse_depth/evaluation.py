"""Losses of trained models on common contexts, with the teacher integrated out where the output is linear in labels.

Every model of one family, of any depth, seed, teacher spectrum or experiment, meets the same contexts, drawn in BLOCKS
blocks that are pure functions of the block's number. What is kept of a model is its mean over each block, so that the
errors of single values and of differences between models both follow from the spread over blocks.

Single values gain from a control variate: a predictor that errs on much the same contexts and whose own mean is known
far more precisely. For softmax it is one temperature for all tokens, its mean taken over many more contexts; for linear
attention on the easy task it is the isotropic part of the model itself, whose mean is known exactly. Where teachers are
sampled, the control meets the same ones.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from inverse_depth.config import Experiment, Run, Study
from inverse_depth.contexts import (
    Contexts,
    Family,
    family_of,
    generator,
    rms_normalise,
    sample_contexts,
    sample_teachers,
)
from inverse_depth.models.base import Model
from inverse_depth.runs import load_model, settings
from inverse_depth.spectra import power_law_spectrum
from inverse_depth.storage import read_dataset
from inverse_depth.training import choose_device, device_name, parts

BLOCKS = 256
Array = NDArray[np.float64]

_DESCRIPTIONS: dict[str, dict[str, str]] = {
    "loss": {"long_name": "population loss", "equation": "R_L = E[(y_hat_L - y*)^2] = E[v^T Omega v]"},
    "shared_error": {
        "long_name": "error shared by the layers",
        "equation": "C_L = sum_{l != m} E[e_l e_m] / (L (L - 1))",
    },
    "disagreement": {
        "long_name": "disagreement of the layers",
        "equation": "A_L - C_L, with A_L = sum_l E[e_l^2] / L and R_L = C_L + (A_L - C_L) / L",
    },
    "mode_loss": {
        "long_name": "loss in one spectral mode",
        "equation": "R_k = omega_k E[(o_k^T v)^2], sum_k R_k = R_L",
    },
    "loss_by_step": {"long_name": "population loss at the end of each round of training", "equation": "R_L"},
    "loss_difference": {
        "long_name": "loss less that of the deepest model of the same seed, on the same contexts",
        "equation": "R_L - R_{L_max}",
    },
    "target_power": {"long_name": "loss of predicting zero, on the common contexts", "equation": "E[y*^2]"},
    "loss_block": {"long_name": "population loss on one block of the common contexts", "equation": "R_L"},
    "shared_error_block": {"long_name": "shared error on one block of the common contexts", "equation": "C_L"},
}
_DESCRIPTIONS = {name: attributes | {"units": "1"} for name, attributes in _DESCRIPTIONS.items()}


def _error_of(name: str) -> dict[str, str]:
    return {"long_name": f"standard error of {name} over evaluation contexts", "units": "1"}


def evaluate(
    runs: Sequence[xr.Dataset],
    control: xr.Dataset | None,
    experiment: Experiment,
    *,
    a: float,
    b: float,
    k: int,
    device: str = "auto",
) -> xr.Dataset:
    """Evaluate all models of one (a, b, k) on their common contexts.

    Parameters
    ----------
    runs : sequence of xarray.Dataset
        What training returned, for every depth and group of seeds.
    control : xarray.Dataset or None
        What :func:`control_dataset` returned for the family, for softmax attention on the difficult task.
    experiment : Experiment
    a, b : float
        Exponents of the spectra.
    k : int
        Target size.
    device : str
        ``auto``, ``cpu`` or ``cuda``.

    Returns
    -------
    xarray.Dataset
        Over (L, seed), and block, mode and step where needed: see :mod:`inverse_depth.cubes`.
    """
    place = choose_device(device)
    family = family_of(experiment, a, k)
    omega = power_law_spectrum(family.dimension, b)
    measured = [_Measured(run, place) for run in runs]
    shared, shared_sampled = np.zeros((BLOCKS, family.dimension)), np.zeros((BLOCKS, 1))
    power = np.zeros(BLOCKS)
    for block, contexts in _blocks("evaluation", family, experiment.evaluation_contexts // BLOCKS, place):
        teachers = sample_teachers(family, b, len(contexts), [generator("evaluation teacher", 0, block, place)])
        power[block] = _moments(contexts.target, family).mean((0, 1)) @ omega
        if control is not None:
            residual = _predictor(float(control["temperature"]), float(control["gain"]))(contexts)
            shared[block] = _moments(residual, family).mean((0, 1))
            shared_sampled[block] = _squares((residual * teachers).sum(-1)).mean()
        for one in measured:
            one.add(block, contexts, teachers, family, omega)
    controls = None
    if control is not None:
        known = control["moment"].values
        controls = {True: (shared, known), False: (shared_sampled, (known @ omega)[:, None])}
    rows = [one.result(omega, None if controls is None else controls[one.linear]) for one in measured]
    result = xr.merge([*rows, *map(_of_training, runs)], join="outer", compat="no_conflicts").sortby("L")
    result["target_power"] = ((), float(power.mean()), _DESCRIPTIONS["target_power"])
    commits = sorted({run.attrs["commit"] for run in runs})
    devices = sorted({device_name(place), *(run.attrs["device"] for run in runs)})
    result = _with_differences(result).assign_coords(a=a, b=b, k=k)
    return result.assign_attrs(device="; ".join(devices), training_commits="; ".join(commits))


def read_runs(paths: Sequence[str | Path], wanted: Sequence[Run], study: Study) -> list[xr.Dataset]:
    """Read training runs, and refuse one that was trained with other settings than the study's.

    That happens where a configuration is edited while jobs of it wait: the name of a run tells its point alone.

    Parameters
    ----------
    paths : sequence of str or Path
        The files of the runs.
    wanted : sequence of Run
        What they hold, in the same order.
    study : Study

    Returns
    -------
    list of xarray.Dataset

    Raises
    ------
    ValueError
        Naming the file, the settings that differ, what was found and what is wanted.
    """
    runs = []
    for path, run in zip(paths, wanted, strict=True):
        runs.append(read_dataset(path))
        experiment = study.experiments[run.experiment]
        sections = json.loads(json.dumps(settings(experiment, study.training[experiment.training], run)))
        recorded = json.loads(runs[-1].attrs["config"])
        differing = [
            f"{section}.{key} is {recorded[section].get(key)!r}, must be {value!r}"
            for section, fields in sections.items()
            for key, value in fields.items()
            if recorded[section].get(key) != value
        ]
        if differing:
            raise ValueError(f"{path}: trained with other settings: {'; '.join(differing)}; delete it and run again")
    return runs


def control_dataset(family: Family, contexts: int, *, device: str = "auto") -> xr.Dataset:
    """Choose the softmax control predictor of a family and measure its mean over many contexts.

    The predictor is one softmax layer with B = temperature * I and a gain; its contexts are not the evaluation's.

    Parameters
    ----------
    family : Family
        Of the difficult task.
    contexts : int
        How many contexts its mean is taken over.
    device : str
        ``auto``, ``cpu`` or ``cuda``.

    Returns
    -------
    xarray.Dataset
        ``temperature``, ``gain`` and ``moment`` (block, mode): E[(o_k^T v)^2] of its residual v by block.
    """
    place = choose_device(device)
    # the predictor is isotropic, so it need not know the rotation
    pilot = next(iter(_blocks("control pilot", family, 4096, place, rotate=False)))[1]

    def best_gain(temperature: float) -> tuple[float, float]:
        values = _predictor(temperature, 1.0)(pilot) + pilot.target
        gain = float((values * pilot.target).sum() / values.square().sum())
        return gain, float((gain * values - pilot.target).square().sum())

    temperature = float(minimize_scalar(lambda t: best_gain(t)[1], bounds=(0.01, 10), method="bounded").x)
    gain = best_gain(temperature)[0]
    predictor, moment = _predictor(temperature, gain), np.zeros((BLOCKS, family.dimension))
    for block, drawn in _blocks("control", family, contexts // BLOCKS, place, rotate=False):
        moment[block] = _moments(predictor(drawn), family).mean((0, 1))
    return xr.Dataset(
        {
            "temperature": ((), temperature, {"long_name": "temperature of the control predictor", "units": "1"}),
            "gain": ((), gain, {"long_name": "gain of the control predictor", "units": "1"}),
            "moment": (("block", "mode"), moment, {"long_name": "mean squared residual in a mode", "units": "1"}),
        },
        {"block": np.arange(BLOCKS), "mode": np.arange(1, family.dimension + 1)},
        {"device": device_name(place)},
    )


class _Measured:
    """The models of one run at the end of every round, and their means over every block of contexts."""

    def __init__(self, run: xr.Dataset, device: torch.device):
        self.steps, self.seeds = run["step"].values.tolist(), run["seed"].values.tolist()
        self.models = [load_model(run, step, device) for step in self.steps]
        self.linear = self.models[-1].linear_in_labels
        self.depth: int = self.models[-1].weights.depth
        self.loss = np.zeros((len(self.seeds), len(self.steps), BLOCKS))
        self.layer_loss = np.full((len(self.seeds), BLOCKS), np.nan)
        self.modes: list[Array] = []
        self.control: list[Array] = []
        self.control_mean: Array | None = None

    @torch.no_grad()
    def add(self, block: int, contexts: Contexts, teachers: Tensor, family: Family, omega: Array) -> None:
        """Measure all models on one block of contexts."""
        contexts, teachers = _replicate(contexts, len(self.seeds)), teachers.expand(len(self.seeds), -1, -1)
        weights = omega if self.linear else np.ones(1)
        for index, model in enumerate(self.models):
            squares = [
                _moments(model.residual(part), family) if self.linear else _squares(model.error(part, beta))
                for part, beta in _with_teachers(model, contexts, teachers)
            ]
            mean = np.sum([square.sum(1) for square in squares], axis=0) / len(contexts)
            self.loss[:, index, block] = mean @ weights
        self.modes.append(mean)
        if self.depth > 1 and (layers := self._layer_squares(contexts, teachers, family)) is not None:
            self.layer_loss[:, block] = layers @ weights / (self.depth * len(contexts))
        response = model.isotropic_response(contexts.eigenvalues) if family.context_length is None else None
        if response is not None:
            error = response - 1
            self.control.append(_moments(error[:, None] * contexts.query, family).mean(1))
            self.control_mean = (error.square() * contexts.eigenvalues).double().cpu().numpy()

    def _layer_squares(self, contexts: Contexts, teachers: Tensor, family: Family) -> Array | None:
        """Squared errors of single layers, summed over layers and contexts; None where layers predict nothing alone."""
        model, total = self.models[-1], None
        for part, beta in _with_teachers(model, contexts, teachers):
            own = model.layer_residuals(part) if self.linear else model.layer_errors(part, beta)
            if own is None:
                return None
            squares = (_moments(own, family) if self.linear else _squares(own)).sum((1, 2))
            total = squares if total is None else total + squares
        return total

    def result(self, omega: Array, control: tuple[Array, Array] | None) -> xr.Dataset:
        """Estimates with standard errors, as the final evaluation dataset has them, for this run alone."""
        modes = np.stack(self.modes, -1)  # (seed, mode, block)
        weights = omega if self.linear else np.ones(1)
        final = self.loss[:, -1]
        shared = (self.depth * final - self.layer_loss) / max(1, self.depth - 1)
        if self.control_mean is not None:
            blocks, known = np.stack(self.control, -1), self.control_mean[..., None]
        elif control is not None:
            blocks, known = control[0].T[None], control[1].T[None]
        else:
            blocks = known = np.zeros((1, len(weights), 1))
        weighted = (np.einsum("smb,m->sb", blocks, weights), np.einsum("smb,m->sb", known, weights))
        estimates = {
            "loss": (("seed",), *_estimate(final, *weighted)),
            "shared_error": (("seed",), *_estimate(shared, *weighted)),
            "disagreement": (("seed",), *_estimate(self.layer_loss - shared, *weighted)),
            "loss_by_step": (("seed", "step"), *_estimate(self.loss, *(x[:, None] for x in weighted))),
        }
        if self.linear:
            per_mode = (x * omega[:, None] for x in (modes, blocks, known))
            estimates["mode_loss"] = (("seed", "mode"), *_estimate(*per_mode))
        data = {}
        for name, (dims, value, error, adjusted) in estimates.items():
            data[name] = (("L", *dims), value[None], _DESCRIPTIONS[name])
            data[f"{name}_se"] = (("L", *dims), error[None], _error_of(name))
            if name in ("loss", "shared_error"):
                data[f"{name}_block"] = (("L", *dims, "block"), adjusted[None], _DESCRIPTIONS[f"{name}_block"])
        data["loss_raw"] = (("L", "seed", "block"), final[None], {})
        for name, (values, described) in self.models[-1].scalars().items():
            data[name] = (("L", "seed"), values.double().cpu().numpy()[None], described | {"units": "1"})
        return xr.Dataset(
            data,
            {
                "L": [self.depth],
                "seed": self.seeds,
                "step": self.steps,
                "mode": np.arange(1, len(omega) + 1),
                "block": np.arange(BLOCKS),
            },
        )


def _of_training(run: xr.Dataset) -> xr.Dataset:
    """What the results keep of a run's training."""
    kept = run[["converged", "steps", "validation_loss", "training_loss", "selected_mass"]].astype(float)
    kept["seconds"] = xr.full_like(kept["steps"], float(run.attrs["seconds"]))
    kept["seconds"].attrs = {"long_name": "wall time of the training that this seed shared", "units": "s"}
    kept["converged"].attrs["long_name"] = "1 if the last round met the tolerance, 0 if max_steps was reached first"
    kept = kept.expand_dims(L=[json.loads(run.attrs["config"])["run"]["depth"]])
    return kept.drop_attrs(deep=False)


def _estimate(values: Array, control: Array, known: Array) -> tuple[Array, Array, Array]:
    """Mean, its standard error and adjusted blocks of a quantity, from block means along the last axis.

    The control variate's deviation from its known mean, times the regression slope, is taken off each block. ``known``
    holds that mean by independent blocks of its own, or exactly, with a last axis of length one.
    """
    deviation = control - control.mean(-1, keepdims=True)
    spread = (deviation**2).sum(-1, keepdims=True)
    slope = (deviation * values).sum(-1, keepdims=True) / np.where(spread > 0, spread, 1)
    adjusted = values - slope * (control - known.mean(-1, keepdims=True))
    variance = adjusted.var(-1, ddof=1) / adjusted.shape[-1]
    if known.shape[-1] > 1:
        variance = variance + slope[..., 0] ** 2 * known.var(-1, ddof=1) / known.shape[-1]
    return adjusted.mean(-1), np.sqrt(variance), adjusted


def _with_differences(result: xr.Dataset) -> xr.Dataset:
    """Add the difference of each loss to the deepest model's of its seed, from the same contexts."""
    raw = result["loss_raw"]
    evaluated = raw.notnull().all("block")
    deepest = (evaluated * xr.DataArray(np.arange(raw.sizes["L"]), dims="L")).argmax("L")
    difference = raw - raw.isel(L=deepest).drop_vars("L")
    result["loss_difference"] = difference.mean("block", skipna=False).assign_attrs(_DESCRIPTIONS["loss_difference"])
    error = difference.std("block", ddof=1, skipna=False) / np.sqrt(raw.sizes["block"])
    result["loss_difference_se"] = error.assign_attrs(_error_of("loss_difference"))
    return result.drop_vars("loss_raw")


def _blocks(
    purpose: str, family: Family, count: int, device: torch.device, *, rotate: bool = True
) -> Iterator[tuple[int, Contexts]]:
    """The common contexts in BLOCKS blocks of ``count``, with a replica axis of length one."""
    for block in range(BLOCKS):
        yield block, sample_contexts(family, count, [generator(purpose, 0, block, device)], rotate=rotate)


def _replicate(contexts: Contexts, replicas: int) -> Contexts:
    def widen(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.expand(replicas, *value.shape[1:])

    wide = {name: widen(getattr(contexts, name)) for name in ("tokens", "query", "target", "selected", "rotation")}
    return dataclasses.replace(contexts, **wide)  # type: ignore[arg-type]


def _with_teachers(model: Model, contexts: Contexts, teachers: Tensor) -> Iterator[tuple[Contexts, Tensor]]:
    """The parts of a block, each with its teachers."""
    done = 0
    for part in parts(model, contexts):
        yield part, teachers[:, done : done + len(part)]
        done += len(part)


def _squares(error: Tensor) -> Array:
    """Squared errors in double precision, with a last axis of length one in the place of modes."""
    return np.asarray(error.square().double().cpu().numpy())[..., None]


def _moments(residual: Tensor, family: Family) -> Array:
    """(o_k^T v)^2 in double precision; where Sigma = I its mean over the rotation, |v|^2 / d for every mode."""
    squares = residual.square().double()
    if family.isotropic:
        squares = squares.mean(-1, keepdim=True).expand_as(squares)
    return np.asarray(squares.cpu().numpy())


def _predictor(temperature: float, gain: float) -> Callable[[Contexts], Tensor]:
    """Residual v of one softmax layer with B = temperature * I and a gain."""

    def residual(contexts: Contexts) -> Tensor:
        assert contexts.tokens is not None
        scores = rms_normalise(contexts.tokens) @ rms_normalise(contexts.query)[..., None]
        attention = torch.softmax(temperature * scores, dim=2)
        return gain * (attention.mT @ contexts.tokens)[:, :, 0] - contexts.target

    return residual
