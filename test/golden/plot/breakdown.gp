# breakdown.svg and breakdown.png of breakdown.dat, by gnuplot 5: gnuplot breakdown.gp
set encoding utf8
do for [form in "svg png"] {
if (form eq 'svg') { set terminal svg size 1000,332 noenhanced font 'sans-serif,12' background '#ffffff' name 'breakdown' }
else { set terminal pngcairo size 1000,332 noenhanced font 'sans,9' background '#ffffff' }
small = form eq 'svg' ? ',10' : ',7.5'
large = form eq 'svg' ? ',15' : ',11'
set output 'breakdown.'.form
set multiplot
unset key
set label 'Run time by operator and by layer' at screen 0.50000,0.94578 center font large
set label 'layers.csv, batch 1, f32, cpu, threads 1, warm-up rounds 2, rounds 21' at screen 0.50000,0.87952 center font small
set lmargin at screen 0.00000
set rmargin at screen 1.00000
set tmargin at screen 1.00000
set bmargin at screen 0.00000
unset border
unset tics
set key at screen 0.5,0.85542 center top horizontal maxcols 4 reverse Left
plot [0:1] [0:1] NaN with boxes fc rgb '#3b6ea5' fs solid 0.8 border lc rgb '#000000' title 'Conv', \
     NaN with boxes fc rgb '#b0500f' fs pattern 5 border lc rgb '#000000' title 'LeakyRelu', \
     NaN with boxes fc rgb '#2f7d4f' fs pattern 1 border lc rgb '#000000' title 'Gemm', \
     NaN with boxes fc rgb '#606060' fs solid 0.25 border lc rgb '#000000' title 'MaxPool'
unset label
unset key
set border 31 lw 0.8
set tics nomirror
set lmargin at screen 0.09800
set rmargin at screen 0.85000
set tmargin at screen 0.69880
set bmargin at screen 0.63855
unset logscale x
set xrange [0:0.5]
set format x '%.1f'
set xtics nomirror 0.1
set yrange [0.5:-0.5]
unset ytics
set xlabel 'run time (ms)'
set grid xtics lt 1 lc rgb '#dddddd' lw 0.7
set label 'networks' at screen 0.09800,0.72892 left
set label 'small' at screen 0.09000,0.66867 right font small
set label '0.42 ms' at screen 0.85800,0.66867 left font small
plot 'breakdown.dat' index 0 using (($1+$2)/2):(($3+$4)/2):1:2:3:4 with boxxyerror fc rgb '#3b6ea5' fs solid 0.8 border lc rgb '#000000', \
     'breakdown.dat' index 1 using (($1+$2)/2):(($3+$4)/2):1:2:3:4 with boxxyerror fc rgb '#b0500f' fs pattern 5 border lc rgb '#000000', \
     'breakdown.dat' index 2 using (($1+$2)/2):(($3+$4)/2):1:2:3:4 with boxxyerror fc rgb '#2f7d4f' fs pattern 1 border lc rgb '#000000', \
     'breakdown.dat' index 3 using (($1+$2)/2):(($3+$4)/2):1:2:3:4 with boxxyerror fc rgb '#606060' fs solid 0.25 border lc rgb '#000000'
unset label
set lmargin at screen 0.09800
set rmargin at screen 0.85000
set tmargin at screen 0.40964
set bmargin at screen 0.22892
unset logscale x
set xrange [0:0.4]
set format x '%.2f'
set xtics nomirror 0.05
set yrange [2.5:-0.5]
unset ytics
set xlabel 'run time (ms)'
set grid xtics lt 1 lc rgb '#dddddd' lw 0.7
set label 'small' at screen 0.09800,0.43976 left
set label 'conv1' at screen 0.09000,0.37952 right font small
set label '0.36 ms, 85.7 %' at screen 0.85800,0.37952 left font small
set label 'pool' at screen 0.09000,0.31928 right font small
set label '0.02 ms, 4.8 %' at screen 0.85800,0.31928 left font small
set label 'fc, the last' at screen 0.09000,0.25904 right font small
set label '0.04 ms, 9.5 %' at screen 0.85800,0.25904 left font small
plot 'breakdown.dat' index 4 using (($1+$2)/2):(($3+$4)/2):1:2:3:4 with boxxyerror fc rgb '#3b6ea5' fs solid 0.8 border lc rgb '#000000', \
     'breakdown.dat' index 5 using (($1+$2)/2):(($3+$4)/2):1:2:3:4 with boxxyerror fc rgb '#b0500f' fs pattern 5 border lc rgb '#000000', \
     'breakdown.dat' index 6 using (($1+$2)/2):(($3+$4)/2):1:2:3:4 with boxxyerror fc rgb '#2f7d4f' fs pattern 1 border lc rgb '#000000', \
     'breakdown.dat' index 7 using (($1+$2)/2):(($3+$4)/2):1:2:3:4 with boxxyerror fc rgb '#606060' fs solid 0.25 border lc rgb '#000000'
unset label
unset multiplot
set output
reset
}
