#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_deployment.sh BUILD: deployments from Python (test/python_deployment.py), with each Python that has numpy.
exec "$(dirname "$0")/python.sh" "$1" deployment
