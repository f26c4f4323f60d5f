"""Puts libkvpool.so.0 into the package, if this is the source tree.

What pyproject.toml cannot say. `make` builds the library, and its dependencies must
be there (`make deps`); the wheel is then one for this kind of machine. Without the
tree (`make install` has the library elsewhere) the package is pure Python.
"""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SONAME = "libkvpool.so.0"
TOP = Path(__file__).resolve().parents[2]
IN_TREE = (TOP / "pool" / "client" / "kvpool.map").exists()

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70
    from wheel.bdist_wheel import bdist_wheel


class BuildWithLibrary(build_py):
    def run(self) -> None:
        super().run()
        if IN_TREE:
            # (BUILD may be in the environment.)
            make = ["make", "-s", f"-j{os.cpu_count()}", "BUILD=build", "build/libkvpool.so"]
            subprocess.run(make, cwd=TOP, check=True)
            package = Path(self.build_lib) / "kvpool"
            shutil.copyfile(TOP / "build" / "libkvpool.so", package / SONAME)


class WheelOfMachine(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        if not IN_TREE:
            return super().get_tag()
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        return ("py3", "none", platform)

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = not IN_TREE


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelOfMachine})
