"""Adam (Kingma & Ba, 2015) with a factor on the learning rate for each parameter, by PyTorch's own kernel.

``torch.optim.Adam`` computes the same; but its first use loads PyTorch's compiler, which costs every one of hundreds of
short jobs 1.5 s.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

_BETAS = (0.9, 0.99)
_EPSILON = 1e-12


class Adam:
    """The optimiser of a model's parameters.

    Parameters
    ----------
    rates : list of (Tensor, float)
        Each parameter with the factor on its learning rate.
    """

    def __init__(self, rates: list[tuple[Tensor, float]]):
        self.rates = rates
        device = rates[0][0].device
        self.state = [
            {"mean": torch.zeros_like(p), "square": torch.zeros_like(p), "steps": torch.zeros((), device=device)}
            for p, _ in rates
        ]

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Move every parameter that has a gradient."""
        for (parameter, factor), state in zip(self.rates, self.state, strict=True):
            if parameter.grad is None:
                continue
            adam(
                [parameter], [parameter.grad], [state["mean"]], [state["square"]], [], [state["steps"]],
                lr=learning_rate * factor, beta1=_BETAS[0], beta2=_BETAS[1], eps=_EPSILON,
                weight_decay=0.0, amsgrad=False, maximize=False, fused=True,
            )  # fmt: skip

    def state_dict(self) -> list[dict[str, Any]]:
        """What a checkpoint holds."""
        return self.state

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Go on from a checkpoint."""
        self.state = state
