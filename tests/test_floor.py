import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from scipy.stats import t as student_t

from inverse_depth.config import Floor
from inverse_depth.contexts import Family, generator, sample_contexts
from inverse_depth.spectra import power_law_spectrum
from inverse_depth.theory.floor import (
    BLOCKS,
    floor_dataset,
    linear_floor,
    measured_coefficient,
    predictable_coefficient,
    reachable_basis,
    sample_moments,
    top_k_mean,
)


def literal_floor(target, cross, eigenvalues, teacher, degree):
    """T - h^T G^+ h from the monomials, as the paper writes it: E[q_j t_j] = sqrt(lambda_j) E[z_j t_j]."""
    powers = eigenvalues[:, None] ** np.arange(1, degree + 1)
    h = powers.T @ (teacher * np.sqrt(eigenvalues) * cross.mean(0))
    gram = np.array(
        [[(teacher * eigenvalues ** (r + s + 1)).sum() for s in range(1, degree + 1)] for r in range(1, degree + 1)]
    )
    return float(target.mean(0) @ teacher - h @ np.linalg.pinv(gram) @ h)


def synthetic_moments(rng, eigenvalues, coefficients, noise, per_block):
    """Blocks of contexts with t = sum_r c_r Sigma^r q + noise."""
    d = eigenvalues.size
    z = rng.standard_normal((BLOCKS, per_block, d))
    gain = sum(c * eigenvalues ** (r + 1.5) for r, c in enumerate(coefficients))
    t = gain * z + noise * rng.standard_normal(z.shape)
    return (z**2).mean(1), (t**2).mean(1), (z * t).mean(1)


@pytest.mark.parametrize(("a", "b"), [(0, 0), (0, 1), (0.5, 0.5), (1, 0.25), (1.25, 0)])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_floor_is_the_formula_of_the_paper(a, b, degree):
    rng = np.random.default_rng(0)
    eigenvalues, teacher = power_law_spectrum(12, a), power_law_spectrum(12, b)
    query, target, cross = synthetic_moments(rng, eigenvalues, [0.9, -0.3], 0.5, 4)
    exact_queries = query / query.mean(0)  # the control variate then has nothing to correct
    ours = linear_floor(exact_queries, target, cross, eigenvalues, teacher, degree)
    assert ours.value == pytest.approx(literal_floor(target, cross, eigenvalues, teacher, degree), rel=1e-9)


def test_floor_of_a_known_law_is_calibrated():
    rng = np.random.default_rng(1)
    eigenvalues, teacher = power_law_spectrum(8, 1), power_law_spectrum(8, 0.5)
    noise, errors, trials = 0.3, [], 150
    for _ in range(trials):
        moments = synthetic_moments(rng, eigenvalues, [1.5, 0.7], noise, 8)
        estimate = linear_floor(*moments, eigenvalues, teacher, 2)
        errors.append((estimate.value - noise**2 * teacher.sum()) / estimate.error)
    inside = np.mean(np.abs(errors) < student_t.ppf(0.95, BLOCKS - 1))
    assert 0.83 < inside < 0.96  # nominally 0.90
    assert abs(np.mean(errors)) < 4 / math.sqrt(trials)


def test_control_variate_removes_the_fluctuation_of_the_query():
    rng = np.random.default_rng(2)
    eigenvalues, teacher = power_law_spectrum(8, 1), power_law_spectrum(8, 0)
    query, target, cross = synthetic_moments(rng, eigenvalues, [2.0], 0.1, 8)
    controlled = linear_floor(query, target, cross, eigenvalues, teacher, 1)
    plain = linear_floor(np.ones_like(query), target, cross, eigenvalues, teacher, 1)
    assert controlled.error < plain.error / 10
    assert abs(controlled.value - 0.08) < 5 * controlled.error


def test_a_polynomial_beyond_the_reach_of_the_degree_is_not_predicted():
    rng = np.random.default_rng(3)
    eigenvalues, teacher = power_law_spectrum(8, 1), power_law_spectrum(8, 0.5)
    moments = synthetic_moments(rng, eigenvalues, [1.0, -2.0, 3.0], 0.0, 64)
    floors = [linear_floor(*moments, eigenvalues, teacher, degree).value for degree in range(1, 5)]
    assert floors[0] > floors[1] > 1e-4
    np.testing.assert_allclose(floors[2:], 0, atol=1e-5)


@pytest.mark.parametrize("a", [0.0, 0.25, 1.0, 2.0])
def test_high_degrees_are_stable(a):
    eigenvalues, teacher = power_law_spectrum(128, a), power_law_spectrum(128, 0.5)
    basis = reachable_basis(eigenvalues, teacher, 16)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    assert basis.shape[1] == (16 if a else 1)
    reached = np.sqrt(teacher * eigenvalues) * eigenvalues * (1 - eigenvalues) ** 15
    np.testing.assert_allclose(basis @ (basis.T @ reached), reached, atol=1e-11 * np.abs(reached).max() if a else 1e-15)


def test_basis_stops_at_the_number_of_modes():
    eigenvalues = power_law_spectrum(3, 1)
    assert reachable_basis(eigenvalues, np.ones(3), 16).shape == (3, 3)


def test_moments_of_every_target_size_come_from_the_same_contexts():
    d, length, a, sizes = 5, 9, 1.0, [1, 3, 9]
    moments = sample_moments(d, length, a, sizes, BLOCKS, seed=4)
    scale = np.sqrt(power_law_spectrum(d, a))
    for block in (0, 100, 255):
        for i, k in enumerate(sizes):
            contexts = sample_contexts(
                Family("difficult", d, length, k, a), 1, [generator("floor", 4, block)], rotate=False
            )
            z, t = contexts.query[0, 0].double().numpy() / scale, contexts.target[0, 0].double().numpy()
            np.testing.assert_allclose(moments.query[block], z**2, rtol=1e-5)
            np.testing.assert_allclose(moments.target[block, i], t**2, rtol=1e-4, atol=1e-7)
            np.testing.assert_allclose(moments.cross[block, i], z * t, rtol=1e-4, atol=1e-6)


def test_a_target_that_does_not_depend_on_the_query_cannot_be_predicted():
    d, length, a, b = 6, 8, 0.5, 0.25
    eigenvalues, teacher = power_law_spectrum(d, a), power_law_spectrum(d, b)
    moments = sample_moments(d, length, a, [length], 32 * BLOCKS, seed=0)
    estimate = linear_floor(moments.query, moments.target[:, 0], moments.cross[:, 0], eigenvalues, teacher, 2)
    assert abs(estimate.value - eigenvalues @ teacher / length) < 4 * estimate.error


def test_sample_depends_on_the_seed_and_not_on_the_global_generator():
    first = sample_moments(3, 4, 1.0, [2], BLOCKS, seed=1)
    torch.manual_seed(99)
    again, other = (sample_moments(3, 4, 1.0, [2], BLOCKS, seed=seed) for seed in (1, 2))
    np.testing.assert_array_equal(first.cross, again.cross)
    assert not np.allclose(first.cross, other.cross)


@pytest.mark.parametrize("contexts", [0, 100, 300])
def test_contexts_fill_the_blocks(contexts):
    with pytest.raises(ValueError, match=f"contexts is {contexts}"):
        sample_moments(3, 4, 1.0, [2], contexts, seed=0)


@pytest.mark.parametrize(
    ("a", "b", "k", "published", "error"),
    [(0, 0, 2, 59.3714, 0.0213), (1, 0, 16, 0.4481, 0.0086), (1, 1, 2, 0.4975, 0.0102)],
)
def test_published_floors(a, b, k, published, error):
    """Table 3 of Peng et al., at d = 128, P = 1024 and degree 2, which the paper does not give."""
    eigenvalues, teacher = power_law_spectrum(128, a), power_law_spectrum(128, b)
    moments = sample_moments(128, 1024, a, [k], 2 * BLOCKS, seed=0)
    estimate = linear_floor(moments.query, moments.target[:, 0], moments.cross[:, 0], eigenvalues, teacher, 2)
    assert estimate.error < 0.06 * published
    assert abs(estimate.value - published) < 4 * math.hypot(estimate.error, error)


def test_mean_of_the_largest_normals():
    assert top_k_mean(2, 1) == pytest.approx(1 / math.sqrt(math.pi), rel=1e-10)
    assert top_k_mean(3, 1) == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-10)
    assert top_k_mean(3, 2) == pytest.approx(0.75 / math.sqrt(math.pi), rel=1e-10)  # the three sum to zero
    assert top_k_mean(7, 7) == 0
    for length in (64, 1024, 100_000):
        largest = (
            quad(lambda x, n=length: -math.expm1(n * norm.logcdf(x)), 0, 12, limit=200)[0]
            - (quad(lambda x, n=length: norm.cdf(x) ** n, -12, 0)[0])
        )
        assert top_k_mean(length, 1) == pytest.approx(largest, rel=1e-8)
    draws = -np.sort(-np.random.default_rng(0).standard_normal((20_000, 64)), axis=1)[:, :16]
    assert top_k_mean(64, 16) == pytest.approx(draws.mean(), abs=5 * draws.mean(1).std() / math.sqrt(20_000))


@pytest.mark.parametrize("k", [0, 6])
def test_target_size_must_be_selectable(k):
    with pytest.raises(ValueError, match=f"target_size is {k}"):
        top_k_mean(5, k)


def test_predicted_coefficient_is_measured_where_it_should_hold():
    """At a = 0 and large d the norms of the tokens hardly fluctuate, and c = gamma / sqrt(d)."""
    d, length = 128, 64
    eigenvalues = np.ones(d)
    moments = sample_moments(d, length, 0.0, [2], 16 * BLOCKS, seed=3)
    measured = measured_coefficient(moments.cross[:, 0], eigenvalues, eigenvalues)
    assert measured.value == pytest.approx(predictable_coefficient(eigenvalues, length, 2), rel=0.03)


def test_dataset_covers_every_pair_and_nothing_else():
    settings = Floor(
        dimension=4, context_length=8, degree=2, contexts=512, spectra=[(1, 0), (0, 0), (1, 0.5)], target_sizes=[4, 2]
    )
    dataset = floor_dataset(settings, seed=5)
    assert dict(dataset.sizes) == {"a": 2, "b": 2, "k": 2}
    assert dataset["k"].values.tolist() == [2, 4]
    assert dataset["floor"].sel(a=0, b=0.5).isnull().all()
    assert int(dataset["floor"].notnull().sum()) == 6
    moments = sample_moments(4, 8, 1.0, [2, 4], 512, seed=5)
    eigenvalues, teacher = power_law_spectrum(4, 1), power_law_spectrum(4, 0.5)
    estimate = linear_floor(moments.query, moments.target[:, 1], moments.cross[:, 1], eigenvalues, teacher, 2)
    here = dataset.sel(a=1, b=0.5, k=4)
    assert (float(here["floor"]), float(here["floor_se"])) == (estimate.value, estimate.error)
    assert float(here["predictable_coefficient"]) == pytest.approx(predictable_coefficient(eigenvalues, 8, 4))
    assert (dataset["floor"] < dataset["target_power"]).sum() == 6
    assert (dataset["floor_se"] > 0).sum() == 6
    for variable in dataset.variables.values():
        assert variable.attrs["long_name"] and variable.attrs["units"] == "1"
    assert dataset.attrs["degree"] == 2 and dataset.attrs["contexts"] == 512
