# weft_add_bundle builds a bundle, does not rebuild it while nothing changes, rebuilds it when a
# model changes that only the set file names, and refuses wrong arguments.
command -v cmake >/dev/null && command -v ninja >/dev/null || skip "no cmake or no ninja"
mkdir project
cp "$examples"/digits_*.onnx "$examples/digits.yaml" project
cat >project/CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(consumer NONE)
set(WEFT_EXECUTABLE $WEFT)
include($WEFT_SOURCE_DIR/cmake/WeftBundle.cmake)
weft_add_bundle(digits OUTPUT digits.weft SET digits.yaml)
weft_add_bundle(two OUTPUT two.weft MODELS digits_cnn.onnx digits_parity.onnx OPTIONS --batch 1,4)
CMAKE
expect 0 cmake -G Ninja -S project -B built
expect 0 ninja -C built
filled built/digits.weft
filled built/two.weft
expect 0 ninja -C built
has out "no work to do"
sleep 0.1
touch project/digits_size.onnx
expect 0 ninja -C built -n
has out "digits.weft"
lacks out "two.weft"
sed -i 's/SET digits.yaml/SET digits.yaml MODELS digits_cnn.onnx/' project/CMakeLists.txt
expect 1 cmake -G Ninja -S project -B again
has err "either SET or MODELS"
