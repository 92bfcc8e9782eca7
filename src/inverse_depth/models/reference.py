"""The paper's models, written as the paper writes them: the standard that every reduction is held against.

Nothing here is clever. Attention is a (P+1) x (P+1) matrix over all tokens, the label stream has N dimensions, layers
follow each other in a loop, and the labels come from a sampled teacher. All shapes carry a leading axis C of contexts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Weights:
    """The trained matrices of one model (Sec. 2.2).

    Attributes
    ----------
    w_x : Tensor, shape (N, d)
    w_q, w_k : Tensor, shape (L, N, N)
    w_v : Tensor, shape (1, N, N), or (L, N, N) where layers have value matrices of their own (App. C.2)
    w_y, w_o : Tensor, shape (N,)
    """

    w_x: Tensor
    w_q: Tensor
    w_k: Tensor
    w_v: Tensor
    w_y: Tensor
    w_o: Tensor

    @property
    def depth(self) -> int:
        """L, the number of layers."""
        return self.w_q.shape[0]


def linear_attention(weights: Weights, inputs: Tensor, labels: Tensor) -> Tensor:
    """The output of the linear-attention model.

    A^l = M * ((W_q H_x)^T (W_k H_x)) / (P N) with M = [[-1 1^T, 0], [1^T, 0]];
    H_y^l = H_y^{l-1} + V^l (A^l)^T / L with V^l = W_v H_y^{l-1}; output W_o h_test.

    Parameters
    ----------
    weights : Weights
    inputs : Tensor, shape (C, P + 1, d)
        Context tokens and, last, the test token.
    labels : Tensor, shape (C, P)

    Returns
    -------
    Tensor, shape (C,)
    """
    length, width = labels.shape[1], weights.w_x.shape[0]
    mask = inputs.new_zeros(length + 1, length + 1)
    mask[:length, :length] = -1
    mask[length, :length] = 1
    stream_x = inputs @ weights.w_x.T
    stream_y = _label_stream(weights, labels)
    for layer in range(weights.depth):
        queries, keys = stream_x @ weights.w_q[layer].T, stream_x @ weights.w_k[layer].T
        attention = mask * (queries @ keys.mT) / (length * width)
        stream_y = stream_y + attention @ _values(weights, layer, stream_y) / weights.depth
    return stream_y[:, -1] @ weights.w_o


def softmax_attention(weights: Weights, inputs: Tensor, labels: Tensor, update: float | Tensor = 0.0) -> Tensor:
    """The output of the softmax-attention model.

    A^l = M(m) * softmax(Q^T K) over the context tokens, with Q and K from the RMS-normalised stream and
    M(m) = [[m 1 1^T, 0], [1^T, 0]]; m = 0, where the context is never updated, is the controlled model, others are that
    of App. C.3. Parameters and result as for :func:`linear_attention`, and the scalar ``update``, m.
    """
    stream_x, stream_y = inputs @ weights.w_x.T, _label_stream(weights, labels)
    for layer in range(weights.depth):
        attention = _softmax_map(weights, layer, stream_x, update)
        stream_y = stream_y + attention @ _values(weights, layer, stream_y) / weights.depth
    return stream_y[:, -1] @ weights.w_o


def single_stream_attention(weights: Weights, inputs: Tensor, labels: Tensor) -> Tensor:
    """The output of the single-stream model (App. C.1): H^0 = W_x X + W_y y, and every layer acts on H.

    Parameters and result as for :func:`linear_attention`.
    """
    stream = inputs @ weights.w_x.T + _label_stream(weights, labels)
    for layer in range(weights.depth):
        attention = _softmax_map(weights, layer, stream, 0.0)
        stream = stream + attention @ _values(weights, layer, stream) / weights.depth
    return stream[:, -1] @ weights.w_o


def _softmax_map(weights: Weights, layer: int, stream: Tensor, update: float | Tensor) -> Tensor:
    """M(m) * softmax(Q^T K), shape (C, P + 1, P + 1), where nobody attends to the test token."""
    length = stream.shape[1] - 1
    normed = stream / (stream**2).mean(-1, keepdim=True).sqrt()
    queries, keys = normed @ weights.w_q[layer].T, normed @ weights.w_k[layer].T
    logits = queries @ keys.mT
    logits[..., length] = -math.inf
    scale = stream.new_ones(length + 1, 1) * update
    scale[length] = 1
    return scale * torch.softmax(logits, dim=-1)


def _label_stream(weights: Weights, labels: Tensor) -> Tensor:
    known = torch.cat([labels, labels.new_zeros(labels.shape[0], 1)], dim=1)
    return known[..., None] * weights.w_y


def _values(weights: Weights, layer: int, stream_y: Tensor) -> Tensor:
    return stream_y @ weights.w_v[min(layer, weights.w_v.shape[0] - 1)].T
