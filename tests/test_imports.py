"""Modules import each other in one direction: data and models know nothing of Snakemake, figures nothing of torch."""

import ast
from graphlib import TopologicalSorter

import pytest
from checkout import ROOT

PACKAGE = ROOT / "src/inverse_depth"


def imported(path):
    """Return all that a module imports by name, inside functions too: modules, and names that may be modules."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = set(imported(path))
    return found


IMPORTS = modules()
# The package's own names are looked up on first use: importing it imports none of its modules.
OWN = {name: {one for one in names if one in IMPORTS} - {"inverse_depth"} for name, names in IMPORTS.items()}
del OWN["inverse_depth"]


def reached(name):
    """Return a module of the package and all that it imports there, directly or not."""
    found, waiting = set(), {name}
    while waiting:
        found.add(one := waiting.pop())
        waiting |= OWN[one] - found
    return found


def uses(name, library):
    return any(one.split(".")[0] == library for module in reached(name) for one in IMPORTS[module])


def test_no_module_imports_itself_on_a_way_round():
    order = list(TopologicalSorter(OWN).static_order())
    assert order.index("inverse_depth.config") < order.index("inverse_depth.training")
    assert len(order) == len(OWN) > 50


def test_one_module_alone_knows_snakemake():
    assert {name for name, names in IMPORTS.items() if any(n.startswith("snakemake") for n in names)} == {
        "inverse_depth.outlook"
    }
    assert {name for name in OWN if "inverse_depth.outlook" in reached(name)} == {"inverse_depth.outlook"}


@pytest.mark.parametrize("name", ["training", "evaluation", "measurements", "theory.floor", "theory.polynomials"])
def test_data_and_models_know_nothing_of_what_is_shown(name):
    shown = {one for one in OWN if one.split(".")[1] in ("figures", "artifacts", "tables", "report", "archive")}
    assert len(shown) > 10
    assert not reached(f"inverse_depth.{name}") & shown


def test_what_is_shown_and_what_snakefiles_import_needs_no_torch():
    shown = [name for name in OWN if ".figures" in name] + [
        f"inverse_depth.{name}"
        for name in ("artifacts", "config", "cubes", "fits", "tables", "comparison", "beyond", "report", "outlook")
    ]
    assert not [name for name in shown if uses(name, "torch")]
    assert uses("inverse_depth.training", "torch")
