# The installation: programs in C by pkg-config (shared, static) and by find_package with a bundle as
# a build step, all from a tree that was moved; the command finds its programs; manual pages and
# completions are there; as a part of another project nothing but the library's targets is added.
build=$(dirname "$WEFT")
for tool in cmake ninja pkg-config; do
    command -v $tool >/dev/null || skip "no $tool"
done
! nm -D "$build/libweft.so.1" | grep -E '__(asan|tsan|msan)_' >made.txt || skip "a build with a sanitizer"
expect 0 cmake --install "$build" --prefix "$PWD/made"
mkdir moved
mv made "moved/a folder"
root="$PWD/moved/a folder"
lib=$(dirname "$(find "$root" -name weft.pc)")/..
lib=$(realpath "$lib")
[ -e "$root/bin/weft" ] && [ -e "$root/include/weft/weft.hpp" ] || die "no command or no header"
expect 0 "$root/bin/weft" compile "$examples/digits_cnn.onnx" -o cnn.weft
filled cnn.weft
pages="$(verbs | sed 's/^/man1\/weft-/; s/$/.1/') man1/weft.1 man7/weft.7"
for page in $pages man5/weft-set.5 man5/weft-fleet.5 man5/weft-plan.5 man5/weft-bundle.5; do
    filled "$root/share/man/$page"
    if command -v man >/dev/null; then
        LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z \
            "$root/share/man/$page" >/dev/null 2>warned || true
        empty warned
    fi
done
# Headings that are chosen by name: none is missing.
for text in 'SH "SET FILE"' 'SH "MEASURED PROFILES"' 'models[].admission'; do
    has "$root/share/man/man5/weft-set.5" "$text"
done
lacks "$root/share/man/man5/weft-set.5" 'FLEET FILE'
has "$root/share/man/man5/weft-fleet.5" 'SH "FLEET FILE"'
has "$root/share/man/man5/weft-plan.5" 'SS "\-\-check PLAN"'
for text in 'FIVE MINUTES' 'WHAT IT DOES TODAY' 'PROGRAMS AND LICENCES'; do
    has "$root/share/man/man7/weft.7" "SH \"$text\""
done
filled "$root/share/bash-completion/completions/weft"
filled "$root/share/zsh/site-functions/_weft"
filled "$root/share/fish/vendor_completions.d/weft.fish"

# pkg-config
export PKG_CONFIG_PATH=$lib/pkgconfig
head -c 2560 /dev/zero >images.f32
eval "cc -Wall -Werror '$examples/embed/classify.c' $(pkg-config --cflags --libs weft) -o shared"
LD_LIBRARY_PATH=$lib expect 0 ./shared cnn.weft "$("$WEFT" inspect cnn.weft --format json |
    sed -nE 's/.*"name": "(digits[^"]*)".*/\1/p' | head -n 1)" <images.f32
[ "$(wc -l <out)" = 10 ] || die "ten images gave $(wc -l <out) lines"
cp out want
if [ -e /usr/lib/x86_64-linux-gnu/libdnnl.so ] && ! readelf -d "$build/libweft.so.1" | grep -q RUNPATH; then
    eval "cc '$examples/embed/classify.c' $(pkg-config --cflags weft) '$lib/libweft.a' \
        $(pkg-config --static --libs weft | sed 's/-lweft//') -o static"
    ! ldd static | grep -q libweft || die "the static program needs libweft"
    expect 0 ./static cnn.weft digits_cnn <images.f32
    diff want out || die "shared (<) and static (>)"
fi
if command -v c++ >/dev/null; then
    eval "c++ -std=c++17 -Wall -Wextra -Werror '$examples/embed/classify.cpp' $(pkg-config --cflags --libs weft) -o object"
    LD_LIBRARY_PATH=$lib expect 0 ./object cnn.weft digits_cnn <images.f32
    diff want out || die "C (<) and C++ (>)"
fi

# find_package
mkdir project
cp "$examples/embed/classify.c" "$examples/digits_cnn.onnx" project
cat >project/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(Weft 0.1 REQUIRED COMPONENTS runtime compiler)
add_executable(classify classify.c)
target_link_libraries(classify PRIVATE Weft::runtime)
weft_add_bundle(digits OUTPUT digits.weft MODELS digits_cnn.onnx)
CMAKE
expect 0 cmake -G Ninja -S project -B built -DCMAKE_PREFIX_PATH="$root"
expect 0 ninja -C built
expect 0 built/classify built/digits.weft digits_cnn <images.f32
diff want out || die "pkg-config (<) and find_package (>)"
sed -i 's/runtime compiler/runtime brass/' project/CMakeLists.txt
expect 1 cmake -G Ninja -S project -B again -DCMAKE_PREFIX_PATH="$root"
has err brass

# FetchContent: the library as a part of the project, without tests and without installation.
cat >project/CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(consumer C)
include(FetchContent)
FetchContent_Declare(weft SOURCE_DIR $WEFT_SOURCE_DIR)
FetchContent_MakeAvailable(weft)
add_executable(classify classify.c)
target_link_libraries(classify PRIVATE Weft::runtime)
weft_add_bundle(digits OUTPUT digits.weft MODELS digits_cnn.onnx)
if(TARGET api_calls OR TARGET test_arena OR NOT TARGET libweft)
  message(FATAL_ERROR "tests are built as a part of another project")
endif()
CMAKE
onednn=$(sed -nE 's/^WEFT_ONEDNN_ROOT:PATH=//p' "$build/CMakeCache.txt")
expect 0 cmake -G Ninja -S project -B part -DWEFT_ONEDNN_ROOT="$onednn"
expect 0 ninja -C part -t commands classify
has out "libweft.so.1"
expect 0 cmake --install part --prefix "$PWD/nothing"
[ ! -e nothing ] || die "a part of another project installs itself"
