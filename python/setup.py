# SPDX-License-Identifier: Apache-2.0
#
# The package contains the library if it is built: from QUERN_LIBRARY, else from the tree's build. Otherwise the installed
# package searches for it when it is imported (quern/_library.py).
import os
import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

TREE = pathlib.Path(__file__).resolve().parent.parent


def library():
    path = pathlib.Path(os.environ.get("QUERN_LIBRARY") or TREE / "build" / "libquern.so")
    return path if path.is_file() else None


class Build(build_py):
    def run(self):
        super().run()
        if library():
            shutil.copyfile(library(), os.path.join(self.build_lib, "quern", "libquern.so"))


class Dist(Distribution):
    def has_ext_modules(self):  # what has the library in it is for this platform alone
        return library() is not None


setup(cmdclass={"build_py": Build}, distclass=Dist)
