#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stop.sh BUILD: Ctrl-C and SIGTERM end commands in order. Tuning keeps its measurements, writes
# the best program so far and exits with code 130 or 143; a second Ctrl-C ends at once.
. "$(dirname "$0")/common.sh"
XDG_CACHE_HOME=$dir/cache; export XDG_CACHE_HOME
env --default-signal=INT true 2> /dev/null || { echo "skipped: env knows no --default-signal (coreutils 8.31)"; exit 77; }

cat > "$dir/net.graph" << 'END'
graph {
  input %x: f32[1,4,H,W]
  %a: f32[1,4,H,W] = Relu(%x)
  %b: f32[1,4,H//2,W//2] = MaxPool(%a) {kernel_shape=[2,2], strides=[2,2]}
  output %b
}
END
# start COMMAND...: in the background, without ignoring SIGINT as scripts do by default.
start() { env --default-signal=INT "$quern" "$@" > "$dir/log" 2>&1 & pid=$!; }
ends_with() { wait "$pid"; code=$?; [ "$code" -eq "$1" ] || fail "$2: exit code $code, expected $1"; }
measured() { "$quern" db stats "$dir/$1.db" 2> /dev/null | sed -n 's/.*"samples":\([0-9]*\).*/\1/p'; }
# until_measured NAME: at least some samples are in the database
until_measured() {
    for k in $(seq 300); do
        [ "$(measured "$1" | grep -c '^[1-9][0-9]')" -gt 0 ] && return
        sleep 0.1
    done
    fail "nothing is measured"
}

for signal in INT TERM; do
    case $signal in INT) want=130 ;; TERM) want=143 ;; esac
    start tune "$dir/net.graph" -o "$dir/$signal.dnx" --threads 1 --optimize-for H:64,W:64
    until_measured $signal
    before=$(measured $signal)
    kill -$signal "$pid"
    ends_with $want "tune, SIG$signal"
    [ "$(measured $signal)" -ge "$before" ] || fail "samples are lost"
    [ -s "$dir/$signal.dnx" ] || fail "no program"
    grep -q 'stopped: the measurements are in' "$dir/log" || fail "nothing is said of the database"
    "$quern" verify "$dir/net.graph" --program "$dir/$signal.dnx" > "$dir/log" 2>&1 || fail "the program is wrong"
done

# At once: the compiler is too slow for an end in order.
printf '#!/bin/sh\ncase "$*" in *--version*) ;; *) sleep 100 ;; esac\nexec cc "$@"\n' > "$dir/slow"
chmod +x "$dir/slow"
QUERN_CC=$dir/slow; export QUERN_CC
start compile "$dir/net.graph" -o "$dir/c.dnx"
sleep 1
kill -INT "$pid"
ends_with 130 "compile"
[ ! -e "$dir/c.dnx" ] || fail "a program that was not asked for any more"
start tune "$dir/net.graph" -o "$dir/n.dnx"
sleep 1
kill -INT "$pid"
for k in $(seq 50); do kill -INT "$pid" 2> /dev/null || break; sleep 0.1; done
ends_with 130 "tune, before anything is measured"
unset QUERN_CC

# Commands that run programs.
"$quern" compile "$dir/net.graph" -o "$dir/net.dnx" > "$dir/log" 2>&1 || fail "compile"
start run "$dir/net.dnx" --bench --set H=64 W=64 --timeout 1000
sleep 0.5
kill -TERM "$pid"
ends_with 143 "run --bench"
grep -q '^median' "$dir/log" || fail "nothing is said of what was timed"
# conv: finished layers are reported, the current one is left to the next run; its trials are in the database.
printf 'channels,height,width,kernel_h,kernel_w,out_channels\n3,12,12,3,3,4\n' > "$dir/rows.csv"
start conv "$dir/rows.csv" --verify --seconds 1000 --threads 1 --db "$dir/conv.db"
until_measured conv
kill -INT "$pid"
ends_with 130 "conv"
start verify "$dir/net.graph" --set H=4000 W=4000
sleep 0.3
kill -TERM "$pid"
ends_with 143 "verify"
# A signal that is ignored stays ignored.
(trap '' INT; exec "$quern" run "$dir/net.dnx" --bench --set H=64 W=64 --timeout 1 > "$dir/log" 2>&1) &
pid=$!
sleep 0.3
kill -INT "$pid"
ends_with 0 "run --bench that ignores SIGINT"
