"""Training of one run: a point of the grid, with the seeds of its group as replicas of one batched model.

A batch is a pure function of (seed, step), so a run that was stopped anywhere goes on from its checkpoint to the same
result. Training proceeds in rounds. Each anneals the learning rate once, by a cosine, and is twice as long as the one
before; the models at the ends of rounds are therefore fully annealed at training lengths n, 3n, 7n, ... A run has
converged when a round no longer lowers the loss on fixed validation contexts by more than the recipe's tolerance.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from inverse_depth import checkpoints
from inverse_depth.config import Experiment, Run, Training
from inverse_depth.contexts import Contexts, Family, family_of, generator, sample_contexts
from inverse_depth.models import Model, ModelSpec, build_model
from inverse_depth.provenance import attributes
from inverse_depth.spectra import power_law_spectrum

LOG_SECONDS = 10.0
_BETAS = (0.9, 0.99)
_HISTORY_POINTS = 256


class TrainingError(RuntimeError):
    """A run that cannot go on; the message names the point and what happened."""


def train_run(
    experiment: Experiment,
    recipe: Training,
    run: Run,
    *,
    checkpoint: Path,
    device: str = "auto",
    log: Callable[[str], None] = print,
) -> xr.Dataset:
    """Train the models of one run, or finish the training that a checkpoint holds.

    Parameters
    ----------
    experiment : Experiment
    recipe : Training
    run : Run
    checkpoint : Path
        Where the state is kept while the run lasts.
    device : str
        ``auto``, ``cpu`` or ``cuda``.
    log : callable
        Takes one line of progress.

    Returns
    -------
    xarray.Dataset
        Over (seed, step), where step is the end of a round: the parameters, ``validation_loss``, ``converged``, ``steps``,
        and ``training_loss`` averaged over short windows. The attributes ``device`` and ``seconds`` tell how it was made
        and decide nothing.

    Raises
    ------
    TrainingError
        If the loss stops being finite.
    """
    place, dtype = choose_device(device), getattr(torch, recipe.precision)
    family = family_of(experiment, run.a, run.k)
    spec = model_spec(experiment, recipe, run)
    model = build_model(spec, run.seeds, dtype).to(place)
    objective = Objective(family, run.b, dtype, place)
    optimiser = torch.optim.Adam(
        [{"params": [p], "factor": factor} for p, factor in model.weights.rates()], betas=_BETAS, eps=1e-12
    )
    identity = json.dumps([experiment.model_dump(exclude={"grid", "fit"}), recipe.model_dump(), run.id])
    saved, reason = checkpoints.load(checkpoint, identity, place)
    state = saved or {"step": 0, "seconds": 0.0, "losses": torch.zeros(len(run.seeds), recipe.max_steps), "ends": []}
    if saved:
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
    losses, begun = state["losses"].to(place), time.monotonic() - state["seconds"]
    pace = _Pace(f"{run.experiment} {run.id}", recipe, state["step"], log)
    log(f"{pace.name}: {reason}; {place}, {sum(p.numel() for p in model.parameters())} parameters")

    def save(step: int) -> None:
        state.update(step=step, seconds=time.monotonic() - begun, losses=losses, model=model.state_dict())
        checkpoints.save(checkpoint, identity, state | {"optimiser": optimiser.state_dict()})

    for start, stop in rounds(recipe)[len(state["ends"]) :]:
        for step in range(max(start, state["step"]), stop):
            for group in optimiser.param_groups:
                group["lr"] = recipe.learning_rate * group["factor"] * annealing(step - start, stop - start, recipe)
            contexts = _draw("data", family, recipe.batch_size, run.seeds, step, dtype, place)
            teacher = objective.teacher(run.seeds, step, recipe) if recipe.teacher == "sampled" else None
            losses[:, step] = _accumulate_gradients(model, contexts, objective, teacher)
            optimiser.step()
            if pace.due(step + 1):
                pace.report(step + 1, losses)
                save(step + 1)
        _require_finite(losses[:, start:stop], start, pace.name)
        validation = _validation_loss(model, family, objective, dtype, place)
        state["ends"].append(
            {"step": stop, "loss": validation.cpu(), "weights": {n: p.detach().cpu().clone() for n, p in model.weights.named_parameters()}}
        )
        save(stop)
        converged = _converged(state["ends"], recipe.tolerance)
        log(f"{pace.name}: round ends at step {stop}, validation loss {_numbers(validation)}, converged {converged.tolist()}")
        if converged.all():
            break
    return _result(experiment, recipe, run, state["ends"], converged, losses.cpu() * objective.power, objective.power).assign_attrs(
        device=device_name(place), seconds=time.monotonic() - begun
    )


class Objective:
    """The population loss of a batch, as a fraction of the loss of predicting zero.

    With the teacher integrated out, E_beta[(beta^T v)^2] = v^T Omega v; where Sigma = I, O is integrated out as well and
    Omega becomes its mean eigenvalue times the identity.
    """

    def __init__(self, family: Family, b: float, dtype: torch.dtype, device: torch.device):
        omega = power_law_spectrum(family.dimension, b)
        self.power = float((power_law_spectrum(family.dimension, family.a) * omega).sum())
        weights = np.full_like(omega, omega.mean()) if family.isotropic else omega
        self.weights = torch.tensor(weights / self.power, dtype=dtype, device=device)
        self.deviation = torch.tensor(np.sqrt(omega / self.power), dtype=dtype, device=device)

    def teacher(self, seeds: tuple[int, ...], step: int, recipe: Training) -> Tensor:
        """Teachers beta ~ N(0, Omega) in the eigenbasis, over sqrt(power), shape (R, C, d)."""
        shape, d = (recipe.batch_size, len(self.deviation)), self.deviation
        draws = [generator("teacher", seed, step, d.device) for seed in seeds]
        return d * torch.stack([torch.randn(*shape, generator=g, device=d.device, dtype=d.dtype) for g in draws])

    def __call__(self, residual: Tensor, teacher: Tensor | None) -> Tensor:
        """The loss of each context, shape (R, C), from its residual v, shape (R, C, d)."""
        if teacher is None:
            return (residual.square() * self.weights).sum(-1)
        return (residual * teacher).sum(-1).square()


def choose_device(name: str) -> torch.device:
    """The device of a name in the configuration: ``auto`` is a GPU where there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainingError("device is 'cuda', but PyTorch sees no GPU here; allowed are auto, cpu, or cuda on a machine with a GPU")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def device_name(device: torch.device) -> str:
    """The device in words, for a file's attributes."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"


def model_spec(experiment: Experiment, recipe: Training, run: Run) -> ModelSpec:
    """What rebuilds the model of a run."""
    return ModelSpec(
        experiment.attention, experiment.variant, recipe.parameters, run.depth, experiment.dimension, experiment.width
    )


def rounds(recipe: Training) -> list[tuple[int, int]]:
    """First step and end of every round that ends within ``max_steps``, each twice as long as the one before."""
    ends = [0]
    while (stop := ends[-1] + recipe.first_round * 2 ** (len(ends) - 1)) <= recipe.max_steps:
        ends.append(stop)
    return list(zip(ends[:-1], ends[1:], strict=True))


def annealing(step: int, length: int, recipe: Training) -> float:
    """Learning rate at a step of a round, as a fraction of its peak: linear warm-up, then a cosine down to zero."""
    return min(1.0, (step + 1) / (recipe.warmup + 1)) * 0.5 * (1 + math.cos(math.pi * step / length))


def parts(model: Model, contexts: Contexts) -> Iterator[Contexts]:
    """Cut a batch into parts whose largest array fits a core's cache, or a fair share of a GPU's memory.

    The loss is a mean over contexts, so the cut changes time and memory but not the gradient.
    """
    budget = 2**18 if contexts.query.device.type == "cpu" else 2**26
    size = max(1, budget // (contexts.query.shape[0] * model.elements_per_context(contexts)))
    for start in range(0, len(contexts), size):
        yield contexts.part(start, start + size)


def _draw(
    purpose: str, family: Family, count: int, seeds: tuple[int, ...], step: int, dtype: torch.dtype, device: torch.device
) -> Contexts:
    return sample_contexts(family, count, [generator(purpose, seed, step, device) for seed in seeds], dtype=dtype)


def _accumulate_gradients(model: Model, contexts: Contexts, objective: Objective, teacher: Tensor | None) -> Tensor:
    """Put the gradient of the batch's mean loss into the parameters; return the loss of each replica."""
    model.zero_grad(set_to_none=True)
    total, done = torch.zeros(contexts.query.shape[0], device=contexts.query.device), 0
    for part in parts(model, contexts):
        beta = None if teacher is None else teacher[:, done : done + len(part)]
        loss = objective(model.residual(part), beta).sum(1) / len(contexts)
        loss.sum().backward()
        total += loss.detach()
        done += len(part)
    return total


def _validation_loss(
    model: Model, family: Family, objective: Objective, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Loss on fixed contexts, the same for all replicas, rounds and runs of the family, shape (R,)."""
    chunks, size = 16, max(32, 2**20 // family.numbers)
    total = torch.zeros((), dtype=torch.float64, device=device)
    with torch.no_grad():
        for chunk in range(chunks):
            contexts = _draw("validation", family, size, (0,), chunk, dtype, device)
            for part in parts(model, contexts):
                total = total + objective(model.residual(part), None).double().sum(1)
    return total / (chunks * size)


def _converged(ends: list[dict[str, Any]], tolerance: float) -> Tensor:
    last = ends[-1]["loss"]
    if len(ends) == 1:
        return torch.zeros_like(last, dtype=torch.bool)
    return ends[-2]["loss"] - last < tolerance * ends[-2]["loss"]


def _require_finite(losses: Tensor, start: int, name: str) -> None:
    bad = ~torch.isfinite(losses).all(0)
    if bad.any():
        step = start + int(bad.nonzero()[0])
        raise TrainingError(f"{name}: the loss is not finite at step {step}; a lower learning_rate may help")


def _result(
    experiment: Experiment,
    recipe: Training,
    run: Run,
    ends: list[dict[str, Any]],
    converged: Tensor,
    losses: Tensor,
    power: float,
) -> xr.Dataset:
    steps = np.array([end["step"] for end in ends])
    spec = model_spec(experiment, recipe, run)
    data: dict[str, Any] = {
        "validation_loss": (
            ("seed", "step"),
            torch.stack([end["loss"] for end in ends], 1).numpy() * power,
            {"long_name": "loss on fixed validation contexts at the end of a round", "units": "1"},
        ),
        "converged": ("seed", converged.numpy().astype(np.int8), {"long_name": "whether the last round met the tolerance"}),
        "steps": ("seed", np.full(len(run.seeds), steps[-1]), {"long_name": "steps of training", "units": "1"}),
    }
    for name, first in ends[0]["weights"].items():
        axes = [f"{name}_{i}" for i in range(first.dim() - 1)]
        values = torch.stack([end["weights"][name] for end in ends], 1).numpy()
        data[f"weights_{name}"] = (("seed", "step", *axes), values, {"long_name": f"trained {name} at the end of a round"})
    edges = np.unique(np.geomspace(1, steps[-1], _HISTORY_POINTS).astype(int))
    windows = [losses[:, lo:hi].double().mean(1) for lo, hi in itertools.pairwise([0, *edges])]
    data["training_loss"] = (
        ("seed", "history"),
        torch.stack(windows, 1).numpy(),
        {"long_name": "mean loss of the training batches since the previous entry", "units": "1"},
    )
    coordinates = {"seed": list(run.seeds), "step": steps, "history": edges}
    settings = {
        "experiment": experiment.model_dump(mode="json", exclude={"grid", "fit"}),
        "training": recipe.model_dump(mode="json"),
        "run": dataclasses.asdict(run),
        "model": dataclasses.asdict(spec),
    }
    return xr.Dataset(data, coordinates, attributes(f"Training run {run.id} of {run.experiment}", settings))


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


def _numbers(values: Tensor) -> str:
    return ", ".join(f"{value:.5g}" for value in values.tolist())


class _Pace:
    """Progress that a person can follow: a line at most every LOG_SECONDS, with the time left at the present pace.

    Only then are losses read from the device.
    """

    def __init__(self, name: str, recipe: Training, step: int, log: Callable[[str], None]):
        self.name, self.recipe, self.log = name, recipe, log
        self.first, self.begun, self.last = step, time.monotonic(), time.monotonic()

    def due(self, step: int) -> bool:
        return time.monotonic() - self.last > LOG_SECONDS

    def report(self, step: int, losses: Tensor) -> None:
        self.last = time.monotonic()
        rate = (step - self.first) / (self.last - self.begun)
        end = rounds(self.recipe)[-1][1]
        recent = losses[:, max(0, step - 50) : step]
        _require_finite(recent, max(0, step - 50), self.name)
        self.log(
            f"{self.name}: step {step} of at most {end}, relative loss {_numbers(recent.mean(1))}, "
            f"{rate:.1f} steps/s, at most {(end - step) / rate:.0f} s left"
        )
