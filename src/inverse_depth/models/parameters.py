"""What is trained: the paper's weight matrices, or the few combinations of them that the output depends on.

Every parameter has a leading replica axis R, so that several seeds of one point train as one batched model. Both
classes offer the same quantities to the attention models:

``embed(x)``      the features that queries and keys are made from
``matrices()``    B_l, shape (R, L, n, n): query-key matrices, acting on the features
``gains(depth)``  g_l = W_o W_v^l W_y, shape (R, 1) where layers share W_v, else (R, L)
``columns``       how many vectors the linear recursion carries
``moments()``     m_r = W_o W_v^r W_y for r = 1..L, or None where all moments equal the gain
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ModelSpec:
    """Everything that rebuilds a model around its parameters.

    Attributes
    ----------
    attention : str
        ``linear`` or ``softmax``.
    variant : str
        ``controlled``: one W_v for all layers; ``decoupled_values``: one for each (App. C.2).
    parameters : str
        ``merged`` or ``factored``.
    depth, dimension, width : int
        L, d and N.
    """

    attention: Literal["linear", "softmax"]
    variant: Literal["controlled", "decoupled_values"]
    parameters: Literal["merged", "factored"]
    depth: int
    dimension: int
    width: int


Draw = Callable[..., Tensor]


def _drawer(generators: Sequence[torch.Generator], dtype: torch.dtype) -> Draw:
    """Standard normal parameters, replica by replica from its own generator, so that no replica depends on another."""

    def draw(*shape: int) -> Tensor:
        return torch.stack([torch.randn(shape, generator=g, dtype=dtype) for g in generators])

    return draw


class Merged(nn.Module):
    """B_l = exp(s_l) M_l and the gain g, with the label stream in one direction (N-independent).

    The scale s_l makes a layer's overall strength one well-conditioned coordinate: strengths that must differ by orders
    of magnitude between layers are a short way apart. With W_x an isometry, every model of width N >= d whose W_v, W_y
    and W_o act in one direction has this form, and the reverse; ``moments`` are then all equal to the gain.
    """

    def __init__(self, spec: ModelSpec, generators: Sequence[torch.Generator], dtype: torch.dtype):
        super().__init__()
        draw, depth, d = _drawer(generators, dtype), spec.depth, spec.dimension
        replicas = len(generators)
        self.depth, self.columns = depth, 1
        # The noise of a linear layer's d x d entries adds up in every product of layers; a softmax bounds it.
        self.matrix_rate = 1 / math.sqrt(d) if spec.attention == "linear" else 1.0
        noise = draw(depth, d, d)
        if spec.attention == "linear":
            scale, matrix = depth * (0.1 * draw(depth)).exp(), torch.eye(d, dtype=dtype) + (0.1 / d) * noise
        else:
            scale = torch.ones(replicas, depth, dtype=dtype)
            matrix = 0.5 * torch.eye(d, dtype=dtype) + noise / math.sqrt(d)
        self.log_scale = nn.Parameter(scale.log())
        self.matrix = nn.Parameter(matrix)
        self.gain = nn.Parameter(torch.ones(replicas, depth if spec.variant == "decoupled_values" else 1, dtype=dtype))

    def embed(self, x: Tensor) -> Tensor:
        """Return x itself, shape (R, C, P, d): W_x is an isometry, absorbed into B_l."""
        return x

    def matrices(self) -> Tensor:
        """B_l, shape (R, L, d, d)."""
        return self.log_scale.exp()[..., None, None] * self.matrix

    def gains(self) -> Tensor:
        """g_l, shape (R, 1) or (R, L)."""
        return self.gain

    def moments(self) -> None:
        """All moments equal the gain."""
        return None

    def rates(self) -> list[tuple[Tensor, float]]:
        """Each parameter with the factor on its learning rate."""
        return [(self.log_scale, 1.0), (self.matrix, self.matrix_rate), (self.gain, 0.1)]


class Factored(nn.Module):
    """The paper's own weights: W_x, W_y, W_o, a W_q and W_k for each layer, and W_v (Sec. 2.2).

    W_x starts as an isometry and the label stream as g = 1, with W_v = I and W_o = W_y^T of norm one.
    """

    def __init__(self, spec: ModelSpec, generators: Sequence[torch.Generator], dtype: torch.dtype):
        super().__init__()
        draw, depth, d, n = _drawer(generators, dtype), spec.depth, spec.dimension, spec.width
        self.linear = spec.attention == "linear"
        self.depth, self.columns = depth, depth + 1
        entry = 1.0 if self.linear else 1 / math.sqrt(n)
        label = draw(n)
        label = label / torch.linalg.vector_norm(label, dim=-1, keepdim=True)
        self.w_x = nn.Parameter(torch.linalg.qr(draw(n, d)).Q)
        self.w_q = nn.Parameter(entry * draw(depth, n, n))
        self.w_k = nn.Parameter(entry * draw(depth, n, n))
        values = depth if spec.variant == "decoupled_values" else 1
        self.w_v = nn.Parameter(torch.eye(n, dtype=dtype).repeat(len(generators), values, 1, 1))
        self.w_y = nn.Parameter(label)
        self.w_o = nn.Parameter(label.clone())

    def embed(self, x: Tensor) -> Tensor:
        """W_x x for x of shape (R, C, P, d), shape (R, C, P, N); linear attention absorbs W_x into B_l instead."""
        return x if self.linear else x @ self.w_x[:, None].mT

    def matrices(self) -> Tensor:
        """Softmax: W_k^T W_q, shape (R, L, N, N). Linear: W_x^T W_k^T W_q W_x / N, shape (R, L, d, d)."""
        if not self.linear:
            return self.w_k.mT @ self.w_q
        w_x = self.w_x[:, None]
        return (self.w_k @ w_x).mT @ (self.w_q @ w_x) / self.w_q.shape[-1]

    def gains(self) -> Tensor:
        """g_l = W_o W_v^l W_y, shape (R, 1) or (R, L)."""
        return torch.einsum("ri,rlij,rj->rl", self.w_o, self.w_v, self.w_y)

    def moments(self) -> Tensor:
        """m_r = W_o W_v^r W_y, shape (R, L), r = 1..L."""
        powers, state = [], self.w_y[..., None]
        for _ in range(self.depth):
            state = self.w_v[:, 0] @ state
            powers.append((self.w_o[:, None] @ state)[:, 0, 0])
        return torch.stack(powers, dim=-1)

    def rates(self) -> list[tuple[Tensor, float]]:
        """Each parameter with the factor on its learning rate.

        For linear attention B_l must reach the order of L, so its two factors move at sqrt(L) times the rate.
        """
        n = self.w_v.shape[-1]
        growth = math.sqrt(self.depth) if self.linear else 1.0
        return [
            (self.w_x, 1.0),
            (self.w_q, growth),
            (self.w_k, growth),
            (self.w_v, 0.1 / n),
            (self.w_y, 0.1 / math.sqrt(n)),
            (self.w_o, 0.1 / math.sqrt(n)),
        ]
