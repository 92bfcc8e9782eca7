"""Points per hour of models that train stacked, as replicas of one batched model, against one at a time.

    .venv/bin/python benchmarks/stacking.py

Each softmax model is that of the difficult task at the paper's size, (a, b) = (0, 0), trained for the longest time that
the recipe allows, on one core as a job does, or on a GPU where there is one. Writes results/bench/stacking.csv.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import torch
from steps import Case, ReducedStep, alternate

from inverse_depth.config import load_study

DEPTHS = (4, 16, 64)
REPLICAS = (1, 2, 4, 8)
STUDY = Path(__file__).parents[1] / "config/paper.yaml"


def main() -> None:
    """Time the steps of all numbers of replicas in turns, depth by depth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="single steps of small batches, to see that it works")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    chosen = parser.parse_args()
    study = load_study(STUDY)
    experiment = study.experiments["softmax_difficult"]
    recipe = study.training[experiment.training]
    batch = 8 if chosen.quick else recipe.batch_size
    turns: dict[str, float] = {"rounds": 1, "at_least": 0.002} if chosen.quick else {"at_least": 0.5}
    chosen.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for device in map(torch.device, ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]):
        for depth in DEPTHS:
            case = [
                Case("softmax", "controlled", "difficult", depth, 16, 16, 64, batch, replicas=count)
                for count in REPLICAS
            ]
            seconds = alternate([(ReducedStep(one, device), 1) for one in case], **turns)
            for count, step in zip(REPLICAS, seconds, strict=True):
                rows.append(
                    {
                        "device": device.type,
                        "L": depth,
                        "replicas": count,
                        "batch": batch,
                        "step_s": step,
                        "points_per_hour": 3600 * count / (step * recipe.max_steps),
                        "gain": count * seconds[0] / step,
                    }
                )
    table = pd.DataFrame(rows)
    table.to_csv(chosen.out / "stacking.csv", index=False)
    print(table.to_markdown(index=False, floatfmt=".3g"))


if __name__ == "__main__":
    main()
