"""Training steps of many sizes, the paper's formulation beside what training uses, in one run (docs/performance.md).

    make bench
    .venv/bin/python benchmarks/suite.py --quick

Writes bench.csv, bench.md, bench.png and bench.pdf under results/bench/. Every measurement is a process of its own, so
that none meets another's memory or threads. With --quick the cases are cut to toy size: a check that all of it works.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import psutil
import torch
from costs import gflop, machine, peak_mib, traffic
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from steps import Apart, Case, LiteralStep, ReducedStep, alternate

from inverse_depth.figures.panels import PAGE_WIDTH, looks, save, styled

CASES = [
    # attention, variant, task, L, d, N, P, batch
    *(Case("softmax", "controlled", "difficult", depth, 16, 16, 64, 256) for depth in (1, 16, 64, 256, 1024)),
    Case("softmax", "controlled", "difficult", 64, 16, 16, 64, 64),
    *(Case("softmax", "controlled", "difficult", 64, 16, 16, length, 256) for length in (256, 1024)),
    *(Case("softmax", "controlled", "difficult", depth, 16, 16, 64, 256, a=1.0) for depth in (16, 64)),
    Case("softmax", "controlled", "difficult", 1024, 16, 16, 64, 256, replicas=4),
    *(
        Case("linear", "controlled", "difficult", depth, 128, 128, length, 16)
        for length, depth in itertools.product((256, 1024, 4096), (1, 4, 16, 32))
    ),
    Case("linear", "controlled", "difficult", 16, 128, 128, 1024, 4),
    *(Case("linear", "controlled", "easy", 16, 128, 128, length, 4, a=2.0) for length in (256, 1024, 4096)),
    Case("softmax", "decoupled_values", "difficult", 64, 16, 16, 64, 256),
    Case("softmax", "single_stream", "difficult", 16, 16, 32, 64, 128),
    Case("softmax", "context_updates", "difficult", 16, 16, 16, 64, 64),
]

SYMBOLS = {"depth": "L", "context_length": "P", "dimension": "d", "width": "N", "target_size": "k"}
"""Columns of bench.csv that are not named like the fields of a case."""

MARKDOWN = {
    "attention": "attention",
    "variant": "variant",
    "task": "task",
    "a": "a",
    "L": "L",
    "P": "P",
    "batch": "batch",
    "replicas": "seeds",
    "literal_ms": "literal, ms",
    "literal_batch": "its batch",
    "ours_ms": "ours, ms",
    "ratio": "ratio",
    "one_core_ratio": "on one core",
    "sampling_share": "sampling",
    "one_core_sampling_share": "sampling, one core",
    "peak_mib": "MiB",
    "gflop": "GFLOP",
    "literal_gflop": "literal",
    "matmul_share": "of matmul",
    "bandwidth_share": "of bandwidth",
}
"""Columns of bench.md and their headings."""

Result = TypeVar("Result")


def alone(measure: Callable[..., Result], *arguments: Any) -> Result | None:
    """The outcome of a function in a fresh process, or None where the process was killed or ran out of memory."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["inverse_depth.figures.panels", "inverse_depth.training", "torch.utils.benchmark"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(measure, *arguments).result()
        except (BrokenProcessPool, MemoryError, torch.OutOfMemoryError):
            return None


def literal_batch(case: Case, device: torch.device) -> int:
    """The largest batch, up to the case's own, whose literal step fits half of the memory that is free; may be 0.

    What a layer keeps for its gradient is at most two arrays over pairs of tokens and ten over tokens.
    """
    pairs, tokens = (case.context_length + 1) ** 2, (case.context_length + 1) * case.width
    context = 4 * (case.depth * (2 * pairs + 10 * tokens) + 4 * pairs)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    return min(case.batch, free // 2 // context)


def measure_times(case: Case, batch: int, device: torch.device, turns: dict[str, float]) -> dict[str, float]:
    """Seconds of a literal step of ``batch`` contexts, of ours, of ours on one core, and of each of its stages."""
    cores, ours = torch.get_num_threads(), ReducedStep(case, device)
    contexts, teachers = ours.sample()
    ours.gradient(contexts, teachers)
    ways: dict[str, tuple[Callable[[], object] | Apart, int]] = {
        "ours_s": (ours, cores),
        "sampling_s": (ours.sample, cores),
        "forward_s": (lambda: ours.forward(contexts, teachers), cores),
        "gradient_s": (lambda: ours.gradient(contexts, teachers), cores),
        "update_s": (ours.update, cores),
    }
    if device.type == "cpu":
        ways["one_core_s"] = (ours, 1)
        ways["one_core_sampling_s"] = (ours.sample, 1)
    if batch:
        ways["literal_s"] = (Apart(LiteralStep, case, batch, device), cores)
    seconds = dict(zip(ways, alternate(list(ways.values()), **turns), strict=True))
    seconds["backward_s"] = seconds.pop("gradient_s") - seconds["forward_s"]
    return seconds | {"threads": cores}


def measure_costs(case: Case, device: torch.device) -> dict[str, float]:
    """Memory that our model and its step take, products and traffic."""
    ReducedStep(toy(case), device)()  # the libraries are now in memory
    idle, step = peak_mib(device), ReducedStep(case, device)
    for _ in range(3):
        step()
    peak = peak_mib(device)
    return {"idle_mib": idle, "peak_mib": peak - idle, "gflop": gflop(step), "gigabytes": traffic(step)}


def measure_literal_costs(case: Case, batch: int, device: torch.device) -> dict[str, float]:
    """Memory that the literal model and its step take; products of one context, times the contexts of the case."""
    LiteralStep(toy(case), 1, device)()
    idle = peak_mib(device)
    LiteralStep(case, batch, device)()
    peak, count = peak_mib(device), case.batch * case.replicas
    return {"literal_peak_mib": peak - idle, "literal_gflop": count * gflop(LiteralStep(case, 1, device))}


def measure(case: Case, device: torch.device, best: tuple[float, float], turns: dict[str, float]) -> dict[str, Any]:
    """One row of the table; what the literal model could not do is missing from it."""
    batch = literal_batch(case, device)
    costs = alone(measure_literal_costs, case, batch, device) if batch else None
    batch = 0 if costs is None else batch
    row: dict[str, Any] = {SYMBOLS.get(name, name): value for name, value in dataclasses.asdict(case).items()}
    row |= {"device": device.type, "literal_batch": batch} | (costs or {})
    row |= alone(measure_costs, case, device) or {}
    row |= alone(measure_times, case, batch, device, turns) or {}
    matmul, bandwidth = best
    row |= {"matmul_gflops": matmul, "bandwidth_gbs": bandwidth}
    if "ours_s" in row:
        row["sampling_share"] = row["sampling_s"] / row["ours_s"]
        row["matmul_share"] = row["gflop"] / row["ours_s"] / matmul
        row["bandwidth_share"] = row["gigabytes"] / row["ours_s"] / bandwidth
    if "literal_s" in row:
        context = row["literal_s"] / batch
        row["ratio"] = context * case.batch * case.replicas / row["ours_s"]
        row["literal_matmul_share"] = row["literal_gflop"] / (case.batch * case.replicas) / context / matmul
    if "one_core_s" in row:
        row["one_core_sampling_share"] = row["one_core_sampling_s"] / row["one_core_s"]
        row["one_core_ratio"] = row.get("ratio", float("nan")) * row["ours_s"] / row["one_core_s"]
    return row


def toy(case: Case) -> Case:
    """The case at a size that costs nothing."""
    return dataclasses.replace(
        case,
        depth=min(case.depth, 4),
        dimension=min(case.dimension, 16),
        width=min(case.width, 32),
        context_length=min(case.context_length, 64) // (1 if case.context_length > 256 else 2),
        batch=min(case.batch, 4),
    )


def markdown(table: pd.DataFrame) -> str:
    """The table for readers, a section for each device."""
    sections = []
    for device, rows in table.groupby("device", sort=False):
        first = rows.iloc[0]
        rows = rows.assign(literal_ms=1e3 * rows["literal_s"], ours_ms=1e3 * rows["ours_s"])
        shown = rows.reindex(columns=list(MARKDOWN)).rename(columns=MARKDOWN)
        shares = [MARKDOWN[name] for name in MARKDOWN if name.endswith("_share")]
        shown[shares] = shown[shares].map(lambda share: f"{share:.0%}", na_action="ignore")
        shown = shown.map(lambda value: f"{value:.3g}" if isinstance(value, float) and value < 100 else value)
        shown = shown.map(lambda value: f"{value:.0f}" if isinstance(value, float) else value).replace("nan", "")
        sections.append(
            f"{device}, {first['threads']:.0f} threads: {first['matmul_gflops']:.0f} GFLOP/s in a large product, "
            f"{first['bandwidth_gbs']:.0f} GB/s in a copy.\n\n{shown.to_markdown(index=False, disable_numparse=True)}"
        )
    return "\n\n".join(sections) + "\n"


@styled
def draw(table: pd.DataFrame) -> Figure:
    """How many times faster than the paper's formulation, against depth and against context length."""
    figure = Figure(figsize=(PAGE_WIDTH, 2.7), layout="constrained")
    controlled = table[(table["variant"] == "controlled") & (table["replicas"] == 1) & table["a"].isin((0, 2))]
    controlled = controlled[controlled["batch"] == controlled.groupby(["attention", "task"])["batch"].transform("max")]
    for ax, along, fixed in zip(figure.subplots(1, 2, sharey=True), ("L", "P"), ("P", "L"), strict=True):
        keys = ["attention", "task", fixed]
        groups = {
            key: rows for key, rows in controlled.groupby([*keys, "device"], sort=False) if rows[along].nunique() > 1
        }
        series = list(dict.fromkeys(key[:3] for key in groups))
        look = looks(*([key for key in series if key[0] == kind] for kind in ("softmax", "linear")))
        for (*key, device), rows in groups.items():
            style, curve = look[tuple(key)], rows.sort_values(along)
            line = "-" if device == "cpu" else "--"
            ax.plot(curve[along], curve["ratio"], line, color=style.color, marker=style.marker)
        names = [f"{kind}, {task}, ${fixed} = {value}$" for kind, task, value in series]
        ax.legend(
            [Line2D([], [], color=look[key].color, marker=look[key].marker) for key in series],
            names,
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=2,
        )
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xlabel({"L": "depth $L$", "P": "context length $P$"}[along])
        ax.xaxis.set_major_formatter("{x:g}")
        ax.label_outer()
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel("literal time / ours" + (" (dashed: GPU)" if table["device"].nunique() > 1 else ""))
    return figure


def main() -> None:
    """Measure every case on every device, and write what is known after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="toy sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    chosen = parser.parse_args()
    cases = list(dict.fromkeys(map(toy, CASES))) if chosen.quick else CASES
    turns: dict[str, float] = {"rounds": 1, "at_least": 0.002} if chosen.quick else {}
    chosen.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for device in map(torch.device, ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]):
        best = alone(machine, device, turns)
        assert best is not None, f"no measurement of the machine on {device}"
        for case in cases:
            rows.append(measure(case, device, best, turns))
            print({name: value for name, value in rows[-1].items() if name in (*MARKDOWN, "ours_s")}, flush=True)
            pd.DataFrame(rows).to_csv(chosen.out / "bench.csv", index=False)
    table = pd.read_csv(chosen.out / "bench.csv")
    (chosen.out / "bench.md").write_text(markdown(table))
    for suffix in (".png", ".pdf"):
        save(draw(table), chosen.out / f"bench{suffix}")


if __name__ == "__main__":
    main()
