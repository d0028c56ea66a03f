#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_kcg.sh BUILD: deepgen's Python names over quern (test/python_kcg.py), with each PyTorch that is there.
exec "$(dirname "$0")/python.sh" "$1" kcg
