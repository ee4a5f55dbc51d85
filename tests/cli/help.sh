# Help and version go to standard output with exit code 0; every verb has its own.
expect 0 "$WEFT" --version
grep -qE '^weft [0-9]+\.[0-9]+\.[0-9]+$' out || die "version: $(shown out)"
empty err
expect 0 "$WEFT" --help
empty err
cp out all
for verb in $(verbs); do
    has all "  $verb "
    expect 0 "$WEFT" "$verb" --help
    head -n 1 out | grep -q "^usage: weft $verb" || die "weft $verb --help begins: $(head -n 1 out)"
    empty err
    awk 'length > 100 { exit 1 }' out || die "weft $verb --help has a line of over 100 columns"
done
