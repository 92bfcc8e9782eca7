"""The rotations of the covariances have the Haar law on O(d)."""

import itertools
import math

import pytest
import torch
from scipy import stats

from inverse_depth.contexts import haar_rotation

COUNT = 20_000
LEVEL = 1e-3  # chance that an exact law fails a test of several comparisons


@pytest.fixture(scope="module", params=[2, 3, 16])
def rotations(request):
    d = request.param
    normal = torch.randn(COUNT, d, d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)
    return haar_rotation(normal)


def trace(matrices):
    return matrices.diagonal(dim1=-2, dim2=-1).sum(-1)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
@pytest.mark.parametrize("d", [1, 2, 16, 128])
def test_rotations_are_orthogonal(d, dtype, error):
    drawn = haar_rotation(torch.randn(64, d, d, generator=torch.Generator().manual_seed(0), dtype=dtype))
    assert (drawn @ drawn.mT - torch.eye(d, dtype=dtype)).abs().max() < error


def test_every_entry_in_any_pair_of_bases_has_its_law(rotations):
    """For unit vectors u and v, u^T O v is a coordinate of a uniform point on the sphere."""
    d = rotations.shape[-1]
    first, last = torch.eye(d, dtype=rotations.dtype)[[0, -1]]
    oblique = torch.nn.functional.normalize(torch.arange(1.0, d + 1, dtype=rotations.dtype).sqrt(), dim=0)
    law = stats.beta((d - 1) / 2, (d - 1) / 2, loc=-1, scale=2)
    pairs = list(itertools.product((first, last, oblique), repeat=2))
    for one, other in pairs:
        assert stats.kstest(rotations @ other @ one, law.cdf).pvalue > LEVEL / len(pairs)


def test_traces_and_determinants_have_the_law_of_another_generator(rotations):
    other = torch.from_numpy(stats.ortho_group.rvs(rotations.shape[-1], size=COUNT, random_state=1))
    for invariant in (trace, lambda o: trace(o @ o), lambda o: trace(o @ o @ o), lambda o: trace(o.roll(1, -1))):
        # rounded, for in two dimensions the trace of every reflection is 0 but for errors of rounding
        pair = (invariant(o).round(decimals=9) for o in (rotations, other))
        assert stats.ks_2samp(*pair).pvalue > LEVEL / 4
    assert stats.binomtest(int((torch.linalg.det(rotations) < 0).sum()), COUNT).pvalue > LEVEL


def test_moments_are_those_of_the_group(rotations):
    """E tr O = 0, E (tr O)^2 = 1, E tr O^2 = 1; E O_ij^2 = 1/d for every entry."""
    traces, d = trace(rotations), rotations.shape[-1]
    entries = [(entry**2, 1 / d) for entry in rotations.flatten(1).unbind(1)]
    values = [(traces, 0), (traces**2, 1), (trace(rotations @ rotations), 1), *entries]
    bound = stats.norm.isf(LEVEL / len(values) / 2)
    for value, mean in values:
        assert abs(value.mean() - mean) < bound * value.std() / math.sqrt(COUNT)
