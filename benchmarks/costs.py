"""What a step costs besides time, and what the machine can do at best."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import torch
from steps import alternate
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode


class Traffic(TorchDispatchMode):
    """Counts the bytes that operations read and write, be it from a cache or from memory."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count what it touches; a view touches nothing."""
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            for value in tree_leaves((args, kwargs, result)):
                if isinstance(value, Tensor):  # an expanded array is no larger than what it repeats
                    self.bytes += min(value.numel() * value.element_size(), value.untyped_storage().nbytes())
        return result


def traffic(step: Callable[[], None]) -> float:
    """Gigabytes that the operations of a step read and write."""
    with Traffic() as counter:
        step()
    return counter.bytes / 1e9


def gflop(step: Callable[[], None]) -> float:
    """Billions of floating-point operations in the matrix products of a step."""
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops() / 1e9


def peak_mib(device: torch.device) -> float:
    """Most memory so far: of this process, or of the arrays on a GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def machine(device: torch.device, turns: dict[str, float]) -> tuple[float, float]:
    """Rate of a large float32 matrix product, in GFLOP/s, and of copying a large array, in GB/s read and written."""
    size, elements = (8192, 2**28) if device.type == "cuda" else (2048, 2**25)
    one, other = torch.randn(2, size, size, device=device)
    product = torch.empty_like(one)
    source, copy = torch.ones(2, elements, device=device)
    threads = torch.get_num_threads()
    ways = [(lambda: torch.mm(one, other, out=product), threads), (lambda: copy.copy_(source), threads)]
    seconds, copying = alternate(ways, **turns)
    return 2 * size**3 / seconds / 1e9, 2 * 4 * elements / copying / 1e9
