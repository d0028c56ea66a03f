#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hardening.sh BUILD: binaries use the linker's and compiler's hardening; libraries have versioned
# names and export only the public interface; make install creates links that build and run
# programs.
. "$(dirname "$0")/common.sh"
build=$1 here=$here/..
command -v readelf > /dev/null && command -v nm > /dev/null || { echo "skipped: no readelf, nm (binutils)"; exit 77; }
has() { grep -q -e "$2" "$dir/$1"; }
is_san=$(nm -D --undefined-only "$build/libquern.so" | grep -c '__asan_init\|__tsan_init')

for f in quern libquern.so libquern_rt.so; do
    readelf -W -l "$build/$f" > "$dir/segments" && readelf -W -d "$build/$f" > "$dir/dynamic" && readelf -W -h "$build/$f" > "$dir/head" || fail "$f cannot be read"
    nm -D --undefined-only "$build/$f" > "$dir/wanted"
    has segments 'GNU_RELRO' || fail "$f: relocations stay writable (RELRO)"
    has dynamic 'BIND_NOW\|NOW' || fail "$f: symbols are bound late"
    has segments 'GNU_STACK.* RW ' || fail "$f: the stack is executable"
    has segments 'LOAD.* RWE' && fail "$f: memory that is both writable and executable"
    has head 'DYN' || fail "$f: not position-independent"
    [ "$is_san" -gt 0 ] && continue
    has wanted '__stack_chk_fail' || fail "$f: no stack protector"
    has wanted '_chk' || fail "$f: no checked functions (FORTIFY_SOURCE)"
done
[ "$is_san" -gt 0 ] && echo "skipped: the stack protector and checked functions, which sanitizers replace"

for l in libquern libquern_rt; do
    readelf -W -d "$build/$l.so" | grep -q "SONAME.*\[$l\.so\.[0-9]*\]" || fail "$l: no name with a version"
    # Ignores symbols of sanitizers and of the linker.
    odd=$(nm -D --defined-only "$build/$l.so" | awk '{print $NF}' | grep -v '^quern_\|^_init$\|^_fini$\|asan\|tsan\|ubsan\|^__odr')
    [ -z "$odd" ] || fail "$l exports: $odd"
    [ "$(nm -D --defined-only "$build/$l.so" | grep -c ' quern_')" -gt 20 ] || fail "$l exports nothing"
done
sed -n 's/^QUERN_API .*[ *]\(quern_[a-z_0-9]*\)(.*/\1/p' "$here/include/quern.h" | sort > "$dir/declared"
nm -D --defined-only "$build/libquern.so" | awk '$NF ~ /^quern_/ {print $NF}' | sort > "$dir/exported"
[ "$(wc -l < "$dir/declared")" -gt 50 ] || fail "quern.h cannot be read"
diff "$dir/declared" "$dir/exported" > "$dir/diff" || { cat "$dir/diff"; fail "quern.h and what is exported differ"; }

if command -v hardening-check > /dev/null && [ "$is_san" -eq 0 ]; then
    without=--nocfprotection
    if hardening-check --help 2>&1 | grep -q nobranchprotection; then without="$without --nobranchprotection"; fi # newer ones look for it
    for f in quern libquern.so libquern_rt.so; do
        # Whether a function with a checked form is one of those that need it only the compiler knows.
        hardening-check $without "$build/$f" > "$dir/said" 2>&1 || { cat "$dir/said"; fail "hardening-check $f"; }
    done
elif [ "$is_san" -eq 0 ]; then echo "skipped: hardening-check (Debian: devscripts) is not installed"
fi

case $build in
build)
    make -C "$here" -s -o all install PREFIX=/usr DESTDIR="$dir/root" > "$dir/log" 2>&1 || { cat "$dir/log"; fail "make install"; }
    root=$dir/root/usr
    for l in libquern libquern_rt; do
        [ -L "$root/lib/$l.so" ] && [ -L "$root/lib/$l.so.0" ] && [ -f "$root/lib/$l.so" ] || fail "links of $l"
    done
    "$root/bin/quern" --version > /dev/null || fail "the installed command does not start"
    printf '#include "quern.h"\n#include <stdio.h>\nint main(void) { return puts(quern_version()) < 0; }\n' > "$dir/p.c"
    flags=$(PKG_CONFIG_PATH=$root/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dir/root pkg-config --cflags --libs quern) || fail "pkg-config"
    # shellcheck disable=SC2086 # several words
    cc "$dir/p.c" -o "$dir/p" -I"$root/include" -L"$root/lib" $flags || fail "a program does not build"
    [ "$(LD_LIBRARY_PATH=$root/lib "$dir/p")" = "$("$root/bin/quern" --version | sed 's/quern //')" ] || fail "a program does not run"
    rm "$root/lib/libquern.so" # which is for building alone
    LD_LIBRARY_PATH=$root/lib "$dir/p" > /dev/null || fail "a program does not run by the library's name with its version"
    ;;
*) echo "skipped: make install, of build/ only" ;;
esac
