"""The loss that training recipes reach in a given wall time (docs/training.md).

    .venv/bin/python benchmarks/recipes.py --seconds 10 40 160

Every recipe trains the same small model, softmax attention on the difficult task at (a, b) = (0, 0), from the same
weights, once for each wall time on one core, with its schedule stretched to that time. The loss is then measured on
contexts that all share. Writes recipes.csv, recipes.png and recipes.pdf under results/bench/.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch.optim.swa_utils import AveragedModel

from inverse_depth.config import Training, load_study
from inverse_depth.contexts import Family, generator, sample_contexts
from inverse_depth.figures.panels import PAGE_WIDTH, looks, save, styled
from inverse_depth.models.base import Model, ModelSpec, build_model
from inverse_depth.optimiser import Adam
from inverse_depth.training import Objective, accumulate_gradients, parts

DEPTH, SEEDS, CPU = 16, (0, 1), torch.device("cpu")
FAMILY = Family("difficult", 16, 64, 2, 0.0)
STUDY = Path(__file__).parents[1] / "config/paper.yaml"

Schedule = Callable[[float], float]


def cosine(done: float) -> float:
    """From 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * done))


def rounds(done: float) -> float:
    """Three cosines, each twice as long as the one before: training that goes on until it has converged."""
    ends = (0, 1 / 7, 3 / 7, 1)
    start, stop = next((start, stop) for start, stop in itertools.pairwise(ends) if done < stop)
    return cosine((done - start) / (stop - start))


def constant(done: float) -> float:
    """1."""
    return 1.0


def constant_then_linear(done: float) -> float:
    """1, and from 1 to 0 in the last fifth."""
    return min(1.0, 5 * (1 - done))


@dataclass(frozen=True)
class Recipe:
    """A way to train, where the recipe of the study's configuration is the default.

    Attributes
    ----------
    schedule : callable
        Learning rate, as a fraction of its peak, at a fraction of the wall time.
    rate : float
        The peak, as a multiple of the configured one.
    batch : float
        Contexts of a step, as a multiple of the configured number.
    growth : float
        By what factor the batch grows, geometrically, from the first step to the last.
    averaged : bool
        Use the mean of the weights over the second half.
    sampled : bool
        Sample a teacher for each context.
    quasi_newton : int
        Where not 0: L-BFGS with a line search, on that many contexts which stay the same.
    """

    schedule: Schedule = cosine
    rate: float = 1.0
    batch: float = 1.0
    growth: float = 1.0
    averaged: bool = False
    sampled: bool = False
    quasi_newton: int = 0


RECIPES = {
    "cosine": Recipe(),
    "rounds": Recipe(rounds),
    "constant": Recipe(constant),
    "constant, averaged": Recipe(constant, averaged=True),
    "constant, then linear": Recipe(constant_then_linear),
    "rate x 3": Recipe(rate=3),
    "rate / 3": Recipe(rate=1 / 3),
    "batch x 4": Recipe(batch=4),
    "batch / 4": Recipe(batch=1 / 4),
    "batch / 4 to x 4": Recipe(batch=1 / 4, growth=16),
    "sampled teacher": Recipe(sampled=True),
    "L-BFGS": Recipe(quasi_newton=16384),
}


def train(recipe: Recipe, base: Training, seconds: float) -> tuple[Model, int, int]:
    """The model after a wall time, the gradients it took, and the contexts they met for each seed."""
    model = build_model(ModelSpec("softmax", "controlled", "merged", DEPTH, FAMILY.dimension, FAMILY.dimension), SEEDS)
    objective = Objective(FAMILY, 0.0, torch.float32, CPU)
    if recipe.quasi_newton:
        return _train_quasi_newton(model, objective, recipe.quasi_newton, seconds)
    optimiser, average, contexts_met = Adam(model.weights.rates()), AveragedModel(model), 0
    begun = time.monotonic()
    for step in itertools.count():
        done = (time.monotonic() - begun) / seconds
        if done >= 1:
            break
        batch = round(base.batch_size * recipe.batch * recipe.growth**done)
        contexts = sample_contexts(FAMILY, batch, [generator("data", seed, step) for seed in SEEDS])
        teachers = objective.teachers("teacher", batch, SEEDS, step) if recipe.sampled else None
        accumulate_gradients(model, contexts, objective, teachers)
        warm_up = min(1.0, (step + 1) / (base.warmup + 1))
        optimiser.step(base.learning_rate * recipe.rate * warm_up * recipe.schedule(done))
        contexts_met += batch
        if recipe.averaged and done > 0.5:
            average.update_parameters(model)
    return average.module if recipe.averaged else model, step, contexts_met


def _train_quasi_newton(model: Model, objective: Objective, count: int, seconds: float) -> tuple[Model, int, int]:
    begun, best, gradients = time.monotonic(), (math.inf, copy.deepcopy(model.state_dict())), 0
    contexts = sample_contexts(FAMILY, count, [generator("data", seed, 0) for seed in SEEDS])
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=10**6, history_size=20, line_search_fn="strong_wolfe")

    class OutOfTime(Exception):
        pass

    def closure() -> torch.Tensor:
        nonlocal best, gradients
        if time.monotonic() - begun > seconds:
            raise OutOfTime
        loss = accumulate_gradients(model, contexts, objective, None).sum()
        gradients += 1
        if float(loss) < best[0]:
            best = float(loss), copy.deepcopy(model.state_dict())
        return loss

    with contextlib.suppress(OutOfTime):
        optimiser.step(closure)
    model.load_state_dict(best[1])
    return model, gradients, count


def measured_losses(model: Model, chunks: int) -> torch.Tensor:
    """R_L of contexts that no training meets, mean over seeds, shape (256 chunks,)."""
    objective, effective = Objective(FAMILY, 0.0, torch.float32, CPU), model.effective()
    losses = []
    with torch.no_grad():
        for chunk in range(chunks):
            contexts = sample_contexts(FAMILY, 256, [generator("evaluation", 0, chunk)])
            losses += [objective(model, part, None, effective).double().mean(0) for part in parts(model, contexts)]
    return objective.power * torch.cat(losses)


PANELS = {
    "schedule and averaging": ("rounds", "constant", "constant, averaged", "constant, then linear"),
    "rate and batch": ("rate x 3", "rate / 3", "batch x 4", "batch / 4", "batch / 4 to x 4"),
    "teacher and optimiser": ("sampled teacher", "L-BFGS"),
}
"""Recipes that are drawn together, each beside the first of all."""


@styled
def draw(table: pd.DataFrame) -> Figure:
    """The loss against the wall time that a recipe was given, for each recipe."""
    figure = Figure(figsize=(PAGE_WIDTH, 3.0), layout="constrained")
    standard, look = next(iter(RECIPES)), looks(*PANELS.values())
    for ax, (heading, names) in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True):
        for name in (standard, *names):
            rows = table[table["recipe"] == name]
            color, marker = ("0.5", "x") if name == standard else (look[name].color, look[name].marker)
            ax.plot(rows["seconds"], rows["loss"], color=color, marker=marker, label=name)
        ax.set_xscale("log")
        ax.set_xticks(sorted(set(table["seconds"])), minor=False)
        ax.set_xticks([], minor=True)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_xlabel("wall time on one core, s")
        ax.set_title(heading)
        ax.legend()
        ax.label_outer()
    figure.axes[0].set_ylabel(f"loss $R_L$, $L = {DEPTH}$")
    return figure


def main() -> None:
    """Train every recipe for every wall time, and write what is known after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, nargs="+", default=[10, 40, 160], help="wall times")
    parser.add_argument("--chunks", type=int, default=512, help="evaluate on so many times 256 contexts")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    study = load_study(STUDY)
    base = study.training[study.experiments["softmax_difficult"].training]
    chosen.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for seconds in sorted(chosen.seconds):
        for name, recipe in RECIPES.items():
            model, gradients, contexts = train(recipe, base, seconds)
            losses = measured_losses(model, chosen.chunks)
            if name == next(iter(RECIPES)):
                standard = losses
            difference = losses - standard
            rows.append(
                {
                    "recipe": name,
                    "seconds": seconds,
                    "gradients": gradients,
                    "contexts": contexts,
                    "loss": float(losses.mean()),
                    "loss_se": float(losses.std() / math.sqrt(len(losses))),
                    "difference": float(difference.mean()),
                    "difference_se": float(difference.std() / math.sqrt(len(losses))),
                }
            )
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(chosen.out / "recipes.csv", index=False)
    for suffix in (".png", ".pdf"):
        save(draw(pd.DataFrame(rows)), chosen.out / f"recipes{suffix}")


if __name__ == "__main__":
    main()
