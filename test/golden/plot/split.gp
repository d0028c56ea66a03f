# split.svg and split.png of split.dat, by gnuplot 5: gnuplot split.gp
set encoding utf8
do for [form in "svg png"] {
if (form eq 'svg') { set terminal svg size 762,325 noenhanced font 'sans-serif,12' background '#ffffff' name 'split' }
else { set terminal pngcairo size 762,325 noenhanced font 'sans,9' background '#ffffff' }
small = form eq 'svg' ? ',10' : ',7.5'
large = form eq 'svg' ? ',15' : ',11'
set output 'split.'.form
set multiplot
unset key
set label 'L0  in_1X1X18X18X18_k_3X3X3_och_16' at screen 0.01837,0.08923 left font small
set label 'L2  in_1X16X10X10_k_3X3_och_8_s_2X2' at screen 0.33946,0.08923 left font small
set label 'L5  in_1X64X64_k_5_och_64' at screen 0.66054,0.08923 left font small
set label 'Run times of tuned and oneDNN 3.2, by layer' at screen 0.50000,0.94462 center font large
set label 'layers.csv, batch 1, f32, cpu, threads 1, warm-up rounds 2, rounds 21' at screen 0.50000,0.87692 center font small
set lmargin at screen 0.00000
set rmargin at screen 1.00000
set tmargin at screen 1.00000
set bmargin at screen 0.00000
unset border
unset tics
set key at screen 0.5,0.85231 center top horizontal maxcols 2 reverse Left
plot [0:1] [0:1] NaN with boxes fc rgb '#3b6ea5' fs solid 0.75 border lc rgb '#000000' title 'tuned', \
     NaN with boxes fc rgb '#b0500f' fs pattern 5 border lc rgb '#000000' title 'oneDNN 3.2'
unset label
unset key
set border 31 lw 0.8
set tics nomirror
set lmargin at screen 0.09974
set rmargin at screen 0.33333
set tmargin at screen 0.74154
set bmargin at screen 0.19385
unset logscale y
set yrange [0:0.4]
set format y '%.1f'
set ytics nomirror 0.1
set xrange [-1.15:1.15]
unset xtics
set ytics font small
set label 'run time (ms)' at screen 0.01575,0.46769 center rotate by 90
set label 'L0  0.02023 | 0.3159 ms' at graph 0.5,1 center offset 0,0.6
set label '1 above' at graph 0.96,0.94 right font small
plot 'split.dat' index 0 using 1:2 with filledcurves closed fc rgb '#3b6ea5' fs solid 0.75 border lc rgb '#000000', \
     '' index 1 using 1:3:(0):($4-$3) with vectors nohead lw 4 lc rgb '#000000', \
     '' index 1 using 1:2 with points pt 7 ps 0.7 lc rgb '#000000', \
     '' index 1 using 1:2 with points pt 7 ps 0.35 lc rgb '#ffffff', \
     'split.dat' index 2 using 1:2 with filledcurves closed fc rgb '#b0500f' fs pattern 5 border lc rgb '#000000', \
     '' index 3 using 1:3:(0):($4-$3) with vectors nohead lw 4 lc rgb '#000000', \
     '' index 3 using 1:2 with points pt 7 ps 0.7 lc rgb '#000000', \
     '' index 3 using 1:2 with points pt 7 ps 0.35 lc rgb '#ffffff'
unset label
set lmargin at screen 0.41995
set rmargin at screen 0.65354
set tmargin at screen 0.74154
set bmargin at screen 0.19385
unset logscale y
set yrange [0.0038:0.0048]
set format y '%.4f'
set ytics nomirror 0.0002
set xrange [-1.15:1.15]
unset xtics
set ytics font small
set label 'L2  0.004059 | 0.004464 ms' at graph 0.5,1 center offset 0,0.6
set label '2 above' at graph 0.96,0.94 right font small
plot 'split.dat' index 4 using 1:2 with filledcurves closed fc rgb '#3b6ea5' fs solid 0.75 border lc rgb '#000000', \
     '' index 5 using 1:3:(0):($4-$3) with vectors nohead lw 4 lc rgb '#000000', \
     '' index 5 using 1:2 with points pt 7 ps 0.7 lc rgb '#000000', \
     '' index 5 using 1:2 with points pt 7 ps 0.35 lc rgb '#ffffff', \
     'split.dat' index 6 using 1:2 with filledcurves closed fc rgb '#b0500f' fs pattern 5 border lc rgb '#000000', \
     '' index 7 using 1:3:(0):($4-$3) with vectors nohead lw 4 lc rgb '#000000', \
     '' index 7 using 1:2 with points pt 7 ps 0.7 lc rgb '#000000', \
     '' index 7 using 1:2 with points pt 7 ps 0.35 lc rgb '#ffffff'
unset label
set lmargin at screen 0.74016
set rmargin at screen 0.97375
set tmargin at screen 0.74154
set bmargin at screen 0.19385
unset logscale y
set yrange [0.026:0.034]
set format y '%.3f'
set ytics nomirror 0.002
set xrange [-1.15:1.15]
unset xtics
set ytics font small
set label 'L5  0.03042 | 0.02741 ms' at graph 0.5,1 center offset 0,0.6
set label '2 above' at graph 0.96,0.94 right font small
plot 'split.dat' index 8 using 1:2 with filledcurves closed fc rgb '#3b6ea5' fs solid 0.75 border lc rgb '#000000', \
     '' index 9 using 1:3:(0):($4-$3) with vectors nohead lw 4 lc rgb '#000000', \
     '' index 9 using 1:2 with points pt 7 ps 0.7 lc rgb '#000000', \
     '' index 9 using 1:2 with points pt 7 ps 0.35 lc rgb '#ffffff', \
     'split.dat' index 10 using 1:2 with filledcurves closed fc rgb '#b0500f' fs pattern 5 border lc rgb '#000000', \
     '' index 11 using 1:3:(0):($4-$3) with vectors nohead lw 4 lc rgb '#000000', \
     '' index 11 using 1:2 with points pt 7 ps 0.7 lc rgb '#000000', \
     '' index 11 using 1:2 with points pt 7 ps 0.35 lc rgb '#ffffff'
unset label
unset multiplot
set output
reset
}
