"""Softmax attention, reduced exactly to what the output depends on.

The context's label stream is never updated, so each layer is an independent predictor f_l = g_l p_l y whose attention
row is p_l = softmax_i(x_i^T B_l x_test) on normalised tokens, and the output is their mean (Eqs. of App. B). All layers
go through one batched product; nothing has size P x P or width N.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from inverse_depth.contexts import Contexts, rms_normalise
from inverse_depth.models.base import Effective, Model, ModelSpec
from inverse_depth.models.parameters import Factored, Merged, controlled_weights


class SoftmaxAttention(Model):
    """The softmax model around its parameters; layers share a value matrix, or have one each (App. C.2)."""

    attends_independently = True
    weights: Merged | Factored

    def __init__(self, weights: Merged | Factored):
        super().__init__()
        self.weights = weights

    @classmethod
    def create(cls, spec: ModelSpec, generators: Sequence[torch.Generator], dtype: torch.dtype) -> Self:
        """See :meth:`Model.create`."""
        return cls(controlled_weights(spec, generators, dtype))

    def effective(self) -> Effective:
        """B_l, g_l and, where it is trained, W_x."""
        tensors = {"matrices": self.weights.matrices(), "gains": self.weights.gains()}
        w_x = self.weights.embedding()
        return tensors if w_x is None else tensors | {"embedding": w_x}

    def elements_per_context(self, contexts: Contexts) -> int:
        """Size of the largest array that one context needs: the attention of all layers."""
        assert contexts.tokens is not None
        return self.weights.depth * contexts.tokens.shape[2]

    def residual(self, contexts: Contexts, effective: Effective | None = None) -> Tensor:
        """V = sum_i (sum_l g_l p_l,i / L) x_i - t."""
        effective = self.effective() if effective is None else effective
        gains = effective["gains"] / self.weights.depth
        values = self._mixture(contexts, effective, gains)[:, :, None] @ _tokens(contexts)
        return values[:, :, 0] - contexts.target

    def mean_attention(self, contexts: Contexts) -> Tensor:
        """sum_l p_l / L, shape (R, C, P)."""
        effective = self.effective()
        return self._mixture(contexts, effective, torch.full_like(effective["gains"], 1 / self.weights.depth))

    def layer_residuals(self, contexts: Contexts, effective: Effective | None = None) -> Tensor:
        """v_l = sum_i g_l p_l,i x_i - t, shape (R, C, L, d)."""
        effective = self.effective() if effective is None else effective
        probes, keys = probes_and_keys(contexts, effective)
        values = torch.softmax(probes @ keys.mT, dim=-1) @ _tokens(contexts)
        return effective["gains"][:, None, :, None] * values - contexts.target[:, :, None]

    def _mixture(self, contexts: Contexts, effective: Effective, gains: Tensor) -> Tensor:
        """sum_l g_l p_l, shape (R, C, P)."""
        probes, keys = probes_and_keys(contexts, effective)
        return mixture(probes, keys, gains[:, None].expand(*probes.shape[:3]))


def probes_and_keys(contexts: Contexts, effective: Effective) -> tuple[Tensor, Tensor]:
    """B_l x_test, shape (R, C, L, n), and the normalised tokens, shape (R, C, P, n), in the model's coordinates."""
    tokens, query = _tokens(contexts), contexts.query[:, :, None]
    if contexts.rotation is not None:
        tokens, query = tokens @ contexts.rotation.mT, query @ contexts.rotation.mT
    if "embedding" in effective:
        tokens, query = (x @ effective["embedding"][:, None].mT for x in (tokens, query))
    matrices = effective["matrices"]
    probes = rms_normalise(query)[:, :, 0] @ matrices.flatten(1, 2).mT
    return probes.unflatten(-1, matrices.shape[1:3]), rms_normalise(tokens)


def mixture(probes: Tensor, keys: Tensor, gains: Tensor) -> Tensor:
    """sum_l g_l softmax_i(k_i^T u_l) over the probes u_l of a context.

    Parameters
    ----------
    probes : Tensor, shape (R, C, L, n)
    keys : Tensor, shape (R, C, P, n), or (1, C, P, n) where replicas share their contexts
    gains : Tensor, shape (R, C, L)

    Returns
    -------
    Tensor, shape (R, C, P)
    """
    keys = keys.expand(probes.shape[0], -1, -1, -1)
    # contiguous, for a product of strided batches is computed one by one
    batches = (x.flatten(0, 1).contiguous() for x in (probes, keys, gains))
    mixed: Tensor = _Mixture.apply(*batches)
    return mixed.unflatten(0, probes.shape[:2])


def _tokens(contexts: Contexts) -> Tensor:
    assert contexts.tokens is not None, "softmax attention needs the tokens of a finite context"
    return contexts.tokens


class _Mixture(torch.autograd.Function):
    """:func:`mixture` for probes (B, L, n), keys (B, P, n) and gains (B, L), with its gradient written out.

    With w the gradient of the result, that of the logits of layer l is g_l p_l,i (w_i - p_l . w); autograd would keep
    and pass through three more arrays of the size of the attention.
    """

    @staticmethod
    def forward(ctx: Any, probes: Tensor, keys: Tensor, gains: Tensor) -> Tensor:
        attention = torch.softmax(torch.bmm(probes, keys.mT), dim=-1)
        ctx.save_for_backward(probes, keys, gains, attention)
        return torch.bmm(gains[:, None], attention)[:, 0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        probes, keys, gains, attention = ctx.saved_tensors
        mean = torch.bmm(grad[:, None], attention.mT).mT  # as a row times the attention, a quarter of a column's time
        by_logits = (grad[:, None] - mean).mul_(attention)  # but for g_l
        by_probes = gains[..., None] * torch.bmm(by_logits, keys)
        by_keys = torch.bmm(by_logits.mT, gains[..., None] * probes) if ctx.needs_input_grad[1] else None
        return by_probes, by_keys, mean[..., 0]
