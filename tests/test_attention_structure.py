import numpy as np
import pytest
import xarray as xr

from inverse_depth.attention_structure import identity_share, selection_percentiles


def selection_losses(values, depths):
    coords = {"L": list(depths), "seed": np.arange(values.shape[1])}
    return xr.DataArray(values, coords, ("L", "seed", "context"))


def test_the_share_of_the_identity_is_recovered():
    share = np.array([0.0, 0.0989, 0.9999, 1.0, -0.2])
    matrices = share[:, None, None] * np.eye(7) + (1 - share[:, None, None]) / 7
    rho, residual = identity_share(matrices)
    np.testing.assert_allclose(rho, share, atol=1e-15)
    np.testing.assert_allclose(residual, 0, atol=1e-15)


def test_what_the_two_matrices_do_not_span_is_residual():
    # An antisymmetric circulant: no trace, rows and columns that sum to zero.
    shift = np.roll(np.eye(5), 1, axis=1)
    extra = 0.03 * (shift - shift.T)
    rho, residual = identity_share(0.4 * np.eye(5) + 0.6 / 5 + extra)
    assert rho.shape == residual.shape == ()
    assert rho == pytest.approx(0.4) and residual == pytest.approx(0.03 * np.sqrt(2 / 5))


def test_the_share_is_the_least_squares_one():
    matrices = np.random.default_rng(0).dirichlet(np.ones(6), size=(2, 3, 6))
    rho, residual = identity_share(matrices)
    uniform = np.full((6, 6), 1 / 6)
    for place in np.ndindex(2, 3):
        column = (np.eye(6) - uniform).reshape(-1, 1)
        best, squares, *_ = np.linalg.lstsq(column, (matrices[place] - uniform).ravel(), rcond=None)
        assert rho[place] == pytest.approx(best[0])
        assert residual[place] == pytest.approx(np.sqrt(squares[0] / 36))


def test_percentiles_of_a_known_law():
    contexts, levels = 10_000, np.array([5, 50, 95])
    # Evenly spaced numbers in an order of each depth's own: uniform, with no gap wider than another.
    rng, uniform = np.random.default_rng(1), (np.arange(contexts) + 0.5) / contexts
    losses = np.stack([2 * rng.permutation(uniform), rng.permutation(uniform)])[:, None]
    found = selection_percentiles(selection_losses(losses, (1, 256)), levels, seed=0, replicates=1000)
    q = levels / 100
    # The quantile of n uniform numbers has the variance q (1 - q) / n.
    exact = np.sqrt(q * (1 - q) / contexts)
    for depth, width in ((1, 2), (256, 1)):
        np.testing.assert_allclose(found["selection_loss"].sel(L=depth), width * q, atol=width / contexts)
        np.testing.assert_allclose(found["selection_loss_se"].sel(L=depth), width * exact, rtol=0.08)
    np.testing.assert_allclose(found["difference"], q, atol=3 / contexts)
    np.testing.assert_allclose(found["difference_se"], np.sqrt(5) * exact, rtol=0.08)
    assert found.attrs == {"contexts": contexts, "seeds": 1}
    assert found["percentile"].values.tolist() == [5, 50, 95]


def test_what_both_depths_share_leaves_the_difference():
    hardness = np.random.default_rng(2).random(1000)
    losses = np.stack([hardness + 0.1, hardness])[:, None]
    # The deepest comes first in the file: the order of the depths must not matter.
    found = selection_percentiles(selection_losses(losses[::-1], (256, 1)), [10, 90], seed=0)
    np.testing.assert_allclose(found["difference"], 0.1)
    np.testing.assert_allclose(found["difference_se"], 0, atol=1e-12)
    assert (found["selection_loss_se"] > 0.005).all()


def test_the_spread_between_seeds_is_an_error():
    base = np.random.default_rng(3).random(1000)
    offsets = np.array([0.0, 0.3, 0.6])
    losses = np.stack([base + offsets[:, None], np.broadcast_to(base, (3, 1000))])
    found = selection_percentiles(selection_losses(losses, (1, 256)), [50], seed=0)
    of_seeds = 0.3 / np.sqrt(3)
    contexts = found["selection_loss_se"].sel(L=256)
    np.testing.assert_allclose(found["selection_loss"].sel(L=1), np.percentile(base, 50) + 0.3)
    np.testing.assert_allclose(found["selection_loss_se"].sel(L=1), np.hypot(of_seeds, contexts), rtol=1e-6)
    np.testing.assert_allclose(found["difference_se"], of_seeds, rtol=1e-6)


def test_the_bootstrap_is_reproducible():
    losses = selection_losses(np.random.default_rng(4).random((2, 2, 100)), (1, 8))
    xr.testing.assert_identical(
        selection_percentiles(losses, [50], seed=5), selection_percentiles(losses, [50], seed=5)
    )
    other = selection_percentiles(losses, [50], seed=6)
    assert (other["difference_se"] != selection_percentiles(losses, [50], seed=5)["difference_se"]).all()


def test_one_depth_has_no_difference():
    with pytest.raises(ValueError, match="has 1 depths"):
        selection_percentiles(selection_losses(np.ones((1, 1, 4)), (1,)), [50], seed=0)
