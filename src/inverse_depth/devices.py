"""Where to compute, and the process made ready for it."""

from __future__ import annotations

import ctypes
import os

import torch

from inverse_depth.progress import TrainingError

_MALLOPT = {"MALLOC_TRIM_THRESHOLD_": (-1, 2**30), "MALLOC_MMAP_THRESHOLD_": (-3, 2**25)}
"""Parameters of glibc's allocator: the variable that sets each from outside, its number for mallopt, and our value."""


def prepare_device(name: str) -> torch.device:
    """The device of a name in the configuration, ready to be used.

    Parameters
    ----------
    name : str
        ``auto``, ``cpu`` or ``cuda``; ``auto`` is a GPU where there is one.

    Returns
    -------
    torch.device

    Raises
    ------
    TrainingError
        If a GPU is asked for and there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainingError(
            "device is 'cuda', but PyTorch sees no GPU here; allowed are auto, cpu, or a machine with one"
        )
    device = torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        keep_freed_memory()
    return device


def keep_freed_memory() -> None:
    """Let the process keep the memory of arrays that it frees, up to 1 GiB, for the arrays of the next step.

    By default glibc gives arrays of megabytes back to the system, and at every step the system hands out, and clears,
    thousands of pages anew: a third of a step's time (docs/performance.md). Values that the environment sets stay, and
    where the C library is another nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    for variable, (parameter, value) in _MALLOPT.items():
        if mallopt is not None and variable not in os.environ:
            mallopt(parameter, value)


def device_name(device: torch.device) -> str:
    """The device in words, for a file's attributes."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
