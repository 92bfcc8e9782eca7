"""One training step, literal against reduced: sampling, forward, backward and update, in one run, as a ratio.

    .venv/bin/python benchmarks/training_step.py

The literal step is the paper's formulation: rotated tokens and a sampled teacher, attention over all (P + 1)^2 pairs,
an N-dimensional label stream, and the paper's weight matrices. Both use Adam and alternate, so that a busy machine
slows both alike. The literal step runs on all cores; the reduced one on all cores, and on one, as a training job does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from inverse_depth.contexts import Family, generator, haar_rotation, sample_contexts
from inverse_depth.models import reference
from inverse_depth.models.base import ModelSpec, build_model
from inverse_depth.optimiser import Adam
from inverse_depth.training import Objective, accumulate_gradients

CASES = [
    # attention, depth, dimension, context length, batch
    ("softmax", 16, 16, 64, 64),
    ("softmax", 64, 16, 64, 64),
    ("softmax", 64, 16, 64, 256),
    ("softmax", 256, 16, 64, 256),
    ("linear", 4, 128, 1024, 4),
    ("linear", 16, 128, 1024, 4),
    ("linear", 16, 128, 1024, 16),
]
LITERAL = {"softmax": reference.softmax_attention, "linear": reference.linear_attention}
CPU = torch.device("cpu")


def reduced_step(attention: str, depth: int, family: Family, batch: int) -> Callable[[], None]:
    """The step that training takes."""
    model = build_model(ModelSpec(attention, "controlled", "merged", depth, family.dimension, family.dimension), (0,))
    objective = Objective(family, 0.0, torch.float32, CPU)
    optimiser = Adam(model.weights.rates())
    random = generator("data", 0, 0)

    def step() -> None:
        contexts = sample_contexts(family, batch, [random])
        accumulate_gradients(model, contexts, objective, None)
        optimiser.step(1e-3)

    return step


def literal_step(attention: str, depth: int, family: Family, batch: int) -> Callable[[], None]:
    """The step in the paper's formulation."""
    d = family.dimension
    factored = build_model(ModelSpec(attention, "controlled", "factored", depth, d, d), (0,)).weights
    parameters = [p.detach()[0].clone().requires_grad_() for p in factored.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    random = generator("data", 0, 0)

    def step() -> None:
        contexts = sample_contexts(family, batch, [random])
        assert contexts.tokens is not None
        rotation = haar_rotation(torch.randn(batch, d, d, generator=random))
        inputs = torch.cat([contexts.tokens[0], contexts.query[0][:, None]], dim=1) @ rotation.mT
        teacher = torch.randn(batch, d, 1, generator=random)
        labels = (inputs[:, :-1] @ teacher)[..., 0]
        target = labels.gather(1, contexts.selected[0]).mean(1)
        optimiser.zero_grad(set_to_none=True)
        output = LITERAL[attention](reference.Weights(*parameters), inputs, labels)
        (output - target).square().mean().backward()
        optimiser.step()

    return step


def main() -> None:
    """Print a Markdown table of milliseconds per step and their ratios."""
    cores = torch.get_num_threads()
    print(f"{cores} cores\n")
    print("| attention | L | d = N | P | batch | literal, ms | reduced, ms | on one core | ratio | on one core |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for attention, depth, dimension, length, batch in CASES:
        family = Family("difficult", dimension, length, 2, 0.0)
        literal, reduced = (make(attention, depth, family, batch) for make in (literal_step, reduced_step))
        ways = [(literal, 1, cores), (reduced, 10, cores), (reduced, 10, 1)]
        times: list[list[float]] = [[] for _ in ways]
        for _ in range(7):
            for own, (step, repeats, threads) in zip(times, ways, strict=True):
                torch.set_num_threads(threads)
                step()
                begun = time.perf_counter()
                for _ in range(repeats):
                    step()
                own.append((time.perf_counter() - begun) / repeats)
        medians = [statistics.median(own[1:]) for own in times]
        cells = [attention, depth, dimension, length, batch, f"{1e3 * medians[0]:.1f}"]
        cells += [f"{1e3 * value:.2f}" for value in medians[1:]]
        cells += [f"{medians[0] / value:.0f}" for value in medians[1:]]
        print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    main()
