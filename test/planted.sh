#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# planted.sh BUILD: native code planted into a database beside the network, into an artifact of the
# cache or into another user's cache is not executed; files of another user are not used unless
# named; read-only files are read.
. "$(dirname "$0")/common.sh"
TMPDIR=$dir/tmp XDG_CACHE_HOME=$dir/cache XDG_CONFIG_HOME=$dir/config; export TMPDIR XDG_CACHE_HOME XDG_CONFIG_HOME
mkdir "$TMPDIR"
says() { grep -q -- "$1" "$dir/log" || fail "it does not say '$1'"; }
tune() { "$quern" tune "$dir/net.graph" -o "$dir/net.dnx" --threads 1 --optimize-for H:16 --min-samples 2 --max-candidates 3 --timeout 5 "$@" \
    > "$dir/log" 2>&1; }
clean() { [ ! -e "$dir/ran" ] || fail "planted code was run: $1"; }

cat > "$dir/net.graph" << 'END2'
graph {
  input %x: f32[1,4,H,H]
  %a: f32[1,4,H,H] = Relu(%x)
  output %a
}
END2
cat > "$dir/evil.c" << END2
#include <fcntl.h>
__attribute__((constructor)) static void run(void) { (void)!open("$dir/ran", O_CREAT | O_WRONLY, 0600); }
END2
gcc -shared -fPIC -o "$dir/evil.so" "$dir/evil.c" || exit 1

# the cache: a file in the place of each, with another end, with the end of the one that was there, of another user's key
tune || fail "the first run"
keys=$(cd "$dir/cache/quern/kernels" && ls | grep -v '\.part$') || fail "no kernels are kept"
for kind in alone padded sealed; do
    for k in $keys; do
        f=$dir/cache/quern/kernels/$k
        tail -c 64 "$f" > "$dir/seal"
        case $kind in
        alone) cat "$dir/evil.so" > "$f" ;;
        padded) { cat "$dir/evil.so"; head -c 64 /dev/zero; } > "$f" ;;
        sealed) { cat "$dir/evil.so" "$dir/seal"; } > "$f" ;;
        esac
    done
    rm -f "$dir"/net.db*
    tune || fail "with planted files, $kind"
    clean "$kind files"
done
cp -r "$dir/cache" "$dir/theirs" && rm -rf "$dir/cache"
rm "$dir/config/quern/cache-key"
mv "$dir/theirs" "$dir/cache"
before=$(cat "$dir"/cache/quern/kernels/* | cksum)
rm -f "$dir"/net.db*
tune || fail "with another user's cache"
[ "$before" != "$(cat "$dir"/cache/quern/kernels/* | cksum)" ] || fail "another user's kernels were taken"

# without libcrypto nothing can be sealed: nothing is kept, everything else works
mkdir "$dir/nocrypto" && : > "$dir/nocrypto/libcrypto.so.3"
rm -rf "$dir"/net.db* "$dir/cache"
LD_LIBRARY_PATH=$dir/nocrypto tune || fail "without libcrypto"
says 'are not kept: .*libcrypto'
[ -z "$(ls "$dir/cache/quern/kernels")" ] || fail "something is kept without libcrypto"

# a database beside the network with code for every kernel, as old versions kept it; one of today's that another program changed
if command -v python3 > /dev/null; then
    for version in 3 7; do
        rm -rf "$dir/cache"
        [ $version = 7 ] || rm -f "$dir"/net.db*
        python3 - "$dir" $version $keys << 'END2'
import sqlite3, sys
dir, version, keys = sys.argv[1], sys.argv[2], sys.argv[3:]
code = open(dir + "/evil.so", "rb").read()
db = sqlite3.connect(dir + "/net.db")
if version == "3":
    db.executescript("""CREATE TABLE env (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, toolchain TEXT NOT NULL, UNIQUE (fingerprint, toolchain));
        CREATE TABLE task (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, text TEXT NOT NULL);
        CREATE TABLE trial (id INTEGER PRIMARY KEY, env INTEGER NOT NULL, task INTEGER NOT NULL, sizes TEXT NOT NULL, candidate TEXT NOT NULL,
            kernel TEXT NOT NULL DEFAULT '', status INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '', UNIQUE (env, task, sizes, candidate));
        CREATE TABLE sample (id INTEGER PRIMARY KEY, trial INTEGER NOT NULL, seconds REAL NOT NULL, reference REAL NOT NULL, cold INTEGER NOT NULL
            DEFAULT 0, final INTEGER NOT NULL DEFAULT 0);
        CREATE INDEX sample_trial ON sample (trial);
        CREATE TABLE model (name TEXT PRIMARY KEY, options TEXT NOT NULL);""")
db.execute("CREATE TABLE binary (key TEXT PRIMARY KEY, code BLOB NOT NULL)")
db.execute("CREATE TABLE part (key TEXT PRIMARY KEY, program TEXT NOT NULL)")
db.executemany("INSERT INTO binary VALUES (?,?)", [(k, code) for k in keys])
db.execute("CREATE TRIGGER IF NOT EXISTS planted AFTER INSERT ON sample BEGIN DELETE FROM sample; END")
db.execute("PRAGMA user_version=" + version)
db.commit()
END2
        [ $version = 7 ] || { tune || fail "with a planted database of version $version"; }
        [ $version = 3 ] || ! tune || fail "a database that another program changed is taken"
        clean "a database of version $version"
        [ $version = 7 ] || { "$quern" db stats "$dir/net.db" > "$dir/log" 2>&1; says '"samples":[1-9]'; }
    done
    rm -f "$dir"/net.db*
    tune || fail "a new database"
else echo "skipped: planted databases, without python3 (tool/deps python)"
fi

# other users' databases and files that can only be read
if [ "$(id -u)" -eq 0 ] && command -v setpriv > /dev/null; then
    chown 65534 "$dir/net.db"
    ! tune || fail "another user's database is taken without being named"
    says 'belongs to another user'; says "--db '$dir/net.db'"
    tune --db "$dir/net.db" || fail "another user's database that is named"
    chown 0 "$dir/net.db"
    ln -s "$dir/net.db" "$dir/link.db" && chown -h 65534 "$dir/link.db"
    ! "$quern" tune "$dir/net.graph" -o "$dir/link.dnx" --timeout 1 > "$dir/log" 2>&1 || fail "another user's link to a database is taken"
    says 'belongs to another user'
    mkdir "$dir/still" "$dir/own" && mv "$dir/net.db" "$dir/still/" && chmod 755 "$dir" && chmod 444 "$dir/still/net.db" && chmod 555 "$dir/still"
    chown 65534 "$dir/own"
    mkdir "$dir/bin" && cp "$1/quern" "$1"/libquern*.so* "$dir/bin/" # others may not be let into the folder of the build
    nobody() { HOME=$dir/own XDG_CACHE_HOME=$dir/own/cache XDG_CONFIG_HOME=$dir/own/config TMPDIR=$dir/own \
        setpriv --reuid 65534 --regid 65534 --clear-groups "$dir/bin/quern" "$@" > "$dir/log" 2>&1; }
    nobody db stats "$dir/still/net.db" || fail "statistics of a database that can only be read"
    says '"samples":[1-9]'
    nobody compile "$dir/net.graph" --db "$dir/still/net.db" -o "$dir/own/net.dnx" --threads 1 --optimize-for H:16 || fail "a program by a database that can only be read"
    ! grep -q 'knows nothing' "$dir/log" || fail "what can only be read is not known"
    ! nobody tune "$dir/net.graph" --db "$dir/still/net.db" -o "$dir/own/net.dnx" --timeout 1 --optimize-for H:16 || fail "tuning into a database that can only be read"
    says 'can only be read'
    [ "$(ls "$dir/still")" = net.db ] || fail "something was written beside a database that can only be read"
else echo "skipped: files of other users, without root or setpriv"
fi
echo "nothing planted was run"
