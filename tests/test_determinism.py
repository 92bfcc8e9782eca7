"""The same seed gives the same file, and the number of threads changes no more than rounding."""

import subprocess
import sys

import numpy as np
import torch
from test_training import BRIEF, SMALL, train

from inverse_depth.config import Run
from inverse_depth.storage import read_dataset, write_dataset

# How a file was made, and nothing that decides a number.
TELLING = {"device", "seconds", "commit", "versions", "source"}

THREADS = 1e-5
"""Bound on relative differences of losses between one thread and two, after a brief training."""

AGAIN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_training import train
from inverse_depth.storage import write_dataset
write_dataset(train(Path(sys.argv[2])), Path(sys.argv[2]) / "run.nc")
"""


def test_the_same_seed_gives_the_same_bytes_but_for_listed_attributes(tmp_path):
    files = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        subprocess.run([sys.executable, "-c", AGAIN, __file__.rpartition("/")[0], folder], check=True)
        dataset = read_dataset(folder / "run.nc")
        assert set(dataset.attrs) >= TELLING
        plain = dataset.drop_attrs(deep=False).assign_attrs(
            {key: value for key, value in dataset.attrs.items() if key not in TELLING}
        )
        write_dataset(plain, folder / "plain.nc")
        files.append((folder / "plain.nc").read_bytes())
    assert files[0] == files[1]


def test_the_number_of_threads_changes_no_more_than_rounding(tmp_path):
    """Sizes at which PyTorch does share its work between threads."""
    experiment = SMALL.model_copy(update={"dimension": 16, "width": 16, "context_length": 64})
    recipe = BRIEF.model_copy(update={"batch_size": 64, "first_round": 20, "max_steps": 60})
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            run = Run("small", 16, 1.0, 0.5, 2, (0, 1))
            results.append(train(tmp_path / str(threads), experiment, recipe, run))
    finally:
        torch.set_num_threads(before)
    for name in ("validation_loss", "training_loss"):
        one, two = (result[name].values for result in results)
        assert np.abs(one / two - 1).max() < THREADS
