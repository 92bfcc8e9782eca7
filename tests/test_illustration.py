import numpy as np
import pytest
import xarray as xr

from inverse_depth.illustration import illustration_dataset
from inverse_depth.storage import read_dataset, write_dataset


@pytest.fixture(scope="module")
def contexts():
    return illustration_dataset(3)


def test_labels_and_targets_follow_their_definitions(contexts):
    np.testing.assert_allclose(contexts["labels"], contexts["tokens"] @ contexts["teacher"])
    assert contexts["selected"].sum("token").to_numpy().tolist() == [1, 2]
    mean = (contexts["labels"] * contexts["selected"]).sum("token") / contexts["selected"].sum("token")
    np.testing.assert_allclose(contexts["target"], mean)
    np.testing.assert_allclose(contexts["target_input"] @ contexts["teacher"], contexts["target"])


def test_the_easy_query_is_a_token_and_the_difficult_one_is_not(contexts):
    same = (contexts["tokens"] == contexts["query"]).all("component")
    xr.testing.assert_equal(same.sel(task="easy", drop=True), contexts["selected"].sel(task="easy", drop=True) == 1)
    assert not same.sel(task="difficult").any()


def test_the_selected_tokens_have_the_largest_cosines(contexts):
    context = contexts.sel(task="difficult")
    cosine = context["tokens"] @ context["query"] / np.sqrt((context["tokens"] ** 2).sum("component"))
    chosen = context["selected"] == 1
    assert cosine.where(chosen).min() > cosine.where(~chosen).max()


def test_the_predictable_part_is_the_conditional_mean(contexts):
    # |x| and the cosines are independent: t_bar = E|x| E[mean of the two largest of 8 cosines] along the query
    rng = np.random.default_rng(0)
    cosines = np.cos(rng.uniform(0, 2 * np.pi, (200_000, 8)))
    expected = np.sqrt(np.pi / 2) * np.sort(cosines, axis=1)[:, -2:].mean()
    query, mean = contexts["query"].sel(task="difficult").to_numpy(), contexts["predictable_part"].to_numpy()
    along = query / np.linalg.norm(query)
    np.testing.assert_allclose(mean, expected * along, atol=5 * float(contexts["predictable_part_se"].max()))
    power = float(contexts["target_power"])
    np.testing.assert_allclose(power, float(contexts["residual_power"]) + mean @ mean)


def test_the_approximation_of_many_dimensions(contexts):
    # gamma_{8,2} = 1.138, the mean of the order statistics 1.4236 and 0.8522; tr Sigma^2 = 2
    assert float(contexts["coefficient"]) == pytest.approx((1.4236 + 0.8522) / 2 / np.sqrt(2), abs=1e-4)
    query = contexts["query"].sel(task="difficult")
    np.testing.assert_allclose(contexts["approximate_part"], contexts["coefficient"] * query)


def test_a_seed_gives_the_same_file(contexts, tmp_path):
    write_dataset(contexts, tmp_path / "one.nc")
    write_dataset(illustration_dataset(3), tmp_path / "two.nc")
    assert (tmp_path / "one.nc").read_bytes() == (tmp_path / "two.nc").read_bytes()
    assert not np.allclose(read_dataset(tmp_path / "one.nc")["tokens"], illustration_dataset(4)["tokens"])
    assert all(variable.attrs["long_name"] for variable in contexts.variables.values())
