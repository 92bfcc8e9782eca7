import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inverse_depth.spectra import (
    participation_ratio,
    power_law_spectrum,
    spectral_exponent,
    spectrum_dataset,
    stable_rank,
)


def test_eigenvalues_are_powers_of_the_mode_number():
    np.testing.assert_allclose(power_law_spectrum(4, 0.5), [1, 2**-0.5, 3**-0.5, 0.5], rtol=1e-15)


@pytest.mark.parametrize(
    ("dimension", "exponent", "message"),
    [(0, 1, "dimension is 0"), (4, -0.1, "exponent is -0.1"), (4, math.nan, "exponent is nan"), (4, math.inf, "inf")],
)
def test_impossible_spectra_are_refused(dimension, exponent, message):
    with pytest.raises(ValueError, match=message):
        power_law_spectrum(dimension, exponent)


@pytest.mark.parametrize(
    ("a", "b", "zeta"), [(2, 0.5, 0.75), (2, 2, 1.5), (0.5, 2, 3.0), (1.5, 2, 5 / 3), (0.5, 0.25, -0.5)]
)
def test_spectral_exponent(a, b, zeta):
    assert spectral_exponent(a, b) == pytest.approx(zeta)


def test_isotropic_inputs_have_no_spectral_exponent():
    assert math.isnan(spectral_exponent(0, 1))


@given(st.integers(1, 300), st.floats(0, 8))
def test_effective_dimensions_lie_between_one_and_d(dimension, exponent):
    values = power_law_spectrum(dimension, exponent)
    for measure in (participation_ratio, stable_rank):
        assert 1 - 1e-12 <= measure(values) <= dimension * (1 + 1e-12)
        assert measure(7 * values) == pytest.approx(measure(values))


def test_effective_dimensions_of_known_spectra():
    assert participation_ratio(np.ones(9)) == stable_rank(np.ones(9)) == 9
    assert participation_ratio(np.array([2.0, 1.0])) == pytest.approx(9 / 5)
    assert stable_rank(np.array([2.0, 1.0])) == pytest.approx(3 / 2)


def test_dataset_is_complete_and_described():
    dataset = spectrum_dataset(16, 1.0, 0.5)
    assert dict(dataset.sizes) == {"mode": 16}
    assert dataset["mode"].values.tolist() == list(range(1, 17))
    assert float(dataset["target_power"]) == pytest.approx(sum(k**-1.5 for k in range(1, 17)))
    assert float(dataset["spectral_exponent"]) == 0.5
    assert float(dataset["input_stable_rank"]) == pytest.approx(sum(1 / k for k in range(1, 17)))
    assert float(dataset["teacher_participation_ratio"]) > float(dataset["input_participation_ratio"])
    assert (float(dataset["a"]), float(dataset["b"])) == (1.0, 0.5)
    for variable in dataset.variables.values():
        assert variable.attrs["long_name"] and variable.attrs["units"] == "1"
    assert all(variable.attrs["equation"] for variable in dataset.data_vars.values())
