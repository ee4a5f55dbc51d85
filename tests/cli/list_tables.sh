# Every table prints at least one row, and no row twice.
for table in ops passes gpus prices slices policies strategies drivers; do
    expect 0 "$WEFT" list "$table"
    filled out
    empty err
    [ -z "$(sort out | uniq -d)" ] || die "weft list $table repeats: $(sort out | uniq -d)"
done
expect 0 "$WEFT" list drivers
has out "; oneDNN "
expect 0 "$WEFT" list policies
has out "alias fifo"
has out exclusive
has out bestfit
has out "splits: whole cores time; exclusive baseline of ParvaGPU"
expect 0 "$WEFT" list gpus
has out h100
has out a100-80
