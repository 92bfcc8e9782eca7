"""The file of a training run: trained parameters and loss history by seed and round, and the way back to models."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from inverse_depth.config import Experiment, Run, Training
from inverse_depth.models.base import Model, ModelSpec, build_model
from inverse_depth.provenance import attributes


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What training found.

    Attributes
    ----------
    ends : list of dict
        For each round, its last ``step``, the validation ``loss`` as a fraction of the power, and the ``weights``.
    converged : Tensor, shape (R,)
        Whether each seed met the tolerance.
    losses : Tensor, shape (R, steps)
        Training losses as fractions of the power.
    history : array of int
        The steps after which the run was looked at, up to the most it may have.
    mass : list of Tensor, shape (R,)
        Attention on the tokens of the target, after each of these steps that the run reached; empty where layers do not
        attend independently.
    """

    ends: list[dict[str, Any]]
    converged: Tensor
    losses: Tensor
    history: np.ndarray[Any, Any]
    mass: list[Tensor]


def settings(experiment: Experiment, recipe: Training, run: Run) -> dict[str, Any]:
    """All that the outcome of a run depends on beside the code, as plain values."""
    model = experiment.model_dump(mode="json", exclude={"training", "evaluation_contexts", "fit", "grid"})
    return {"experiment": model, "training": recipe.model_dump(mode="json"), "run": dataclasses.asdict(run)}


def run_dataset(
    experiment: Experiment,
    recipe: Training,
    run: Run,
    spec: ModelSpec,
    outcome: Outcome,
    power: float,
) -> xr.Dataset:
    """Put the outcome of a training run in a dataset.

    Parameters
    ----------
    experiment, recipe, run, spec
        What the run was.
    outcome : Outcome
    power : float
        The loss of predicting zero.

    Returns
    -------
    xarray.Dataset
        Over (seed, step), where step is the end of a round, and (seed, history).
    """
    ends = outcome.ends
    steps = np.array([end["step"] for end in ends])
    data: dict[str, Any] = {
        "validation_loss": (
            ("seed", "step"),
            torch.stack([end["loss"] for end in ends], 1).numpy() * power,
            {"long_name": "loss on fixed validation contexts at the end of a round", "units": "1"},
        ),
        "converged": (
            "seed",
            np.broadcast_to(outcome.converged.numpy().astype(np.int8), len(run.seeds)).copy(),
            {"long_name": "whether the last round met the tolerance", "units": "1"},
        ),
        "steps": ("seed", np.full(len(run.seeds), steps[-1]), {"long_name": "steps of training", "units": "1"}),
    }
    for name, first in ends[0]["weights"].items():
        axes = [f"{name}_{i}" for i in range(first.dim() - 1)]
        values = torch.stack([end["weights"][name] for end in ends], 1).numpy()
        meaning = {"long_name": f"trained {name} at the end of a round", "units": "1"}
        data[f"weights_{name}"] = (("seed", "step", *axes), values, meaning)
    history = outcome.history[outcome.history <= steps[-1]]
    windows = [outcome.losses[:, lo:hi].double().mean(1) * power for lo, hi in itertools.pairwise([0, *history])]
    data["training_loss"] = (
        ("seed", "history"),
        torch.stack(windows, 1).numpy(),
        {"long_name": "mean loss of the training batches since the previous entry", "units": "1"},
    )
    data["selected_mass"] = (
        ("seed", "history"),
        torch.stack(outcome.mass, 1).double().cpu().numpy()
        if outcome.mass
        else np.full((len(run.seeds), len(history)), np.nan),
        {"long_name": "mean attention on the tokens of the target, along training", "units": "1"},
    )
    coordinates = {"seed": list(run.seeds), "step": steps, "history": history}
    described = settings(experiment, recipe, run) | {"model": dataclasses.asdict(spec)}
    return xr.Dataset(data, coordinates, attributes(f"Training run {run.id} of {run.experiment}", described))


def load_model(dataset: xr.Dataset, step: int, device: torch.device) -> Model:
    """Rebuild the models of a run, one replica for each seed, as they were at the end of a round.

    Parameters
    ----------
    dataset : xarray.Dataset
        What :func:`train_run` returned.
    step : int
        A value of the coordinate ``step``.
    device : torch.device

    Returns
    -------
    Model
    """
    spec = ModelSpec(**json.loads(dataset.attrs["config"])["model"])
    model = build_model(spec, dataset["seed"].values.tolist())
    chosen = dataset.sel(step=step)
    weights = {name: torch.as_tensor(chosen[f"weights_{name}"].values) for name, _ in model.weights.named_parameters()}
    model.weights.load_state_dict(weights)
    return model.to(device)
