"""Softmax attention, reduced exactly to what the output depends on.

The context's label stream is never updated, so each layer is an independent predictor f_l = g_l p_l y whose attention
row is p_l = softmax_i(x_i^T B_l x_test) on normalised tokens, and the output is their mean (Eqs. of App. B). All layers
go through one batched product; nothing has size P x P or width N.
"""

from __future__ import annotations

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

    def attention(self, contexts: Contexts) -> Tensor:
        """p_l, the attention of the test token in every layer, shape (R, C, L, P)."""
        assert contexts.tokens is not None, "softmax attention needs the tokens of a finite context"
        tokens, query = contexts.tokens, contexts.query[:, :, None]
        if contexts.rotation is not None:
            tokens, query = (x @ contexts.rotation.mT for x in (tokens, query))
        tokens, query = (rms_normalise(self.weights.embed(x)) for x in (tokens, query))
        matrices = self.weights.matrices()
        replicas, depth, n, _ = matrices.shape
        probes = query[:, :, 0] @ matrices.permute(0, 3, 1, 2).reshape(replicas, n, depth * n)
        return torch.softmax(probes.unflatten(-1, (depth, n)) @ tokens.mT, dim=-1)

    def residual(self, contexts: Contexts) -> Tensor:
        """v = sum_i ((1/L) sum_l g_l p_l,i) x_i - t in the eigenbasis, shape (R, C, d): the error is beta^T v."""
        attention = self.attention(contexts)
        depth = attention.shape[2]
        gains = (self.weights.gains() / depth).expand(-1, depth)
        mixture = gains[:, None, None] @ attention
        return (mixture @ contexts.tokens)[:, :, 0] - contexts.target

    def layer_residuals(self, contexts: Contexts) -> Tensor:
        """v_l = sum_i g_l p_l,i x_i - t, shape (R, C, L, d): the error of one layer's predictor is beta^T v_l."""
        values = self.attention(contexts) @ contexts.tokens
        return self.weights.gains()[:, None, :, None] * values - contexts.target[:, :, None]
