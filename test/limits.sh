#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# limits.sh BUILD: missing system resources are specific errors: a temporary folder that is
# missing, not writable or full; threads that cannot be started. Useless threads are not started.
. "$(dirname "$0")/common.sh"
XDG_CACHE_HOME=$dir/cache; export XDG_CACHE_HOME

cat > "$dir/net.graph" << 'END'
graph {
  input %x: f32[1,4,H,W]
  %a: f32[1,4,H,W] = Relu(%x)
  output %a
}
END
# refused FOLDER: commands that compile end with an error that names it; candidates are not judged
# by it
refused() {
    for command in compile tune; do
        TMPDIR=$1 "$quern" $command "$dir/net.graph" -o "$dir/net.dnx" --threads 1 > "$dir/log" 2>&1
        [ $? -eq 1 ] || fail "$command with TMPDIR=$1: no error"
        grep -q "'$1' (TMPDIR)" "$dir/log" || fail "$command does not name TMPDIR=$1"
        [ ! -e "$dir/net.dnx" ] || fail "a program"
    done
    "$quern" db stats "$dir/net.db" > "$dir/log" 2>&1 || fail "db stats"
    grep -q '"samples":0' "$dir/log" || fail "samples with TMPDIR=$1"
    rm -f "$dir"/net.db*
}
refused "$dir/none"
refused /proc # nobody can make a folder there
case $(uname) in
Linux)
    # A small file system of our own, where mounting is allowed.
    mkdir "$dir/small"
    if unshare -rm sh -c "mount -t tmpfs -o size=100k none '$dir/small'" 2> /dev/null; then
        unshare -rm sh -c "mount -t tmpfs -o size=100k none '$dir/small' && head -c 92000 /dev/zero > '$dir/small/much' &&
            TMPDIR='$dir/small' '$quern' compile '$dir/net.graph' -o '$dir/net.dnx'" > "$dir/log" 2>&1
        [ $? -eq 1 ] && grep -q "'$dir/small' (TMPDIR)" "$dir/log" && grep -q 'No space left' "$dir/log" || fail "a full TMPDIR"
    else echo "skipped: a full file system, without leave to mount one"
    fi ;;
esac

"$quern" compile "$dir/net.graph" -o "$dir/net.dnx" > "$dir/log" 2>&1 || fail "compile"
"$quern" run "$dir/net.dnx" --bench --set H=64 W=64 --timeout 0 --min-samples 2 --threads 3 > "$dir/log" 2>&1 || fail "three threads"
grep -q 'too many' "$dir/log" && fail "three threads are too many"
"$quern" run "$dir/net.dnx" --bench --set H=64 W=64 --timeout 0 --min-samples 2 --threads 100000 > "$dir/log" 2>&1 || fail "100000 threads"
grep -q '100000 threads are too many for [0-9]* processors: [0-9]* are used' "$dir/log" || fail "nothing is said of 100000 threads"
