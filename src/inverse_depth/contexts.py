"""Sampling of contexts for both tasks (Sec. 2.1), on the device that trains.

Everything is kept in the eigenbasis of the input covariance, in the coordinates o_k^T x: norms, cosines, targets and
the loss do not depend on the rotation O, which a model applies only where one of its matrices meets the data. Where
Sigma = I (a = 0) even that is redundant, since the tokens' law is already invariant, and no rotation is drawn.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inverse_depth.config import Experiment, short
from inverse_depth.spectra import power_law_spectrum


@dataclass(frozen=True)
class Family:
    """The law of a context: contexts of one family serve every model, depth, seed and teacher spectrum.

    Attributes
    ----------
    task : str
        ``easy`` or ``difficult``.
    dimension : int
        d, the dimension of a token.
    context_length : int or None
        P, the number of context tokens; None is the limit of an infinite context, where X X^T / P = Sigma.
    target_size : int
        k, the number of tokens averaged into the target.
    a : float
        Exponent of the input spectrum, lambda_k = k^-a.
    """

    task: str
    dimension: int
    context_length: int | None
    target_size: int
    a: float

    @property
    def id(self) -> str:
        """A short name, unique among families; looked up, never parsed."""
        length = "inf" if self.context_length is None else self.context_length
        return f"{self.task}_d{self.dimension}_P{length}_k{self.target_size}_a{short(self.a)}"

    @property
    def numbers(self) -> int:
        """How many numbers one context holds, for choosing how many to draw at once."""
        tokens = 1 if self.context_length is None else self.context_length + 1
        return self.dimension * (tokens + (0 if self.isotropic else self.dimension))

    @property
    def isotropic(self) -> bool:
        """Whether Sigma = I, so that no rotation need be drawn."""
        return self.a == 0


def family_of(experiment: Experiment, a: float, k: int) -> Family:
    """The family of contexts that the points (a, ., k) of an experiment see."""
    length = None if experiment.context_length == "infinite" else experiment.context_length
    return Family(experiment.task, experiment.dimension, length, k, a)


@dataclass(frozen=True)
class Contexts:
    """A batch of contexts, with leading axes R (replicas) and C (contexts), in the eigenbasis of Sigma.

    Attributes
    ----------
    tokens : Tensor or None, shape (R, C, P, d)
        The context inputs x_i; None for an infinite context.
    query : Tensor, shape (R, C, d)
        The test input x_test (the paper's q).
    target : Tensor, shape (R, C, d)
        t, the mean of the selected inputs, so that y* = beta^T t.
    selected : Tensor or None, shape (R, C, k)
        Indices of the selected tokens.
    rotation : Tensor or None, shape (R, C, d, d)
        The Haar rotation O, with the eigenvectors o_k as columns; None where Sigma = I.
    eigenvalues : Tensor, shape (d,)
        lambda_k of Sigma.
    """

    tokens: Tensor | None
    query: Tensor
    target: Tensor
    selected: Tensor | None
    rotation: Tensor | None
    eigenvalues: Tensor

    def __len__(self) -> int:
        """C, the number of contexts of each replica."""
        return self.query.shape[1]

    def part(self, start: int, stop: int) -> Contexts:
        """The contexts numbered from ``start`` to ``stop``, of every replica."""

        def cut(value: Tensor | None) -> Tensor | None:
            return None if value is None else value[:, start:stop]

        return Contexts(
            cut(self.tokens),
            self.query[:, start:stop],
            self.target[:, start:stop],
            cut(self.selected),
            cut(self.rotation),
            self.eigenvalues,
        )


def stream_seed(purpose: str, seed: int, index: int) -> int:
    """The seed of one stream of random numbers: a pure function of what it is for.

    Parameters
    ----------
    purpose : str
        What is drawn: ``data``, ``initialisation``, ``evaluation``; different purposes give unrelated streams.
    seed : int
        The seed of the replica or the study.
    index : int
        Step of training, or chunk of evaluation contexts.

    Returns
    -------
    int
        63 bits of a SHA-256 digest. (PyTorch's CPU generator uses 32 of them.)
    """
    digest = hashlib.sha256(f"{purpose}/{seed}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(purpose: str, seed: int, index: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator at the start of the stream of :func:`stream_seed`."""
    return torch.Generator(device).manual_seed(stream_seed(purpose, seed, index))


def sample_contexts(
    family: Family,
    count: int,
    generators: Sequence[torch.Generator],
    *,
    rotate: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Contexts:
    """Draw independent contexts, one replica from each generator.

    Parameters
    ----------
    family : Family
        The law of a context.
    count : int
        C, contexts per replica.
    generators : sequence of torch.Generator
        R generators, whose device is where the contexts are drawn.
    rotate : bool
        Draw O where Sigma is not I; theory that never leaves the eigenbasis does without.
    dtype : torch.dtype
        Precision of the draws.

    Returns
    -------
    Contexts
        With leading axes (R, C).
    """
    d, length = family.dimension, family.context_length

    def normal(*shape: int) -> Tensor:
        drawn = torch.empty(len(generators), *shape, device=generators[0].device, dtype=dtype)
        for replica, random in zip(drawn, generators, strict=True):
            torch.randn(shape, generator=random, out=replica)
        return drawn

    eigenvalues = torch.tensor(power_law_spectrum(d, family.a), dtype=dtype, device=generators[0].device)
    rotation = None if family.isotropic or not rotate else haar_rotation(normal(count, d, d))
    scale = eigenvalues.sqrt()
    if length is None:
        query = normal(count, d) * scale
        return Contexts(None, query, query, None, rotation, eigenvalues)
    tokens = normal(count, length, d)
    if not family.isotropic:
        tokens = tokens.mul_(scale)
    if family.task == "easy":
        # The tokens are exchangeable and attention does not see their order: the first is a uniformly drawn match.
        query = tokens[:, :, 0]
        selected = torch.zeros((*query.shape[:2], 1), dtype=torch.long, device=query.device)
        return Contexts(tokens, query, query, selected, rotation, eigenvalues)
    query = normal(count, d) * scale
    # This product with the query as the row takes a quarter of the time of that with the query as the column.
    alignment = (query[:, :, None] @ tokens.mT)[:, :, 0] / torch.linalg.vector_norm(tokens, dim=-1)
    selected = alignment.topk(family.target_size, dim=-1, sorted=False).indices
    target = tokens.gather(2, selected[..., None].expand(-1, -1, -1, d)).mean(2)
    return Contexts(tokens, query, target, selected, rotation, eigenvalues)


def sample_teachers(
    family: Family, b: float, count: int, generators: Sequence[torch.Generator], dtype: torch.dtype = torch.float32
) -> Tensor:
    """Draw teachers beta ~ N(0, Omega) in the eigenbasis of Sigma, shape (R, C, d).

    Where Sigma = I no rotation is drawn with the tokens; a Haar-rotated teacher keeps its length and points anywhere.
    """
    d, device = family.dimension, generators[0].device
    deviation = torch.tensor(power_law_spectrum(d, b), dtype=dtype, device=device).sqrt()
    normal = torch.stack([torch.randn(2, count, d, generator=g, device=device, dtype=dtype) for g in generators])
    teachers = deviation * normal[:, 0]
    if not family.isotropic or b == 0:
        return teachers
    direction = torch.nn.functional.normalize(normal[:, 1], dim=-1)
    return torch.linalg.vector_norm(teachers, dim=-1, keepdim=True) * direction


def haar_rotation(normal: Tensor) -> Tensor:
    """Orthogonal matrices of Haar law from standard normal ones, shape (..., d, d).

    A product of d Householder reflections, each of a normal vector of one dimension less, with the signs that a QR
    decomposition of positive diagonal would give (Stewart, SIAM J. Numer. Anal. 17, 403, 1980). Only the upper triangle
    is used: row j is the vector of reflection j. There is nothing to decompose, which takes half of the time.
    """
    vectors = normal.triu()
    length = torch.linalg.vector_norm(vectors, dim=-1)
    first = torch.diagonal(vectors, dim1=-2, dim2=-1)
    sign = 1 - 2 * torch.signbit(first).to(normal.dtype)
    pivot = first + sign * length
    product = torch.linalg.householder_product((vectors / pivot[..., None]).mT, sign * pivot / length)
    return product * -sign[..., None, :]


def rms_normalise(x: Tensor) -> Tensor:
    """Scale the last axis, of length n, to Euclidean norm sqrt(n) (RMS norm without parameters)."""
    return x * (math.sqrt(x.shape[-1]) / torch.linalg.vector_norm(x, dim=-1, keepdim=True))
