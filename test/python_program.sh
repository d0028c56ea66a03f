#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_program.sh BUILD: programs and tuning from Python (test/python_program.py), with each Python that has numpy.
exec "$(dirname "$0")/python.sh" "$1" program
