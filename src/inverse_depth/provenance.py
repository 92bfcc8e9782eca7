"""Where a result comes from: hashes of the code and settings that decide it, versions, and attributes for its file."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import inverse_depth

REFERENCE = "Peng et al., Emergent Inverse-Depth Scaling From Nonlinearity In Attention, arXiv:2610.11063"

_PACKAGE = Path(__file__).parent
# These name, check, list or store results and never decide their numbers: editing them makes nothing run again.
_PLUMBING = {
    "inverse_depth",
    "inverse_depth.artifacts",
    "inverse_depth.config",
    "inverse_depth.contents",
    "inverse_depth.explain",
    "inverse_depth.fields",
    "inverse_depth.joblog",
    "inverse_depth.provenance",
    "inverse_depth.sections",
    "inverse_depth.storage",
    "inverse_depth.variants",
}


@functools.cache
def code_hash(module: str) -> str:
    """Hash the code that decides what a module computes: the module and all that it imports inside the package.

    Nothing is imported: the import statements are read from the source, those inside functions too. Comments,
    docstrings and formatting do not count; data files of the package (style sheets, published values) whose names the
    code mentions do.

    Parameters
    ----------
    module : str
        Full name, such as ``"inverse_depth.training"``.

    Returns
    -------
    str
        16 hexadecimal digits.

    Raises
    ------
    ValueError
        If there is no such module in the package.
    """
    if _source(module) is None:
        raise ValueError(f"module is {module!r}: there is no such module in {_PACKAGE}")
    reached: set[str] = set()
    waiting = {module}
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= set(_imports(name)) - reached - _PLUMBING
    digest = hashlib.sha256()
    for name in sorted(reached):
        # the unparsed tree, for ast.dump shows differences between versions of Python that mean nothing
        digest.update(f"{name}\n{ast.unparse(_tree(name))}\n".encode())
    for path in sorted(set().union(*map(_data_files, reached))):
        digest.update(f"{path.relative_to(_PACKAGE)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def config_hash(settings: Mapping[str, Any]) -> str:
    """Hash settings as canonical JSON: 16 hexadecimal digits, whatever the order of the keys."""
    return hashlib.sha256(_canonical_json(settings).encode()).hexdigest()[:16]


def versions() -> dict[str, str]:
    """Return the versions of Python, this package and the libraries that decide results, without importing them."""
    found = {"python": platform.python_version(), "inverse-depth": inverse_depth.__version__}
    for name in ("torch", "numpy", "scipy", "pandas", "xarray", "netCDF4", "snakemake"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def commit() -> str:
    """Return the commit of the code, ending in ``-dirty`` if it was edited since, or ``unknown``.

    Only the project's own repository counts, with the package in its place: not another that holds an installed copy,
    nor one that variables of the environment point to.
    """
    project = _PACKAGE.parents[1]
    try:
        if Path(_git("rev-parse", "--show-toplevel")).resolve() != project.resolve():
            return "unknown"
        _git("ls-files", "--error-unmatch", "__init__.py")
        if (
            tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
            != "inverse-depth"
        ):
            return "unknown"
        return _git("describe", "--always", "--dirty")
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return "unknown"


def _git(*arguments: str) -> str:
    """Ask git about the repository that the package lies in, whatever the environment says."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(_PACKAGE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30, env=environment)
    return done.stdout.strip()


def attributes(title: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Global attributes for a file of results.

    Parameters
    ----------
    title : str
        What the file holds, in one line.
    settings : mapping
        All that the result depends on, as plain values that JSON can hold.

    Returns
    -------
    dict of str to str
        ``title``, ``source``, ``history``, ``references``, ``Conventions``, ``config`` (JSON), ``config_hash``,
        ``versions`` (JSON) and ``commit``. No time stamp: the same result gives the same bytes.
    """
    source, made_at = f"inverse-depth {inverse_depth.__version__}", commit()
    return {
        "title": title,
        "source": source,
        "history": f"computed by {source} at commit {made_at}",
        "references": REFERENCE,
        "Conventions": "CF-1.11",
        "config": _canonical_json(settings),
        "config_hash": config_hash(settings),
        "versions": _canonical_json(versions()),
        "commit": made_at,
    }


def _canonical_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


def _source(module: str) -> Path | None:
    stem = _PACKAGE.parent.joinpath(*module.split("."))
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()), None)


def _data_files(module: str) -> set[Path]:
    strings = (node.value for node in ast.walk(_tree(module)) if isinstance(node, ast.Constant))
    names = {text.rpartition("/")[2] for text in strings if isinstance(text, str)}
    return {path for path in _package_data() if path.name in names}


@functools.cache
def _package_data() -> tuple[Path, ...]:
    return tuple(path for path in _PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc"))


@functools.cache
def _tree(module: str) -> ast.Module:
    source = _source(module)
    assert source is not None
    tree = ast.parse(source.read_text(encoding="utf-8"), filename=str(source))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # a string standing alone is a docstring or a comment; `pass` keeps the block from being empty
            node.body = [item for item in body if not _is_text(item)] or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _imports(module: str) -> Iterator[str]:
    """Modules of the package that a module imports, with the subpackages they lie in."""
    source = _source(module)
    assert source is not None
    own_package = module if source.name == "__init__.py" else module.rpartition(".")[0]
    candidates: set[str] = {own_package}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            candidates |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = own_package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            origin = ".".join(part for part in (base, node.module) if part)
            candidates |= {origin} | {f"{origin}.{alias.name}" for alias in node.names}
    for name in candidates:
        parts = name.split(".")
        for prefix in (".".join(parts[: i + 1]) for i in range(len(parts))):
            if parts[0] == "inverse_depth" and _source(prefix) is not None:
                yield prefix
