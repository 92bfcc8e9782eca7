"""Linear attention, reduced exactly to a recursion over layers of vectors of size d.

With S = X X^T / P, the model's output is beta^T (sum_r m_r c_r), where c_r collects the products of r distinct layers,
in their order, applied to the query (App. A.1):

    P_L(S) q = sum_{r=1}^{L} ((-1)^{r-1} m_r / L^r) sum_{l_1 < ... < l_r} S B_{l_1} ... S B_{l_r} q .

Nothing has the size of the context except S itself, which is Sigma for an infinite one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from inverse_depth.contexts import Contexts
from inverse_depth.models.base import Effective, Model, ModelSpec
from inverse_depth.models.parameters import Factored, Merged, controlled_weights


class LinearAttention(Model):
    """The linear model around its parameters."""

    weights: Merged | Factored

    def __init__(self, weights: Merged | Factored):
        super().__init__()
        self.weights = weights

    @classmethod
    def create(cls, spec: ModelSpec, generators: Sequence[torch.Generator], dtype: torch.dtype) -> Self:
        """See :meth:`Model.create`."""
        return cls(controlled_weights(spec, generators, dtype))

    def effective(self) -> Effective:
        """B_l, and the gain or the moments of the label stream."""
        moments = self.weights.moments()
        last = {"gains": self.weights.gains()} if moments is None else {"moments": moments}
        return {"matrices": self.weights.matrices()} | last

    def elements_per_context(self, contexts: Contexts) -> int:
        """Size of the arrays that one context needs: its covariance and the states of all layers."""
        d = contexts.query.shape[-1]
        return d * d + self.weights.depth * d * self.weights.columns

    def residual(self, contexts: Contexts, effective: Effective | None = None) -> Tensor:
        """V = P_L(S) q - t."""
        covariance, query = _covariance(contexts), contexts.query
        if contexts.rotation is not None:
            query = (contexts.rotation @ query[..., None])[..., 0]
        output = _output(self.effective() if effective is None else effective, covariance, query)
        if contexts.rotation is not None:
            output = (contexts.rotation.mT @ output[..., None])[..., 0]
        return output - contexts.target

    def isotropic_response(self, eigenvalues: Tensor) -> Tensor:
        """P_L(lambda_k), shape (R, d), of the model whose B_l are replaced by their isotropic parts (tr B_l / d) I.

        Parameters
        ----------
        eigenvalues : Tensor, shape (d,)
        """
        identity = torch.eye(len(eigenvalues), dtype=eigenvalues.dtype, device=eigenvalues.device)
        effective = self.effective()
        mean = effective["matrices"].diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] * identity
        ones = torch.ones_like(eigenvalues).expand(mean.shape[0], 1, -1)
        return _output(effective | {"matrices": mean}, (identity * eigenvalues)[None, None], ones)[:, 0]


def _output(effective: Effective, covariance: Tensor, query: Tensor) -> Tensor:
    """P_L(S) q, shape (R, C, d)."""
    matrices = effective["matrices"]
    if "gains" in effective:
        return effective["gains"][:, None] * (query - _product(matrices, covariance, query))
    return -(_elementary_products(matrices, covariance, query) @ effective["moments"][:, None, :, None])[..., 0]


def _covariance(contexts: Contexts) -> Tensor:
    """S in the model's coordinates, shape (R, C, d, d)."""
    if contexts.tokens is not None:
        tokens = contexts.tokens
        inner = tokens.mT @ tokens / tokens.shape[2]
        return inner if contexts.rotation is None else contexts.rotation @ inner @ contexts.rotation.mT
    if contexts.rotation is None:
        d = contexts.query.shape[-1]
        return torch.eye(d, dtype=contexts.query.dtype, device=contexts.query.device).expand(*contexts.query.shape, d)
    return (contexts.rotation * contexts.eigenvalues) @ contexts.rotation.mT


def _product(matrices: Tensor, covariance: Tensor, query: Tensor) -> Tensor:
    """(I - S B_1 / L) ... (I - S B_L / L) q: all moments of the label stream equal, so one vector serves."""
    depth = matrices.shape[1]
    state = query
    for matrix in reversed(matrices.unbind(1)):
        state = state - (covariance @ (state @ matrix.mT)[..., None])[..., 0] / depth
    return state


def _elementary_products(matrices: Tensor, covariance: Tensor, query: Tensor) -> Tensor:
    """Column r - 1: (-1/L)^r sum_{l_1 < ... < l_r} S B_{l_1} ... S B_{l_r} q, shape (R, C, d, L).

    From the last layer to the first, each layer multiplies the columns so far and adds them one power higher.
    """
    depth = matrices.shape[1]
    columns = query[..., None]
    for matrix in reversed(matrices.unbind(1)):
        raised = -(covariance @ (matrix[:, None] @ columns)) / depth
        columns = columns.expand(raised.shape[0], -1, -1, -1)  # contexts may be shared by all replicas
        zero = torch.zeros_like(raised[..., :1])
        columns = torch.cat([columns, zero], dim=-1) + torch.cat([zero, raised], dim=-1)
    return columns[..., 1:]
