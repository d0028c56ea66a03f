#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""BERT by PyTorch and with its matrix products computed by quern: see ../compare.py for the options."""
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent)]

from compare import main
from model import Model, ModelArgs

if __name__ == "__main__":
    sys.exit(main(Model, ModelArgs))
