"""Softmax attention, reduced exactly to what the output depends on.

The context's label stream is never updated, so each layer is an independent predictor f_l = g_l p_l y whose attention
row is p_l = softmax_i(x_i^T B_l x_test) on normalised tokens, and the output is their mean (Eqs. of App. B). All layers
go through one batched product; nothing has size P x P or width N.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from inverse_depth.contexts import Contexts, rms_normalise
from inverse_depth.models.parameters import Factored, Merged


class SoftmaxAttention(nn.Module):
    """The softmax model around its parameters, for a batch of contexts."""

    def __init__(self, weights: Merged | Factored):
        super().__init__()
        self.weights = weights

    def elements_per_context(self, contexts: Contexts) -> int:
        """Size of the largest array that one context needs: the attention of all layers."""
        assert contexts.tokens is not None
        return self.weights.depth * contexts.tokens.shape[2]

    def residual(self, contexts: Contexts) -> Tensor:
        """Return v = sum_i (sum_l g_l p_l,i / L) x_i - t in the eigenbasis, shape (R, C, d); the error is beta^T v."""
        probes, keys = self._probes_and_keys(contexts)
        replicas, count, depth = probes.shape[:3]
        gains = (self.weights.gains() / depth)[:, None].expand(replicas, count, depth).contiguous()
        keys = keys.expand(replicas, -1, -1, -1)  # contexts may be shared by all replicas
        mixture = _Mixture.apply(*(x.flatten(0, 1) for x in (probes, keys, gains)))
        tokens = contexts.tokens
        assert tokens is not None
        values = mixture.unflatten(0, (replicas, count))[:, :, None] @ tokens
        return values[:, :, 0] - contexts.target

    def attention(self, contexts: Contexts) -> Tensor:
        """p_l, the attention of the test token in every layer, shape (R, C, L, P)."""
        probes, keys = self._probes_and_keys(contexts)
        return torch.softmax(probes @ keys.mT, dim=-1)

    def layer_residuals(self, contexts: Contexts) -> Tensor:
        """Return v_l = sum_i g_l p_l,i x_i - t, shape (R, C, L, d); a layer's own error is beta^T v_l."""
        assert contexts.tokens is not None
        values = self.attention(contexts) @ contexts.tokens
        return self.weights.gains()[:, None, :, None] * values - contexts.target[:, :, None]

    def _probes_and_keys(self, contexts: Contexts) -> tuple[Tensor, Tensor]:
        """B_l x_test, shape (R, C, L, n), and the normalised tokens, shape (R, C, P, n), in the model's coordinates."""
        tokens, query = contexts.tokens, contexts.query[:, :, None]
        assert tokens is not None, "softmax attention needs the tokens of a finite context"
        if contexts.rotation is not None:
            tokens, query = tokens @ contexts.rotation.mT, query @ contexts.rotation.mT
        tokens, query = (rms_normalise(self.weights.embed(x)) for x in (tokens, query))
        matrices = self.weights.matrices()
        probes = query[:, :, 0] @ matrices.flatten(1, 2).mT
        return probes.unflatten(-1, matrices.shape[1:3]), tokens


class _Mixture(torch.autograd.Function):
    """sum_l g_l softmax_i(k_i^T u_l), shape (B, P), for probes u (B, L, n), keys k (B, P, n) and gains g (B, L).

    The gradient is written out because it needs one array of the size of the attention where autograd keeps three: with
    w the gradient of the result, that of a logit is g_l p_l,i (w_i - p_l . w).
    """

    @staticmethod
    def forward(ctx: Any, probes: Tensor, keys: Tensor, gains: Tensor) -> Tensor:
        attention = torch.softmax(torch.bmm(probes, keys.mT), dim=-1)
        ctx.save_for_backward(probes, keys, gains, attention)
        return torch.bmm(gains[:, None], attention)[:, 0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        probes, keys, gains, attention = ctx.saved_tensors
        mean = torch.bmm(attention, grad[..., None])
        logits = torch.sub(grad[:, None], mean).mul_(attention)  # up to the gain of the layer
        by_keys = torch.bmm(logits.mT, probes * gains[..., None]) if ctx.needs_input_grad[1] else None
        return torch.bmm(logits, keys) * gains[..., None], by_keys, mean[..., 0]
