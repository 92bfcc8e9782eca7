"""Hashes change with what decides a result and with nothing else."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import inverse_depth
from inverse_depth import provenance

SOURCE = Path(inverse_depth.__file__).parent

PACKAGE = {
    "__init__.py": "__version__ = '1'\n",
    "engine.py": (
        '"""Docstring."""\nfrom inverse_depth.parts import wheel\nfrom . import storage\n'
        "\ndef run(x):\n    return wheel.turn(x)\n"
    ),
    "parts/__init__.py": "SIZE = 3\n",
    "parts/wheel.py": "from ..basis import ROOT\n\ndef turn(x):\n    return ROOT * x\n",
    "basis.py": "ROOT = 2  # a comment\n",
    "lazy.py": "def draw():\n    import inverse_depth.basis\n    return 'look.style'\n",
    "storage.py": "A = 1\n",
    "other.py": "B = 1\n",
    "assets/look.style": "width: 1\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small package, hashed in place of this one."""
    root = tmp_path / "inverse_depth"
    for name, text in PACKAGE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(provenance, "_PACKAGE", root)
    yield root
    forget()


def forget():
    for function in (provenance.code_hash, provenance._tree, provenance._package_data):
        function.cache_clear()


def hashes(*modules):
    forget()
    return [provenance.code_hash(f"inverse_depth.{module}") for module in modules]


@pytest.mark.parametrize(
    ("file", "old", "new", "engine", "lazy"),
    [
        ("engine.py", "wheel.turn(x)", "wheel.turn(-x)", True, False),
        ("parts/wheel.py", "ROOT * x", "ROOT + x", True, False),
        ("parts/__init__.py", "3", "4", True, False),  # runs when a module of the subpackage is imported
        ("basis.py", "2", "3", True, True),  # two imports away; inside a function
        ("assets/look.style", "1", "2", False, True),
        ("other.py", "1", "2", False, False),
        ("__init__.py", "1", "2", False, False),
        ("storage.py", "1", "2", False, False),
        ("engine.py", "Docstring.", "Another.", False, False),
        ("basis.py", "# a comment", "# another", False, False),
        ("parts/wheel.py", "\n\ndef", "\n\n\n\ndef", False, False),
    ],
)
def test_code_hash_follows_the_code_that_is_reached(package, file, old, new, engine, lazy):
    before = hashes("engine", "lazy")
    path = package / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    after = hashes("engine", "lazy")
    assert [x != y for x, y in zip(before, after, strict=True)] == [engine, lazy]


def test_a_new_module_counts_once_it_is_imported(package):
    before = hashes("engine")
    (package / "extra.py").write_text("C = 1\n")
    assert hashes("engine") == before
    (package / "basis.py").write_text("from .extra import C\nROOT = 2\n")
    assert hashes("engine") != before


def test_an_unknown_module_is_refused():
    with pytest.raises(ValueError, match=r"'inverse_depth\.absent'"):
        provenance.code_hash("inverse_depth.absent")


def test_figures_do_not_decide_training_and_training_does_not_decide_figures():
    def reached(module):
        seen, waiting = set(), {module}
        while waiting:
            name = waiting.pop()
            seen.add(name)
            waiting |= set(provenance._imports(name)) - seen - provenance._PLUMBING
        return seen

    training = reached("inverse_depth.training")
    assert {"inverse_depth.models.base", "inverse_depth.contexts", "inverse_depth.spectra"} <= training
    # a model decides its own runs only
    assert not any(name.startswith("inverse_depth.models.") for name in training - {"inverse_depth.models.base"})
    assert "inverse_depth.models.parameters" in reached("inverse_depth.models.softmax")
    assert not any("figures" in name or name.endswith((".fits", ".tables", ".evaluation")) for name in training)
    assert "inverse_depth.training" not in reached("inverse_depth.figures.difficult")


def test_hashing_and_the_schema_load_nothing_heavy():
    code = (
        "import sys; from inverse_depth.provenance import code_hash, versions; import inverse_depth.outlook\n"
        "from inverse_depth.artifacts import ARTIFACTS\n"
        "code_hash('inverse_depth.training'); versions()\n"
        "print([name for name in ('torch', 'xarray', 'pandas', 'matplotlib', 'numpy', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=SOURCE.parent)
    assert done.stdout.strip() == "[]"


def test_reanalysis_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; from inverse_depth import fit_power_law, open_cube"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=SOURCE.parent)
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        inverse_depth.absent  # noqa: B018


def test_config_hash_depends_on_values_and_not_on_their_order():
    first = provenance.config_hash({"a": 1, "b": [1, 2]})
    assert first == provenance.config_hash({"b": [1, 2], "a": 1})
    assert first != provenance.config_hash({"a": 1, "b": [2, 1]})
    assert len(first) == 16


def test_attributes_say_where_a_file_comes_from():
    found = provenance.attributes("A title", {"depth": 4})
    assert found["title"] == "A title"
    assert json.loads(found["config"]) == {"depth": 4}
    assert found["config_hash"] == provenance.config_hash({"depth": 4})
    assert json.loads(found["versions"])["python"] == ".".join(map(str, sys.version_info[:3]))
    assert json.loads(found["versions"])["torch"][0].isdigit()
    assert inverse_depth.__version__ in found["source"]
    assert all(isinstance(value, str) for value in found.values())
    assert found == provenance.attributes("A title", {"depth": 4})


@pytest.fixture
def git(monkeypatch):
    """Run git in a folder."""
    command = shutil.which("git")
    if command is None:
        pytest.skip("git is not installed")

    def run(folder, *arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = subprocess.run(
            [command, "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    return run


@pytest.fixture
def checkout(git, tmp_path, monkeypatch):
    """A repository of the project, with one commit; its package is taken for this one."""
    root = tmp_path / "checkout"
    package = root / "src/inverse_depth"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (root / "pyproject.toml").write_text('[project]\nname = "inverse-depth"\n')
    git(root, "init")
    git(root, "add", ".")
    git(root, "commit", "-m", "first")
    monkeypatch.setattr(provenance, "_PACKAGE", package)
    return root


def test_commit_names_the_commit_and_marks_edits(git, checkout):
    head = git(checkout, "rev-parse", "HEAD")
    assert provenance.commit() != "unknown" and head.startswith(provenance.commit())
    (checkout / "src/inverse_depth/__init__.py").write_text("edited")
    assert provenance.commit().endswith("-dirty")


def test_commit_is_not_that_of_a_repository_that_the_environment_points_to(git, checkout, tmp_path, monkeypatch):
    head = git(checkout, "rev-parse", "HEAD")
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init")
    git(other, "commit", "--allow-empty", "-m", "of another project")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert head.startswith(provenance.commit())
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert head.startswith(provenance.commit())
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "none"))
    assert head.startswith(provenance.commit())


@pytest.mark.parametrize("place", [".venv/lib/site-packages/inverse_depth", "src/inverse_depth", "inverse_depth"])
@pytest.mark.parametrize("tracked", [False, True])
def test_commit_is_not_that_of_a_foreign_repository_that_holds_the_package(git, tmp_path, monkeypatch, place, tracked):
    package = tmp_path / "foreign" / place
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (tmp_path / "foreign/pyproject.toml").write_text('[project]\nname = "foreign"\n')
    git(tmp_path / "foreign", "init")
    git(tmp_path / "foreign", "add", "." if tracked else "pyproject.toml")
    git(tmp_path / "foreign", "commit", "-m", "foreign")
    monkeypatch.setattr(provenance, "_PACKAGE", package)
    assert provenance.commit() == "unknown"


def test_commit_outside_git_or_without_git_is_unknown(checkout, monkeypatch):
    shutil.rmtree(checkout / ".git")
    assert provenance.commit() == "unknown"
    monkeypatch.setenv("PATH", str(checkout))
    assert provenance.commit() == "unknown"
