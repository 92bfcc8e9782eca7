"""What is trained: the paper's weight matrices, or the few combinations of them that the output depends on.

Both classes offer the same quantities to the attention models:

``embedding()``   W_x, shape (R, N, d), where queries and keys are made from W_x x; None where from x itself
``matrices()``    B_l, shape (R, L, n, n): query-key matrices, acting on these features
``gains()``       g_l = W_o W_v^l W_y, shape (R, 1) where layers share W_v, else (R, L)
``columns``       how many vectors the linear recursion carries
``moments()``     m_r = W_o W_v^r W_y for r = 1..L, or None where all moments equal the gain
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from inverse_depth.models.base import ModelSpec, Weights

Draw = Callable[..., Tensor]


def drawer(generators: Sequence[torch.Generator], dtype: torch.dtype) -> Draw:
    """Standard normal parameters, replica by replica from its own generator, so that no replica depends on another."""

    def draw(*shape: int) -> Tensor:
        return torch.stack([torch.randn(shape, generator=g, dtype=dtype) for g in generators])

    return draw


class Merged(Weights):
    """B_l = exp(s_l) M_l and the gain g, with the label stream in one direction (N-independent).

    The scale s_l makes a layer's overall strength one well-conditioned coordinate: strengths that must differ by orders
    of magnitude between layers are a short way apart. With W_x an isometry, every model of width N >= d whose W_v, W_y
    and W_o act in one direction has this form, and the reverse; ``moments`` are then all equal to the gain.
    """

    def __init__(self, spec: ModelSpec, generators: Sequence[torch.Generator], dtype: torch.dtype):
        super().__init__()
        draw, depth, d = drawer(generators, dtype), spec.depth, spec.dimension
        replicas = len(generators)
        self.depth, self.replicas, self.columns = depth, replicas, 1
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

    def embedding(self) -> None:
        """W_x is an isometry, absorbed into B_l."""
        return None

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


class Factored(Weights):
    """The paper's own weights: W_x, W_y, W_o, a W_q and W_k for each layer, and W_v (Sec. 2.2).

    W_x starts as an isometry and the label stream as g = 1, with W_v = I and W_o = W_y^T of norm one.
    """

    def __init__(self, spec: ModelSpec, generators: Sequence[torch.Generator], dtype: torch.dtype):
        super().__init__()
        draw, depth, d, n = drawer(generators, dtype), spec.depth, spec.dimension, spec.width
        self.linear = spec.attention == "linear"
        self.depth, self.replicas, self.columns = depth, len(generators), depth + 1
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

    def embedding(self) -> Tensor | None:
        """W_x, shape (R, N, d); linear attention absorbs it into B_l."""
        return None if self.linear else self.w_x

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


def controlled_weights(spec: ModelSpec, generators: Sequence[torch.Generator], dtype: torch.dtype) -> Merged | Factored:
    """The parameters of a controlled model."""
    return (Merged if spec.parameters == "merged" else Factored)(spec, generators, dtype)
