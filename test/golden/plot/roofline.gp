# roofline.svg and roofline.png of roofline.dat, by gnuplot 5: gnuplot roofline.gp
set encoding utf8
do for [form in "svg png"] {
if (form eq 'svg') { set terminal svg size 960,589 noenhanced font 'sans-serif,12' background '#ffffff' name 'roofline' }
else { set terminal pngcairo size 960,589 noenhanced font 'sans,9' background '#ffffff' }
small = form eq 'svg' ? ',10' : ',7.5'
large = form eq 'svg' ? ',15' : ',11'
set output 'roofline.'.form
set multiplot
unset key
set label 'L0  in_1X1X18X18X18_k_3X3X3_och_16' at screen 0.01458,0.04924 left font small
set label 'L2  in_1X16X10X10_k_3X3_och_8_s_2X2' at screen 0.25729,0.04924 left font small
set label 'L5  in_1X64X64_k_5_och_64' at screen 0.50000,0.04924 left font small
set label 'Layers under the roofline' at screen 0.50000,0.96944 center font large
set label 'layers.csv, batch 1, f32, cpu, threads 1, warm-up rounds 2, rounds 21' at screen 0.50000,0.93209 center font small
set lmargin at screen 0.00000
set rmargin at screen 1.00000
set tmargin at screen 1.00000
set bmargin at screen 0.00000
unset border
unset tics
set key at screen 0.5,0.91851 center top horizontal maxcols 2 reverse Left
plot [0:1] [0:1] NaN with points pt 7 ps 1.1 lc rgb '#3b6ea5' title 'tuned', \
     NaN with points pt 8 ps 1.1 lw 1.3 lc rgb '#b0500f' title 'oneDNN 3.2'
unset label
unset key
set border 31 lw 0.8
set tics nomirror
set lmargin at screen 0.08958
set rmargin at screen 0.97500
set tmargin at screen 0.85739
set bmargin at screen 0.17148
set logscale x
set xrange [4.9995:100.01]
set xtics nomirror ('5' 5, '10' 10, '20' 20, '50' 50, '100' 100)
set logscale y
set yrange [4.9995:5000.5]
set ytics nomirror ('' 5 1, '10' 10, '' 20 1, '' 50 1, '100' 100, '' 200 1, '' 500 1, '1000' 1000, '' 2000 1, '' 5000 1)
set xlabel 'operations per byte if everything is touched once (FLOP/byte, logarithmic)'
set ylabel 'GFLOP/s (logarithmic)'
set grid xtics ytics lt 1 lc rgb '#dddddd' lw 0.7
set label 'fma 248.3 GFLOP/s' at screen 0.96875,0.57453 right font small
set label 'matrix 1602 GFLOP/s' at screen 0.96875,0.75968 right font small
set label 'memory 33.42 GB/s' at screen 0.10092,0.54799 left rotate by 11.6 font small
set label 'L0' at screen 0.37511,0.52445 center font small
set label 'L2' at screen 0.36889,0.36840 center font small
set label 'L5' at screen 0.53763,0.44776 center font small
plot 'roofline.dat' index 0 using 1:2 with lines lw 2 dt 1 lc rgb '#000000', \
     'roofline.dat' index 1 using 1:2 with lines lw 2 dt 2 lc rgb '#000000', \
     'roofline.dat' index 2 using 1:2 with lines lw 2 dt 4 lc rgb '#000000', \
     'roofline.dat' index 3 using 1:2 with lines lw 0.7 dt 3 lc rgb '#000000', \
     'roofline.dat' index 4 using 1:2 with points pt 8 ps 1.1 lw 1.3 lc rgb '#b0500f', \
     'roofline.dat' index 5 using 1:2 with points pt 7 ps 1.1 lc rgb '#3b6ea5'
unset multiplot
set output
reset
}
