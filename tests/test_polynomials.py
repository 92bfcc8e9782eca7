import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import eval_jacobi

from inverse_depth.spectra import power_law_spectrum, spectral_exponent
from inverse_depth.theory.polynomials import (
    asymptotic_free_losses,
    constrained_loss,
    exponential_superposition,
    fixed_step_loss,
    free_losses,
    local_exponents,
    optimal_step,
    polynomial_dataset,
)


def spectrum(dimension, a, b):
    eigenvalues = power_law_spectrum(dimension, a)
    return eigenvalues, eigenvalues * power_law_spectrum(dimension, b)


def exact_free_losses(eigenvalues, weights, max_depth):
    """1 / sum phi_n(0)^2 by the Stieltjes procedure in rational arithmetic, free of any rounding."""
    from fractions import Fraction

    nodes, masses = ([Fraction(float(value)) for value in values] for values in (eigenvalues, weights))
    now, before, at_zero, at_zero_before, norm_before = [Fraction(1)] * len(nodes), None, Fraction(1), Fraction(0), None
    total, losses = Fraction(0), []
    for _ in range(max_depth + 1):
        norm = sum(m * p * p for m, p in zip(masses, now, strict=True))
        total += at_zero**2 / norm
        losses.append(float(1 / total))
        alpha = sum(m * x * p * p for m, x, p in zip(masses, nodes, now, strict=True)) / norm
        beta = norm / norm_before if norm_before else Fraction(0)
        previous = before or [Fraction(0)] * len(nodes)
        before, now = now, [(x - alpha) * p - beta * q for x, p, q in zip(nodes, now, previous, strict=True)]
        at_zero_before, at_zero = at_zero, -alpha * at_zero - beta * at_zero_before
        norm_before = norm
    return losses


@pytest.mark.parametrize(("dimension", "a", "b"), [(6, 2, 1), (10, 1, 2), (10, 0.5, 0), (12, 2, 2)])
def test_free_loss_is_exact_at_every_depth(dimension, a, b):
    eigenvalues, weights = spectrum(dimension, a, b)
    expected = exact_free_losses(eigenvalues, weights, dimension - 1)
    np.testing.assert_allclose(free_losses(eigenvalues, weights, dimension - 1), expected, rtol=1e-12)


def test_free_loss_at_the_size_of_the_study_agrees_with_multiple_precision():
    mpmath = pytest.importorskip("mpmath")
    eigenvalues, weights = spectrum(128, 2, 2)
    with mpmath.workdps(150):
        # The least loss is the Schur complement e_0^T (V^T W V)^-1 e_0 inverted, V the monomials.
        moments = [
            mpmath.fsum(mpmath.mpf(w) * mpmath.mpf(x) ** n for x, w in zip(eigenvalues, weights, strict=True))
            for n in range(49)
        ]
        for depth in (3, 12, 24):
            gram = mpmath.matrix(depth + 1)
            for r in range(depth + 1):
                for s in range(depth + 1):
                    gram[r, s] = moments[r + s]
            unit = mpmath.matrix([1] + [0] * depth)
            expected = 1 / mpmath.lu_solve(gram, unit)[0]
            assert free_losses(eigenvalues, weights, depth)[depth] == pytest.approx(float(expected), rel=1e-10)


def test_free_loss_vanishes_once_every_distinct_eigenvalue_is_a_root():
    eigenvalues, weights = spectrum(5, 1, 1)
    losses = free_losses(eigenvalues, weights, 8)
    assert (losses[:5] > 0).all() and (losses[5:] == 0).all()
    assert free_losses(np.ones(5), np.ones(5), 3).tolist() == [5, 0, 0, 0]
    np.testing.assert_allclose(free_losses(np.repeat(eigenvalues, 2), np.repeat(weights, 2), 8), 2 * losses, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.3, 3), st.floats(0, 3), st.integers(1, 40), st.integers(2, 48))
def test_free_never_exceeds_constrained_nor_constrained_the_fixed_step(a, b, depth, dimension):
    eigenvalues, weights = spectrum(dimension, a, b)
    free = free_losses(eigenvalues, weights, depth)
    constrained = constrained_loss(eigenvalues, weights, depth)
    assert (np.diff(free) <= 0).all()
    assert free[depth] <= constrained * (1 + 1e-9)
    assert constrained <= fixed_step_loss(eigenvalues, weights, np.array([depth]))[0] * (1 + 1e-12)


@pytest.mark.parametrize(("a", "b", "depth"), [(2, 0.5, 1), (0.5, 0, 1), (1, 2, 7), (2, 2, 512), (0.25, 0.25, 4096)])
def test_optimal_step_beats_its_neighbours(a, b, depth):
    eigenvalues, weights = spectrum(128, a, b)
    gamma = optimal_step(eigenvalues, weights, depth)

    def log_loss(step):
        terms = np.log(weights) + 2 * depth * np.log(np.abs(1 - step / depth * eigenvalues))
        return np.logaddexp.reduce(terms)

    assert log_loss(gamma) < min(log_loss(gamma * (1 - 1e-3)), log_loss(gamma * (1 + 1e-3)))


def test_optimal_step_at_depth_one_is_least_squares():
    eigenvalues, weights = spectrum(512, 0.5, 0)
    expected = weights @ eigenvalues / (weights @ eigenvalues**2)
    assert expected > 2  # beyond the largest stable step of gradient descent: the search must reach there
    assert optimal_step(eigenvalues, weights, 1) == pytest.approx(expected, rel=1e-10)


def test_isotropic_inputs_are_solved_in_one_step():
    assert optimal_step(np.full(4, 2.0), np.ones(4), 3) == pytest.approx(1.5)
    assert constrained_loss(np.full(4, 2.0), np.ones(4), 3) == 0


def test_fixed_step_is_a_superposition_of_exponentials():
    eigenvalues, weights = spectrum(20, 1, 1)
    depths = np.array([1.0, 5.0, 60.0])
    expected = [(weights * (1 - eigenvalues) ** (2 * depth)).sum() for depth in depths]
    np.testing.assert_allclose(fixed_step_loss(eigenvalues, weights, depths), expected, rtol=1e-12)


@pytest.mark.parametrize("beta", [1.5, 2.0, 3.0])
def test_power_law_density_of_timescales_gives_a_power_law(beta):
    timescales = np.geomspace(1e-2, 1e14, 4001)
    weights = timescales ** (1 - beta)  # density tau^-beta, log spacing
    depths = np.array([100.0, 1000.0, 10000.0])
    slopes = local_exponents(depths, exponential_superposition(weights, timescales, depths))
    np.testing.assert_allclose(slopes[1], beta - 1, rtol=1e-3)


@pytest.mark.parametrize(("a", "b"), [(2, 0.5), (1, 2), (1.5, 2)])
def test_dense_free_loss_sums_the_jacobi_polynomials(a, b):
    zeta = spectral_exponent(a, b)
    degrees = np.arange(13)
    values = eval_jacobi(degrees, 0, zeta - 1, -1.0) ** 2 * (2 * degrees + zeta) * a
    np.testing.assert_allclose(asymptotic_free_losses(a, b, degrees.astype(float)), 1 / values.cumsum(), rtol=1e-10)


def test_dense_free_loss_is_the_limit_of_large_dimension():
    eigenvalues, weights = power_law_spectrum(200_000, 2), power_law_spectrum(200_000, 3)
    # Without its first modes, which stand too far apart to be dense.
    ratio = free_losses(eigenvalues[50:] * 51**2, weights[50:] * 51**3, 6)
    dense = asymptotic_free_losses(2, 1, np.arange(7.0))
    np.testing.assert_allclose(ratio / ratio[0], dense / dense[0], rtol=0.05)


def test_asymptotic_exponents():
    depths = np.array([1e4, 2e4, 4e4])
    assert local_exponents(depths, asymptotic_free_losses(2, 2, depths))[1] == pytest.approx(3.0, rel=1e-3)
    eigenvalues, weights = spectrum(20_000, 2, 2)
    losses = np.array([constrained_loss(eigenvalues, weights, depth) for depth in (1000, 2000, 4000)])
    assert local_exponents(np.array([1e3, 2e3, 4e3]), losses)[1] == pytest.approx(1.5, rel=0.03)
    assert np.isnan(asymptotic_free_losses(0.5, 0.25, depths)).all()


def test_dataset_holds_every_spectrum_and_nothing_else():
    dataset = polynomial_dataset(16, [(2, 0.5), (1, 2), (0, 1)], [4, 1, 2])
    assert dataset.sizes == {"L": 3, "a": 3, "b": 3}
    assert dataset["L"].values.tolist() == [1, 2, 4]
    here = dataset.sel(a=2, b=0.5)
    eigenvalues, weights = spectrum(16, 2, 0.5)
    np.testing.assert_array_equal(here["free_loss"], free_losses(eigenvalues, weights, 4)[[1, 2, 4]])
    assert float(here["constrained_loss"][2]) == constrained_loss(eigenvalues, weights, 4)
    assert float(here["constrained_reference"]) == 0.75 and float(here["free_reference"]) == 1.5
    np.testing.assert_allclose(
        here["free_exponent"][1], -math.log(here["free_loss"][2] / here["free_loss"][0]) / math.log(4), rtol=1e-12
    )
    assert dataset["free_loss"].sel(a=2, b=2).isnull().all()
    assert (dataset["free_loss"].sel(a=0, b=1) == 0).all()
    assert dataset["free_exponent"].sel(a=0, b=1).isnull().all()
    for variable in dataset.variables.values():
        assert variable.attrs["long_name"] and variable.attrs["units"] == "1"


@pytest.mark.parametrize("depths", [[3], [2, 2], [0, 4]])
def test_dataset_needs_two_depths(depths):
    with pytest.raises(ValueError, match="depths is"):
        polynomial_dataset(8, [(1, 1)], depths)
