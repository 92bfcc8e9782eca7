"""CPU against GPU, and float32 against float64: training and evaluation differ by rounding alone.

A GPU's generator draws other contexts than a CPU's, so that its losses differ from a CPU's as those of another sample
do. Here all meet the contexts and the initial weights that the CPU draws; what is left is rounding.
"""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from test_training import BRIEF, SMALL

from inverse_depth import contexts, evaluation, training
from inverse_depth.config import Run
from inverse_depth.evaluation import evaluate
from inverse_depth.models.base import build_model
from inverse_depth.training import train_run

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU here"))

D, P, STEPS = 16, 64, 20
BOUND = 4 * np.sqrt(P + 2 * D) * 2.0**-24
"""Bound on relative differences of losses, 2.3e-6.

Rounding errors of a float32 sum of n terms add up like a random walk, to about sqrt(n) u of the sum of their sizes,
with u = 2^-24 and in any order. The sums of one layer run over the d components of a score, the P tokens of a softmax
and the d components of the residual v: n = P + 2d. The loss is a mean of |v|^2, with v = f - t and f and t about as
long as v: four such errors. Adam's steps do not grow with the gradient, so rounding shifts a parameter by about
sqrt(n) u of the way it went, which is at most STEPS times the learning rate, 0.4: no more than the loss's own error.
"""


def meet(monkeypatch, place="cpu", dtype=torch.float32, change=lambda value: value):
    """Have training and evaluation meet what the CPU draws in float32, moved to a device and a precision."""

    def move(value):
        if value is None or not value.is_floating_point():
            return value if value is None else value.to(place)
        return change(value.contiguous()).to(place, dtype)

    def sample(*arguments, dtype=None, **options):
        drawn = contexts.sample_contexts(*arguments, **options)
        return dataclasses.replace(drawn, **{f.name: move(getattr(drawn, f.name)) for f in dataclasses.fields(drawn)})

    for module in (training, evaluation):
        monkeypatch.setattr(module, "generator", lambda *stream: contexts.generator(*stream[:3]))
        monkeypatch.setattr(module, "sample_contexts", sample)
        monkeypatch.setattr(module, "sample_teachers", lambda *drawn: move(contexts.sample_teachers(*drawn)))
    monkeypatch.setattr(training, "build_model", lambda spec, seeds, dtype: build_model(spec, seeds).to(dtype))


def by_threes(_, contexts):
    """Another cut of a batch, and with it another order of sums."""
    return (contexts.part(start, start + 3) for start in range(0, len(contexts), 3))


def ten_bits(value):
    """Round as tensor cores do in TF32."""
    return ((value.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def experiment(attention):
    sizes = {"dimension": D, "width": D, "context_length": P, "evaluation_contexts": 1024}
    return SMALL.model_copy(update={"attention": attention, **sizes})


def train(folder, attention, device="cpu", precision="float32"):
    recipe = BRIEF.model_copy(update={"first_round": STEPS, "max_steps": STEPS, "precision": precision})
    run, checkpoint = Run("small", 4, 1.0, 0.5, 2, (0, 1)), folder / f"{device}-{precision}.pt"
    return train_run(experiment(attention), recipe, run, checkpoint=checkpoint, device=device, log=lambda line: None)


def difference(one, other, *names):
    return max(float(np.abs(one[name] / other[name] - 1).max()) for name in names)


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize("other", ["float64", "another order", GPU])
def test_the_first_steps_of_training_differ_by_rounding(tmp_path, monkeypatch, attention, other):
    meet(monkeypatch)
    one = train(tmp_path / "one", attention)
    if other == "float64":
        meet(monkeypatch, dtype=torch.float64)
        two = train(tmp_path / "two", attention, precision="float64")
    elif other == "another order":
        monkeypatch.setattr(training, "parts", by_threes)
        two = train(tmp_path / "two", attention)
    else:
        meet(monkeypatch, "cuda")
        two = train(tmp_path / "two", attention, device="cuda")
    assert 0 < difference(one, two, "training_loss", "validation_loss") < BOUND


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_the_bound_would_notice_a_coarser_arithmetic(tmp_path, monkeypatch, attention):
    meet(monkeypatch)
    one = train(tmp_path / "one", attention)
    meet(monkeypatch, change=ten_bits)
    assert difference(one, train(tmp_path / "two", attention), "training_loss", "validation_loss") > BOUND


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize("other", ["another order", GPU])
def test_an_evaluation_differs_by_rounding(tmp_path, monkeypatch, attention, other):
    meet(monkeypatch)
    run, place = train(tmp_path, attention), "cpu"
    one = evaluate([run], None, experiment(attention), a=1.0, b=0.5, k=2, device="cpu")
    if other == "another order":
        monkeypatch.setattr(evaluation, "parts", by_threes)
    else:
        place = "cuda"
        meet(monkeypatch, place)
    two = evaluate([run], None, experiment(attention), a=1.0, b=0.5, k=2, device=place)
    assert difference(one, two, "loss", "loss_by_step") < BOUND


HELD = """
from pathlib import Path
import torch
from inverse_depth.devices import prepare_device
prepare_device("cpu")
held = lambda: 4096 / 2**20 * int(Path("/proc/self/statm").read_text().split()[1])
before = held()
arrays = [torch.ones(2**20) for _ in range(8)]
del arrays
print(held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
@pytest.mark.parametrize(("environment", "least", "most"), [({}, 30, 40), ({"MALLOC_MMAP_THRESHOLD_": "100000"}, 0, 5)])
def test_a_process_keeps_the_memory_of_freed_arrays_unless_the_environment_says_otherwise(environment, least, most):
    code, inherited = HELD, {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    out = subprocess.run([sys.executable, "-c", code], env=inherited | environment, capture_output=True, check=True)
    assert least < float(out.stdout) < most, "MiB of 32 that were freed"
