#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_denoise.sh BUILD: the denoiser of examples/denoise and its training (test/python_denoise.py), with each PyTorch that is there.
exec "$(dirname "$0")/python.sh" "$1" denoise
