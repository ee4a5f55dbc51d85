# What the Debian packages are built from agrees with the tree: version, symbols of the library, manual pages of
# all verbs, and the service, which may do no more than an exported worker on a GPU.
debian=$WEFT_SOURCE_DIR/packaging/debian
version=$(sed -nE 's/^project\(weft VERSION ([0-9.]+) .*/\1/p' "$WEFT_SOURCE_DIR/CMakeLists.txt")
has "$debian/changelog" "weft ($version) "
has "$WEFT_SOURCE_DIR/pyproject.toml" "version = \"$version\""
sed -nE 's/^([A-Z][A-Z_0-9.]+) \{$/\1/p' "$WEFT_SOURCE_DIR/api/weft.map" | sed 's/.*/&@&/' >want
awk '/^[A-Z]/ { version = $1 } /^ +[A-Za-z_]+;/ { sub(/;/, ""); print $1 "@" version }' \
    "$WEFT_SOURCE_DIR/api/weft.map" >>want
sed -nE 's/^ ([^ ]+) .*/\1/p' "$debian/libweft1.symbols" >got
diff <(sort want) <(sort got) || die "symbols of weft.map (<) and libweft1.symbols (>)"
for verb in $(verbs); do
    [ "$(cat "$debian"/*.install | grep -c "man1/weft-$verb\.1$")" = 1 ] || die "the manual page of $verb is in no package"
done
# Each package has what it consists of.
for package in $(sed -n 's/^Package: //p' "$debian/control"); do
    filled "$debian/$package.install"
done

. "$WEFT_SOURCE_DIR/tests/support/export_plan.sh"
expect 0 "$WEFT" export plan.json --to systemd -o units
unit=$debian/weft-server.service
own='Description|After|PartOf|Requires|Environment|EnvironmentFile|ExecStart|MemoryMax|WantedBy|Documentation|StateDirectory'
grep -vE "^($own)=|^#|^$" "$(ls units/weft-h100-0/weft-d*.service | grep -v mps | head -n 1)" | sort >want
grep -vE "^($own)=|^#|^$" "$unit" | sort >got
diff want got || die "an exported worker (<) and weft-server.service (>)"
command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
sed "s|/usr/bin/weft|$(realpath "$WEFT")|" "$unit" >weft-server.service
expect 0 timeout 60 systemd-analyze verify --man=no ./weft-server.service
empty err
expect 0 timeout 60 systemd-analyze security --offline=true --threshold=25 weft-server.service
