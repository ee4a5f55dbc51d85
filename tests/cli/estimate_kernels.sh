# A table of bare kernels in, the same table with predictions out; columns in any order, the usual
# names, quotes; every mistake is named with its line and column and nothing is written.
cat >in.csv <<'END'
# a comment line
note,n,k,m,dtype,kind,gpu,slice
"a, ""quoted"" one",4096,4096,128,bf16,gemm,,
,4096,4096,128,half,Linear,h100,
,4096,4096,128,fp32,fc,A100-PCIE-40GB,
,4096,4096,128,tf32,matmul,a100-80,
,4096,4096,128,int8,gemm,l4,
,4096,4096,128,bf16,gemm,h200,1g.18gb
END
expect 0 "$WEFT" estimate --kernels in.csv -o out.csv --gpu h200
empty err
head -n 1 out.csv >head
has head 'note,n,k,m,dtype,kind,gpu,slice,time_us,dispatch_us,creq,energy_j,bound,model,source,expected_error,time_p5_us,time_p95_us'
[ "$(wc -l <out.csv)" -eq 7 ] || die "rows: $(cat out.csv)"
has out.csv '"a, ""quoted"" one",4096,4096,128,bf16,gemm,,,1'
sed -n 2p out.csv | grep -qE ',trees,learned,0\.0[0-9]+,' || die "$(sed -n 2p out.csv)"
sed -n 7p out.csv | grep -q ',analytic,' || die "a slice was never measured: $(sed -n 7p out.csv)"
column() { awk -F, -v line="$1" -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i }
    NR == line { print $at }' plain.csv; }
# Exact f32 is slower than TF32; a slice slower than the device; a dispatch only for f32.
tail -n +2 in.csv | sed 's/^"a.*one"//' >plain_in.csv
expect 0 "$WEFT" estimate --kernels plain_in.csv -o plain.csv --gpu h200
at_most "$(column 5 time_us | cut -d. -f1)" "$(column 4 time_us | cut -d. -f1)"
at_most "$(column 2 time_us | cut -d. -f1)" "$(column 7 time_us | cut -d. -f1)"
[ "$(column 2 dispatch_us)" = 0 ] || die "dispatch of bf16: $(column 2 dispatch_us)"
at_most 1 "$(column 4 dispatch_us | cut -d. -f1)"
# A file through a pipe gives the same bytes; LF and CRLF alike.
"$WEFT" estimate --kernels - --gpu h200 <plain_in.csv >piped.csv
cmp -s plain.csv piped.csv || die "standard input differs"
sed 's/$/\r/' plain_in.csv >crlf.csv
expect 0 "$WEFT" estimate --kernels crlf.csv -o crlf_out.csv --gpu h200
cmp -s plain.csv crlf_out.csv || die "CRLF differs"
# Every kind, with its sizes.
cat >kinds.csv <<'END'
kind,dtype,b,m,n,k,cin,cout,ksize,hw,stride,pad,groups,h,isl,num_heads,head_dim
bmm,f32,16,128,128,64,,,,,,,,,,,
conv2d,fp32,8,,,,64,64,3,56,1,1,,,,,
conv,f16,8,,,,64,128,3,56,2,1,,,,,
conv,f32,8,,,,64,64,1,56,,,,,,,
depthwise,f32,8,,,,32,,3,112,1,1,,,,,
add,f32,4096,,,,,,,,,,,1024,,,
gelu,float16,4096,,,,,,,,,,,1024,,,
layer_norm,f32,4096,,,,,,,,,,,1024,,,
softmax,f32,4096,,,,,,,,,,,1024,,,
reduce,f32,4096,,,,,,,,,,,1024,,,
move,f32,4096,,,,,,,,,,,1024,,,
encoder_attention,bf16,8,,,,,,,,,,,,512,12,64
END
for gpu in v100 t4 l4 a100-80 h100 h200; do
    expect 0 "$WEFT" estimate --kernels kinds.csv --gpu $gpu
    [ "$(wc -l <out)" -eq 13 ] || die "$gpu: $(shown out)"
    lacks out nan
    lacks out ,-
done
expect 0 "$WEFT" estimate --kernels kinds.csv --gpu v100 --features
has out log_winograd4_us=
expect 0 "$WEFT" estimate --kernels kinds.csv --gpu v100 --model roofline --no-dispatch
lacks out ,trees,
# Narrow types are kinds of their own; only units for it take f4 with scales. The launcher's attention.
printf 'kind,dtype,gpu,m,n,k\ngemm,bf16,b200,4096,8192,8192\ngemm,fp8,b200,4096,8192,8192\ngemm,nvfp4,b200,4096,8192,8192\n' >narrow.csv
expect 0 "$WEFT" estimate --kernels narrow.csv -o plain.csv
at_most "$(column 4 time_us | cut -d. -f1)" "$(column 3 time_us | cut -d. -f1)"
at_most "$(column 3 time_us | cut -d. -f1)" "$(column 2 time_us | cut -d. -f1)"
printf 'kind,dtype,m,n,k\ngemm,nvfp4,16,64,64\n' >bad.csv
expect 1 "$WEFT" estimate --kernels bad.csv --gpu h200
has err 'no model supports kernels of kind gemm in f4e2m1'
{
    echo kind,dtype,launcher,b,isl,num_heads,head_dim
    for launcher in trtllm vllm '' sglang weft; do echo "attention,bf16,$launcher,1,64,1,64"; done
} >attention.csv
expect 0 "$WEFT" estimate --kernels attention.csv --gpu h200 -o plain.csv
at_most "$(column 3 time_us | cut -d. -f1)" "$(column 4 time_us | cut -d. -f1)"
at_most "$(column 4 time_us | cut -d. -f1)" "$(column 2 time_us | cut -d. -f1)"
[ "$(column 4 time_us)" = "$(column 5 time_us)" ] || die "a library that was not measured: $(shown plain.csv)"
[ "$(column 6 source)" = analytic ] || die "Weft's own kernels were not measured: $(shown plain.csv)"
# Mistakes: the table, and a text that the message must contain.
refused() {
    printf "$1" >bad.csv
    rm -f none.csv
    expect 1 "$WEFT" estimate --kernels bad.csv -o none.csv --gpu h200
    has err "$2"
    [ ! -e none.csv ] || die "something was written for: $1"
}
head='kind,dtype,m,n,k\n'
refused '' 'no rows'
refused 'm,n,k\n1,1,1\n' "column 'kind'"
refused 'kind,m,n,k\ngemm,1,1,1\n' "column 'dtype'"
refused 'kind,dtype,m,M,k\n' "column 'M'"
refused 'kind,dtype,m,n,k,time_us\n' "column 'time_us'"
refused "${head}gemm,bf16,1,1,1\nwarp,bf16,1,1,1\n" "bad.csv:3: column 'kind': unknown kind of kernel 'warp'"
refused "${head}gemm,bf17,1,1,1\n" "bad.csv:2: column 'dtype': unknown element type 'bf17'"
refused 'kind,dtype,m,n,k,launcher\ngemm,bf16,1,1,1,cuda\n' "column 'launcher': unknown library: 'cuda'"
refused "${head}gemm,bf16,1,,1\n" "column 'n': is empty"
refused "${head}bmm,bf16,1,1,1\n" "column 'b': is missing"
for wrong in 0 -1 1.5 nan inf 1e300 0x10 1x '""' '" 1 "'; do
    refused "${head}gemm,bf16,1,1,$wrong\n" "bad.csv:2: column 'k'"
done
refused "${head}gemm,bf16,1,1\n" 'bad.csv:2: column 5: the row has 4 fields, the header 5'
refused "${head}gemm,bf16,1,1,1,1\n" 'bad.csv:2: column 6'
refused "${head}gemm,bf16,1,1,\"1\n" 'the quote does not end'
refused "${head}gemm,bf16,1,1,\"1\"x\n" 'text behind the closing quote'
refused "${head}gemm,bf16,1,1,1\"\n" 'a quote inside a field'
refused "${head}gemm,bf16,1,1,\0\n" 'a NUL byte'
refused 'kind,dtype,m,n,k,gpu\ngemm,bf16,1,1,1,z80\n' "unknown device 'z80'"
refused 'kind,dtype,m,n,k,slice\ngemm,bf16,1,1,1,9g\n' "slice '9g'"
refused 'kind,dtype,b,cin,cout,ksize,hw\nconv,f32,1,8,8,9,4\n' 'larger than the padded image'
refused 'kind,dtype,b,cin,cout,ksize,hw,groups\nconv,f32,1,8,8,3,4,3\n' "column 'groups'"
{ printf 'kind,dtype,m,n,k'; printf ',x%.0s' $(seq 300); echo; } >bad.csv
expect 1 "$WEFT" estimate --kernels bad.csv --gpu h200
has err 'more than 256 columns'
{ printf 'kind,dtype,m,n,k\ngemm,bf16,1,1,'; head -c 70000 /dev/zero | tr '\0' 1; } >bad.csv
expect 1 "$WEFT" estimate --kernels bad.csv --gpu h200
has err 'longer than 65536 bytes'
# Any bytes at all: refused, never a crash. The bytes are those of a file that is no table, cut and
# shifted.
for at in 1 99 512 3000; do
    head -c $((at + 20000)) "$WEFT" | tail -c 20000 >bad.csv
    expect 1 "$WEFT" estimate --kernels bad.csv --gpu h200
    { printf 'kind,dtype,m,n,k\n'; cat bad.csv; } >worse.csv
    expect 1 "$WEFT" estimate --kernels worse.csv --gpu h200
done
expect 1 "$WEFT" estimate --kernels missing.csv --gpu h200
printf "${head}gemm,bf16,1,1,1\n" >bad.csv
expect 1 "$WEFT" estimate --kernels bad.csv
has err 'no --gpu'
# Many rows.
{ echo kind,dtype,m,n,k; awk 'BEGIN { for (i = 1; i <= 20000; i++) print "gemm,bf16," i "," i % 977 + 1 ",512" }'; } >many.csv
expect 0 "$WEFT" estimate --kernels many.csv -o many_out.csv --gpu h100
[ "$(wc -l <many_out.csv)" -eq 20001 ] || die "$(wc -l <many_out.csv) lines"
# Forms of attention: a prefill takes between half of and all the time; a decode step at least that of
# its keys and values (537 MB; an eighth with fewer heads) at 4.8 TB/s.
cat >forms.csv <<'END'
kind,dtype,b,isl,num_heads,head_dim,kv_heads
attention,bf16,4,4096,32,64,
prefill,bf16,4,4096,32,64,
decode,bf16,8,4096,32,128,
decode,bf16,8,4096,32,128,4
END
expect 0 "$WEFT" estimate --kernels forms.csv -o plain.csv --gpu h200
at_most "$(column 3 time_us | cut -d. -f1)" "$(column 2 time_us | cut -d. -f1)"
at_most "$(column 2 time_us | cut -d. -f1)" "$((2 * $(column 3 time_us | cut -d. -f1) + 2))"
at_most 111 "$(column 4 time_us | cut -d. -f1)"
at_most "$(column 5 time_us | cut -d. -f1)" "$(($(column 4 time_us | cut -d. -f1) / 3))"
[ "$(column 3 source),$(column 4 source)" = analytic,analytic ] || die "$(cat plain.csv)"
sed 's/,4$/,5/' forms.csv >bad.csv
expect 1 "$WEFT" estimate --kernels bad.csv --gpu h200
has err "kv_heads"
