#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kill.sh BUILD: the tuner is killed with kill -9 at 20 random moments and then let run to its end. The database stays
# intact and never loses a sample, the last run completes, and neither processes nor temporary files are left behind.
set -u
quern=$1/quern
dir=$(mktemp -d) || exit 1
TMPDIR=$dir/tmp; export TMPDIR
mkdir "$TMPDIR"
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
samples() { "$quern" db stats "$dir/net.db" > "$dir/stats" 2> "$dir/err" || fail "$(cat "$dir/err")"
            sed 's/.*"samples":\([0-9]*\).*/\1/' "$dir/stats"; }
tune() { exec "$quern" tune "$dir/net.graph" -o "$dir/net.dnx" --threads 1 --optimize-for H:32,W:32 --min-samples 5 \
    --max-candidates 20 "$@"; }

cat > "$dir/net.graph" << 'END'
graph {
  input %x: f32[1,4,H,W]
  %a: f32[1,4,H,W] = Relu(%x)
  %b: f32[1,4,H//2,W//2] = MaxPool(%a) {kernel_shape=[2,2], strides=[2,2]}
  %c: f32[1,4,H//2,W//2] = Tanh(%b)
  const %i: i64[2] = [2, 3]
  %d: f32[1,4,1,1] = ReduceMax(%c, %i) {keepdims=1}
  %e: f32[1,4,H//2,W//2] = Mul(%c, %d)
  output %e
}
END
before=0 seed=${SEED:-7}
for i in $(seq 20); do
    tune --timeout 100 > "$dir/log" 2>&1 &
    pid=$!
    seed=$(( (seed * 1103515245 + 12345) % 2147483648 ))
    ms=$(( 200 + seed / 65536 % 1000 ))
    sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
    kill -9 $pid 2> /dev/null
    wait $pid 2> /dev/null
    [ -e "$dir/net.db" ] || continue # killed before the database was made
    now=$(samples) || { echo "$now"; exit 1; }
    [ "$now" -ge "$before" ] || fail "kill $i: $now samples, were $before"
    before=$now
done
echo "$before samples after 20 kills"
(tune --timeout 10) > "$dir/log" 2>&1 || fail "the last run: $(cat "$dir/log")"
now=$(samples) || { echo "$now"; exit 1; }
[ "$now" -ge "$before" ] || fail "the last run: $now samples, were $before"
[ "$now" -gt 0 ] || fail "nothing was measured"
[ -s "$dir/net.dnx" ] || fail "no program"
"$quern" verify "$dir/net.graph" --program "$dir/net.dnx" > "$dir/log" 2>&1 || fail "the program: $(cat "$dir/log")"
if command -v python3 > /dev/null; then
    check=$(python3 -c "import sqlite3; print(sqlite3.connect('$dir/net.db').execute('PRAGMA integrity_check').fetchone()[0])")
    [ "$check" = ok ] || fail "integrity check: $check"
else echo "skipped: the integrity of the database, without python3 (tool/deps python)"
fi
sleep 1 # compilers whose parents were killed end by themselves
[ -z "$(ls "$TMPDIR")" ] || fail "left behind: $(ls -lR "$TMPDIR")"
grep -lsa "$dir" /proc/[0-9]*/cmdline | grep -v "/$$/" | while read -r f; do
    { tr '\0' ' ' < "$f"; } 2> /dev/null | grep -q '^.*quern tune\|cc1' && echo "$f"
done | grep -q . && fail "processes left behind"
echo "$now samples at the end"
