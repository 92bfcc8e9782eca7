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
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from inverse_depth.devices import device_name, prepare_device
from inverse_depth.models.base import Effective, Model
from inverse_depth.runs import load_model, settings
from inverse_depth.spectra import power_law_spectrum
from inverse_depth.storage import read_dataset
from inverse_depth.training import parts

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
    b: float | Mapping[float, Sequence[int]],
    k: int,
    device: str = "auto",
) -> xr.Dataset:
    """Evaluate models of one (a, k) on their common contexts.

    Parameters
    ----------
    runs : sequence of xarray.Dataset
        What training returned, for every depth and group of seeds.
    control : xarray.Dataset or None
        What :func:`control_dataset` returned for the family, for softmax attention on the difficult task.
    experiment : Experiment
    a : float
        Exponent of the inputs' spectrum.
    b : float or mapping of float to sequence of int
        Exponent of the teacher's spectrum; or several, each with the depths wanted there, where runs serve them all.
    k : int
        Target size.
    device : str
        ``auto``, ``cpu`` or ``cuda``.

    Returns
    -------
    xarray.Dataset
        Over (L, seed), b where several are given, and block, mode and step: see :mod:`inverse_depth.cubes`.
    """
    place = prepare_device(device)
    family = family_of(experiment, a, k)
    measured = [_Measured(run, place) for run in runs]
    depths = b if isinstance(b, Mapping) else {b: [one.depth for one in measured]}
    shared, shared_sampled = np.zeros((BLOCKS, family.dimension)), np.zeros((BLOCKS, 1))
    power, linear = np.zeros((BLOCKS, family.dimension)), all(one.linear for one in measured)
    assert linear or len(depths) == 1, "models that see labels are trained for one b"
    for block, contexts in _blocks("evaluation", family, experiment.evaluation_contexts // BLOCKS, place):
        power[block] = _moments(contexts.target, family).mean((0, 1))
        teachers = None
        if not linear:
            source = [generator("evaluation teacher", 0, block, place)]
            teachers = sample_teachers(family, next(iter(depths)), len(contexts), source)
        if control is not None:
            residual = _predictor(float(control["temperature"]), float(control["gain"]))(contexts)
            shared[block] = _moments(residual, family).mean((0, 1))
            if teachers is not None:
                shared_sampled[block] = _squares((residual * teachers).sum(-1)).mean()
        for one in measured:
            one.add(block, contexts, teachers, family)
    results = []
    for exponent, wanted in depths.items():
        omega, controls = power_law_spectrum(family.dimension, exponent), None
        if control is not None:
            known = control["moment"].values
            controls = {True: (shared, known), False: (shared_sampled, (known @ omega)[:, None])}
        chosen = [(one, run) for one, run in zip(measured, runs, strict=True) if one.depth in wanted]
        rows = [one.result(omega, None if controls is None else controls[one.linear]) for one, _ in chosen]
        rows += [_of_training(run) for _, run in chosen]
        result = xr.merge(rows, join="outer", compat="no_conflicts").sortby("L")
        result["target_power"] = ((), float((power @ omega).mean()), _DESCRIPTIONS["target_power"])
        results.append(_with_differences(result).expand_dims(b=[exponent]))
    commits = sorted({run.attrs["commit"] for run in runs})
    devices = sorted({device_name(place), *(run.attrs["device"] for run in runs)})
    joined = xr.concat(results, "b", join="outer", data_vars="all").assign_coords(a=a, k=k)
    joined = joined if isinstance(b, Mapping) else joined.sel(b=b)
    return joined.assign_attrs(device="; ".join(devices), training_commits="; ".join(commits))


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
    place = prepare_device(device)
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
    """The models of one run at the end of every round, and their means over every block of contexts.

    Where the output is linear in the labels what is kept is E[(o_k^T v)^2] by mode, which serves any teacher spectrum;
    elsewhere it is the squared error, in the place of a single mode.
    """

    def __init__(self, run: xr.Dataset, device: torch.device):
        self.steps, self.seeds = run["step"].values.tolist(), run["seed"].values.tolist()
        self.models = [load_model(run, step, device) for step in self.steps]
        with torch.no_grad():
            self.effective = [model.effective() for model in self.models]
        self.linear = self.models[-1].linear_in_labels
        self.depth: int = self.models[-1].weights.depth
        self.moments: list[Array] = []  # by block, each (seed, step, mode)
        self.layer_moments: list[Array] = []  # by block, the mean over layers, each (seed, mode)
        self.control: list[Array] = []
        self.control_mean: Array | None = None

    @torch.no_grad()
    def add(self, block: int, contexts: Contexts, teachers: Tensor | None, family: Family) -> None:
        """Measure all models on one block of contexts."""
        contexts = _replicate(contexts, len(self.seeds))
        if teachers is not None:
            teachers = teachers.expand(len(self.seeds), -1, -1)
        means = []
        for model, effective in zip(self.models, self.effective, strict=True):
            sums, layer_sums = [], []
            for part, beta in _with_teachers(model, contexts, teachers):
                own = self._by_layer(model, part, beta, effective) if model is self.models[-1] else None
                if own is not None:
                    layer_sums.append(self._squared(own.square().mean(2), family))
                    error = own.mean(2)
                elif self.linear:
                    error = model.residual(part, effective)
                else:
                    assert beta is not None
                    error = model.error(part, beta, effective)[..., None]
                sums.append(self._squared(error.square(), family))
            means.append(np.sum(sums, axis=0) / len(contexts))
            if layer_sums:
                self.layer_moments.append(np.sum(layer_sums, axis=0) / len(contexts))
        self.moments.append(np.stack(means, 1))
        response = self.models[-1].isotropic_response(contexts.eigenvalues) if family.context_length is None else None
        if response is not None:
            deviation = response - 1
            self.control.append(_moments(deviation[:, None] * contexts.query, family).mean(1))
            self.control_mean = (deviation.square() * contexts.eigenvalues).double().cpu().numpy()

    def _by_layer(self, model: Model, part: Contexts, beta: Tensor | None, effective: Effective) -> Tensor | None:
        """Errors of single layers, shape (R, C, L, d or 1); None where layers predict nothing alone."""
        if self.depth == 1:
            return None
        if self.linear:
            return model.layer_residuals(part, effective)
        assert beta is not None
        errors = model.layer_errors(part, beta, effective)
        return None if errors is None else errors[..., None]

    def _squared(self, squares: Tensor, family: Family) -> Array:
        """Sum over contexts in double precision, shape (R, d or 1), averaged over rotations as moments are."""
        total = squares.double().sum(1)
        if self.linear and family.isotropic:
            total = total.mean(-1, keepdim=True).expand_as(total)
        return np.asarray(total.cpu().numpy())

    def result(self, omega: Array, control: tuple[Array, Array] | None) -> xr.Dataset:
        """Estimates with standard errors, as the final evaluation dataset has them, for this run alone."""
        weights = omega if self.linear else np.ones(1)
        moments = np.stack(self.moments, -1)  # (seed, step, mode, block)
        loss, modes = np.einsum("stmb,m->stb", moments, weights), moments[:, -1]
        final = loss[:, -1]
        layer_loss = np.full_like(final, np.nan)
        if self.layer_moments:
            layer_loss = np.einsum("smb,m->sb", np.stack(self.layer_moments, -1), weights)
        shared = (self.depth * final - layer_loss) / max(1, self.depth - 1)
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
            "disagreement": (("seed",), *_estimate(layer_loss - shared, *weighted)),
            "loss_by_step": (("seed", "step"), *_estimate(loss, *(x[:, None] for x in weighted))),
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


def _with_teachers(
    model: Model, contexts: Contexts, teachers: Tensor | None
) -> Iterator[tuple[Contexts, Tensor | None]]:
    """The parts of a block, each with its teachers."""
    done = 0
    for part in parts(model, contexts):
        yield part, None if teachers is None else teachers[:, done : done + len(part)]
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
