"""`pip install .` builds the extension module with CMake. It needs what ./test installs, and the system's torch:
`pip install --no-build-isolation .` with the Python that has it."""
import os
import pathlib
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent


class BuildWithCMake(build_ext):
    def build_extension(self, extension):
        build = pathlib.Path(self.build_temp).resolve() / "cmake"
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_CXX_FLAGS_RELEASE": "-O2 -DNDEBUG",
            "HOLDFAST_WITH_TORCH": "ON",
            "HOLDFAST_BUILD_PYTHON": "ON",
            "HOLDFAST_BUILD_TESTS": "OFF",
            "HOLDFAST_BUILD_EXAMPLES": "OFF",
            "HOLDFAST_BUILD_BENCH": "OFF",
            "HOLDFAST_BUILD_TOOL": "OFF",
            "Python3_EXECUTABLE": sys.executable,
        }
        settings = [f"-D{name}={value}" for name, value in options.items()]
        subprocess.run(["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", *settings], check=True)
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
        subprocess.run(["cmake", "--build", str(build), "--target", "holdfast_python_core", "-j", jobs], check=True)
        target = pathlib.Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        self.copy_file(str(next((build / "python" / "holdfast").glob("_core*.so"))), str(target))


setup(
    packages=["holdfast", "holdfast.rpc", "holdfast.rpc._testing"],
    package_dir={"": "python"},
    package_data={"holdfast": ["py.typed", "*.pyi"]},
    ext_modules=[Extension("holdfast._core", sources=[])],
    cmdclass={"build_ext": BuildWithCMake},
)
