#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python.sh BUILD [TEST]: the Python package and python/compat, installed as pip installs them, with Debian's Python and with the environment of
# bench/setup:
# test/python_base.py, python_program.py or python_deployment.py where numpy is there, or test/python_TEST.py where PyTorch is.
set -eu
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
what=${2:-base}
work=$build/python/$what
ran=
case $what in base | program | deployment) need=numpy ;; *) need=torch ;; esac

if grep -q __asan_init "$build/libquern.so"; then
    echo "skipped: a library with sanitizers cannot be loaded into Python"
    exit 77
fi

# What pip writes beside its sources is written in the build.
install_package() {
    rm -rf "$2" && mkdir -p "$2/src"
    cp -r "$here/../python/." "$2/src"
    QUERN_LIBRARY=$build/libquern.so "$1" -m pip install -q --disable-pip-version-check --no-index --no-deps --no-build-isolation \
        --root-user-action=ignore --target "$2/site" "$2/src" 2> "$2/log" || { cat "$2/log"; return 1; }
    [ -f "$2/site/quern/lib/libquern.so.0" ]
    "$1" -m pip install -q --disable-pip-version-check --no-index --no-deps --no-build-isolation --root-user-action=ignore --target "$2/site" \
        "$2/src/compat" 2> "$2/log" || { cat "$2/log"; return 1; }
}

# From 70.1 on setuptools makes wheels by itself.
has_pip='import importlib.metadata as m
m.version("pip")
if [int(n) for n in m.version("setuptools").split(".")[:2]] < [70, 1]: m.version("wheel")'

run_with() {
    python=$1 site=$2
    "$python" -c "import $need" 2> /dev/null || { echo "$python has no $need"; return 0; }
    if "$python" -c "$has_pip" 2> /dev/null; then
        install_package "$python" "$site"
        export PYTHONPATH="$site/site"
    else
        echo "note: $python has no pip, setuptools and wheel (tool/deps python): the package is used from the tree"
        export PYTHONPATH="$here/../python:$here/../python/compat" QUERN_LIBRARY="$build/libquern.so"
    fi
    ran=yes
    (cd "$work"; "$python" "$here/python_$what.py")
}

export QUERN_TEST_CUDA="$build/test/fake_cuda.so" QUERN_COMMAND="$build/quern"
mkdir -p "$work"
[ -x /usr/bin/python3 ] && run_with /usr/bin/python3 "$work/debian"
venv=$here/../build/venv/bin/python
[ -x "$venv" ] && run_with "$venv" "$work/venv"
[ -n "$ran" ] || { echo "skipped: no Python with $need (tool/deps python torch, bench/setup torch)"; exit 77; }
