#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_wheel.sh BUILD: the wheel of `make wheel`, installed as pip installs it into an empty environment: its platform, what it needs of the
# system, the command, programs without a compiler, and the error where one is needed. For ARM64, too, where libraries and emulator are there.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
top=$(dirname "$here")
python=/usr/bin/python3
unset MAKEFLAGS MFLAGS MAKELEVEL PYTHONPATH QUERN_LIBRARY QUERN_CC
nm -D "$quern" | grep -q '__[at]san' && { echo "skipped: a library with sanitizers cannot be loaded into Python"; exit 77; }
"$python" -c 'import numpy, setuptools, pip, venv, ensurepip' 2> /dev/null ||
    { echo "skipped: no Python with numpy, pip, setuptools and venv (tool/deps python)"; exit 77; }
[ -x "$build/wheel/bin/quern" ] || { echo "skipped: no $build/wheel/bin/quern (make tests)"; exit 77; }

exits 0 "$top/tool/wheel" package "$build" "$(sed 's/ -.*//' "$build/flags")" /usr/share/doc
wheel=$(ls "$build"/quern-*.whl)
machine=$(uname -m)
echo "${wheel##*/}" | grep -q "^quern-[0-9.]*-py3-none-manylinux_2_[0-9]*_$machine\.whl$" || wrong "name of $wheel"

# Beside the C library, files need only what is in the wheel; the C library is no newer than the name says.
glibc=$(echo "$wheel" | sed 's/.*manylinux_\([0-9]*\)_\([0-9]*\)_.*/\1.\2/')
exits 0 "$python" -m zipfile -e "$wheel" unpacked
for f in unpacked/quern/lib/* unpacked/quern/bin/*; do
    n=$((n + 1))
    newest=$({ readelf -V "$f" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//'; echo "$glibc"; } | sort -V | tail -n 1)
    [ "$newest" = "$glibc" ] || wrong "$f needs version $newest of the C library"
    for needed in $(readelf -d "$f" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        case $needed in
        libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | ld-linux-*) ;;
        *) is_file "unpacked/quern/lib/$needed" ;;
        esac
    done
done
for f in lib/libquern.so.0 bin/quern licenses/libsqlite3-0.txt; do is_file "unpacked/quern/$f"; done
for f in unpacked/*; do
    n=$((n + 1))
    case ${f#*/} in _quern_command.py | quern | quern-*.dist-info) ;; *) wrong "the wheel has $f" ;; esac
done

# An environment of its own, to which only NumPy is lent, and no compiler.
exits 0 "$python" -m venv env
exits 0 env/bin/python -m pip install -q --disable-pip-version-check --no-index --no-deps "$wheel"
mkdir lent home
ln -s "$("$python" -c 'import numpy, os; print(os.path.dirname(numpy.__file__))')" lent/numpy
alone() { want=$1; shift; exits "$want" env -i PATH="$dir/env/bin" HOME="$dir/home" PYTHONPATH="$dir/lent" LD_LIBRARY_PATH= "$@"; }
cat > net.graph <<'X'
graph {
  input %x: f32[N,3]
  %y: f32[N,3] = Neg(%x)
  output %y
}
X
exits 0 "$quern" compile net.graph -o net.dnx
alone 0 quern --version; says 'quern'
alone 0 quern show net.dnx; says '^input x f32'
alone 0 quern run net.dnx --bench --set N=4; says 'median'
cat > use.py <<'X'
import numpy, quern
net = quern.load("net.dnx")
x = numpy.arange(6, dtype="f").reshape(2, 3)
assert (net(x) == -x).all() and "site-packages" in quern.library_path()
maps = open("/proc/self/maps").read()
assert not any(name in maps for name in ("libjansson", "libprotobuf-c", "libpng16")), maps
for call in (lambda: quern.compile("net.graph"), lambda: quern.tune("net.graph", "net.db", seconds=1), lambda: quern.Operator("Neg")(x)):
    try:
        call()
        raise SystemExit("no error without a compiler")
    except quern.Error as e:
        assert "no C compiler found: install gcc or clang, or set QUERN_CC" in str(e), e
print("works")
X
alone 0 python use.py; says works

# Another processor.
triple=aarch64-linux-gnu there=$build/cross/aarch64-linux-gnu
if ! command -v $triple-gcc > /dev/null || [ ! -d "$top/build/sysroot/$triple" ]; then
    echo "skipped: a wheel for $triple, whose compiler or libraries are not there (tool/deps cross; tool/sysroot)"
elif [ ! -f "$there/libquern.so" ] && [ ! -f "$there/wheel/bin/quern" ]; then
    echo "skipped: a wheel for $triple, for which quern is not built (cross.sh)"
else
    seconds=900
    exits 0 make -C "$top" -j2 CROSS=$triple BUILD="$there" OPT=-O1 HARDEN= wheel # as cross.sh builds it
    ls "$there"/quern-*-py3-none-manylinux_2_*_aarch64.whl > out 2> err || wrong "no wheel for $triple"
    if command -v qemu-aarch64 > /dev/null; then
        exits 0 qemu-aarch64 -L /usr/$triple "$there/wheel/bin/quern" --version; says quern
        exits 0 qemu-aarch64 -L /usr/$triple "$there/wheel/bin/quern" show net.dnx; says '^input x f32'
    fi
fi
finish
