# SPDX-License-Identifier: Apache-2.0
# common.sh: shared by shell tests. They begin with `. "$(dirname "$0")/common.sh"`, get the build
# folder as their argument, and a folder $dir of their own, which is removed at the end. A failure
# either ends the test (fail), or is counted (wrong and its callers, up to finish).
# shellcheck shell=sh disable=SC2034 # some are for the tests
set -u
LC_ALL=C; export LC_ALL
build=$(cd "$1" && pwd) || exit 1
here=$(cd "$(dirname "$0")" && pwd)
quern=$build/quern
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
n=0 bad=0           # checks, those that went wrong
seconds=200         # that a command may take
at_once=            # not empty: the first that goes wrong ends the test

# The output of the last command: in $dir/log, or in files err and out of the current folder.
output() { for f in "$dir/log" err out; do if [ -f "$f" ]; then sed 's/^/    /' "$f" | head -n 20; fi; done; }
fail() { echo "FAILED: $*"; output; exit 1; }
wrong() { [ -z "$at_once" ] || fail "$@"; echo "WRONG: $*"; output; bad=$((bad + 1)); }
finish() { echo "$n checks, $bad wrong"; [ "$bad" -eq 0 ]; exit; }

# exits CODE COMMAND...: it ends with this exit code; its output is in out and err.
exits() {
    want=$1; shift
    n=$((n + 1))
    timeout "$seconds" "$@" > out 2> err < /dev/null
    got=$?
    [ "$got" -eq "$want" ] || wrong "exit code $got instead of $want: $*"
}
says() { n=$((n + 1)); grep -q -e "$1" out err || wrong "not said: $1"; }
silent() { n=$((n + 1)); ! grep -q -e "$1" out err || wrong "said: $1"; }
is_file() { n=$((n + 1)); [ -s "$1" ] || wrong "no file $1"; }
# Files or folders; of programs that differ, what explains them.
same() {
    n=$((n + 1))
    diff -r "$1" "$2" > "$dir/log" 2>&1 && return
    case $1 in *.dnx)
        "$quern" explain "$1" > "$dir/first" 2>&1
        "$quern" explain "$2" | diff "$dir/first" - >> "$dir/log" 2>&1 ;;
    esac
    wrong "$1 and $2 differ"
}

# needs_python MODULES WHAT: $python is the virtual environment's, which has these modules and finds the package of the tree; else the test is skipped for
# want of WHAT. The current folder is $dir, the tree $top.
needs_python() {
    top=$(dirname "$here")
    python=$top/build/venv/bin/python
    nm -D "$quern" | grep -q __asan && { echo "skipped: a library with sanitizers cannot be loaded into Python"; exit 77; }
    "$python" -c "import $1" 2> /dev/null || { echo "skipped: no $2"; exit 77; }
    cd "$dir" || exit 1
    export PYTHONPATH="$top/python${PYTHONPATH:+:$PYTHONPATH}" QUERN_LIBRARY="$build/libquern.so" HF_HUB_OFFLINE=1
}
