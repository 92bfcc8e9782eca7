"""Attention models: the literal reference, and the exact reductions that train."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from inverse_depth.contexts import generator
from inverse_depth.models.linear import LinearAttention
from inverse_depth.models.parameters import Factored, Merged, ModelSpec
from inverse_depth.models.softmax import SoftmaxAttention

Model = SoftmaxAttention | LinearAttention

__all__ = ["LinearAttention", "Model", "ModelSpec", "SoftmaxAttention", "build_model"]


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
    generators = [generator("initialisation", seed, 0) for seed in seeds]
    weights = (Merged if spec.parameters == "merged" else Factored)(spec, generators, dtype)
    return SoftmaxAttention(weights) if spec.attention == "softmax" else LinearAttention(weights)
