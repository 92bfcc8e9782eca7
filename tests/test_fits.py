import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares
from scipy.stats import t as student_t

from inverse_depth.bootstrap import refit_rows, resample_means
from inverse_depth.config import Fit
from inverse_depth.fits import FIT_COLUMNS, bootstrap_power_law, fit_cube, fit_power_law
from inverse_depth.misfit import lack_of_fit

DEPTHS = 2.0 ** np.arange(9)


def law(depths, floor, amplitude, exponent):
    return floor + amplitude * np.asarray(depths, dtype=float) ** -exponent


def noisy(rng, level, *parameters, depths=DEPTHS):
    return law(depths, *parameters) * np.exp(level * rng.standard_normal(len(depths)))


# Recovery


@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 50), st.floats(0.02, 20), st.floats(0.3, 2.5))
def test_exact_laws_are_recovered(floor, ratio, exponent):
    fit = fit_power_law(DEPTHS, law(DEPTHS, floor, ratio * floor, exponent))
    assert fit.determined and fit.reason == ""
    np.testing.assert_allclose([fit.floor, fit.amplitude, fit.exponent], [floor, ratio * floor, exponent], rtol=1e-5)
    assert fit.r_squared > 1 - 1e-9
    np.testing.assert_allclose(fit.predict(DEPTHS), law(DEPTHS, floor, ratio * floor, exponent), rtol=1e-9)


@pytest.mark.parametrize("floor", [0.0, 1.5])
def test_a_known_floor_is_kept(floor):
    fit = fit_power_law(DEPTHS, law(DEPTHS, floor, 3, 1.5), floor=floor)
    assert fit.determined
    assert (fit.floor, fit.floor_se) == (floor, 0)
    np.testing.assert_allclose([fit.amplitude, fit.exponent], [3, 1.5], rtol=1e-8)


def test_a_vanishing_floor_is_a_straight_line_in_logarithms():
    rng = np.random.default_rng(0)
    losses = noisy(rng, 0.05, 0, 2, 1.2)
    fit = fit_power_law(DEPTHS, losses, floor=0)
    x, y = np.log(DEPTHS), np.log(losses)
    coefficients, covariance = np.polyfit(x, y, 1, cov=True)
    np.testing.assert_allclose([-fit.exponent, math.log(fit.amplitude)], coefficients, rtol=1e-6)
    expected = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose([fit.exponent_se, fit.amplitude_se / fit.amplitude], expected, rtol=1e-5)
    assert fit.r_squared == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_objective_is_at_its_minimum(seed):
    losses = noisy(np.random.default_rng(seed), 3e-3, 2, 0.2, 0.8)
    fit = fit_power_law(DEPTHS, losses)

    def residuals(p):
        return np.log(law(DEPTHS, *p)) - np.log(losses)

    start = [fit.floor, fit.amplitude, fit.exponent]
    reference = least_squares(residuals, start, xtol=1e-15, ftol=1e-15, gtol=1e-15, method="lm")
    np.testing.assert_allclose(start, reference.x, rtol=1e-5)
    covariance = np.linalg.inv(reference.jac.T @ reference.jac) * 2 * reference.cost / (len(DEPTHS) - 3)
    errors = [fit.floor_se, fit.amplitude_se, fit.exponent_se]
    np.testing.assert_allclose(errors, np.sqrt(np.diag(covariance)), rtol=1e-3)
    for _ in range(50):
        other = np.random.default_rng(seed).normal(start, 3 * np.array(errors))
        assert np.square(residuals(start)).sum() <= np.square(residuals(np.abs(other))).sum() * (1 + 1e-9)


@pytest.mark.parametrize(
    ("level", "parameters", "depths"),
    [
        (1e-3, (2, 0.1, 1), DEPTHS),
        (1e-3, (2, 0.1, 0.7), DEPTHS),
        (1e-4, (2, 0.1, 1), DEPTHS[3:]),
        (0.03, (2, 5, 1), DEPTHS),
    ],
)
def test_standard_errors_are_calibrated(level, parameters, depths):
    rng = np.random.default_rng(0)
    trials, inside, accepted = 150, np.zeros(3), 0
    quantile = student_t.ppf(0.95, len(depths) - 3)
    for _ in range(trials):
        fit = fit_power_law(depths, noisy(rng, level, *parameters, depths=depths))
        accepted += fit.determined
        deviations = np.array([fit.floor, fit.amplitude, fit.exponent]) - parameters
        inside += np.abs(deviations) < quantile * np.array([fit.floor_se, fit.amplitude_se, fit.exponent_se])
    # Nominally 0.90; four standard deviations of the binomial.
    np.testing.assert_allclose(inside / trials, 0.9, atol=0.1)
    assert accepted >= 0.95 * trials  # 0.99 are not taken to bend


@pytest.mark.parametrize("points", [6, 7, 9])
def test_intervals_of_accepted_fits_cover_the_truth(points):
    """Over noise from far too little to undo the fit to just enough."""
    rng, depths = np.random.default_rng(points), 2.0 ** np.arange(points)
    inside = []
    for level in np.repeat([1e-4, 1e-3, 5e-3], 100):
        fit = fit_power_law(depths, noisy(rng, level, 2, 0.5, 1, depths=depths))
        low, high = fit.interval("exponent")
        inside += [low < 1 < high] if fit.determined else []
    assert len(inside) > 250
    assert np.mean(inside) > 0.9  # nominally 0.95, four standard deviations of the binomial


def test_the_interval_is_that_of_student():
    fit = fit_power_law(DEPTHS[:6], noisy(np.random.default_rng(0), 1e-3, 2, 0.5, 1, depths=DEPTHS[:6]))
    low, high = fit.interval("floor")
    assert fit.freedom == 3
    assert [low, high] == pytest.approx([fit.floor - 3.1824463 * fit.floor_se, fit.floor + 3.1824463 * fit.floor_se])
    assert all(map(math.isnan, fit_power_law(DEPTHS[:3], [3, 2, 1.5]).interval("floor")))


@pytest.mark.parametrize(("points", "floor"), [(4, None), (5, None), (3, 0)])
@pytest.mark.parametrize("level", [1e-4, 1e-3, 1e-2])
def test_a_few_noisy_depths_determine_nothing(points, floor, level):
    """Without the refusal a fifth to all of the accepted exponents were off by more than two standard errors."""
    rng, depths = np.random.default_rng(0), 2.0 ** np.arange(points)
    for _ in range(60):
        fit = fit_power_law(depths, noisy(rng, level, 2 if floor is None else 0, 0.5, 1, depths=depths), floor=floor)
        assert not fit.determined and fit.reason


@pytest.mark.parametrize(("points", "floor"), [(4, None), (5, None), (3, 0.5)])
def test_a_few_depths_without_noise_suffice(points, floor):
    fit = fit_power_law(DEPTHS[:points], law(DEPTHS[:points], 0.5, 2, 0.7), floor=floor)
    assert fit.determined and fit.exponent == pytest.approx(0.7, rel=1e-6)


# Equivariance


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.floats(-60, 60), st.permutations(range(9)))
def test_scale_and_order_do_not_matter(seed, log_scale, order):
    losses = noisy(np.random.default_rng(seed), 3e-3, 2, 0.3, 1)
    scale = math.exp(log_scale)
    one, other = fit_power_law(DEPTHS, losses), fit_power_law(DEPTHS[list(order)], scale * losses[list(order)])
    assert one.determined == other.determined
    np.testing.assert_allclose(
        [other.floor / scale, other.amplitude / scale, other.exponent, other.r_squared],
        [one.floor, one.amplitude, one.exponent, one.r_squared],
        rtol=1e-4,
    )
    np.testing.assert_allclose(
        [other.floor_se / scale, other.amplitude_se / scale, other.exponent_se],
        [one.floor_se, one.amplitude_se, one.exponent_se],
        rtol=1e-3,
    )


@pytest.mark.parametrize("stretch", [2.0, 10.0, 1000.0])
def test_stretching_the_depths_changes_the_amplitude_alone(stretch):
    losses = noisy(np.random.default_rng(0), 3e-3, 2, 0.3, 1)
    one, other = fit_power_law(DEPTHS, losses), fit_power_law(stretch * DEPTHS, losses)
    np.testing.assert_allclose(
        [other.floor, other.amplitude, other.exponent, other.exponent_se],
        [one.floor, one.amplitude * stretch**one.exponent, one.exponent, one.exponent_se],
        rtol=1e-4,
    )


# Refusals

STEP = np.where(DEPTHS < 10, 2.0, 1.0)
UNDETERMINED = {
    "constant": (np.full(9, 0.3), None, "the same at every depth"),
    "constant, no floor": (np.full(9, 0.3), 0, "the same at every depth"),
    "rising": (2 - 0.1 / DEPTHS, None, "does not fall"),
    "rising, no floor": (DEPTHS**0.5, 0, "does not fall"),
    "step": (STEP, None, "explains only 77%"),
    "step, no floor": (STEP, 0, "explains only 75%"),
    "only the first differs": (np.where(DEPTHS == 1, 2.0, 1.0), None, "exponent is at its bound"),
    "logarithm": (3 - 0.1 * np.log(DEPTHS), None, "floor is at its bound"),
    "no floor to fit": (law(DEPTHS, 0, 3, 1.5), None, "floor is at its bound"),
    "exponential": (np.exp(-DEPTHS / 20), 0, "explains only"),
    "exponential with a floor": (1 + np.exp(-DEPTHS / 3), None, "exponential"),
    "exact plateau": (np.array([2, 1.5, 1, 1, 1, 1, 1, 1, 1]), None, "exponential"),
    "two powers": (law(DEPTHS, 0, 1, 1) + law(DEPTHS, 0, 1, 0.3), 0, "exponent runs from 0.57 to 0.25"),
    "power, then faster": (law(DEPTHS, 0, 3, 1.5) * np.exp(-DEPTHS / 100), 0, "exponent runs"),
    "rounding": (1 + 1e-15 / DEPTHS, None, ""),
    "slower than any power": (2 + 1 / (DEPTHS + 8), 0, "exponent is at its bound"),
}


@pytest.mark.parametrize("case", UNDETERMINED)
def test_what_is_not_a_power_law_is_refused(case):
    losses, floor, reason = UNDETERMINED[case]
    fit = fit_power_law(DEPTHS, losses, floor=floor)
    assert not fit.determined
    assert reason in fit.reason and fit.reason


BENT = {
    "logarithmic": 1 + 1 / np.log(DEPTHS + 1),
    "stretched exponential": 1 + np.exp(-np.sqrt(DEPTHS)),
    "saturating": 1 + 1 / (1 + DEPTHS**2),
    "two powers": 1 + 1 / DEPTHS + 5 / DEPTHS**3,
}


@pytest.mark.parametrize("case", BENT)
@pytest.mark.parametrize("level", [0, 1e-5])
def test_a_bend_beside_a_free_floor_is_refused(case, level):
    fit = fit_power_law(DEPTHS, BENT[case] * np.exp(level * np.random.default_rng(0).standard_normal(9)))
    assert not fit.determined
    assert "not one power law" in fit.reason and fit.reason == fit.misfit


@pytest.mark.parametrize("floor", [None, 1.0])
def test_a_slight_bend_is_determined_and_noted(floor):
    fit = fit_power_law(DEPTHS, 1 + 1 / DEPTHS + 0.1 / DEPTHS**2, floor=floor)
    assert fit.determined and fit.reason == ""
    assert "not one power law" in fit.misfit
    assert 1 < fit.exponent < 1.1


@pytest.mark.parametrize("points", [6, 7, 9])
@pytest.mark.parametrize("floor", [None, 0])
def test_exact_laws_with_noise_do_not_bend(points, floor):
    rng, depths = np.random.default_rng(points), 2.0 ** np.arange(points)
    levels, level = np.repeat([1e-4, 1e-3, 1e-2], 100), 1 if floor is None else 0
    fits = [fit_power_law(depths, noisy(rng, noise, level, 1, 1, depths=depths), floor=floor) for noise in levels]
    assert sum(bool(fit.misfit) for fit in fits) <= 10  # nominally 3; four standard deviations of the binomial
    assert sum(fit.determined for fit in fits) >= 0.96 * len(fits)


@pytest.mark.parametrize(("points", "floor"), [(1, None), (2, None), (3, None), (1, 0), (2, 0)])
def test_too_few_depths_are_refused(points, floor):
    fit = fit_power_law(DEPTHS[:points], law(DEPTHS[:points], 0.5, 1, 1), floor=floor)
    assert not fit.determined
    depths = "1 depth" if points == 1 else f"{points} depths"
    assert f"{depths} cannot determine {3 if floor is None else 2} parameters" in fit.reason
    assert math.isnan(fit.exponent) and math.isnan(fit.exponent_se)


@pytest.mark.parametrize("points", [4, 6, 9])
@pytest.mark.parametrize("floor", [None, 0, 1.9])
def test_noise_around_a_constant_is_not_a_law(points, floor):
    rng = np.random.default_rng(0)
    fits = [
        fit_power_law(DEPTHS[:points], 2 * np.exp(2e-3 * rng.standard_normal(points)), floor=floor) for _ in range(100)
    ]
    assert sum(fit.determined for fit in fits) <= 2


def test_a_law_buried_in_noise_is_refused_and_not_misjudged():
    rng = np.random.default_rng(0)
    fits = [fit_power_law(DEPTHS, noisy(rng, 0.01, 2, 0.1, 1)) for _ in range(100)]
    assert sum(fit.determined for fit in fits) < 15
    assert sum(fit.determined and abs(fit.exponent - 1) > 1 for fit in fits) <= 2


@pytest.mark.parametrize(
    ("depth", "loss", "floor", "message"),
    [
        ([1, 2], [1.0], None, r"shape \(2,\) and loss \(1,\)"),
        ([[1, 2]], [[1.0, 2.0]], None, r"must be one axis"),
        ([], [], None, "empty"),
        ([1, 2, math.nan], [3, 2, 1], None, "depth holds nan"),
        ([1, 2, 4], [3, math.inf, 1], None, "loss holds inf"),
        ([1, 2, 4], [3, 0, 1], None, "loss holds 0"),
        ([1, 2, 4], [3, -2, 1], None, "loss holds -2"),
        ([1, 2, 4], [3, 2, 1e-31], None, r"loss holds 1e-31: every loss must lie from 1e-30 to 1e\+30"),
        ([1, 2, 4], [1e31, 2, 1], None, r"loss holds 1e\+31"),
        ([1, 2, 1e16], [3, 2, 1], None, r"depth holds 1e\+16"),
        ([0.5, 2, 4], [3, 2, 1], None, "depth holds 0.5"),
        ([4, 2, 4], [3, 2, 1], None, "depth holds 4 twice"),
        ([1, 2, 4], [3, 2, 1], 1.0, r"floor is 1: .* below the smallest loss \(1\)"),
        ([1, 2, 4], [3, 2, 1], -0.1, "floor is -0.1"),
        ([1, 2, 4], [3, 2, 1], math.nan, "floor is nan"),
        ([1, 2, 4], [3, 2, 1], "0", "floor holds str: allowed are real numbers"),
        ([1, 2, 4], [3, 2, 1], False, "floor holds bool"),
        ([1, 2, 4], [3, 2, 1], 0j, "floor holds complex"),
        ([1, 2, 4], [3, 2, 1], [0.5], r"floor has shape \(1,\): it must be one number, or None"),
        ([1, 2, 4], [3, 2, 1], np.ma.masked, "floor is masked"),
        ([1, 2, 4], [3, 2, 1 + 0j], None, "loss holds complex: allowed are real numbers"),
        (np.array([1, 2, 4], dtype=complex), [3, 2, 1], None, "depth holds complex"),
        ([1, 2, 4], np.ma.array([3.0, 2, 1], mask=[0, 1, 0]), None, "loss is masked at 1 of 3 points"),
        (np.ma.masked_greater([1, 2, 4], 1), [3, 2, 1], None, "depth is masked at 2 of 3 points"),
        (["1", "2", "4"], [3, 2, 1], None, "depth holds str"),
        ([1, 2, 4], np.array([b"3", b"2", b"1"]), None, "loss holds bytes"),
        ([1, 2, 4], [True, True, True], None, "loss holds bool"),
        ([True, 2, 4], [3, 2, 1], None, "depth holds bool"),
        (np.array([True]), [3], None, "depth holds bool"),
        ([1, 2, 4], [3, None, 1], None, "loss holds NoneType"),
        (np.array(["2020", "2021"], dtype="datetime64[Y]"), [2, 1], None, "depth holds date"),
        (np.array([1, 2], dtype="datetime64[ns]"), [2, 1], None, r"depth holds datetime64\[ns\]"),
        ([1, 2, [4]], [3, 2, 1], None, "depth cannot be read as numbers"),
        ([1, 2, 4], [10**400, 2, 1], None, "loss cannot be read as numbers"),
        ({1, 2}, [2, 1], None, "depth holds set"),
    ],
)
def test_bad_input_is_named(depth, loss, floor, message):
    with pytest.raises(ValueError, match=message):
        fit_power_law(depth, loss, floor=floor)


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Series, np.float32, np.ma.array, xr.DataArray])
def test_real_numbers_of_any_container_are_taken(kind):
    losses = np.round(law(DEPTHS, 2, 0.5, 1), 3)
    converted = losses.astype(kind) if kind is np.float32 else kind(losses)
    fit = fit_power_law(kind(DEPTHS.astype(int)) if kind is not np.float32 else DEPTHS.astype(int), converted)
    assert fit.exponent == pytest.approx(fit_power_law(DEPTHS, losses).exponent, rel=1e-3)


# Bootstrap


def samples_of(rng, seeds=4, blocks=64, run=1e-3, common=0.05, parameters=(2, 0.5, 1)):
    """Runs with their own deviations at each depth, on contexts that are common to all."""
    truth = law(DEPTHS, *parameters)[:, None, None]
    return truth * (
        1 + run * rng.standard_normal((len(DEPTHS), seeds, 1)) + common * rng.standard_normal((1, 1, blocks))
    )


def test_resampled_means_have_the_variance_of_seeds_and_of_common_contexts():
    rng = np.random.default_rng(0)
    samples = samples_of(rng, seeds=2, run=0.05, common=0.05)
    replicates = resample_means(samples, 4000, seed=0)
    np.testing.assert_allclose(replicates.mean(0), samples.mean((1, 2)), rtol=5e-3)
    seeds = samples.mean(2).var(1, ddof=1) / 2
    contexts = samples.mean(1).var(1, ddof=1) / 64
    np.testing.assert_allclose(replicates.var(0), seeds + contexts, rtol=0.15)
    single = resample_means(samples[:, :1], 500, seed=0)
    relative = single / samples[:, :1].mean((1, 2))
    np.testing.assert_allclose(relative, relative[:, :1] * np.ones(9), rtol=1e-2)  # the same blocks at every depth


def test_the_same_blocks_and_seeds_are_drawn_for_every_quantity():
    samples = samples_of(np.random.default_rng(0))
    without_first = samples.copy()
    without_first[0] = np.nan
    both = [resample_means(values, 50, seed=3) for values in (samples, without_first)]
    np.testing.assert_array_equal(both[0][:, 1:], both[1][:, 1:])
    assert np.isnan(both[1][:, 0]).all()


def test_seeds_that_were_not_run_are_left_out():
    samples = samples_of(np.random.default_rng(0), seeds=3)
    samples[4, 2] = np.nan
    np.testing.assert_allclose(resample_means(samples, 2000, 0)[:, 4].mean(), samples[4, :2].mean(), rtol=5e-3)


def test_seeds_are_drawn_jointly_for_all_depths():
    """A deviation that a seed has at all depths is in the mean at all depths, and in no difference between them."""
    offsets = 1 + 0.01 * np.random.default_rng(0).standard_normal((1, 8, 1))
    samples = law(DEPTHS, 2, 0.5, 1)[:, None, None] * offsets * np.ones((1, 1, 4))
    relative = resample_means(samples, 200, 0) / samples.mean((1, 2))
    np.testing.assert_allclose(relative, relative[:, :1] * np.ones(9), rtol=1e-12)
    assert relative[:, 0].std() == pytest.approx(offsets.std(ddof=1) / math.sqrt(8), rel=0.2)
    samples[3, 2:4] = np.nan  # and where some seeds are missing, the variance is still that of the rest
    one = resample_means(samples, 4000, 0)[:, 3] / np.nanmean(samples[3])
    assert one.std() == pytest.approx(np.delete(offsets.ravel(), [2, 3]).std(ddof=1) / math.sqrt(6), rel=0.05)


@pytest.mark.parametrize(("seeds", "least", "most"), [(2, 0.4, 0.85), (4, 0.6, 0.95), (12, 0.84, 1)])
def test_bootstrap_intervals_cover_the_truth_if_there_are_many_seeds(seeds, least, most):
    """In 150 trials 0.60 with 2 seeds, 0.77 with 4, 0.92 with 8; four standard deviations of the binomial each."""
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(80):
        resampled = resample_means(samples_of(rng, seeds, common=0.002), 100, 0)
        low, high = refit_rows(DEPTHS, resampled, None).interval("exponent")
        inside.append(low < 1 < high)
    assert least <= np.mean(inside) <= most


def noise_note(samples, floor=None):
    fit = fit_power_law(DEPTHS, samples.mean((1, 2)), floor=floor)
    residual = np.log(samples.mean((1, 2))) - np.log(fit.predict(DEPTHS))
    return lack_of_fit(residual, fit.log_derivatives(DEPTHS), samples)


@pytest.mark.parametrize("seeds", [2, 4])
def test_a_law_within_the_noise_of_seeds_and_contexts_fits(seeds):
    rng = np.random.default_rng(0)
    noted = [bool(noise_note(samples_of(rng, seeds, common=0.002))) for _ in range(150)]
    assert np.mean(noted) <= 0.04  # nominally 0.01


def test_a_law_that_misses_by_more_than_the_noise_is_noted():
    wave = 1 + 2e-3 * np.resize([1, -1, -1, 1], 9)[:, None, None]
    rng = np.random.default_rng(0)
    notes = [noise_note(wave * samples_of(rng, 2, run=3e-4, common=2e-4)) for _ in range(20)]
    assert all("times their noise" in note for note in notes)
    assert noise_note(wave * samples_of(rng, 1, run=3e-4, common=2e-4)) == ""  # one seed shows no noise of training
    assert noise_note(wave * samples_of(rng, 2, run=3e-4), floor=1.9) != ""


def test_the_derivatives_of_the_law():
    fit = fit_power_law(DEPTHS, noisy(np.random.default_rng(0), 1e-3, 2, 0.5, 1))
    parameters = np.array([fit.floor, fit.amplitude, fit.exponent])
    for i, column in enumerate(fit.log_derivatives(DEPTHS).T):
        step = 1e-6 * np.eye(3)[i]
        slope = (np.log(law(DEPTHS, *(parameters + step))) - np.log(law(DEPTHS, *(parameters - step)))) / 2e-6
        np.testing.assert_allclose(column, slope, rtol=1e-6, atol=1e-9)
    assert fit_power_law(DEPTHS, law(DEPTHS, 0, 2, 1), floor=0).log_derivatives(DEPTHS).shape == (9, 2)


def test_bootstrap_is_repeatable_and_checks_its_input():
    samples = samples_of(np.random.default_rng(0))
    one, two, other = (bootstrap_power_law(DEPTHS, samples, replicates=20, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.exponent, two.exponent)
    assert not np.array_equal(one.exponent, other.exponent)
    with pytest.raises(ValueError, match="three axes"):
        bootstrap_power_law(DEPTHS, samples[0])
    with pytest.raises(ValueError, match="loss holds -"):
        bootstrap_power_law(DEPTHS, -samples)
    with pytest.raises(ValueError, match="samples holds complex"):
        bootstrap_power_law(DEPTHS, samples + 0j)
    fixed = bootstrap_power_law(DEPTHS, samples, floor=1.9, replicates=20)
    assert fixed.interval("floor") == (1.9, 1.9)


# Cubes


@pytest.fixture
def cube():
    """(0, 0) follows a law with a gap, (1, 0.5) is flat; other pairs were never run. Deeper models train longer."""
    rng = np.random.default_rng(0)
    depths, steps = DEPTHS.astype(int), [100, 300, 700]
    coords = {"L": depths, "a": [0.0, 1.0], "b": [0.0, 0.5], "k": [2], "seed": [0, 1, 2]}
    sizes = tuple(len(values) for values in coords.values())
    dims = tuple(coords)
    data = {name: (dims, np.full(sizes, np.nan)) for name in ("loss", "shared_error")}
    data |= {f"{name}_block": ((*dims, "block"), np.full((*sizes, 256), np.nan)) for name in ("loss", "shared_error")}
    data["loss_by_step"] = ((*dims, "step"), np.full((*sizes, 3), np.nan))
    cube = xr.Dataset(data, {**coords, "step": steps, "block": np.arange(256)}, {"experiment": "made"})
    runs, blocks = 2e-4 * rng.standard_normal((9, 3, 1)), 0.01 * rng.standard_normal((1, 1, 256))
    blocks -= blocks.mean()
    loss = (law(DEPTHS, 2, 0.1, 1)[:, None, None] + 0.1 * runs) * (1 + blocks)
    shared = (2 - law(DEPTHS, 0, 0.05, 0.9)[:, None, None] + 0.1 * runs) * (1 + blocks)
    shared[0] = np.nan
    here = {"a": 0.0, "b": 0.0, "k": 2}
    cube["loss_block"].loc[here], cube["shared_error_block"].loc[here] = loss, shared
    cube["loss"].loc[here], cube["shared_error"].loc[here] = loss.mean(2), shared.mean(2)
    by_step = np.stack([2 + 0.1 * factor * (loss.mean(2) - 2) / 0.1 for factor in (1.5, 1.2, 1.0)], axis=2)
    by_step[0, :, 1:] = np.nan  # a single layer had stopped after the first round
    cube["loss_by_step"].loc[here] = by_step
    flat = {"a": 1.0, "b": 0.5, "k": 2}
    cube["loss_block"].loc[flat] = 1 + 1e-3 * rng.standard_normal((9, 3, 256))
    cube["loss"].loc[flat] = cube["loss_block"].sel(flat).mean("block")
    return cube


def only(frame, **where):
    for name, value in where.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def test_cube_is_fitted_curve_by_curve(cube):
    frame = fit_cube(cube, Fit(), replicates=100)
    assert list(frame.columns) == FIT_COLUMNS
    assert len(frame) == 4 + 1 + 1  # the loss at three steps and at the end, the gap, and the flat loss
    assert (frame["experiment"] == "made").all()
    loss = only(frame, a=0.0, quantity="loss", step="final")
    assert loss["determined"] and loss["reason"] == ""
    assert loss["exponent"] == pytest.approx(1, abs=0.02)
    assert loss["exponent_low"] < loss["exponent"] < loss["exponent_high"]
    assert loss["floor_low"] < loss["floor"] < loss["floor_high"]
    assert (loss["depth_min"], loss["depth_max"], loss["points"], loss["seeds"]) == (1, 256, 9, 3)
    expected = fit_power_law(DEPTHS, cube["loss"].sel(a=0, b=0, k=2).mean("seed"))
    assert loss["exponent"] == expected.exponent
    assert loss["misfit"] == ""
    flat = only(frame, a=1.0)
    assert not flat["determined"] and flat["reason"] and flat["misfit"] == ""


def test_a_law_that_misses_the_losses_of_a_cube_is_noted(cube):
    wave = xr.DataArray(1 + 5e-4 * np.resize([1, -1, -1, 1], 9), dims="L")
    for name in ("loss", "loss_block"):
        cube[name] = cube[name] * wave
    loss = only(fit_cube(cube, Fit(), replicates=10), a=0.0, quantity="loss", step="final")
    assert loss["determined"] and "times their noise" in loss["misfit"]


def test_gap_takes_its_floor_from_the_loss(cube):
    frame = fit_cube(cube, Fit(), replicates=100)
    loss, gap = only(frame, a=0.0, quantity="loss", step="final"), only(frame, quantity="shared_error_gap")
    assert gap["determined"]
    assert gap["exponent"] == pytest.approx(0.9, abs=0.03)
    assert gap["amplitude"] == pytest.approx(0.05, rel=0.05)
    assert gap["exponent_low"] < gap["exponent"] < gap["exponent_high"]
    for name in ("floor", "floor_se", "floor_low", "floor_high"):
        assert gap[name] == loss[name]
    assert gap["depth_min"] == 2 and gap["points"] <= 8


def test_gap_is_refused_where_it_drowns(cube):
    noise = 0.1 * np.random.default_rng(0).standard_normal((9, 3, 1))
    here = {"a": 0.0, "b": 0.0, "k": 2}
    cube["shared_error_block"].loc[here] = cube["shared_error_block"].sel(here).values + noise
    cube["shared_error"].loc[here] = cube["shared_error_block"].sel(here).mean("block")
    gap = only(fit_cube(cube, Fit(), replicates=50), quantity="shared_error_gap")
    assert not gap["determined"] and "above its noise" in gap["reason"]
    cube["loss"].loc[here] = 2.0
    gap = only(fit_cube(cube, Fit(), replicates=50), quantity="shared_error_gap")
    assert not gap["determined"] and gap["reason"].startswith("no L_0 from the loss: the loss is the same")


def test_training_lengths_keep_models_that_had_stopped(cube):
    frame = fit_cube(cube, Fit(), replicates=10)
    early, late = only(frame, step="100"), only(frame, step="700")
    assert early["points"] == late["points"] == 9
    assert early["amplitude"] == pytest.approx(0.15, rel=0.02)
    assert late["depth_min"] == 1
    assert math.isnan(early["exponent_low"]) and not math.isnan(early["exponent_se"])


def test_range_and_floor_come_from_the_settings(cube):
    frame = fit_cube(cube, Fit(floor="zero", min_depth=4, max_depth=64), replicates=10)
    assert "shared_error_gap" not in set(frame["quantity"])
    assert set(frame["depth_min"]) == {4} and set(frame["depth_max"]) == {64}
    assert (only(frame, a=0.0, step="final")["floor"]) == 0


def test_missing_depths_seeds_and_lost_losses(cube):
    here = {"a": 0.0, "b": 0.0, "k": 2}
    cube["loss"].loc[{**here, "L": 4}] = np.nan
    cube["loss_block"].loc[{**here, "L": 4}] = np.nan
    cube["loss"].loc[{**here, "L": 8, "seed": 0}] = np.nan
    cube["loss_block"].loc[{**here, "L": 8, "seed": 0}] = np.nan
    loss = only(fit_cube(cube, Fit(), replicates=50), a=0.0, quantity="loss", step="final")
    assert loss["determined"] and (loss["points"], loss["seeds"]) == (8, 2)
    assert loss["exponent_low"] < loss["exponent"] < loss["exponent_high"]
    cube["loss"].loc[{**here, "L": 16}] = 0.0
    loss = only(fit_cube(cube, Fit(), replicates=10), a=0.0, quantity="loss", step="final")
    assert not loss["determined"] and loss["reason"] == "the loss is not above 0 at depth 16"


def test_frame_survives_its_file(cube, tmp_path):
    frame = fit_cube(cube, Fit(), replicates=10)
    frame.to_csv(tmp_path / "fits.csv", index=False)
    again = pd.read_csv(tmp_path / "fits.csv", keep_default_na=True, dtype={"step": str}).fillna(
        {"reason": "", "misfit": ""}
    )
    pd.testing.assert_frame_equal(again, frame, check_dtype=False, rtol=1e-12)


def test_fits_do_not_need_torch():
    import subprocess
    import sys

    code = "import sys; sys.modules['torch'] = None; import inverse_depth.fits, inverse_depth.theory.polynomials"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_steep_law_over_deep_models_needs_no_loss_at_depth_one():
    """The amplitude is an extrapolation to L = 1: its error does not undo an exponent that the depths determine."""
    depth = np.array([8, 16, 32, 64])
    noise = np.array([0.1, -0.15, 0.05, 0.05])
    fit = fit_power_law(depth, 3 * depth**-2.3 * np.exp(noise), floor=0)
    assert fit.determined and abs(fit.exponent - 2.3) < 3 * fit.exponent_se
