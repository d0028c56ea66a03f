#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# orphans.sh BUILD [N]: a tuner that is killed with kill -9 at N random moments (default 8) leaves
# no process running: no builds, no compilers and their children, no candidates. Every second time
# its compiler is slow, so that it is killed while compiling.
. "$(dirname "$0")/common.sh"
n=${2:-8}
TMPDIR=$dir/tmp XDG_CACHE_HOME=$dir/cache; export TMPDIR XDG_CACHE_HOME
mkdir "$TMPDIR"

cat > "$dir/net.graph" << 'END'
graph {
  input %x: f32[1,4,H,W]
  %a: f32[1,4,H,W] = Relu(%x)
  %b: f32[1,4,H//2,W//2] = MaxPool(%a) {kernel_shape=[2,2], strides=[2,2]}
  output %b
}
END
cat > "$dir/slow" << 'END'
#!/bin/sh
# Every step of this compiler is a process of its own.
case "$*" in *--version*) ;; *) sleep 100 ;; esac
exec cc "$@"
END
chmod +x "$dir/slow"

# marked: numbers of processes with our mark in their environment, which all that the tuner starts has.
marked() { grep -lsa "QUERN_ORPHANS=$mark\$\|QUERN_ORPHANS=$mark[^0-9.]" /proc/[0-9]*/environ 2> /dev/null | grep -v self; }
seed=${SEED:-3} n_busy=0
for i in $(seq "$n"); do
    mark=$$.$i
    if [ $((i % 2)) -eq 0 ]; then cc=$dir/slow; else cc=cc; fi
    rm -rf "$XDG_CACHE_HOME"
    QUERN_ORPHANS=$mark QUERN_CC=$cc "$quern" tune "$dir/net.graph" -o "$dir/$i.dnx" --threads 1 --optimize-for H:32,W:32 > "$dir/log" 2>&1 &
    pid=$!
    seed=$(( (seed * 1103515245 + 12345) % 2147483648 ))
    ms=$(( 50 + seed / 65536 % 700 ))
    sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
    [ "$(marked | wc -l)" -gt 1 ] && n_busy=$((n_busy + 1))
    kill -9 $pid 2> /dev/null
    wait $pid 2> /dev/null
    for k in $(seq 100); do
        left=$(marked)
        [ -z "$left" ] && break
        sleep 0.1
    done
    if [ -n "$left" ]; then
        for f in $left; do tr '\0' ' ' < "${f%environ}cmdline"; echo; done
        fail "kill $i after $ms ms: these are left"
    fi
done
echo "$n kills, $n_busy of them while others were at work; nothing is left"
[ "$n" -lt 4 ] || [ "$n_busy" -gt 0 ] || fail "no kill met a compiler or a candidate"
