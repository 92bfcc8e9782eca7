"""One small context of each task, for the figures that draw what the tasks and their predictable part are.

In d = 2 dimensions a context can be drawn as it is. With flat spectra the mean of the target over contexts with the
same query, t_bar = E[t | x_test], has the direction of the query and does not depend on its length, since tokens are
selected by their cosine with it: contexts turned so that their queries agree all sample it. App. A.3 approximates it by
c Sigma x_test, c = gamma_{P,k} / sqrt(tr Sigma^2), for many dimensions.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import xarray as xr

from inverse_depth.contexts import Contexts, Family, generator, sample_contexts
from inverse_depth.provenance import attributes
from inverse_depth.spectra import FloatArray, power_law_spectrum
from inverse_depth.theory.floor import predictable_coefficient

DIMENSION = 2
CONTEXT_LENGTH = 8
TARGET_SIZE = 2
OTHER_CONTEXTS = 2**16
"""Contexts over which the conditional mean of the target is taken."""
SHOWN = 200
"""How many of their targets are kept to be drawn."""


def illustration_dataset(seed: int = 0) -> xr.Dataset:
    """Draw one context of the easy and one of the difficult task, labelled by the same teacher, at a = b = 0.

    Parameters
    ----------
    seed : int
        Seed of the draws; figures are legible for some and crowded for others.

    Returns
    -------
    xarray.Dataset
        Over ``task`` (easy, difficult), ``token`` (1..P) and ``component`` (1..d): ``tokens``, ``query``, ``labels``,
        ``selected`` (1 for the tokens whose labels are averaged), ``target_input`` t and ``target`` y* = beta^T t. For
        the query of the difficult task: ``predictable_part``, the mean of t over other contexts with that query, its
        standard error, their ``target_power`` and ``residual_power`` (means of |t|^2 and |t - t_bar|^2),
        ``other_targets`` (some of their t), and ``approximate_part`` c Sigma x_test with ``coefficient`` c.
    """
    families = {
        task: Family(task, DIMENSION, CONTEXT_LENGTH, size, 0.0)
        for task, size in (("easy", 1), ("difficult", TARGET_SIZE))
    }
    drawn = {task: _draw(family, 1, seed, index) for index, (task, family) in enumerate(families.items())}
    teacher = torch.randn(DIMENSION, generator=generator("illustration", seed, 2), dtype=torch.float64).numpy()
    tokens, query, target = (
        np.stack([_numpy(getattr(contexts, name))[0, 0] for contexts in drawn.values()])
        for name in ("tokens", "query", "target")
    )
    selected = np.zeros(tokens.shape[:2], dtype=np.int64)
    for row, contexts in zip(selected, drawn.values(), strict=True):
        row[_numpy(contexts.selected)[0, 0]] = 1

    others = targets_given_query(_draw(families["difficult"], OTHER_CONTEXTS, seed, 3), query[1])
    mean = others.mean(0)
    coefficient = predictable_coefficient(power_law_spectrum(DIMENSION, 0.0), CONTEXT_LENGTH, TARGET_SIZE)
    variables = {
        "tokens": (("task", "token", "component"), tokens, "context input", "x_i"),
        "labels": (("task", "token"), tokens @ teacher, "label", "y_i = beta^T x_i"),
        "selected": (("task", "token"), selected, "1 for the tokens whose labels are averaged", "i in S_k"),
        "query": (("task", "component"), query, "test input", "x_test"),
        "target_input": (("task", "component"), target, "mean of the selected inputs", "t = (1/k) sum_{i in S_k} x_i"),
        "target": ("task", target @ teacher, "target", "y* = beta^T t"),
        "teacher": ("component", teacher, "teacher", "beta"),
        "predictable_part": ("component", mean, "mean target input given the query", "t_bar = E[t | x_test]"),
        "predictable_part_se": (
            "component", others.std(0, ddof=1) / math.sqrt(len(others)), "its standard error", "std(t) / sqrt(n)"
        ),
        "target_power": ((), _power(others), "power of the target given the query", "E[|t|^2 | x_test]"),
        "residual_power": ((), _power(others - mean), "power of the residual", "E[|t - t_bar|^2 | x_test]"),
        "other_targets": (("context", "component"), others[:SHOWN], "target inputs of other contexts", "t"),
        "coefficient": ((), coefficient, "coefficient of the predictable part", "c = gamma_{P,k} / sqrt(tr Sigma^2)"),
        "approximate_part": ("component", coefficient * query[1], "approximate predictable part", "c Sigma x_test"),
    }  # fmt: skip
    settings = {
        "dimension": DIMENSION, "context_length": CONTEXT_LENGTH, "target_size": TARGET_SIZE, "a": 0, "b": 0,
        "other_contexts": OTHER_CONTEXTS, "seed": seed,
    }  # fmt: skip
    return xr.Dataset(
        {
            name: (dims, values, {"long_name": long_name, "units": "1", "equation": equation})
            for name, (dims, values, long_name, equation) in variables.items()
        },
        coords={
            "task": ("task", list(families), {"long_name": "task"}),
            "token": ("token", np.arange(1, CONTEXT_LENGTH + 1), {"long_name": "context token", "units": "1"}),
            "component": ("component", np.arange(1, DIMENSION + 1), {"long_name": "coordinate", "units": "1"}),
        },
        attrs=attributes("One sampled context of each task", settings) | settings,
    )


def targets_given_query(contexts: Contexts, query: FloatArray) -> FloatArray:
    """Sample t given the query: the targets of isotropic contexts in the plane, turned as their own query is turned.

    Parameters
    ----------
    contexts : Contexts
        Of one replica, in two dimensions, with Sigma = I, so that turning a context leaves its law as it is.
    query : ndarray, shape (2,)
        The given query. Only its direction matters.

    Returns
    -------
    ndarray, shape (C, 2)
    """
    own, target = _numpy(contexts.query)[0], _numpy(contexts.target)[0]
    along = (own * target).sum(1)
    across = own[:, 0] * target[:, 1] - own[:, 1] * target[:, 0]
    basis = np.array([query, [-query[1], query[0]]]) / np.linalg.norm(query)
    turned: FloatArray = np.stack([along, across], axis=1) / np.linalg.norm(own, axis=1)[:, None] @ basis
    return turned


def _draw(family: Family, count: int, seed: int, index: int) -> Contexts:
    return sample_contexts(family, count, [generator("illustration", seed, index)], dtype=torch.float64)


def _numpy(value: torch.Tensor | None) -> FloatArray:
    assert value is not None
    array: FloatArray = value.numpy()
    return array


def _power(vectors: FloatArray) -> float:
    return float(np.square(vectors).sum(1).mean())
