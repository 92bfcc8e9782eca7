"""Softmax attention on one stream that holds inputs and labels: h_i = W_x x_i + W_y y_i (App. C.1).

Queries, keys, values and the update all act on it. Under the mask M(0) only the test token's state changes, so keys and
values are computed once and each layer costs one attention row:

    h^l = h^{l-1} + W_v sum_i p_l,i h_i / L,   p_l = softmax_i(h_i^T B_l h^{l-1}) on normed states,   y_hat = W_o h^L.

Attention sees the labels, so the output is not linear in them and the teacher cannot be integrated out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from inverse_depth.contexts import Contexts, rms_normalise
from inverse_depth.models.base import Effective, Model, ModelSpec, Weights
from inverse_depth.models.parameters import drawer


class _Stream(Weights):
    """W_x, W_y, W_o, the shared W_v, and B_l = exp(s_l) M_l in N dimensions.

    W_x starts as an isometry and labels have a direction of their own where N > d, with W_o W_y = 1. They enter small,
    for they are no part of what queries and keys should compare, and W_v starts by copying labels alone.
    """

    def __init__(self, spec: ModelSpec, generators: Sequence[torch.Generator], dtype: torch.dtype):
        super().__init__()
        draw, depth, d, n = drawer(generators, dtype), spec.depth, spec.dimension, spec.width
        replicas, self.depth, self.replicas = len(generators), spec.depth, len(generators)
        frame = torch.linalg.qr(draw(n, min(n, d + 1))).Q
        label, identity = frame[..., -1], torch.eye(n, dtype=dtype)
        self.w_x = nn.Parameter(frame[..., :d].clone())
        self.w_y = nn.Parameter(label / math.sqrt(d))
        self.w_o = nn.Parameter(label * math.sqrt(d))
        self.w_v = nn.Parameter(label[..., None] * label[..., None, :])
        self.log_scale = nn.Parameter(torch.zeros(replicas, depth, dtype=dtype))
        self.matrix = nn.Parameter(0.5 * identity + draw(depth, n, n) / math.sqrt(n))

    def rates(self) -> list[tuple[Tensor, float]]:
        """Each parameter with the factor on its learning rate."""
        return [
            (self.w_x, 0.3),
            (self.w_y, 0.1),
            (self.w_o, 0.3),
            (self.w_v, 0.3),
            (self.log_scale, 1.0),
            (self.matrix, 1.0),
        ]


class SingleStream(Model):
    """The single-stream model around its parameters."""

    linear_in_labels = False
    weights: _Stream

    def __init__(self, weights: _Stream):
        super().__init__()
        self.weights = weights

    @classmethod
    def create(cls, spec: ModelSpec, generators: Sequence[torch.Generator], dtype: torch.dtype) -> Self:
        """See :meth:`Model.create`."""
        return cls(_Stream(spec, generators, dtype))

    def effective(self) -> Effective:
        """The weights, with B_l assembled."""
        w = self.weights
        matrices = w.log_scale.exp()[..., None, None] * w.matrix
        return {"w_x": w.w_x, "w_y": w.w_y, "w_o": w.w_o, "w_v": w.w_v, "matrices": matrices}

    def elements_per_context(self, contexts: Contexts) -> int:
        """Size of the stream and of the attention of all layers."""
        assert contexts.tokens is not None
        return contexts.tokens.shape[2] * (self.weights.depth + self.weights.w_x.shape[1])

    def error(self, contexts: Contexts, teacher: Tensor, effective: Effective | None = None) -> Tensor:
        """See :meth:`Model.error`."""
        return self._outputs(contexts, teacher, effective)[..., -1] - (contexts.target * teacher).sum(-1)

    def layer_errors(self, contexts: Contexts, teacher: Tensor, effective: Effective | None = None) -> Tensor:
        """f_l - y* with f_l = z_0 + L (z_l - z_{l-1}), z_l = W_o h^l; their mean over layers is the output's error."""
        outputs = self._outputs(contexts, teacher, effective)
        predictions = outputs[..., :1] + self.weights.depth * outputs.diff(dim=-1)
        return predictions - (contexts.target * teacher).sum(-1, keepdim=True)

    def _outputs(self, contexts: Contexts, teacher: Tensor, effective: Effective | None) -> Tensor:
        """z_0 .. z_L, shape (R, C, L + 1)."""
        e = self.effective() if effective is None else effective
        assert contexts.tokens is not None
        labels = contexts.tokens @ teacher[..., None]
        tokens, query = contexts.tokens, contexts.query
        if contexts.rotation is not None:
            tokens, query = tokens @ contexts.rotation.mT, (contexts.rotation @ query[..., None])[..., 0]
        stream = tokens @ e["w_x"][:, None].mT + labels * e["w_y"][:, None, None]
        keys, values = rms_normalise(stream), stream @ e["w_v"][:, None].mT / self.weights.depth
        state = query @ e["w_x"].mT
        states = [state]
        for matrix in e["matrices"].unbind(1):
            probe = rms_normalise(state) @ matrix.mT
            attention = torch.softmax(keys @ probe[..., None], dim=2)
            state = state + (attention.mT @ values)[:, :, 0]
            states.append(state)
        return (torch.stack(states, dim=2) @ e["w_o"][:, None, :, None])[..., 0]
