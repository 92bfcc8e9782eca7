"""One zip of a study, ready to publish: results, where each came from, what each means, and a crate's metadata.

The same study gives the same bytes: entries are sorted and carry one fixed time.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Collection, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from inverse_depth.artifacts import ARTIFACTS, make
from inverse_depth.figures.drawn_data import drawn_data
from inverse_depth.provenance import REFERENCE, code_hash, commit, versions
from inverse_depth.readme import describe, readme
from inverse_depth.storage import atomic_path, read_dataset

SUMS, PROVENANCE, CRATE = "SHA256SUMS", "provenance.json", "ro-crate-metadata.json"
"""Names of the lists of check sums and of origins, and of the crate's metadata (https://w3id.org/ro/crate)."""

_TIME = (1980, 1, 1, 0, 0, 0)
_MEDIA = {
    ".nc": "application/x-netcdf", ".csv": "text/csv", ".md": "text/markdown", ".tex": "application/x-tex",
    ".pdf": "application/pdf", ".png": "image/png", ".json": "application/json", ".yaml": "application/yaml",
    ".yml": "application/yaml", ".cff": "application/yaml", ".html": "text/html",
}  # fmt: skip
_DATA_LICENCE, _CODE_LICENCE = "https://creativecommons.org/licenses/by/4.0/", "https://spdx.org/licenses/MIT"
_CODE_FILES = ("environment.yml", "requirements.lock")


def write_archive(results: Path, files: Iterable[Path], project: Path, path: Path) -> None:
    """Write the archive of a study.

    Parameters
    ----------
    results : Path
        The study's folder.
    files : iterable of Path
        What of it is archived.
    project : Path
        The folder that holds LICENSE, CITATION.cff, requirements.lock and environment.yml.
    path : Path
        The zip to write, atomically.
    """
    contents = {str(file.relative_to(results)): file.read_bytes() for file in files}
    licence = resources.files("inverse_depth").joinpath("data/LICENSE-DATA.txt").read_bytes()
    contents |= {"LICENSE-CODE.txt": (project / "LICENSE").read_bytes(), "LICENSE-DATA.txt": licence}
    contents |= {name: (project / name).read_bytes() for name in ("CITATION.cff", *_CODE_FILES)}
    made = whole_artifacts(contents)
    for name in made:
        if ARTIFACTS[name].kind == "figure":
            inputs = {argument: results / file for argument, file in ARTIFACTS[name].inputs.items()}
            contents[f"figures/{name}.json"] = _json(drawn_data(make(name, inputs)))
    datasets = {name: read_dataset(results / name).attrs for name in sorted(contents) if name.endswith(".nc")}
    study = yaml.safe_load(contents["config.yaml"])["study"]
    sums = {name: _sum(content) for name, content in contents.items()}
    archived = {"study": study, "paper": REFERENCE, "archived_with": {"commit": commit(), "versions": versions()}}
    contents[PROVENANCE] = _json(archived | origins(datasets, sums))
    contents["README.md"] = readme(study, {name: results / name for name in datasets}, contents).encode()
    contents[CRATE] = _json(_crate(study, contents, made))
    contents[SUMS] = "".join(f"{_sum(contents[name])}  {name}\n" for name in sorted(contents)).encode()
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, contents[name], compresslevel=6)


def whole_artifacts(names: Collection[str]) -> dict[str, list[str]]:
    """Files of every artifact of which all are among the names, and those it is made from, too."""
    found = {}
    for name, artifact in ARTIFACTS.items():
        suffixes = ("pdf", "png") if artifact.kind == "figure" else ("csv", "md", "tex")
        files = [f"{artifact.kind}s/{name}.{suffix}" for suffix in suffixes]
        if set(files) | set(artifact.inputs.values()) <= set(names):
            found[name] = files
    return found


def origins(datasets: Mapping[str, Mapping[str, Any]], sums: Mapping[str, str]) -> dict[str, Any]:
    """Where everything comes from: files of data from their attributes, artifacts from their inputs and code.

    Parameters
    ----------
    datasets : mapping
        Name of each NetCDF file to its attributes.
    sums : mapping of str to str
        Name of each file to its SHA-256.

    Returns
    -------
    dict
        ``datasets``, ``fits`` and ``artifacts``, each by name.
    """
    kept = ("title", "source", "config_hash", "commit", "training_commits", "device")
    artifacts = {
        name: {
            "title": ARTIFACTS[name].title,
            "function": ARTIFACTS[name].function,
            "code_hash": code_hash(ARTIFACTS[name].function.partition(":")[0]),
            "inputs": {
                argument: {"file": file, "sha256": sums[file]} for argument, file in ARTIFACTS[name].inputs.items()
            },
            "outputs": {file: sums[file] for file in files},
        }
        for name, files in whole_artifacts(sums).items()
    }
    fits = {
        name: {"fitted_from": f"cubes/{Path(name).stem}.nc", "code_hash": code_hash("inverse_depth.fits")}
        for name in sorted(sums)
        if name.startswith("fits/")
    }
    data = {
        name: {key: str(attrs[key]) for key in kept if key in attrs} | {"versions": _parsed(attrs.get("versions"))}
        for name, attrs in datasets.items()
    }
    return {"datasets": data, "fits": fits, "artifacts": artifacts}


def _crate(study: str, contents: Mapping[str, bytes], made: Mapping[str, list[str]]) -> dict[str, Any]:
    """Describe the archive as an RO-Crate: every file, its licence, and what each figure and table was made from."""
    from rocrate.model.contextentity import ContextEntity  # of the group `archive`, which only this needs
    from rocrate.rocrate import ROCrate

    citation = yaml.safe_load(contents["CITATION.cff"])
    crate = ROCrate()

    def entity(identifier: str, **properties: Any) -> Any:
        return crate.add(ContextEntity(crate, identifier, properties=properties))

    data = entity(_DATA_LICENCE, **{"@type": "CreativeWork", "name": "CC BY 4.0", "description": "licence of the data"})
    code = entity(_CODE_LICENCE, **{"@type": "CreativeWork", "name": "MIT", "description": "licence of the code"})
    authors = entity("#authors", **{"@type": "Organization", "name": "the inverse-depth authors"})
    paper = entity("https://arxiv.org/abs/2610.11063", **{"@type": "ScholarlyArticle", "name": REFERENCE})
    software = entity(
        "#inverse-depth",
        **{"@type": "CreativeWork", "name": "inverse-depth", "version": citation["version"]},
        description=f"the code at commit {commit()}",
    )
    software["license"], software["author"] = code, authors
    crate.name = f"Depth scaling of linear and softmax attention: the study {study}"
    crate.description = (
        f"Losses of trained attention models against depth, their fits, and the figures and tables of {REFERENCE}, as "
        f"the study {study} of inverse-depth measured them."
    )
    crate.datePublished = str(citation["date-released"])
    crate.license, crate.root_dataset["author"], crate.root_dataset["publisher"] = data, authors, authors
    crate.root_dataset["citation"] = paper
    crate.root_dataset["keywords"] = "attention, depth scaling, power laws, reproduction"
    files = {}
    for name in sorted(contents):
        properties = {
            "name": name,
            "description": describe(name),
            "encodingFormat": _MEDIA.get(Path(name).suffix, "text/plain"),
            "contentSize": str(len(contents[name])),
            "sha256": _sum(contents[name]),
        }
        files[name] = crate.add_file(dest_path=name, source=name, properties=properties)
        if name in (*_CODE_FILES, "LICENSE-CODE.txt"):  # all others inherit the licence of the data
            files[name]["license"] = code
    actions = []
    for name, outputs in made.items():
        inputs = [files[file] for file in ARTIFACTS[name].inputs.values()]
        action = {"name": f"Make {ARTIFACTS[name].title}", "description": f"calls {ARTIFACTS[name].function}"}
        made_of = inputs if len(inputs) > 1 else inputs[0]
        results = [files[file] for file in outputs]
        actions.append(crate.add_action(software, f"#make-{name}", object=made_of, result=results, properties=action))
    crate.root_dataset["mentions"] = actions
    return dict(crate.metadata.generate())


def _parsed(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else {}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
