# Difficult inputs of merging: equal model names, different element types, aliases, weights without
# elements, scalars, NaN (equal only by bits), and unknown strategies. Each file has two models that
# differ in one respect; `joined` counts the merged GEMMs.
pair() { # FILE WEIGHTS PRODUCT_A PRODUCT_B
    {
        printf 'wir 1 graph\nsymbol ?b = [1, 8]\nsymbol ?c = [1, 8]\n%s\n' "$2"
        printf 'graph @a (%%0 : f32[?b,4]) {\n  symbol ?b "batch"\n%s\n  return "y" %%1\n}\n' "$3"
        printf 'graph @b (%%0 : f32[?c,4]) {\n  symbol ?c "batch"\n%s\n  return "y" %%1\n}\n' "$4"
    } >"$1"
}
joined() { # FILE STRATEGY
    expect 0 "$WEFT" compile "$1" --merge "$2" --report report.json -o out.weft
    expect 0 "$WEFT" bench out.weft --batch 1 --time 0.01
    grep -c '"joined": true' report.json || true
}
own() { printf '  %%1 : f32[%s,4] = matmul %%0, %s' "$1" "$2"; }

# One name for two models: the second gets a number, and both answer.
mkdir one two
cp "$examples/digits_cnn.onnx" one/m.onnx
cp "$examples/digits_parity.onnx" two/m.onnx
expect 0 "$WEFT" compile one/m.onnx two/m.onnx -o out.weft
expect 0 "$WEFT" inspect out.weft
has out "model m_2"
expect 0 "$WEFT" bench out.weft --batch 1 --time 0.01
has out "m_2"
expect 2 "$WEFT" compile one/m.onnx --merge sideways -o out.weft
has err "sideways"

# Another name for the same bytes is the same weight; other bytes are not.
pair alias.wir 'weight $w "w" : f32[4,4] = random 1
weight $v "w" : f32[4,4] = random 1' "$(own '?b' '$w')" "$(own '?c' '$v')"
[ "$(joined alias.wir concatenated)" -eq 1 ] || die "an alias is not joined"
pair other.wir 'weight $w "w" : f32[4,4] = random 1
weight $v "w" : f32[4,4] = random 2' "$(own '?b' '$w')" "$(own '?c' '$v')"
[ "$(joined other.wir concatenated)" -eq 0 ] || die "weights of one name and other bytes are joined"

# Equal numbers of another type are another weight.
pair types.wir 'weight $w : f32[4,4] = splat 0.5
weight $v : f64[4,4] = splat 0.5' "$(own '?b' '$w')" \
    '  %2 : f64[?c,4] = cast %0 {to = f64}
  %3 : f64[?c,4] = matmul %2, $v
  %1 : f32[?c,4] = cast %3 {to = f32}'
[ "$(joined types.wir concatenated)" -eq 0 ] || die "f32 and f64 are joined"

# NaN: weights are equal if and only if their bits are.
pair nan.wir 'weight $w : f32[4,4] = splat nan
weight $v : f32[4,4] = splat nan' "$(own '?b' '$w')" "$(own '?c' '$v')"
[ "$(joined nan.wir concatenated)" -eq 1 ] || die "NaN of the same bits are not joined"
payload=$(for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do printf '\001\000\300\177'; done | base64 -w0)
pair payload.wir "weight \$w : f32[4,4] = splat nan
weight \$v : f32[4,4] = base64 \"$payload\"" "$(own '?b' '$w')" "$(own '?c' '$v')"
[ "$(joined payload.wir concatenated)" -eq 0 ] || die "NaN of other bits are joined"

# A weight without elements and a scalar, with every strategy.
pair empty.wir 'weight $w : f32[4,0] = dense []' '  %1 : f32[?b,0] = matmul %0, $w' '  %1 : f32[?c,0] = matmul %0, $w'
pair scalar.wir 'weight $s : f32[] = dense [2.0]
weight $w : f32[4,4] = random 1' '  %2 : f32[?b,4] = mul %0, $s
  %1 : f32[?b,4] = matmul %2, $w' '  %2 : f32[?c,4] = mul %0, $s
  %1 : f32[?c,4] = matmul %2, $w'
expect 0 "$WEFT" list strategies
strategies=$(awk 'NF && !/^(strategy|name)/ { print $1 }' out)
for strategy in auto exact off $strategies; do
    for file in empty alias other types nan payload scalar; do
        joined $file.wir "$strategy" >&2
    done
done
[ "$(joined scalar.wir concatenated)" -eq 1 ] || die "a scalar weight keeps GEMMs apart"

# Twenty models: merging that cannot be represented for this many models is not attempted.
{
    printf 'wir 1 graph\n'
    for i in {1..20}; do printf 'symbol ?b%d = [1, 8]\n' "$i"; done
    printf 'weight $w : f32[4,4] = random 1\n'
    for i in {1..20}; do printf 'weight $v%d : f32[4,4] = random 1%d\n' "$i" "$i"; done
    for i in {1..20}; do
        printf 'graph @m%d (%%0 : f32[?b%d,4]) {\n  symbol ?b%d "batch"\n' "$i" "$i" "$i"
        printf '  %%1 : f32[?b%d,4] = matmul %%0, $w\n' "$i"
        printf '  %%2 : f32[?b%d,4] = matmul %%1, $v%d\n  return "y" %%2\n}\n' "$i" "$i"
    done
} >twenty.wir
joined twenty.wir batched >&2
