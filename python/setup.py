# SPDX-License-Identifier: Apache-2.0
#
# The package contains the C library and the command if they are built: those that `make wheel` linked (QUERN_WHEEL, its folder), else the file
# QUERN_LIBRARY with the command beside it, else the tree's build. Otherwise the installed package searches for the library when it is
# imported (quern/_library.py).
import os
import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel  # setuptools 70.1
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

TREE = pathlib.Path(__file__).resolve().parent.parent
SONAME = "libquern.so.0"


def natives():
    """Files of the package: (where they are, where they come from)."""
    whole = os.environ.get("QUERN_WHEEL")
    if whole:
        return [(p.relative_to(whole), p) for d in ("lib", "bin", "licenses") for p in sorted(pathlib.Path(whole, d).iterdir())]
    library = pathlib.Path(os.environ.get("QUERN_LIBRARY") or TREE / "build" / "libquern.so")
    pairs = [(pathlib.Path("lib", SONAME), library), (pathlib.Path("bin", "quern"), library.with_name("quern"))]
    return [(to, p) for to, p in pairs if library.is_file() and p.is_file()]


class Build(build_py):
    def run(self):
        super().run()
        for to, path in natives():
            there = pathlib.Path(self.build_lib, "quern", to)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, there)  # with its mode


class Dist(Distribution):
    def has_ext_modules(self):  # what has the library in it is for this platform alone
        return bool(natives())


class Wheel(bdist_wheel):
    def get_tag(self):
        """Any Python 3: the library knows nothing of it."""
        _, _, platform = super().get_tag()
        return "py3", "none", os.environ.get("QUERN_PLATFORM", platform)


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Dist)
