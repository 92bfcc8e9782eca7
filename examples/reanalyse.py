"""Refit a study's losses from its cube alone, over a range of depths of your own, without torch.

    python examples/reanalyse.py results/paper/cubes/softmax_difficult.nc --from 8 --to 256 --plot refit.png

Nothing here needs this package but `open_cube`, which checks the file, and `fit_power_law`; to read a cube,
`xarray.open_dataset(path)` does as well.
"""

import argparse
import itertools

import matplotlib.pyplot as plt

from inverse_depth import fit_power_law, open_cube


def main():
    """Select, fit and plot."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cube", nargs="?", default="results/paper/cubes/softmax_difficult.nc")
    parser.add_argument("--from", dest="shallowest", type=int, default=1, help="shallowest depth fitted")
    parser.add_argument("--to", dest="deepest", type=int, default=256, help="deepest depth fitted")
    parser.add_argument("--target-size", type=int, default=2, help="k")
    parser.add_argument("--plot", default="reanalysis.png", help="where the figure goes")
    chosen = parser.parse_args()

    # The dimensions are L (depth), a, b (spectra j^-a, j^-b), k (target size) and seed; NaN where nothing was run.
    cube = open_cube(chosen.cube)
    if chosen.target_size not in cube["k"].values:
        parser.error(f"--target-size is {chosen.target_size}: the cube holds {', '.join(map(str, cube['k'].values))}")
    loss = cube["loss"].sel(k=chosen.target_size).mean("seed")

    figure, axes = plt.subplots(layout="constrained")
    looks = itertools.cycle(
        zip(plt.colormaps["viridis"]([0, 0.2, 0.4, 0.6, 0.8]).tolist() * 2, "os^Dv<>PX*", strict=True)
    )
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
            fit = fit_power_law(kept["L"].values, kept.values)
            if fit.determined:
                words = (
                    f"exponent {fit.exponent:.3f} ± {fit.exponent_se:.3f}, floor {fit.floor:.4f} ± {fit.floor_se:.4f}"
                )
            else:
                words = f"not determined: {fit.reason}"
            print(f"{name}: {words}")
            color, marker = next(looks)
            axes.plot(curve["L"], curve / curve[0], marker, color=color, label=name)
            if fit.determined:
                axes.plot(kept["L"], fit.predict(kept["L"].values) / curve[0].item(), color=color)

    axes.set_xscale("log", base=2)
    axes.set(xlabel="depth L", ylabel="loss, relative to the shallowest model")
    axes.legend(fontsize="small")
    figure.savefig(chosen.plot, dpi=150)
    print(f"figure: {chosen.plot}")


if __name__ == "__main__":
    main()
