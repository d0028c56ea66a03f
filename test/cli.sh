#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cli.sh BUILD: the command: every subcommand's normal use on small networks, exit codes and
# messages for wrong usage and damaged files (truncated, flipped bits), and equal outputs for equal
# inputs. Prints failures; fails if there is any.
. "$(dirname "$0")/common.sh"
corpus=$here/corpus/onnx
cd "$dir" || exit 1

# code CODE ARGUMENTS: quern ends with this exit code. A failure has a message of its own.
code() {
    want=$1; shift
    exits "$want" "$quern" "$@"
    [ "$want" -eq 0 ] || grep -q '^quern' err || wrong "no message: quern $*"
}
failing() { # likewise, where the result on standard output is the message
    n=$((n + 1))
    timeout "$seconds" "$quern" "$@" > out 2> err < /dev/null
    [ $? -eq 1 ] || wrong "does not fail: quern $*"
}

# ends ARGUMENTS: a damaged file may be refused or (a changed weight) accepted, but nothing
# crashes, hangs or fails silently.
ends() {
    n=$((n + 1))
    timeout 60 "$quern" "$@" > out 2> err < /dev/null
    got=$?
    [ $got -le 3 ] || wrong "exit code $got: quern $*"
    [ $got -eq 0 ] || grep -q '^quern' err || wrong "no message: quern $*"
}

byte() { printf "\\$(printf %03o "$1")"; }

# change FILE TO AT: a copy with one byte replaced, by another one whatever it was (those of signatures are random).
change() {
    cp "$1" "$2"
    was=$(od -An -tu1 -j "$3" -N 1 "$1")
    byte $(((was + 1 + ($3 * 37 + 91) % 255) % 256)) | dd of="$2" bs=1 seek="$3" conv=notrunc 2> /dev/null
}

# broken FILE SUFFIX ARGUMENTS: the command on 6 cut and 24 changed copies of the file, named broken.SUFFIX.
broken() {
    file=$1 to=broken$2; shift 2
    size=$(wc -c < "$file")
    for k in 1 3 7 30 60 95; do
        head -c $((size * k / 100)) "$file" > "$to"
        ends "$@"
        [ $got -ne 0 ] || wrong "$file cut to $k % is accepted: quern $*"
    done
    k=0
    while [ $k -lt 24 ]; do # half of them near the start, where headers are
        at=$((k % 2 ? k * 5 + 3 : size * k / 25))
        [ $at -lt "$size" ] || at=$((size - 1))
        change "$file" "$to" $at
        ends "$@"
        k=$((k + 1))
    done
}

# given_folders: the user's folders are those that the test was given again. They belong together: what is in a cache counts only with the key of its
# settings, so that other settings would have rates measured anew, for other tests, too.
given_cache=${XDG_CACHE_HOME:-} given_config=${XDG_CONFIG_HOME:-}
given_folders() {
    unset XDG_CACHE_HOME XDG_CONFIG_HOME
    [ -z "$given_cache" ] || { XDG_CACHE_HOME=$given_cache; export XDG_CACHE_HOME; }
    [ -z "$given_config" ] || { XDG_CONFIG_HOME=$given_config; export XDG_CONFIG_HOME; }
}

cat > small.graph <<'X'
graph {
  input %x: f32[1,3,H,W]
  const %w: f32[2,3,1,1] = [0.5, -0.25, 1, 0.125, 2, -1]
  const %b: f32[2] = [0.1, -0.2]
  %c: f32[1,2,H,W] = Conv "conv"(%x, %w, %b) {kernel_shape=[1,1]}
  %y: f32[1,2,H,W] = Relu "relu"(%c)
  output %y
}
X
cat > same.graph <<'X'
graph {
  input %x: f32[1,3,H,W]
  const %one: f32[] = [1]
  %y: f32[1,3,H,W] = Mul(%x, %one)
  output %y
}
X
cat > half.graph <<'X'
graph {
  input %x: f16[1,3,H,W]
  %y: f16[1,3,H,W] = Relu(%x)
  output %y
}
X
cat > two.graph <<'X'
graph {
  input %a: f32[N]
  input %b: f32[N]
  %sum: f32[N] = Add(%a, %b)
  %difference: f32[N] = Sub(%a, %b)
  output %sum
  output %difference
}
X
cat > unsupported.graph <<'X'
graph {
  input %a: f32[N]
  %b: f32[N] = Frobnicate "my_node"(%a)
  output %b
}
X

# usage
code 0 --version; says '^quern [0-9]'
code 0 --help; says 'verify'
code 0 -d list; says '^code'
"$quern" > out 2> err; [ $? -eq 2 ] || wrong "no arguments"
code 2 verfy; says "'verify'"
code 2 run --thraeds 2 small.graph; says "'--threads'"
code 2 run --threads two small.graph; says "'two'"
code 2 run small.graph; says 'no input'
code 2 tune small.graph -o t.dnx --timeout soon; says "'soon'"
code 0 compile small.graph; is_file small.dnx
code 2 compile; says 'missing'
code 2 show a b; says "'b'"
code 2 db frob x; says "'frob'"
code 2 zoo nothing -o z.onnx; says "'nothing'"
code 2 run small.graph --bench --device nix; says "'nix'"
code 2 run small.graph --bench --set Q=3; says "'Q'"
code 1 run none.onnx --bench; says "'none.onnx'"
code 1 bench none.db; says "'none.db'"
code 1 show unsupported.graph; says 'Frobnicate'; says 'my_node'
for c in $("$quern" --help | sed -n '/^commands/,/^$/s/^  \([a-z]*\) .*/\1/p'); do code 0 "$c" --help; says "usage: quern $c"; done

# zoo
code 0 zoo; says '^oidn-small '
for m in $("$quern" zoo | cut -d' ' -f1); do code 0 zoo "$m" --small -o "$m.onnx"; is_file "$m.onnx"; done
code 0 zoo oidn-small -o again.onnx; same oidn-small.onnx again.onnx
code 0 show mobilenetv2.onnx; says 'BatchNormalization'

# check, operators: everything that is refused, at once
code 0 check oidn-small.onnx dct-denoise.onnx; says 'oidn-small.onnx: .* all supported'
sed 's/Concat/Catcon/g; s/Resize/Sizere/g' oidn-small.onnx > refused.onnx
failing check refused.onnx oidn-small.onnx; says 'Catcon .* and [0-9]* more: operator is not supported'
says 'Sizere .*: operator is not supported'; says 'were not checked'; says 'export it decomposed'; says 'oidn-small.onnx: .* all supported'
failing check --json refused.onnx; says '"operator":"Sizere","why":"operator is not supported"'
code 1 check nothing.onnx; says nothing.onnx
failing check "$corpus/Refused.onnx"; says "Nix 'n0' and 1 more"; says "Det 'n2': the last two axes"; says '3 of 4 nodes unsupported'
code 0 check "$corpus/FlexAttention.onnx"

# check, show: with the options that models are opened with
failing check "$corpus/OpenScan.onnx"; says "Scan 't': batch and length of the scanned input 'x' are B and 4; fix them (--assume, --input-shape)"
failing check --json "$corpus/OpenScan.onnx"; says '"node":"t","operator":"Scan","why":"batch and length .*","help":""'
for o in "--assume B=2" "--shape s=2:3" "--shape s=b=2:3"; do
    code 0 check "$corpus/OpenScan.onnx" $o; says 'all supported'
    code 0 show "$corpus/OpenScan.onnx" $o; says 'Gather'
done
code 1 show "$corpus/OpenScan.onnx"; says "OpenScan.onnx': Scan 't': .* are B and 4; fix them"
code 2 show "$corpus/OpenScan.onnx" --shape s=2:2; says "OpenScan.onnx'"
failing check "$corpus/OpenSequence.onnx"; says 'say how many elements it has (--elements s=2)'
failing check "$corpus/OpenSequence.onnx" --elements s=2; says "SequenceAt 'y': the position is only known at run time"
code 0 operators Conv; says '^Conv  *1  *element  *f32'
code 0 operators --json; says '"operator":"ImageDecoder","opset":20,"changed":20,"removed":0,"form":"","needs":"","types":\[\],"attributes":{.*"pixel_format":"string".*}'
code 0 operators Celu --json; says '"attributes":{"alpha":"float"}}$'
code 0 operators Sin --json; says '"attributes":{}}$'
rm -f resnet50.onnx mobilenetv2.onnx again.onnx

# compile and look: same bytes each time
code 0 compile small.graph -o a.dnx
code 0 compile small.graph -o b.dnx; same a.dnx b.dnx
code 0 compile small.graph -o c.dnx --no-fusion
code 0 show a.dnx; says '^input x f32'
code 0 explain a.dnx; says 'conv'
code 0 compile oidn-small.onnx -o oidn.dnx; is_file oidn.dnx
code 0 -d list
code 0 compile small.graph -o b.dnx -d code; says 'kernel\|void'
code 1 compile small.graph -o no/such/folder.dnx
code 0 devices; says '"name":"cpu"'

# content of a program, keys and signatures
code 0 run --help; says 'is code'
code 0 show a.dnx; says '^code native .*user'; says '^not signed'
code 2 key; says 'missing'
code 2 key mint x; says "'mint'"
code 0 key new me; is_file me.key; is_file me.pub; says '^[0-9a-f]\{32\}$'
me=$(grep '^[0-9a-f]*$' out)
code 1 key new me; says "'me.pub'"
code 0 key id me.key; says "^$me$"
code 2 sign a.dnx; says 'key new'
code 1 sign small.graph --key me.key -o no.dnx; says "'small.graph'"
code 1 sign a.dnx --key me.pub -o no.dnx; says 'a public key'
code 0 sign a.dnx --key me.key -o signed.dnx; is_file signed.dnx
code 0 sign a.dnx --key me.key -o signed2.dnx; same signed.dnx signed2.dnx
XDG_CACHE_HOME=$dir/cache XDG_CONFIG_HOME=$dir/config; export XDG_CACHE_HOME XDG_CONFIG_HOME
for c in "run --bench --timeout 0.01s" show explain "export --to vkdt -o ."; do
    code 1 $c a.dnx --require-signature; says 'not signed'
    code 1 $c signed.dnx --require-signature; says "signed by key $me"; says 'none of the 0 trusted'
done
code 1 verify small.graph --program a.dnx --set H=5 W=3 --require-signature; says 'not signed'
code 2 run small.graph --bench --require-signature; says 'applies to programs'
code 0 show signed.dnx; says "^signed by key $me, which is not trusted"
code 0 run signed.dnx --bench --timeout 0.01s --require-signature --trusted me.pub
code 0 key trust me.pub; code 0 key list; says "\"name\":\"me\",\"id\":\"$me\""
code 0 run signed.dnx --bench --timeout 0.01s --require-signature
code 0 verify small.graph --program signed.dnx --set H=5 W=3 --require-signature
code 0 show signed.dnx; says "^signed by key $me, trusted as 'me'"
size=$(wc -c < signed.dnx)
for at in 0 20 700 $((size / 2)) $((size - 1100)) $((size - 1000)) $((size - 900)) $((size - 1)); do
    change signed.dnx changed.dnx "$at"
    code 1 run changed.dnx --bench --timeout 0.01s --require-signature
done
change signed.dnx changed.dnx $((size - 900)); code 0 show changed.dnx; says '^SIGNATURE WRONG'
mkdir nocrypto; : > nocrypto/libcrypto.so.3 # no library: a signature that is required and cannot be checked is refused
LD_LIBRARY_PATH=$dir/nocrypto; export LD_LIBRARY_PATH
code 1 run signed.dnx --bench --timeout 0.01s --require-signature; says 'libcrypto'
code 0 run signed.dnx --bench --timeout 0.01s
code 0 show signed.dnx; says 'not checked'
code 1 key new other; says 'libcrypto'
unset LD_LIBRARY_PATH
code 0 key remove me; code 1 run signed.dnx --bench --timeout 0.01s --require-signature
code 3 key remove me; says "'me'"
given_folders

# files: 4 x 3 pixels through every format and back
{ printf 'PF\n4 3\n-1.0\n'; k=0; while [ $k -lt 36 ]; do printf '\0\0'; byte $((k * 5 % 128)); byte 62; k=$((k + 1)); done; } > x.pfm
code 0 run same.graph -i x.pfm -o y.npy
code 0 run same.graph -i y.npy -o y.pb
code 0 run same.graph -i y.pb -o y.raw
code 0 run same.graph -i y.raw -o z.pfm --set H=3
code 0 run same.graph -i z.pfm -o z.npy; same y.npy z.npy
code 0 run same.graph -i x=y.npy -o y=y.png; is_file y.png
code 0 run same.graph -i y.png -o z.png; same y.png z.png
code 0 compile same.graph -o same.dnx
code 0 run same.dnx -i y.npy -o z.npy --threads 1; same y.npy z.npy
code 0 run half.graph -i y.npy -o h.npy; is_file h.npy
code 0 run half.graph -i h.npy -o h2.npy; same h.npy h2.npy
code 2 run same.graph -i y.npy -i y.npy; says 'unexpected input'
code 2 run same.graph -i q=y.npy; says "'q'"
code 1 run same.graph -i none.npy; says "'none.npy'"
code 2 run same.graph -i y.npy -o y.xyz; says "'y.xyz'"
code 1 run same.graph -i x.pfm -o no/such/folder.npy
code 1 run two.graph -i a=y.npy -i b=y.npy; says "'a' needs"
head -c 20 y.raw > five.raw
code 0 run two.graph -i b=five.raw -i five.raw -o difference=d.npy -o s.npy; is_file d.npy; is_file s.npy

# timing
code 0 run a.dnx --bench --json --set H=9 W=8 --timeout 0.1s --min-samples 12
says '^{"median_ms":[0-9.]*,"min_ms":[0-9.]*,"samples":[0-9]*'
code 0 run a.dnx --bench --timeout 0.1s; says 'median'
code 0 run a.dnx --profile; says 'conv'; says ' convolutions'
code 0 run cosmoflow-small.onnx --breakdown parts --threads 1; says ' pools'
code 0 run cosmoflow-v1-small.onnx --breakdown parts --threads 1
code 0 run cosmoflow-small.onnx --breakdown parts --threads 1 --json; says '"operators":"Conv+LeakyRelu'
[ "$(grep -c '^"cosmoflow-small on cpu, 1 thread","conv0","Conv+LeakyRelu' parts/breakdown.csv)" -eq 1 ] || fail "a network's layer is there once"
[ "$(grep -c '^"cosmoflow-v1-small on cpu, 1 thread","conv[0-6]","Conv+LeakyRelu' parts/breakdown.csv)" -eq 7 ] || fail "layers of another network"
echo 'network,layer,operator,ms' > parts/breakdown.csv; echo 'a,b,c' >> parts/breakdown.csv
code 1 run small.graph --set H=7 W=13 --breakdown parts; says "line 2: 3 columns"

# checking
code 0 verify small.graph --set H=7 W=13; says '^ok'
code 0 verify small.graph --program a.dnx --set H=5 W=3
code 0 verify two.graph --set N=1001 --json; says '"pass":true'
code 0 verify half.graph
code 1 verify same.graph --program a.dnx --set H=5 W=5
code 0 verify oidn-small.onnx --set H=21 W=34
code 0 verify oidn-small.onnx --set H=21 W=34 --max-ulp 1e5; says 'error (ulp)'
failing verify oidn-small.onnx --set H=21 W=34 --max-ulp 0.001; says '^WRONG'
code 0 verify cosmoflow-small.onnx
code 0 verify cosmoflow-v1-small.onnx
code 0 verify --exact small.graph; says '^exact '; says '^1 kernels of 1 dispatches: 1 exact, 0 by tolerance, 0 differ'
code 0 verify --exact small.graph --program a.dnx; says '^exact .*conv+relu: '
code 0 verify --exact --json cosmoflow-small.onnx; says '"verdict":"exact"'
code 1 verify --exact same.graph --program a.dnx; says 'is not a kernel of this model'
code 0 compile small.graph -o proven.dnx; code 0 explain proven.dnx; says ', exact (1x2x'
code 0 compile small.graph --no-prove -o plain.dnx; code 0 explain plain.dnx; ! grep -q 'exact (' out || wrong "a verdict that nobody asked for"
cat > deep.graph <<'X'
graph {
  input %x: f32[1,3,H,W]
  const %w: f32[2,3,1,1] = [0.5, -0.25, 1, 0.125, 2, -1]
  const %v: f32[2,2,1,1] = [0.5, -0.25, 1, 0.125]
  %a: f32[1,2,H,W] = Conv "first"(%x, %w) {kernel_shape=[1,1]}
  %b: f32[1,2,H,W] = Relu "relu"(%a)
  %c: f32[1,2,H,W] = Conv "second"(%b, %v) {kernel_shape=[1,1]}
  %y: f32[1,2,H,W] = Sigmoid "last"(%c)
  output %y
}
X
sed 's/-0.25, 1, 0.125]/-0.25, 1, 0.1250125]/' deep.graph > other.graph
code 0 compile --no-fusion deep.graph -o deep.dnx
code 0 verify --per-layer deep.graph --program deep.dnx --set H=7 W=13; says '^ok .* second (Conv)'; says '^4 kernel outputs, all within'; says '^ok .* f32 .* second (Conv)'; says '^the largest loss, '
failing verify --per-layer other.graph --program deep.dnx --set H=7 W=13; says '^1 of 4 beyond their bounds, the first: second (Conv), output c: '
code 1 verify --per-layer same.graph --program deep.dnx; says 'is not a kernel of this model'

# tuning, databases
code 0 tune small.graph -o t.dnx --timeout 3s --optimize-for=H:64,W:64; is_file t.db
code 0 compile small.graph -o u.dnx --db t.db --optimize-for=H:64,W:64
code 0 compile small.graph -o v.dnx --db t.db --optimize-for=H:64,W:64; same u.dnx v.dnx
code 0 verify small.graph --program t.dnx --set H=31 W=17
code 0 explain t.dnx; says 'measured'
code 0 populate small.graph --db p.db --max-candidates 4 --optimize-for=H:64,W:64
code 0 bench p.db --timeout 3s --json; says '"event"'
code 0 db stats t.db
code 0 db merge p.db t.db
code 0 db export p.db p.csv; is_file p.csv
code 0 db prune p.db failed
code 2 db prune p.db everything
code 0 show p.db
code 0 show kcg_MM_bM1024N1024K1024isAT1W64_BM32BN32BK8TM4TN4BLY1BLX1WLY8WLX8GLWA4GLWB4BSWM2BSWN2WSWM1WSWN2LSU1Map4GSW0UN8RP0SP0LC1RC0; says 'group  *64 threads'
code 1 show kcg_MM_bM8N8K8isAT7; says 'column 19: .*isAT'
code 0 attention 1x1x8x4 --untuned --min-samples 1; says 'verified o'
printf 'no database at all, but long enough to be one, one would think, if one did not look at it closely at all ...' > no.db
code 1 db stats no.db; says 'not a database'
code 2 db repair t.db; says '-o is missing'
code 2 db repair t.db -o p.db; says 'exists already'
code 1 db repair no.db -o saved.db; says "'no.db'"
code 0 db repair t.db -o saved.db; says ' samples'
code 0 compile small.graph -o w.dnx --db saved.db --optimize-for=H:64,W:64; same u.dnx w.dnx

# the user's cache: one of its own, which is emptied
XDG_CACHE_HOME=$PWD/own XDG_CONFIG_HOME=$PWD/own; export XDG_CACHE_HOME XDG_CONFIG_HOME
# rates of this machine are there once they were measured, those of described cores always
code 0 devices; silent '"device":"cpu",.*"rates"'; says '"device":"cpu:cortex-a53",.*"rates":"fma.f32='
code 0 devices --measure; says '  f32 '; says '  DRAM read '; says '  L1 latency '
code 0 devices --measure --threads 1 --isa x86-64-v2; says 'isa=x86-64-v2'
code 0 devices; says '"device":"cpu",.*"rates":"fma.f32='
code 1 devices --measure --device interp; says "it interprets"
code 0 run small.graph --set H=7 W=13 --bench --min-samples 1 --timeout 0.01s
code 0 cache --json; says '"limit":2147483648'
code 0 cache --size 1.5GiB; says 'limit *1536.0 MiB'
code 0 cache; says 'limit *1536.0 MiB'; says 'entries *[1-9]'
code 2 cache --size much; says "'much' is not a size"
code 0 cache --clear; says 'entries *0'
code 0 cache --size 0; code 0 run small.graph --set H=7 W=13 --bench --min-samples 1 --timeout 0.01s; code 0 cache; says 'entries *0'
given_folders

# other forms (those of programs: test/vkdt.sh)
code 0 export small.graph --to onnx -o small.onnx; is_file small.onnx
code 0 export small.onnx --to onnx -o small2.onnx; same small.onnx small2.onnx
code 2 export small.graph --to onnx; says '-o'
code 2 export small.graph same.graph --to onnx -o x.onnx; says 'one network'
code 2 export small.graph --to nothing -o x; says 'onnx'
code 2 export --to onnx; says 'missing'

# broken files
code 0 zoo dct-denoise -o net.onnx
broken net.onnx .onnx show broken.onnx
broken a.dnx .dnx run broken.dnx --bench --timeout 0.01s --min-samples 1
broken a.dnx .dnx show broken.dnx
broken y.png .png run same.dnx -i broken.png
broken y.npy .npy run same.dnx -i broken.npy
broken y.pb .pb run same.dnx -i broken.pb
broken x.pfm .pfm run same.dnx -i broken.pfm
broken t.db .db db stats broken.db
broken small.graph .graph show broken.graph

# a suite: one case right, one wrong, one unsupported
data=/usr/share/libonnx-testdata/data/node
if [ -d $data/test_relu ]; then
    mkdir suite
    cp -r $data/test_relu $data/test_add suite/
    cp -r $data/test_relu suite/wrong
    cp suite/wrong/test_data_set_0/input_0.pb suite/wrong/test_data_set_0/output_0.pb
    failing verify --suite suite; says '^2 passed, 1 failed, 0 unsupported$'; says '^FAIL wrong '
    code 0 verify --suite suite --filter 'test_*'; says '^2 passed, 0 failed, 0 unsupported$'
    map=test_sequence_map_add_2_sequences
    cp -r $data/$map suite/
    cp -r $data/$map suite/wrong_map
    cp suite/wrong_map/test_data_set_0/input_0.pb suite/wrong_map/test_data_set_0/output_0.pb
    failing verify --suite suite --filter '*map*'; says '^1 passed, 1 failed, 0 unsupported$'; says '^FAIL wrong_map output 0'
    code 1 run suite/$map/model.onnx; says 'say how many elements it has (--elements x0=2)'
    code 0 run suite/$map/model.onnx --elements x0=2 x1=2 --set 'x0[0]_d0=3' --bench --min-samples 1 --untuned --db :memory:
    code 2 run suite/$map/model.onnx --elements x0=2 x1=many; says "'x1=many' is not of the form"
else echo "skipped: suites of test cases, without $data (tool/deps test)"
fi
code 1 verify --suite no_such_folder
mkdir empty
code 3 verify --suite empty

finish
