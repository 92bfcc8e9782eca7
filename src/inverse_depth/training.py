"""Training of one run: a point of the grid, with the seeds of its group as replicas of one batched model.

A batch is a pure function of (seed, step), so a run that was stopped anywhere goes on from its checkpoint to the same
result. Training proceeds in rounds. Each anneals the learning rate once, by a cosine, and is twice as long as the one
before; the models at the ends of rounds are therefore fully annealed at training lengths n, 3n, 7n, ... A run has
converged when a round no longer lowers the loss on fixed validation contexts by more than the recipe's tolerance.
"""

from __future__ import annotations

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
from inverse_depth.contexts import Contexts, Family, family_of, generator, sample_contexts, sample_teachers
from inverse_depth.devices import device_name, prepare_device
from inverse_depth.models.base import Effective, Model, ModelSpec, build_model
from inverse_depth.optimiser import Adam
from inverse_depth.progress import Pace, numbers, require_finite
from inverse_depth.provenance import code_hash
from inverse_depth.runs import Outcome, run_dataset, settings
from inverse_depth.spectra import power_law_spectrum
from inverse_depth.variants import VARIANTS

_HISTORY_POINTS = 64


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
        See :func:`inverse_depth.runs.run_dataset`. The attributes ``device`` and ``seconds`` tell how it was made and
        decide nothing.

    Raises
    ------
    TrainingError
        If the loss stops being finite.
    """
    place, dtype = prepare_device(device), getattr(torch, recipe.precision)
    family = family_of(experiment, run.a, run.k)
    spec = model_spec(experiment, recipe, run)
    model = build_model(spec, run.seeds, dtype).to(place)
    objective, sampled = Objective(family, run.b, dtype, place), recipe.teacher == "sampled"
    optimiser = Adam(model.weights.rates())
    code = [code_hash(module) for module in (__name__, VARIANTS[spec.attention][spec.variant].module)]
    identity = json.dumps([settings(experiment, recipe, run), code])
    saved, reason = checkpoints.load(checkpoint, identity, place)
    losses = torch.zeros(len(run.seeds), recipe.max_steps)
    state: dict[str, Any] = saved or {"step": 0, "seconds": 0.0, "losses": losses, "ends": [], "mass": []}
    if saved:
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
    losses, begun = state["losses"].to(place), time.monotonic() - state["seconds"]
    pace = Pace(f"{run.experiment} {run.id}", rounds(recipe)[-1][1], state["step"], log)
    log(f"{pace.name}: {reason}; {place}, {sum(p.numel() for p in model.parameters())} parameters")
    history = np.unique(np.geomspace(1, recipe.max_steps, _HISTORY_POINTS).astype(int))
    watched = _draw("validation", family, 256, (0,), 0, dtype, place) if model.attends_independently else None

    def save(step: int) -> None:
        state.update(step=step, seconds=time.monotonic() - begun, losses=losses, model=model.state_dict())
        checkpoints.save(checkpoint, identity, state | {"optimiser": optimiser.state_dict()})

    for start, stop in rounds(recipe)[len(state["ends"]) :]:
        if _converged(state["ends"], recipe.tolerance).all():
            break
        for step in range(max(start, state["step"]), stop):
            contexts = _draw("data", family, recipe.batch_size, run.seeds, step, dtype, place)
            teachers = objective.teachers("teacher", len(contexts), run.seeds, step) if sampled else None
            losses[:, step] = accumulate_gradients(model, contexts, objective, teachers)
            optimiser.step(recipe.learning_rate * annealing(step - start, stop - start, recipe))
            if watched is not None and step + 1 in history:
                state["mass"].append(selected_mass(model, watched))
            if pace.due():
                pace.report(step + 1, losses)
                save(step + 1)
        require_finite(losses[:, start:stop], start, pace.name)
        validation = _validation_loss(model, family, objective, dtype, place).cpu()
        weights = {name: p.detach().cpu().clone() for name, p in model.weights.named_parameters()}
        state["ends"].append({"step": stop, "loss": validation, "weights": weights})
        save(stop)
        verdict = "converged" if _converged(state["ends"], recipe.tolerance).all() else "not yet converged"
        log(f"{pace.name}: round ends at step {stop}, relative validation loss {numbers(validation)}, {verdict}")
    converged = _converged(state["ends"], recipe.tolerance)
    outcome = Outcome(state["ends"], converged, losses.cpu(), history, state["mass"])
    result = run_dataset(experiment, recipe, run, spec, outcome, objective.power)
    return result.assign_attrs(device=device_name(place), seconds=time.monotonic() - begun)


class Objective:
    """The population loss of a batch, as a fraction of the loss of predicting zero.

    With the teacher integrated out, E_beta[(beta^T v)^2] = v^T Omega v; where Sigma = I, O is integrated out as well
    and Omega becomes its mean eigenvalue times the identity.
    """

    def __init__(self, family: Family, b: float, dtype: torch.dtype, device: torch.device):
        omega = power_law_spectrum(family.dimension, b)
        self.family, self.b = family, b
        self.power = float((power_law_spectrum(family.dimension, family.a) * omega).sum())
        weights = np.full_like(omega, omega.mean()) if family.isotropic else omega
        self.weights = torch.tensor(weights / self.power, dtype=dtype, device=device)

    def teachers(self, purpose: str, count: int, seeds: tuple[int, ...], index: int) -> Tensor:
        """Teachers for the contexts of a batch, shape (R, C, d)."""
        generators = [generator(purpose, seed, index, self.weights.device) for seed in seeds]
        return sample_teachers(self.family, self.b, count, generators, self.weights.dtype)

    def __call__(
        self, model: Model, contexts: Contexts, teachers: Tensor | None, effective: Effective | None = None
    ) -> Tensor:
        """The loss of each context, shape (R, C), at the given teachers, or their mean over all."""
        if teachers is None:
            return (model.residual(contexts, effective).square() * self.weights).sum(-1)
        return model.error(contexts, teachers, effective).square() / self.power


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
    return list(itertools.pairwise(ends))


def annealing(step: int, length: int, recipe: Training) -> float:
    """Learning rate at a step of a round, as a fraction of its peak: linear warm-up, then a cosine down to zero."""
    return min(1.0, (step + 1) / (recipe.warmup + 1)) * 0.5 * (1 + math.cos(math.pi * step / length))


def parts(model: Model, contexts: Contexts) -> Iterator[Contexts]:
    """Cut a batch into parts whose largest array fits a core's cache, or a fair share of a GPU's memory.

    The loss is a mean over contexts, so the cut changes time and memory but not the gradient.
    """
    budget = 2**20 if contexts.query.device.type == "cpu" else 2**26
    size = max(1, budget // (contexts.query.shape[0] * model.elements_per_context(contexts)))
    for start in range(0, len(contexts), size):
        yield contexts.part(start, start + size)


def _draw(
    purpose: str,
    family: Family,
    count: int,
    seeds: tuple[int, ...],
    step: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Contexts:
    return sample_contexts(family, count, [generator(purpose, seed, step, device) for seed in seeds], dtype=dtype)


def accumulate_gradients(model: Model, contexts: Contexts, objective: Objective, teachers: Tensor | None) -> Tensor:
    """Put the gradient of the batch's mean loss into the parameters; return the loss of each replica.

    The parts of a batch meet the model's effective tensors, whose own gradient is taken once.
    """
    model.zero_grad(set_to_none=True)
    effective = model.effective()
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in effective.items()}
    total, done = torch.zeros(contexts.query.shape[0], device=contexts.query.device), 0
    for part in parts(model, contexts):
        chosen = None if teachers is None else teachers[:, done : done + len(part)]
        losses = objective(model, part, chosen, leaves)
        losses.backward(torch.full_like(losses, 1 / len(contexts)))
        total += losses.detach().sum(1)
        done += len(part)
    met = [name for name, leaf in leaves.items() if leaf.grad is not None]
    torch.autograd.backward([effective[name] for name in met], [leaves[name].grad for name in met])
    return total / len(contexts)


def selected_mass(model: Model, contexts: Contexts) -> Tensor:
    """Attention on the tokens of the target, averaged over layers and contexts, shape (R,)."""
    total = torch.zeros((), device=contexts.query.device)
    with torch.no_grad():
        for part in parts(model, contexts):
            attention = model.mean_attention(part)
            assert part.selected is not None
            total = total + attention.gather(2, part.selected.expand(attention.shape[0], -1, -1)).sum((1, 2))
    return total / len(contexts)


def _validation_loss(
    model: Model, family: Family, objective: Objective, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Loss on fixed contexts, the same for all replicas, rounds and runs of the family, shape (R,)."""
    chunks, size = 16, min(1024, max(32, 2**20 // family.numbers))
    total = torch.zeros((), dtype=torch.float64, device=device)
    with torch.no_grad():
        effective = model.effective()
        for chunk in range(chunks):
            contexts = _draw("validation", family, size, (0,), chunk, dtype, device)
            teachers = None if model.linear_in_labels else objective.teachers("validation teacher", size, (0,), chunk)
            done = 0
            for part in parts(model, contexts):
                chosen = None if teachers is None else teachers[:, done : done + len(part)]
                total = total + objective(model, part, chosen, effective).double().sum(1)
                done += len(part)
    return total / (chunks * size)


def _converged(ends: list[dict[str, Any]], tolerance: float) -> Tensor:
    """Whether the last round changed the loss by less than the tolerance, for each seed; never from one round alone."""
    if len(ends) < 2:
        return torch.zeros(1, dtype=torch.bool)
    before, last = ends[-2]["loss"], ends[-1]["loss"]
    return (before - last).abs() < tolerance * before
