#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sign.sh BUILD: the runtime library alone also requires signatures, and refuses unverifiable
# files; keys are made by the openssl command.
. "$(dirname "$0")/common.sh"
include=$(cd "$here/../include" && pwd)
cd "$dir" || exit 1

cat > net.graph <<'X'
graph {
  input %x: f32[N]
  %y: f32[N] = Relu(%x)
  output %y
}
X
cat > open.c <<'X'
#include <quern.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    struct quern_run_opts o = QUERN_OPTS(quern_run_opts);
    quern_program *p = NULL;
    quern *q = quern_open(NULL);
    o.require_signature = 1, o.trusted = argv[2];
    quern_status s = quern_program_open(q, argv[1], &o, &p);
    printf("%d %s\n", s, quern_error(q));
    quern_program_close(p);
    quern_close(q);
    return s != QUERN_OK;
}
X
if grep -q __asan_init "$build/libquern_rt.so"; then
    echo "skipped: a library with sanitizers cannot be loaded into a program without"
    exit 77
fi
cc -I"$include" open.c -o open -L"$build" -lquern_rt -Wl,-rpath,"$build" 2> err || { echo "skipped: no program against libquern_rt: $(head -n 1 err)"; exit 77; }
"$build/quern" compile net.graph -o net.dnx || wrong "compile"
"$build/quern" key new me > id 2> err || wrong "key new: $(cat err)"
"$build/quern" sign net.dnx --key me.key -o signed.dnx || wrong "sign"

# opens CODE WORDS ARGUMENTS: the program ends so, and says that.
opens() {
    want=$1 words=$2; shift 2
    n=$((n + 1))
    ./open "$@" > out 2>&1
    got=$?
    [ $got -eq "$want" ] && grep -q -e "$words" out || wrong "exit code $got, $(cat out): $*"
}
XDG_CONFIG_HOME=$dir; export XDG_CONFIG_HOME
opens 0 '^0 $' signed.dnx me.pub
opens 1 'not signed' net.dnx me.pub
opens 1 'none of the 0 trusted' signed.dnx
"$build/quern" key trust me.pub || wrong "trust"
opens 0 '^0 $' signed.dnx
mkdir nocrypto
: > nocrypto/libcrypto.so.3
LD_LIBRARY_PATH=$dir/nocrypto opens 1 'libcrypto' signed.dnx
unset LD_LIBRARY_PATH

# keys of another implementation, where it is installed
if command -v openssl > /dev/null; then
    n=$((n + 1))
    openssl genpkey -algorithm ed25519 -out other.key 2> err && openssl pkey -in other.key -pubout -out other.pub || wrong "openssl: $(cat err)"
    chmod 600 other.key
    "$build/quern" sign net.dnx --key other.key -o other.dnx || wrong "sign by openssl's key"
    opens 0 '^0 $' other.dnx other.pub
    openssl pkey -in me.key -pubout > me2.pub 2> err && cmp -s me.pub me2.pub || wrong "the public key of me.key is another one: $(cat err)"
fi
finish
