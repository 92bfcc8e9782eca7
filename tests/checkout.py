"""A copy of the project with a study of toy size, for tests that run the real workflow."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

DECIDE_NOTHING = ("device", "seconds", "commit", "versions", "source", "training_commits")
"""Attributes that tell how a file was made; all else is the same for the same seed."""

TOY = """
study: toy
device: cpu
control_ratio: 4
training:
  toy: {parameters: merged, batch_size: 8, learning_rate: 0.01, warmup: 1, first_round: 2, max_steps: 6, tolerance: 0.5}
  single_stream: {batch_size: 8, warmup: 1, first_round: 2, max_steps: 6, tolerance: 0.5}
experiments:
  linear_easy:
    {training: toy, dimension: 4, width: 4, evaluation_contexts: 256, fit: {min_depth: 1},
     grid: [{depths: [1, 2], spectra: [[2, 1]], seeds: [[0]]}]}
  linear_difficult:
    {training: toy, dimension: 4, width: 4, context_length: 16, evaluation_contexts: 256,
     grid: [{depths: [1], spectra: [[0, 0]], target_sizes: [2], seeds: [[0]]}]}
  softmax_easy:
    {training: toy, dimension: 4, width: 4, context_length: 16, evaluation_contexts: 256,
     grid: [{depths: [1], spectra: [[0, 0]], seeds: [[0]]}]}
  softmax_difficult:
    {training: toy, dimension: 4, width: 4, context_length: 16, evaluation_contexts: 256,
     grid: [{depths: [1, 2], spectra: [[0, 0]], target_sizes: [2], seeds: [[0, 1]]}]}
  decoupled_values: &one
    {training: toy, dimension: 4, width: 4, context_length: 16, evaluation_contexts: 256,
     grid: [{depths: [2], spectra: [[0, 0]], target_sizes: [2], seeds: [[0]]}]}
  single_stream: {<<: *one, training: single_stream}
  context_updates:
    {training: toy, dimension: 4, width: 4, context_length: 16, evaluation_contexts: 256,
     grid: [{depths: [2], spectra: [[0, 0]], target_sizes: [2, 16], seeds: [[0]]}]}
  linear_matched: *one
  softmax_large: *one
measurements:
  selection: {depths: [1, 2], contexts: 100}
  context_attention: {contexts: 16}
theory:
  polynomial_depths: [1, 2]
  floors:
    linear_floor: &floor {dimension: 4, context_length: 16, contexts: 256, spectra: [[0, 0]], target_sizes: [2]}
    linear_floor_matched: *floor
"""


def same(one, other):
    """Whether two files agree to the bit in all that decides something; wall times are no part of that."""
    strip = [
        dataset.assign_attrs(dict.fromkeys(DECIDE_NOTHING, "")).drop_vars("seconds", errors="ignore")
        for dataset in (one, other)
    ]
    return strip[0].identical(strip[1])


class Checkout:
    """A copy of the project that may be edited, with a study of its own."""

    def __init__(self, root):
        self.root = root
        files = ("Snakefile", "environment.yml", "requirements.lock", "CITATION.cff", "LICENSE")
        for name in (*files, "workflow", "config", "local", "src"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, root / name)
        (root / "config/toy.yaml").write_text(TOY)

    @property
    def environment(self):
        return os.environ | {"PYTHONPATH": str(self.root / "src")}

    def command(self, *arguments, layers=("config/toy.yaml",)):
        """Return the command that runs Snakemake on the toy study, with more layers of configuration over it."""
        return [sys.executable, "-m", "snakemake", *arguments, "--profile", "local", "--configfile", *layers]

    def snakemake(self, *arguments, override=None, prefix=()):
        """Run Snakemake on the toy study, with another layer of configuration over it where one is given."""
        layers = ["config/toy.yaml"]
        if override:
            (self.root / "config/override.yaml").write_text(override)
            layers.append("config/override.yaml")
        command = [*prefix, *self.command(*arguments, layers=layers)]
        return subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, text=True)

    def start(self, *arguments):
        """Start Snakemake on the toy study, in a process group that its jobs belong to; it writes to snakemake.log."""
        with open(self.root / "snakemake.log", "w") as log:
            return subprocess.Popen(
                self.command(*arguments),
                cwd=self.root,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def plan(self, override=None, target="all"):
        """Return how many jobs of each rule a run would start."""
        done = self.snakemake(target, "--dry-run", override=override)
        assert done.returncode == 0, done.stderr
        table = re.search(r"Job stats:\njob +count\n[- ]+\n(.*?)\ntotal", done.stdout + done.stderr, re.DOTALL)
        if table is None:
            assert "Nothing to be done" in done.stdout + done.stderr
            return {}
        jobs = {name: int(count) for name, count in (line.split() for line in table.group(1).splitlines())}
        return {name: count for name, count in jobs.items() if name != target}

    def plan_after(self, file, addition):
        """Return the plan after lines were added to a file of the package; they are then taken out again."""
        path = self.root / "src/inverse_depth" / file
        before, status = path.read_text(), path.stat()
        try:
            path.write_text(f"{before}\n{addition}\n")
            return self.plan()
        finally:
            path.write_text(before)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
