# medians.svg and medians.png of medians.dat, by gnuplot 5: gnuplot medians.gp
set encoding utf8
do for [form in "svg png"] {
if (form eq 'svg') { set terminal svg size 640,640 noenhanced font 'sans-serif,12' background '#ffffff' name 'medians' }
else { set terminal pngcairo size 640,640 noenhanced font 'sans,9' background '#ffffff' }
small = form eq 'svg' ? ',10' : ',7.5'
large = form eq 'svg' ? ',15' : ',11'
set output 'medians.'.form
set multiplot
unset key
set label 'L0  in_1X1X18X18X18_k_3X3X3_och_16' at screen 0.02187,0.06875 left font small
set label 'L2  in_1X16X10X10_k_3X3_och_8_s_2X2' at screen 0.02187,0.04531 left font small
set label 'L5  in_1X64X64_k_5_och_64' at screen 0.50000,0.06875 left font small
set label 'Median run times with 95 % intervals' at screen 0.50000,0.97188 center font large
set label 'layers.csv, batch 1, f32, cpu, threads 1, warm-up rounds 2, rounds 21' at screen 0.50000,0.93750 center font small
set lmargin at screen 0.00000
set rmargin at screen 1.00000
set tmargin at screen 1.00000
set bmargin at screen 0.00000
unset border
unset tics
set key at screen 0.5,0.92500 center top horizontal maxcols 2 reverse Left
plot [0:1] [0:1] NaN with boxes fc rgb '#3b6ea5' fs solid 0.75 border lc rgb '#000000' title 'tuned', \
     NaN with boxes fc rgb '#b0500f' fs pattern 5 border lc rgb '#000000' title 'oneDNN 3.2'
unset label
unset key
set border 31 lw 0.8
set tics nomirror
set lmargin at screen 0.13437
set rmargin at screen 0.96875
set tmargin at screen 0.86875
set bmargin at screen 0.40000
set xrange [-0.6:2.6]
set xtics scale 0 ('' 0)
set logscale y
set yrange [0.0019998:0.501445787432]
set ytics nomirror ('0.002' 0.002, '0.005' 0.005, '0.01' 0.01, '0.02' 0.02, '0.05' 0.05, '0.1' 0.1, '0.2' 0.2, '0.5' 0.5)
set ylabel 'median run time (ms, logarithmic)'
set grid ytics lt 1 lc rgb '#dddddd' lw 0.7
plot 'medians.dat' index 0 using 1:2:(0.38) with boxes fc rgb '#3b6ea5' fs solid 0.75 border lc rgb '#000000', \
     '' index 0 using 1:3:(0):($4-$3) with vectors heads size screen 0.004,90 lw 1.5 lc rgb '#000000', \
     '' index 0 using 1:4:5 with labels font small center offset 0,0.6, \
     'medians.dat' index 1 using 1:2:(0.38) with boxes fc rgb '#b0500f' fs pattern 5 border lc rgb '#000000', \
     '' index 1 using 1:3:(0):($4-$3) with vectors heads size screen 0.004,90 lw 1.5 lc rgb '#000000', \
     '' index 1 using 1:4:5 with labels font small center offset 0,0.6
set lmargin at screen 0.13437
set rmargin at screen 0.96875
set tmargin at screen 0.37500
set bmargin at screen 0.14062
set xrange [-0.6:2.6]
set xtics scale 0 ('L0' 0, 'L2' 1, 'L5' 2)
set logscale y
set yrange [0.49995:31.0893106633]
set ytics nomirror ('0.5' 0.5, '1' 1, '2' 2, '5' 5, '10' 10, '20' 20)
set ylabel 'times as fast (log)'
plot 1 with lines lw 1 dt 2 lc rgb '#000000', \
     'medians.dat' index 2 using 1:3:(0):($4-$3) with vectors heads size screen 0.004,90 lw 1.5 lc rgb '#000000', \
     '' index 2 using 1:2 with points pt 7 ps 0.5 lc rgb '#000000', \
     '' index 2 using 1:4:5 with labels center font small offset 0,0.6
unset multiplot
set output
reset
}
