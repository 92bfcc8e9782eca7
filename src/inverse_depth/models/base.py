"""What every model offers to training and evaluation, and how one is built."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from inverse_depth.contexts import Contexts, generator
from inverse_depth.variants import VARIANTS

Effective = dict[str, Tensor]
"""The few tensors through which the parameters act, such as B_l and the gains, by name."""


@dataclass(frozen=True)
class ModelSpec:
    """Everything that rebuilds a model around its parameters.

    Attributes
    ----------
    attention, variant : str
        Keys of ``VARIANTS``.
    parameters : str
        ``merged`` or ``factored``.
    depth, dimension, width : int
        L, d and N.
    """

    attention: str
    variant: str
    parameters: str
    depth: int
    dimension: int
    width: int


class Weights(nn.Module):
    """Trained parameters, each with a leading replica axis R."""

    depth: int
    replicas: int

    def rates(self) -> list[tuple[Tensor, float]]:
        """Each parameter with the factor on its learning rate."""
        raise NotImplementedError


class Model(nn.Module):
    """A batched model: R replicas that train together, each on contexts of its own or on shared ones.

    Where the output is linear in the labels it is y_hat = beta^T (v + t), and :meth:`residual` gives v, so that the
    teacher beta can be integrated out of the loss; elsewhere only :meth:`error` is defined, and ``linear_in_labels`` is
    False. Where layers attend each on its own, ``attends_independently`` is True and :meth:`mean_attention` defined.

    Methods take the outcome of :meth:`effective` where it is at hand, so that a batch cut into parts computes it once.
    """

    linear_in_labels: ClassVar[bool] = True
    attends_independently: ClassVar[bool] = False
    weights: Weights

    @classmethod
    def create(cls, spec: ModelSpec, generators: Sequence[torch.Generator], dtype: torch.dtype) -> Self:
        """A freshly initialised model, one replica from each generator."""
        raise NotImplementedError

    def effective(self) -> Effective:
        """The tensors that the contexts meet, computed from the parameters."""
        raise NotImplementedError

    def elements_per_context(self, contexts: Contexts) -> int:
        """Size of the arrays that one context needs."""
        raise NotImplementedError

    def residual(self, contexts: Contexts, effective: Effective | None = None) -> Tensor:
        """Residual v in the eigenbasis, shape (R, C, d): the error y_hat - y* is beta^T v."""
        raise NotImplementedError

    def error(self, contexts: Contexts, teacher: Tensor, effective: Effective | None = None) -> Tensor:
        """y_hat - y*, shape (R, C), for teachers beta in the eigenbasis, shape (R, C, d)."""
        return (self.residual(contexts, effective) * teacher).sum(-1)

    def layer_residuals(self, contexts: Contexts, effective: Effective | None = None) -> Tensor | None:
        """v_l of every layer's own prediction f_l, shape (R, C, L, d), where the output is their mean."""
        return None

    def layer_errors(self, contexts: Contexts, teacher: Tensor, effective: Effective | None = None) -> Tensor | None:
        """e_l = f_l - y* of every layer, shape (R, C, L), where the output is the mean of the f_l."""
        residuals = self.layer_residuals(contexts, effective)
        return None if residuals is None else (residuals * teacher[:, :, None]).sum(-1)

    def mean_attention(self, contexts: Contexts) -> Tensor:
        """Attention of the test token, averaged over layers, shape (R, C, P)."""
        raise NotImplementedError

    def isotropic_response(self, eigenvalues: Tensor) -> Tensor | None:
        """P_L(lambda_k), shape (R, d), of the model's isotropic part, where it has one."""
        return None

    def scalars(self) -> dict[str, tuple[Tensor, dict[str, str]]]:
        """Trained numbers worth a variable in the cube: name to values, shape (R,), and a description."""
        return {}


def build_model(spec: ModelSpec, seeds: Sequence[int], dtype: torch.dtype = torch.float32) -> Model:
    """A freshly initialised model with one replica for each seed, on the CPU.

    Parameters
    ----------
    spec : ModelSpec
    seeds : sequence of int
        R seeds; each replica's weights are a pure function of its own.
    dtype : torch.dtype

    Returns
    -------
    Model
    """
    module, name = VARIANTS[spec.attention][spec.variant].model.split(":")
    cls: type[Model] = getattr(importlib.import_module(module), name)
    return cls.create(spec, [generator("initialisation", seed, 0) for seed in seeds], dtype)
