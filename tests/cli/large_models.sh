# Compiling takes time and memory in proportion to the model: 100,000 nodes in a chain or side by
# side, and constants that would grow without bound.
# Sanitizers reserve terabytes of addresses.
# ctest label: both (memory is limited)
(ulimit -v 4000000 && "$WEFT" --version) >out 2>err && ulimit -v 4000000
compiles() {
    expect 0 timeout 100 "$WEFT" compile "$1" -o large.weft
    filled large.weft
}
{
    echo 'wir 1 graph graph @chain (%v0 : f32[2,4]) {'
    awk 'BEGIN { for (i = 1; i <= 100000; i++)
        printf "%%v%d : f32[2,4] = softmax %%v%d {axis = 1}\n", i, i - 1 }'
    echo 'return "y" %v100000 }'
} >chain.wir
compiles chain.wir
awk 'BEGIN {
    n = 20000
    print "wir 1 graph graph @fan (%x : f32[2,4]) {"
    for (i = 1; i <= n; i++) {
        printf "%%v%d : f32[2,4] = leaky_relu %%x {alpha = %d.0}\n", i, i
        all = all (i > 1 ? ", " : "") "%v" i
    }
    print "%y : f32[2," 4 * n "] = concat " all " {axis = 1}\nreturn \"y\" %y }" }' >fan.wir
compiles fan.wir
# Each constant is twice as large as the one before: 2^30 elements after 30 nodes.
for pair in '%v$p, %v$p' '%v$p, %w$p'; do
    {
        echo 'wir 1 graph weight $v0 : f32[1] = splat 1.0 graph @doubling (%x : f32[1]) {'
        echo '%v0 : f32[1] = identity $v0'
        echo '%w0 : f32[1] = neg $v0'
        for i in $(seq 30); do
            p=$((i - 1)) size=$((1 << i))
            eval "operands=\"$pair\""
            echo "%v$i : f32[$size] = concat $operands {axis = 0}"
            echo "%w$i : f32[$size] = concat ${operands#*, }, ${operands%,*} {axis = 0}"
        done
        echo '%r : f32[] = reduce_max %v30 {keepdims = 0}'
        echo '%y : f32[1] = add %x, %r'
        echo 'return "y" %y }'
    } >doubling.wir
    compiles doubling.wir
    at_most "$(bytes large.weft)" 100000000
done
