"""What pip calls to make a wheel of the package (PEP 517): builds the extension module with CMake and packs it with the
Python sources. Of its own, so that neither setuptools nor an index is needed.

`pip install . --config-settings build-dir=build/release` takes the extension module from a finished build instead.
"""
import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import tomllib

# pip imports this file from its folder, and so this one too.
import wheel_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "python" / "holdfast"
PACKED = (".py", ".pyi", ".typed")

OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_CXX_FLAGS_RELEASE": "-O2 -DNDEBUG",
    "HOLDFAST_WITH_TORCH": "ON",
    "HOLDFAST_BUILD_PYTHON": "ON",
    "HOLDFAST_BUILD_TESTS": "OFF",
    "HOLDFAST_BUILD_EXAMPLES": "OFF",
    "HOLDFAST_BUILD_BENCH": "OFF",
    "HOLDFAST_BUILD_TOOL": "OFF",
}


def _extension_in(build):
    """The extension module of a finished build, for the Python that runs this."""
    file = build / "python" / "holdfast" / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not file.is_file():
        raise SystemExit(f"there is no {file}: build the target holdfast_python_core with {sys.executable} first")
    return file


def configure(build):
    options = {**OPTIONS, "Python3_EXECUTABLE": sys.executable}
    settings = [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run(["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", *settings], check=True)


def _build_extension(build):
    configure(build)
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    subprocess.run(["cmake", "--build", str(build), "--target", "holdfast_python_core", "-j", jobs], check=True)
    return _extension_in(build)


def _pack(folder, extension):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    files = {
        f"holdfast/{file.relative_to(SOURCES).as_posix()}": file
        for file in sorted(SOURCES.rglob("*"))
        if file.suffix in PACKED
    }
    files[f"holdfast/{extension.name}"] = extension
    return wheel_file.write(pathlib.Path(folder), project, files, {"LICENSE": ROOT / "LICENSE"})


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    finished = (config_settings or {}).get("build-dir")
    if finished:
        return _pack(wheel_directory, _extension_in((ROOT / finished).resolve()))
    with tempfile.TemporaryDirectory() as build:
        return _pack(wheel_directory, _build_extension(pathlib.Path(build)))


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("there is no source package: install from a clone of the repository")
