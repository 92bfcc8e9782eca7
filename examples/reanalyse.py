"""Refit a study's losses from its cube alone, over a range of depths of your own, without torch.

    python examples/reanalyse.py results/paper/cubes/softmax_difficult.nc --from 8 --to 256 --plot refit.png

Nothing here needs this package but `open_cube`, which checks the file, and `fit_power_law`; to read a cube,
`xarray.open_dataset(path)` does as well.
"""

import argparse
import itertools

import matplotlib.pyplot as plt
import numpy as np

from inverse_depth import fit_power_law, open_cube
from inverse_depth.storage import StorageError


def main():
    """Select, fit and plot."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cube", nargs="?", default="results/paper/cubes/softmax_difficult.nc")
    parser.add_argument("--from", dest="shallowest", type=int, default=1, help="shallowest depth fitted")
    parser.add_argument("--to", dest="deepest", type=int, help="deepest depth fitted; without it, the cube's deepest")
    parser.add_argument("--target-size", type=int, help="k; without it, the cube's smallest")
    parser.add_argument("--floor", type=float, help="a known L_0, such as 0 on the easy task; without it, it is fitted")
    parser.add_argument("--plot", default="reanalysis.png", help="where the figure goes")
    chosen = parser.parse_args()

    # The dimensions are L (depth), a, b (spectra j^-a, j^-b), k (target size) and seed; NaN where nothing was run.
    try:
        cube = open_cube(chosen.cube)
    except StorageError as error:
        parser.error(str(error))
    k = int(cube["k"].min()) if chosen.target_size is None else chosen.target_size
    if k not in cube["k"].values:
        parser.error(f"--target-size is {k}: the cube holds {', '.join(map(str, cube['k'].values))}")
    if not cube["L"].sel(L=slice(chosen.shallowest, chosen.deepest)).size:
        parser.error(
            f"--from {chosen.shallowest} --to {chosen.deepest} holds no depth: "
            f"the cube has {', '.join(map(str, cube['L'].values))}"
        )
    loss = cube["loss"].sel(k=k).mean("seed")

    figure, axes = plt.subplots(layout="constrained", figsize=(7.5, 5))
    looks = itertools.cycle(zip(plt.colormaps["viridis"](np.linspace(0, 0.9, 10)), "os^Dv<>PX*", strict=True))
    for a in loss["a"].values:
        for b in loss["b"].values:
            curve = loss.sel(a=a, b=b).dropna("L")
            if not curve.size:
                continue
            kept = curve.sel(L=slice(chosen.shallowest, chosen.deepest))
            name = f"(a, b) = ({a:g}, {b:g})"
            if kept.size < 4:  # fewer than a fit takes; one with noise takes six and says so
                print(f"{name}: {kept.size} depths in this range are too few")
                continue
            try:
                fit = fit_power_law(kept["L"].values, kept.values, floor=chosen.floor)
            except ValueError as error:  # as of a floor above a loss
                parser.error(f"{name}: {error}")
            if fit.determined:
                words = (
                    f"exponent {fit.exponent:.3f} ± {fit.exponent_se:.3f}, floor {fit.floor:.4f} ± {fit.floor_se:.4f}"
                )
            else:
                words = f"not determined: {fit.reason}"
            print(f"{name}: {words}")
            color, marker = next(looks)
            label = name if fit.determined else f"{name}, fit not determined"
            axes.plot(curve["L"], curve / curve[0], marker, color=color, label=label)
            if fit.determined:
                axes.plot(kept["L"], fit.predict(kept["L"].values) / curve[0].item(), color=color)

    axes.set(xscale="log", xlabel="depth L", ylabel="loss, relative to the shallowest model")
    axes.set(title=f"k = {k}", yscale="log" if chosen.floor == 0 else "linear")
    axes.set_xticks(loss["L"].values, loss["L"].values, minor=False)
    axes.minorticks_off()
    figure.legend(fontsize="small", loc="outside right upper")
    try:
        figure.savefig(chosen.plot, dpi=150)
    except (OSError, ValueError) as error:  # no such folder, no such format
        parser.error(f"--plot {chosen.plot}: {error}")
    print(f"figure: {chosen.plot}")


if __name__ == "__main__":
    main()
