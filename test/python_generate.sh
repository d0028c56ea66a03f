#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_generate.sh BUILD: text generation of models of transformers through torch.compile(backend="quern") (test/python_generate.py), with each PyTorch that is
# there.
exec "$(dirname "$0")/python.sh" "$1" generate
