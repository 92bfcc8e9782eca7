"""Measurements on trained models, against their definitions on the same contexts."""

import numpy as np
import pytest
import torch
from test_evaluation import trained
from test_training import BRIEF, CPU, SMALL

from inverse_depth.config import ContextAttention, Run, Selection
from inverse_depth.contexts import Family, generator, sample_contexts
from inverse_depth.measurements import context_attention_dataset, selection_dataset
from inverse_depth.runs import load_model

POINT = {"experiment": "small", "spectrum": (0.0, 0.0)}


def test_selection_is_measured_on_contexts_common_to_both_depths(tmp_path):
    runs = trained(
        tmp_path, SMALL, [Run("small", depth, 0.0, 0.0, 2, seeds) for depth in (1, 3) for seeds in ((0, 1), (2,))]
    )
    settings = Selection(**POINT, target_size=2, depths=[1, 3], contexts=500)
    measured = selection_dataset(runs, SMALL, settings, device="cpu")
    contexts = sample_contexts(Family("difficult", 4, 12, 2, 0.0), 500, [generator("selection", 0, 0)])
    ideal = torch.zeros(1, 500, 12).scatter(2, contexts.selected, 0.5)
    medians = []
    for run in runs[:2]:
        model = load_model(run, int(run["step"][-1]), CPU)
        with torch.no_grad():
            medians += (model.mean_attention(contexts) - ideal).square().sum(-1).median(1).values.tolist()
    at_half = measured["selection_loss"].sel(L=1, percentile=50)
    assert abs(float(at_half) - np.mean(medians)) < 1e-2 * np.mean(medians)
    difference = measured["selection_loss"].sel(L=1) - measured["selection_loss"].sel(L=3)
    np.testing.assert_allclose(measured["difference"], difference)


def test_context_attention_of_every_target_size(tmp_path):
    experiment = SMALL.model_copy(update={"variant": "context_updates"})
    runs = trained(
        tmp_path, experiment, [Run("small", 2, 0.0, 0.0, k, seeds) for k in (3, 2) for seeds in ((0, 1), (2,))], BRIEF
    )
    measured = context_attention_dataset(
        runs, experiment, ContextAttention(**POINT, depth=2, contexts=40), device="cpu"
    )
    assert measured["k"].values.tolist() == [2, 3]
    assert measured["converged"].values.tolist() == [0, 0]  # a tolerance that nothing meets
    np.testing.assert_allclose(measured["attention"].sum("token"), 1, rtol=1e-6)
    contexts = sample_contexts(Family("difficult", 4, 12, 2, 0.0), 40, [generator("context attention", 0, 0)])
    shares = []
    for run in runs[2:]:
        model = load_model(run, int(run["step"][-1]), CPU)
        with torch.no_grad():
            a = model.context_attention(contexts, 0).double()
        # the least-squares solution, by its normal equation
        x = torch.eye(12, dtype=torch.float64) - 1 / 12
        shares += ((a - 1 / 12) * x).sum((2, 3)).div((x * x).sum()).mean(1).tolist()
    assert float(measured["rho"].sel(k=2)) == pytest.approx(np.mean(shares), rel=1e-6)
    assert float(measured["rho_se"].sel(k=2)) > np.std(shares, ddof=1) / np.sqrt(3)
