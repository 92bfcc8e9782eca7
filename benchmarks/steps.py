"""One training step of a case: in the paper's formulation, and as training takes it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

from inverse_depth.contexts import Contexts, Family, generator, haar_rotation, sample_contexts
from inverse_depth.devices import keep_freed_memory
from inverse_depth.models import reference
from inverse_depth.models.base import ModelSpec, build_model
from inverse_depth.optimiser import Adam
from inverse_depth.training import Objective, accumulate_gradients, parts

LITERAL = {
    ("linear", "controlled"): reference.linear_attention,
    ("softmax", "controlled"): reference.softmax_attention,
    ("softmax", "decoupled_values"): reference.softmax_attention,
    ("softmax", "context_updates"): reference.softmax_attention,
    ("softmax", "single_stream"): reference.single_stream_attention,
}

RATE = 1e-6
"""A learning rate so small that the weights stay those of a fresh model, however often a step is repeated."""


@dataclass(frozen=True)
class Case:
    """What is trained: sizes, and how many contexts a step meets.

    Attributes
    ----------
    attention, variant, task : str
        As in the configuration.
    depth, dimension, width, context_length, target_size : int
        L, d, N, P and k. Linear attention on the easy task has an infinite context (Sec. 2.1), which no literal model
        can meet: there P is that of the literal model alone.
    a : float
        Exponent of the input spectrum; b = 0.
    batch : int
        Contexts of a step for each replica.
    replicas : int
        Seeds that train together.
    """

    attention: str
    variant: str
    task: str
    depth: int
    dimension: int
    width: int
    context_length: int
    batch: int
    a: float = 0.0
    target_size: int = 2
    replicas: int = 1

    @property
    def family(self) -> Family:
        """The law of the contexts that training draws."""
        infinite = (self.attention, self.task) == ("linear", "easy")
        length = None if infinite else self.context_length
        return Family(self.task, self.dimension, length, self.target_size, self.a)


class ReducedStep:
    """The step that training takes, in its three stages."""

    def __init__(self, case: Case, device: torch.device):
        keep_freed_memory()
        self.case, self.device, self.seeds = case, device, tuple(range(case.replicas))
        spec = ModelSpec(case.attention, case.variant, "merged", case.depth, case.dimension, case.width)
        self.model = build_model(spec, self.seeds).to(device)
        self.objective = Objective(case.family, 0.0, torch.float32, device)
        self.optimiser = Adam(self.model.weights.rates())
        self.number = 0

    def sample(self) -> tuple[Contexts, Tensor | None]:
        """Contexts and, where the loss needs them, teachers."""
        self.number += 1
        generators = [generator("data", seed, self.number, self.device) for seed in self.seeds]
        contexts = sample_contexts(self.case.family, self.case.batch, generators)
        if self.model.linear_in_labels:
            return contexts, None
        return contexts, self.objective.teachers("teacher", len(contexts), self.seeds, self.number)

    def forward(self, contexts: Contexts, teachers: Tensor | None) -> None:
        """The losses alone, kept ready for a gradient, in the parts in which training meets them."""
        effective, done = self.model.effective(), 0
        for part in parts(self.model, contexts):
            chosen = None if teachers is None else teachers[:, done : done + len(part)]
            self.objective(self.model, part, chosen, effective)
            done += len(part)

    def gradient(self, contexts: Contexts, teachers: Tensor | None) -> None:
        """Forward and backward."""
        accumulate_gradients(self.model, contexts, self.objective, teachers)

    def update(self) -> None:
        """Adam."""
        self.optimiser.step(RATE)

    def __call__(self) -> None:
        """The whole step."""
        self.gradient(*self.sample())
        self.update()


class LiteralStep:
    """The step as the paper writes it.

    Rotated tokens and a sampled teacher, attention over all (P + 1)^2 pairs of tokens, an N-dimensional label stream,
    the paper's own weight matrices, and PyTorch's Adam.
    """

    def __init__(self, case: Case, batch: int, device: torch.device):
        self.case, self.batch, self.device = case, batch, device
        self.family = Family(case.task, case.dimension, case.context_length, case.target_size, case.a)
        spec = ModelSpec(case.attention, case.variant, "factored", case.depth, case.dimension, case.width)
        initial = dict(_factored(spec).named_parameters())
        names = ("w_x", "w_q", "w_k", "w_v", "w_y", "w_o")
        self.parameters = [initial[name].detach()[0].to(device).requires_grad_() for name in names]
        self.updates: tuple[Tensor, ...] = ()
        if case.variant == "context_updates":
            self.updates = (torch.zeros((), device=device, requires_grad=True),)
        self.optimiser = torch.optim.Adam([*self.parameters, *self.updates], lr=RATE, fused=True)
        self.random = generator("data", 0, 0, device)

    def __call__(self) -> None:
        """The whole step."""
        d, batch = self.case.dimension, self.batch
        contexts = sample_contexts(self.family, batch, [self.random])
        assert contexts.tokens is not None and contexts.selected is not None
        rotation = None if contexts.rotation is None else contexts.rotation[0]
        if rotation is None:
            rotation = haar_rotation(torch.randn(batch, d, d, generator=self.random, device=self.device))
        inputs = torch.cat([contexts.tokens[0], contexts.query[0][:, None]], dim=1) @ rotation.mT
        teacher = torch.randn(batch, d, 1, generator=self.random, device=self.device)
        labels = (inputs[:, :-1] @ teacher)[..., 0]
        target = labels.gather(1, contexts.selected[0]).mean(1)
        self.optimiser.zero_grad(set_to_none=True)
        model = LITERAL[self.case.attention, self.case.variant]
        output = model(reference.Weights(*self.parameters), inputs, labels, *self.updates)
        (output - target).square().mean().backward()
        self.optimiser.step()


def _factored(spec: ModelSpec) -> torch.nn.Module:
    """The paper's matrices; the generalised models have the same ones as the controlled model of their width."""
    variant = spec.variant if spec.variant == "decoupled_values" else "controlled"
    controlled = ModelSpec(spec.attention, variant, "factored", spec.depth, spec.dimension, spec.width)
    return build_model(controlled, (0,)).weights


class Apart:
    """A function in a process of its own, which keeps the allocator's defaults while ours changes them.

    The literal step is timed so: it would otherwise gain from what training does for itself.
    """

    def __init__(self, make: Callable[..., Callable[[], object]], *arguments: object):
        """Make the function there, from arguments that can be sent."""
        self.pool = ProcessPoolExecutor(
            1, mp_context=get_context("forkserver"), initializer=_make, initargs=(make, arguments)
        )

    def turn(self, threads: int, at_least: float) -> list[float]:
        """Run the function there for some time; the seconds of each run."""
        return self.pool.submit(_turn_there, threads, at_least).result()


_there: list[Callable[[], object]] = []


def _make(make: Callable[..., Callable[[], object]], arguments: tuple[object, ...]) -> None:
    _there.append(make(*arguments))


def _turn_there(threads: int, at_least: float) -> list[float]:
    return turn(_there[0], threads, at_least)


def turn(run: Callable[[], object] | Apart, threads: int, at_least: float) -> list[float]:
    """Run a function for some time, after a run that does not count; the mean seconds of each group of runs."""
    if isinstance(run, Apart):
        return run.turn(threads, at_least)
    times: list[float] = (
        Timer("run()", globals={"run": run}, num_threads=threads).blocked_autorange(min_run_time=at_least).times
    )
    return times


def alternate(
    ways: Sequence[tuple[Callable[[], object] | Apart, int]],
    rounds: int = 5,
    at_least: float = 0.2,
    at_most: float = 60.0,
) -> list[float]:
    """Median seconds of each function, run in turns so that whatever else the machine does slows all alike.

    Parameters
    ----------
    ways : sequence of (callable or Apart, int)
        A function, and how many threads it may use.
    rounds : int
        How often each has its turn, which begins with a run that does not count.
    at_least, at_most : float
        Seconds of a turn; seconds after which no round begins.
    """
    times: list[list[float]] = [[] for _ in ways]
    begun = time.monotonic()
    for _ in range(rounds):
        for (run, threads), own in zip(ways, times, strict=True):
            own.extend(turn(run, threads, at_least))
        if time.monotonic() - begun > at_most:
            break
    return [statistics.median(own) for own in times]
