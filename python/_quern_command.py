# SPDX-License-Identifier: Apache-2.0
"""The command `quern` of a Python environment: the native one of the package takes its place. It imports neither NumPy nor the package."""
import os
import pathlib
import sys


def candidates():
    """The command in the package, else that of the tree that the package is in."""
    here = pathlib.Path(__file__).resolve().parent
    return [here / "quern" / "bin" / "quern", here.parent / "build" / "quern"]


def main():
    path = next((str(p) for p in candidates() if os.access(p, os.X_OK)), None)
    if path is None:
        sys.exit("quern: this package was built without the command: build it with 'make' before the package, or install a wheel of 'make wheel'")
    os.execv(path, [path, *sys.argv[1:]])
