"""Softmax attention whose context is updated as well: mask M(m) with one trained scalar m for all layers (App. C.3).

Labels of context tokens change, inputs do not: y_l = (I + (m/L) A_l) y_{l-1}, with A_l the context-to-context attention
from the same B_l, and the output is g sum_l p_l y_{l-1} / L. It is linear in the labels, so one row r of weights per
context is enough, from the last layer to the first:

    r_{l-1} = r_l + (m/L) r_l A_l + p_l / L,   r_L = 0,   y_hat = g r_0 y.

Each step is a mixture of P + 1 attention rows: attention of size P x P, but no N-dimensional states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from inverse_depth.contexts import Contexts, rms_normalise
from inverse_depth.models.base import Effective, ModelSpec
from inverse_depth.models.parameters import Merged
from inverse_depth.models.softmax import SoftmaxAttention, mixture, probes_and_keys


class _Updating(Merged):
    """B_l, the gain g and the scalar m, from m = 0, the controlled model."""

    def __init__(self, spec: ModelSpec, generators: Sequence[torch.Generator], dtype: torch.dtype):
        super().__init__(spec, generators, dtype)
        self.update = nn.Parameter(torch.zeros(len(generators), dtype=dtype))

    def rates(self) -> list[tuple[Tensor, float]]:
        """Each parameter with the factor on its learning rate: g and m go a long way together, so both are fast."""
        return [(self.log_scale, 1.0), (self.matrix, 1.0), (self.gain, 3.0), (self.update, 10.0)]


class ContextUpdates(SoftmaxAttention):
    """The controlled softmax model with context updates. m is in units in which W_v acts as the identity."""

    attends_independently = False
    weights: _Updating

    @classmethod
    def create(cls, spec: ModelSpec, generators: Sequence[torch.Generator], dtype: torch.dtype) -> Self:
        """See :meth:`Model.create`."""
        return cls(_Updating(spec, generators, dtype))

    def effective(self) -> Effective:
        """B_l, g and m."""
        return super().effective() | {"update": self.weights.update}

    def elements_per_context(self, contexts: Contexts) -> int:
        """Size of the attention of one layer, with some room, since layers follow each other."""
        assert contexts.tokens is not None
        return 4 * contexts.tokens.shape[2] ** 2

    def _mixture(self, contexts: Contexts, effective: Effective, gains: Tensor) -> Tensor:
        """G r_0, shape (R, C, P), for gains g / L."""
        tests, keys = probes_and_keys(contexts, effective)
        keys = keys.expand(tests.shape[0], -1, -1, -1)
        own = torch.ones_like(tests[:, :, :1, 0])
        update = effective["update"][:, None, None] / self.weights.depth
        row = mixture(tests[:, :, -1:], keys, own)
        for layer in reversed(range(self.weights.depth - 1)):
            probes = torch.cat([keys @ effective["matrices"][:, layer, None].mT, tests[:, :, layer : layer + 1]], dim=2)
            row = row + mixture(probes, keys, torch.cat([update * row, own], dim=2))
        return gains[:, None] * row

    def context_attention(self, contexts: Contexts, layer: int) -> Tensor:
        """A_l, shape (R, C, P, P): rows are attending tokens."""
        assert contexts.tokens is not None
        tokens = contexts.tokens if contexts.rotation is None else contexts.tokens @ contexts.rotation.mT
        keys = rms_normalise(tokens)
        return torch.softmax(keys @ self.weights.matrices()[:, layer, None].mT @ keys.mT, dim=-1)

    def layer_residuals(  # type: ignore[override]
        self, contexts: Contexts, effective: Effective | None = None
    ) -> None:
        """None: layers are no ensemble of independent predictors."""
        return None

    def scalars(self) -> dict[str, tuple[Tensor, dict[str, str]]]:
        """The trained m."""
        described = {"long_name": "scale of the context updates", "equation": "m of the mask M(m)"}
        return {"update_scale": (self.weights.update.detach(), described)}
