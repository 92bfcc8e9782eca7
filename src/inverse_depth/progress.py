"""What a training run says of itself while it lasts, and how it stops when its loss is lost."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

LOG_SECONDS = 10.0


class TrainingError(RuntimeError):
    """A run that cannot go on; the message names the point and what happened."""


class Pace:
    """Progress that a person can follow: a line at most every LOG_SECONDS, with the time left at the present pace.

    Only then are losses read from the device.

    Parameters
    ----------
    name : str
        The run.
    end : int
        The step after which training ends at the latest.
    step : int
        The step at which this process begins.
    log : callable
        Takes one line.
    """

    def __init__(self, name: str, end: int, step: int, log: Callable[[str], None]):
        self.name, self.end, self.log = name, end, log
        self.first, self.begun, self.last = step, time.monotonic(), time.monotonic()

    def due(self) -> bool:
        """Whether it is time for another line."""
        return time.monotonic() - self.last > LOG_SECONDS

    def report(self, step: int, losses: Tensor) -> None:
        """Say how far the run is after ``step`` steps, given the losses of all steps, shape (R, steps)."""
        self.last = time.monotonic()
        rate = (step - self.first) / (self.last - self.begun)
        recent = losses[:, max(0, step - 50) : step]
        require_finite(recent, max(0, step - 50), self.name)
        self.log(
            f"{self.name}: step {step} of at most {self.end}, relative loss {numbers(recent.mean(1))}, "
            f"{rate:.1f} steps/s, at most {(self.end - step) / rate:.0f} s left"
        )


def require_finite(losses: Tensor, start: int, name: str) -> None:
    """Raise a TrainingError that names the run and the step if any of the losses from ``start`` on is not finite."""
    bad = ~torch.isfinite(losses).all(0)
    if bad.any():
        step = start + int(bad.nonzero()[0])
        raise TrainingError(f"{name}: the loss is not finite at step {step}; a lower learning_rate may help")


def numbers(values: Tensor) -> str:
    """Write a few numbers for a log."""
    return ", ".join(f"{value:.5g}" for value in values.tolist())
