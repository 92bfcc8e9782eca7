"""Kill training and the workflow at random moments, many times, and count what was lost.

    python benchmarks/kills.py --trainings 200 --workflows 30

Trainings are forked from a process that has imported torch, so that a kill costs no import; each saves a checkpoint
after every step. Workflows are whole Snakemake processes, killed with their jobs. Half of the kills are SIGKILL, half
SIGTERM. What must hold after every kill: what a file's name promises is whole; a checkpoint is never behind an earlier
one. What must hold in the end: the result equals, to the bit, that of a run which nobody disturbed.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from inverse_depth import checkpoints, progress
from inverse_depth.config import load_study
from inverse_depth.joblog import job_log
from inverse_depth.storage import read_dataset, write_dataset
from inverse_depth.training import train_run

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from checkout import Checkout, same

STUDY = """
study: toy
device: cpu
control_ratio: 1
training:
  toy: {parameters: merged, batch_size: 8, learning_rate: 0.01, warmup: 1, first_round: 20, max_steps: 60,
        tolerance: 1.0e-9}
experiments:
  softmax_difficult:
    {attention: softmax, task: difficult, training: toy, dimension: 4, width: 4, context_length: 16,
     evaluation_contexts: 256, grid: [{depths: [1, 2], spectra: [[0, 0]], target_sizes: [2], seeds: [[0], [1]]}]}
measurements: {selection: null, context_attention: null}
theory: {polynomial_depths: [1, 2], floors: {}}
"""


def start_training(folder: Path) -> int:
    """Fork a process that trains, or goes on training, in a folder; return its number."""
    if child := os.fork():
        return child
    status = 1
    try:
        with job_log(folder / "job.log", "train"):
            progress.LOG_SECONDS = 0.0  # a checkpoint after every step
            study = load_study(folder / "study.yaml")
            run = next(iter(study.runs("softmax_difficult").values()))
            experiment, recipe = study.experiments[run.experiment], study.training["toy"]
            write_dataset(train_run(experiment, recipe, run, checkpoint=folder / "run.pt"), folder / "run.nc")
            status = 0
    finally:
        os._exit(status)


def kill_trainings(kills: int, chance: random.Random, folder: Path) -> dict[str, int]:
    """Train again and again, each training killed several times, until there were enough kills."""
    torch.set_num_threads(1)
    count = dict.fromkeys(("SIGKILL", "SIGTERM", "trainings", "damaged", "behind", "not identical", "left over"), 0)
    calm = folder / "calm"
    calm.mkdir(parents=True)
    (calm / "study.yaml").write_text(STUDY)
    begun = time.monotonic()
    os.waitpid(start_training(calm), 0)
    length, expected = time.monotonic() - begun, read_dataset(calm / "run.nc")
    while count["SIGKILL"] + count["SIGTERM"] < kills:
        count["trainings"] += 1
        place, reached = folder / str(count["trainings"]), 0
        place.mkdir()
        (place / "study.yaml").write_text(STUDY)
        while not (place / "run.nc").exists():
            child = start_training(place)
            time.sleep(chance.uniform(0, 0.6 * length))
            number = chance.choice((signal.SIGKILL, signal.SIGTERM))
            os.kill(child, number)  # a process that has ended is still there to be waited for
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
                count[number.name] += 1
            if (place / "run.pt").exists():
                step = saved_step(place / "run.pt")
                count["damaged"] += step is None
                count["behind"] += step is not None and step < reached
                reached = step or 0
        count["not identical"] += not same(read_dataset(place / "run.nc"), expected)
        count["left over"] += len(list(place.glob(".*.tmp*")))
        print("trainings so far:", count, flush=True)
    return count


def saved_step(path: Path) -> int | None:
    """The step at which a checkpoint was made; None where it is damaged."""
    body = path.read_bytes()[len(checkpoints._MAGIC) + 32 :]
    identity = torch.load(io.BytesIO(body), weights_only=True)["identity"]
    state, _ = checkpoints.load(path, identity, torch.device("cpu"))
    return None if state is None else int(state["step"])


def kill_workflows(kills: int, chance: random.Random, folder: Path) -> dict[str, int]:
    """Run a small study again and again, killed with its jobs at random moments."""
    count = dict.fromkeys(("SIGKILL", "SIGTERM", "studies", "damaged", "trained again", "not identical"), 0)
    target = "results/toy/cubes/softmax_difficult.nc"
    while count["SIGKILL"] + count["SIGTERM"] < kills or not count["studies"]:
        place = folder / f"study{count['studies']}"
        place.mkdir(parents=True)
        checkout = Checkout(place)
        (place / "config/toy.yaml").write_text(STUDY)
        done: dict[Path, bytes] = {}
        while not (place / target).exists():
            process = checkout.start(target)
            time.sleep(chance.uniform(1.5, 20))
            number = chance.choice((signal.SIGKILL, signal.SIGTERM))
            ended = process.poll() is not None
            if not ended:
                os.killpg(process.pid, number)
                count[number.name] += 1
            process.wait()
            subprocess.run(checkout.command("--unlock"), cwd=place, env=checkout.environment, capture_output=True)
            for path in (place / "results/toy").rglob("*.nc"):
                if path.name.startswith("."):
                    continue
                try:
                    read_dataset(path)
                except OSError:
                    count["damaged"] += 1
            noted = {path: path.read_bytes() for path in (place / "results/toy/runs").rglob("L*.nc")}
            count["trained again"] += sum(noted.get(path) != content for path, content in done.items())
            done = noted
            print("workflows so far:", count, flush=True)
        count["studies"] += 1
        cube = read_dataset(place / target)
        if count["studies"] == 1:
            calm = folder / "calm"
            calm.mkdir()
            undisturbed = Checkout(calm)
            (calm / "config/toy.yaml").write_text(STUDY)
            undisturbed.start(target).wait()
            expected = read_dataset(calm / target)
        count["not identical"] += not same(cube, expected)
    return count


def main() -> None:
    """Kill as many times as asked, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=100, help="kills of trainings")
    parser.add_argument("--workflows", type=int, default=10, help="kills of workflows")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as folder:
        if chosen.trainings:
            print("trainings:", kill_trainings(chosen.trainings, chance, Path(folder) / "trainings"), flush=True)
        if chosen.workflows:
            print("workflows:", kill_workflows(chosen.workflows, chance, Path(folder) / "workflows"), flush=True)


if __name__ == "__main__":
    main()
