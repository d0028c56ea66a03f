#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# durability.sh BUILD [N]: the tuner is killed with kill -9 at N (20) random moments, then runs to
# its end: no committed sample is ever lost, the last run completes, and neither processes nor
# temporary files remain. Then N databases, some with a write-ahead log left by a kill, are
# damaged: truncated, bytes flipped, pages zeroed, overwritten and exchanged. Each is refused with
# a message, or is intact; db repair recovers existing samples, and no others. No crash. SEED=n:
# other moments and damage.
. "$(dirname "$0")/common.sh"
n=${2:-20}
TMPDIR=$dir/tmp XDG_CACHE_HOME=$dir/cache XDG_CONFIG_HOME=$dir/config; export TMPDIR XDG_CACHE_HOME XDG_CONFIG_HOME
mkdir "$TMPDIR"
seed=${SEED:-7}
random() { seed=$(( (seed * 1103515245 + 12345) % 2147483648 )); value=$(( seed / 8 % $1 )); } # value: below $1
# Every sample of a database with its trial, sorted; statuses may change.
samples() { "$quern" db export "$1" "$dir/csv" 2> "$dir/err" && sed '1d; /,,,,*$/d; s/,"[0-9a-f]*",[a-z-]*,".*",\([^"]*\)$/,\1/' "$dir/csv" | sort > "$2"; }
tune() { exec "$quern" tune "$dir/net.graph" -o "$dir/net.dnx" --threads 1 --optimize-for H:32,W:32 --min-samples 5 \
    --max-candidates 20 "$@"; }

cat > "$dir/net.graph" << 'END2'
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
END2

# kills
: > "$dir/before"
logs=0
for i in $(seq "$n"); do
    [ $((i % 100)) -eq 0 ] && rm -f "$dir"/net.db* && : > "$dir/before" # from the beginning, also with few samples
    tune --timeout 100 > "$dir/log" 2>&1 &
    pid=$!
    random 1000
    sleep "$(printf '%d.%03d' $(((value + 100) / 1000)) $(((value + 100) % 1000)))"
    kill -9 $pid 2> /dev/null
    wait $pid 2> /dev/null
    [ -e "$dir/net.db" ] || continue # killed before the database was made
    if [ -s "$dir/net.db-wal" ]; then cp "$dir/net.db" "$dir/left.db" && cp "$dir/net.db-wal" "$dir/left.db-wal" && logs=$((logs + 1)); fi
    samples "$dir/net.db" "$dir/now" || fail "after kill $i: $(cat "$dir/err")"
    comm -23 "$dir/before" "$dir/now" > "$dir/lost"
    [ -s "$dir/lost" ] && fail "kill $i lost samples: $(head -3 "$dir/lost")"
    mv "$dir/now" "$dir/before"
done
(tune --timeout 10) > "$dir/log" 2>&1 || fail "the last run: $(cat "$dir/log")"
samples "$dir/net.db" "$dir/now" || fail "after the last run: $(cat "$dir/err")"
comm -23 "$dir/before" "$dir/now" > "$dir/lost"
[ -s "$dir/lost" ] && fail "the last run lost samples: $(head -3 "$dir/lost")"
[ -s "$dir/now" ] || fail "nothing was measured"
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
echo "$n kills, $logs of them left a log: $(wc -l < "$dir/now") samples at the end, none was lost"

# damages
flip() { # FILE: another byte at a random place
    random "$(stat -c %s "$1")"; at=$value
    old=$(od -An -tu1 -j "$at" -N 1 "$1")
    random 255
    printf "\\$(printf %03o $(( (old + value + 1) % 256 )))" | dd of="$1" bs=1 seek="$at" conv=notrunc 2> /dev/null
}
page() { random $(( $(stat -c %s "$1") / 4096 )); } # FILE: value is a page of it
damage() { # KIND FILE
    case $1 in
    0) size=$(stat -c %s "$2"); random $((size - 2)); truncate -s $((value + 2)) "$2" ;;
    1) flip "$2" ;;
    2) for k in 1 2 3 4 5 6 7 8; do flip "$2"; done ;;
    3) page "$2"; dd if=/dev/zero of="$2" bs=4096 seek="$value" count=1 conv=notrunc 2> /dev/null ;;
    4) page "$2"; dd if=/dev/urandom of="$2" bs=4096 seek="$value" count=1 conv=notrunc 2> /dev/null ;;
    5) page "$2"; from=$value; page "$2"; dd if="$dir/good.db" of="$2" bs=4096 skip="$from" seek="$value" count=1 conv=notrunc 2> /dev/null ;;
    6) flip "$2-wal" ;;
    7) for k in 1 2 3; do flip "$2-wal"; done ;;
    esac
}
crashed() { [ "$1" -gt 3 ] && fail "damage $i of kind $kind: '$2' ended with $1: $(cat "$dir/err")"; }
mkdir "$dir/good" && cp "$dir/net.db" "$dir/good.db"
samples "$dir/good.db" "$dir/good.txt" || fail "$(cat "$dir/err")"
if [ -e "$dir/left.db" ]; then
    cp "$dir/left.db" "$dir/copy.db" && cp "$dir/left.db-wal" "$dir/copy.db-wal"
    samples "$dir/copy.db" "$dir/left.txt" || fail "$(cat "$dir/err")"
fi
refused=0 harmless=0 repaired=0 saved=0 were=0
for i in $(seq "$n"); do
    random 8; kind=$value which=good
    [ "$kind" -ge 6 ] && which=left && [ ! -e "$dir/left.db" ] && kind=1 which=good
    rm -f "$dir"/bad.db* "$dir"/new.db*
    cp "$dir/$which.db" "$dir/bad.db"
    [ $which = good ] || cp "$dir/left.db-wal" "$dir/bad.db-wal"
    damage "$kind" "$dir/bad.db"
    cp "$dir/bad.db" "$dir/kept.db"; [ ! -e "$dir/bad.db-wal" ] || cp "$dir/bad.db-wal" "$dir/kept.db-wal"
    "$quern" db stats "$dir/bad.db" > "$dir/log" 2> "$dir/err"; stats=$?
    crashed $stats stats
    "$quern" compile "$dir/net.graph" -o "$dir/bad.dnx" --db "$dir/bad.db" --threads 1 --optimize-for H:32,W:32 > "$dir/log" 2> "$dir/err"; compiled=$?
    crashed $compiled compile
    samples "$dir/bad.db" "$dir/bad.txt"; code=$?
    crashed $code export
    if [ $code -eq 0 ]; then
        cmp -s "$dir/bad.txt" "$dir/$which.txt" || fail "damage $i of kind $kind is accepted with other samples"
        harmless=$((harmless + 1))
        continue
    fi
    grep -q "bad.db" "$dir/err" || fail "damage $i of kind $kind: '$(cat "$dir/err")' does not name the file"
    [ $stats -ne 0 ] && [ $compiled -ne 0 ] || fail "damage $i of kind $kind is accepted by some commands"
    refused=$((refused + 1))
    "$quern" db repair "$dir/bad.db" -o "$dir/new.db" > "$dir/log" 2> "$dir/err"; code=$?
    crashed $code repair
    cmp -s "$dir/bad.db" "$dir/kept.db" || fail "damage $i of kind $kind: the damaged database was changed"
    were=$((were + $(wc -l < "$dir/$which.txt")))
    [ $code -eq 0 ] || continue
    samples "$dir/new.db" "$dir/new.txt" || fail "damage $i of kind $kind: what was saved is no database: $(cat "$dir/err")"
    comm -23 "$dir/new.txt" "$dir/$which.txt" > "$dir/more"
    [ -s "$dir/more" ] && fail "damage $i of kind $kind: samples that nobody measured: $(head -3 "$dir/more")"
    repaired=$((repaired + 1)) saved=$((saved + $(wc -l < "$dir/new.txt")))
done
[ $refused -gt 0 ] || fail "no damage was found"
echo "$n damages: $refused refused, $harmless where nothing is missing; of those refused $repaired were repaired, with $saved of $were samples"
