"""The archive of a study: what it holds, that it is valid, and that a changed or hostile one is refused."""

import hashlib
import io
import json
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import requests
import yaml
from synthetic import linear_difficult_laws, make_cube, make_fits, make_selection, softmax_laws

from inverse_depth import verify as verification
from inverse_depth.archive import CRATE, PROVENANCE, SUMS, write_archive
from inverse_depth.artifacts import ARTIFACTS, render
from inverse_depth.config import load_study
from inverse_depth.fits import FIT_COLUMNS
from inverse_depth.illustration import illustration_dataset
from inverse_depth.provenance import attributes
from inverse_depth.readme import FIT_MEANINGS
from inverse_depth.storage import write_dataset, write_frame, write_text
from inverse_depth.verify import ArchiveError, verify

ROOT = Path(__file__).parents[1]
DEPTHS = (1, 2, 4, 8, 16, 32)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A study that holds some of its files: two cubes, fits, a measurement, and what can be made of them."""
    folder = tmp_path_factory.mktemp("results")
    study = load_study(ROOT / "config/paper.yaml", ROOT / "config/quick.yaml")
    write_text(yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False), folder / "config.yaml")
    laws = softmax_laws()
    settings = {"dimension": 16, "context_length": 64}
    cubes = {
        "softmax_difficult": make_cube(laws, DEPTHS),
        "linear_difficult": make_cube(linear_difficult_laws(), DEPTHS),
    }
    for name, cube in cubes.items():
        described = attributes(f"Losses of {name}", settings) | {"device": "cpu", "training_commits": "abc"}
        write_dataset(cube.assign_attrs(described), folder / f"cubes/{name}.nc")
    write_frame(make_fits(laws, DEPTHS)[FIT_COLUMNS], folder / "fits/softmax_difficult.csv")
    write_dataset(make_selection(), folder / "measurements/selection.nc")
    write_dataset(illustration_dataset(seed=19), folder / "illustration/contexts.nc")
    for name in ("fig2", "fig5", "fig6", "fig13", "table4", "depth_share"):
        artifact = ARTIFACTS[name]
        suffixes = ("pdf", "png") if artifact.kind == "figure" else ("csv", "md", "tex")
        outputs = [folder / f"{artifact.kind}s/{name}.{suffix}" for suffix in suffixes]
        render(name, {argument: folder / path for argument, path in artifact.inputs.items()}, outputs)
    return folder


def write(results, path):
    write_archive(results, sorted(p for p in results.rglob("*") if p.is_file()), ROOT, path)
    return path


@pytest.fixture(scope="module")
def archive(results, tmp_path_factory):
    pytest.importorskip("rocrate")
    return write(results, tmp_path_factory.mktemp("archive") / "study.zip")


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path, folder, change, relist=True):
    """The archive with its contents changed, the check sums made to fit unless told otherwise."""
    held = contents(path)
    change(held)
    if relist:
        lines = (f"{hashlib.sha256(held[name]).hexdigest()}  {name}\n" for name in sorted(held) if name != SUMS)
        held[SUMS] = "".join(lines).encode()
    with zipfile.ZipFile(folder / "changed.zip", "w") as archive:
        for name, content in held.items():
            archive.writestr(name, content)
    return folder / "changed.zip"


def test_a_sound_archive_passes_and_says_what_was_checked(archive):
    lines = []
    verify(archive, lines.append)
    made_again = [line.partition(":")[0] for line in lines if "equal data" in line]
    assert sorted(made_again) == ["depth_share", "fig13", "fig2", "fig5", "fig6", "table4"]


def test_the_same_study_gives_the_same_bytes(results, archive, tmp_path):
    assert write(results, tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    with zipfile.ZipFile(archive) as held:
        assert held.namelist() == sorted(held.namelist())
        assert {entry.date_time[:3] for entry in held.infolist()} == {(1980, 1, 1)}


def test_it_holds_what_a_reader_needs(results, archive):
    held = contents(archive)
    files = {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}
    own = {"README.md", "CITATION.cff", "LICENSE-CODE.txt", "LICENSE-DATA.txt", "requirements.lock", "environment.yml"}
    assert files | own | {SUMS, PROVENANCE, CRATE} <= set(held)
    readme = held["README.md"].decode()
    assert all(f"`{name}`" in readme for name in held)
    for variable in ("loss", "shared_error", "disagreement", "seconds", "percentile", *FIT_COLUMNS):
        assert re.search(rf"^\| `?{variable}`? \|", readme, re.MULTILINE), variable
    provenance = json.loads(held[PROVENANCE])
    figure = provenance["artifacts"]["fig6"]
    for one in figure["inputs"].values():
        assert one["sha256"] == hashlib.sha256(held[one["file"]]).hexdigest()
    assert provenance["datasets"]["cubes/softmax_difficult.nc"]["training_commits"] == "abc"
    assert b"CC BY 4.0" in held["LICENSE-DATA.txt"] and b"MIT" in held["LICENSE-CODE.txt"]


def test_every_column_of_the_fits_has_a_meaning():
    assert list(FIT_MEANINGS) == FIT_COLUMNS


# The authors are a group without a page, a registry's number or an address.
RO_CRATE_PAGES = ("https://w3id.org/ro/crate/", "https://www.researchobject.org/ro-crate/")
UNKNOWN_AUTHORS = {"ro-crate-1.2_86.2", "ro-crate-1.2_89.0", "ro-crate-1.2_90.1", "ro-crate-1.2_93.0"}


def test_the_crate_is_valid(archive, monkeypatch, tmp_path):
    """By roc-validator, required and recommended rules; pages that it asks for get the context that rocrate ships."""
    rocrate = pytest.importorskip("rocrate")
    monkeypatch.setenv("HOME", str(tmp_path))  # it keeps a cache there
    services = pytest.importorskip("rocrate_validator.services")
    from rocrate_validator.models import Severity
    from urllib3 import HTTPResponse

    context = (Path(rocrate.__file__).parent / "data/ro-crate.jsonld").read_bytes()
    asked = set()

    def send(adapter, request, **_):
        asked.add(request.url)
        headers = {"Content-Type": "application/ld+json"}
        body = HTTPResponse(io.BytesIO(context), headers, 200, preload_content=False)
        return adapter.build_response(request, body)

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    settings = {"rocrate_uri": str(archive), "requirement_severity": Severity.RECOMMENDED}
    found = services.validate(services.ValidationSettings(**settings))
    assert [issue.message for issue in found.get_issues() if issue.severity == Severity.REQUIRED] == []
    assert {issue.check.identifier for issue in found.get_issues()} == UNKNOWN_AUTHORS
    assert all(url.startswith(RO_CRATE_PAGES) for url in asked), asked


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/etc/passwd", "absolute"),
        ("../outside.nc", "leads out"),
        ("cubes/../../outside.nc", "leads out"),
        ("C:\\outside.nc", "absolute"),
        ("folder/", "only plain files"),
    ],
)
def test_a_name_that_leads_out_is_refused_before_anything_is_written(archive, tmp_path, name, words):
    path = rewritten(archive, tmp_path, lambda held: held.update({name: b""}))
    with pytest.raises(ArchiveError, match=words):
        verification.unpack(path, tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_links_and_repeats_and_absurd_sizes_are_refused(tmp_path, monkeypatch):
    link = zipfile.ZipInfo("cubes/link.nc")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(ArchiveError, match="only plain files"):
        verification.unpack(tmp_path / "link.zip", tmp_path / "root")
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a.csv", "1")
        archive.writestr("a.csv", "2")
    with pytest.raises(ArchiveError, match="twice"):
        verification.unpack(tmp_path / "twice.zip", tmp_path / "root")
    monkeypatch.setattr(verification, "MOST_BYTES", 1000)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.nc", b"\0" * 1001)
    with pytest.raises(ArchiveError, match="1001 bytes when unpacked: at most 1000"):
        verification.unpack(tmp_path / "bomb.zip", tmp_path / "root")
    monkeypatch.setattr(verification, "MOST_ENTRIES", 0)
    with pytest.raises(ArchiveError, match="1 entries: at most 0"):
        verification.unpack(tmp_path / "bomb.zip", tmp_path / "root")
    (tmp_path / "text.zip").write_text("no zip")
    with pytest.raises(ArchiveError, match="cannot be read as a zip"):
        verification.unpack(tmp_path / "text.zip", tmp_path / "root")


def test_a_changed_file_a_missing_and_an_unlisted_one_are_named(archive, tmp_path):
    path = rewritten(archive, tmp_path, lambda held: held.update({"tables/table4.md": b"x"}), relist=False)
    with pytest.raises(ArchiveError, match=r"tables/table4\.md: its check sum"):
        verify(path, str)
    path = rewritten(archive, tmp_path, lambda held: held.pop("fits/softmax_difficult.csv"), relist=False)
    with pytest.raises(ArchiveError, match=r"fits/softmax_difficult\.csv: missing"):
        verify(path, str)
    path = rewritten(archive, tmp_path, lambda held: held.update({"extra.txt": b"x"}), relist=False)
    with pytest.raises(ArchiveError, match=r"extra\.txt: not listed"):
        verify(path, str)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("cubes/linear_difficult.nc", lambda content: content[:-100], "damaged"),
        ("fits/softmax_difficult.csv", lambda content: content.replace(b"exponent", b"slope", 1), "its columns are"),
        ("config.yaml", lambda content: content.replace(b"depths", b"dephts", 1), "unknown key"),
        ("figures/fig6.json", lambda content: content.replace(b"2.1", b"2.2", 1), "shows other data"),
        ("tables/table4.csv", lambda content: content.replace(b"0.1", b"0.2", 1), "holds other numbers"),
    ],
)
def test_changed_contents_are_found_though_the_sums_fit(archive, tmp_path, name, change, words):
    def apply(held):
        before = held[name]
        held[name] = change(before)
        assert held[name] != before

    with pytest.raises(ArchiveError, match=words):
        verify(rewritten(archive, tmp_path, apply), str)


def test_a_damaged_download_is_not_sound(archive, tmp_path, capsys):
    with zipfile.ZipFile(archive) as held:
        entry = next(one for one in held.infolist() if one.compress_type == zipfile.ZIP_DEFLATED)
    content = bytearray(archive.read_bytes())
    name, extra = struct.unpack_from("<HH", content, entry.header_offset + 26)
    content[entry.header_offset + 30 + name + extra] = 0xFF  # no block of deflate begins so
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(content)
    assert verification.main([str(damaged)]) == 1
    assert "damaged.zip is not sound" in capsys.readouterr().err


def test_the_command_ends_in_words(archive, tmp_path):
    command = [sys.executable, "-m", "inverse_depth.verify"]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    broken = rewritten(archive, tmp_path, lambda held: held.update({"extra.txt": b"x"}), relist=False)
    done = subprocess.run([*command, broken], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "is not sound" in done.stderr and "extra.txt" in done.stderr
    assert "Traceback" not in done.stderr
    assert subprocess.run(command, env=environment, capture_output=True).returncode == 2
