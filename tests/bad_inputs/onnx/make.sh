#!/usr/bin/env bash
# Makes the broken ONNX files of this folder, each named after what is wrong with it. Needs protoc and
# ONNX's own onnx.proto (packages protobuf-compiler and libonnx-dev). The files are kept in the
# repository, so that only whoever adds one runs this.
set -euo pipefail
cd "$(dirname "$0")"

# model NAME: a model from the text of its graph.
model() {
  {
    echo 'ir_version: 8 opset_import { version: 17 } graph { name: "bad"'
    cat
    echo '}'
  } | protoc --proto_path=/usr/include/onnx --encode=onnx.ModelProto onnx.proto > "$1.onnx"
}
# values NAME DIM...: the description of a real tensor; a DIM is a number or a symbol.
value() {
  printf 'name: "%s" type { tensor_type { elem_type: 1 shape {' "$1"
  shift
  for dim; do
    case $dim in
      [0-9-]*) printf ' dim { dim_value: %s }' "$dim" ;;
      "?") printf ' dim { }' ;;
      *) printf ' dim { dim_param: "%s" }' "$dim" ;;
    esac
  done
  printf ' } } }'
}
input() { printf 'input { '; value "$@"; echo ' }'; }
output() { printf 'output { '; value "$1"; echo ' }'; }
# weight NAME DIM...: an initializer whose numbers are elsewhere.
weight() {
  printf 'initializer { name: "%s" data_type: 1 data_location: EXTERNAL' "$1"
  shift
  printf ' dims: %s' "$@"
  echo ' }'
}
# node OPERATOR INPUTS OUTPUT [ATTRIBUTES]
node() {
  printf 'node { op_type: "%s" name: "the_%s" output: "%s"' "$1" "$1" "$3"
  local inputs
  read -ra inputs <<< "$2"
  printf ' input: "%s"' "${inputs[@]}"
  printf ' %s }\n' "${4:-}"
}
ints() {
  printf 'attribute { name: "%s" type: INTS' "$1"
  shift
  printf ' ints: %s' "$@"
  printf ' } '
}
int() { printf 'attribute { name: "%s" type: INT i: %s } ' "$1" "$2"; }
# integers NAME NUMBER...: an initializer of whole numbers.
integers() {
  printf 'initializer { name: "%s" data_type: 7 dims: %s' "$1" $(($# - 1))
  shift
  printf ' int64_data: %s' "$@"
  echo ' }'
}

# Files that are no models.
: > empty.onnx
echo 'this is no model' > text.onnx
head -c 1500 ../../networks/data/lenet5.onnx > truncated.onnx
echo 'ir_version: 8' |
  protoc --proto_path=/usr/include/onnx --encode=onnx.ModelProto onnx.proto > no-graph.onnx
{ input x 1 4; output y; } | model no-nodes
{ input x 1 4; node Relu x y; } | model no-output
{ node Relu w y; weight w 4; output y; } | model no-input
{
  i=0
  while [ $i -lt 150 ]; do
    printf 'node { op_type: "If" attribute { name: "then_branch" type: GRAPH g { '
    i=$((i + 1))
  done
  while [ $i -gt 0 ]; do printf '} } } '; i=$((i - 1)); done
} | model deep-nesting

# Dimensions.
{ input x batch 4; node Relu x y; output y; } | model unbound-dimension
{ input x 1 '?'; node Relu x y; output y; } | model unnamed-dimension
{ input x 0 4; node Relu x y; output y; } | model zero-extent
{ input x 1 -4; node Relu x y; output y; } | model negative-extent
{ input x 1 4294967296 4294967296; node Relu x y; output y; } | model overflowing-input
{ input x 1 2 2 2 2 2 2 2 2; node Relu x y; output y; } | model too-many-axes
{ input x 1 4; weight w 4 9223372036854775807; node MatMul 'x w' y; output y; } |
  model overflowing-weights
{ input x 1 4; weight w 4 -4; node MatMul 'x w' y; output y; } | model negative-weights
{ input x 1 1048576 1; input z 1 1 1073741824; node Add 'x z' y; output y; } |
  model overflowing-broadcast
{ input x 1 4; integers s 1152921504606846976; node ConstantOfShape s c; node Add 'x c' y; output y; } |
  model overflowing-constant
{
  input x 1 4
  last=x
  for i in $(seq 60); do node Concat "$last $last" "c$i" "$(int axis 1)"; last=c$i; done
  output c60
} | sed 's/the_Concat" output: "\(c[0-9]*\)/the_Concat_\1" output: "\1/' | model doubling-concat

# Graphs that do not hang together.
{ input x 1 4; node Add 'x z' y; node Relu y z; output z; } | model cycle
{ input x 1 4; node Add 'x nowhere' y; output y; } | model missing-input
{ input x 1 4; node Relu x y; node Tanh x y; output y; } | model two-makers
{ input x 1 4; weight w 4 4; weight w 4 4; node MatMul 'x w' y; output y; } | model twice-initializer
{ input x 1 4; node Relu x y; output z; } | model output-of-nothing
{ input x 1 4; node Relu x y; integers z 1; output z; } | model constant-output

# Operators.
{ input x 1 4; node Reluu x y; output y; } | model unknown-operator
{ input x 1 4; node FusedConv x y 'domain: "com.microsoft"'; output y; } | model foreign-domain
{ input x 1 4; node ArgMax x y; output y; } | model argmax
{ input x 1 3 8 8; weight w 4 5 3 3; node Conv 'x w' y; output y; } | model conv-of-other-channels
{ input x 1 3 8 8; weight w 4 3 3 3; node Conv 'x w' y "$(ints kernel_shape 5 5)"; output y; } |
  model conv-of-other-kernel
{ input x 1 3 8 8; weight w 4 3 3 3; node Conv 'x w' y "$(ints strides 0 1)"; output y; } |
  model conv-stride-zero
{ input x 1 3 8 8; weight w 4 3 3 3
  node Conv 'x w' y "$(ints pads 9223372036854775807 0 0 0)"; output y; } | model conv-endless-padding
{ input x 1 3 8 8; weight w 4 3 9 9; node Conv 'x w' y; output y; } | model conv-larger-than-map
{ input x 1 3 8 8; weight w 4 3 3 3; weight b 5; node Conv 'x w b' y; output y; } |
  model conv-bias-of-other-filters
{ input x 1 3 8 8; node MaxPool x y; output y; } | model pool-without-kernel
{ input x 1 3 8 8; weight s 4; weight b 3; weight m 3; weight v 3
  node BatchNormalization 'x s b m v' y; output y; } | model norm-of-other-channels
{ input x 1 4; weight w 5 6; node MatMul 'x w' y; output y; } | model product-of-other-extents
{ input x 1 4; integers s 3 -1; node Reshape 'x s' y; output y; } | model reshape-does-not-fit
{ input x 4 6; integers s 2 2 6; node Reshape 'x s' y; output y; } | model reshape-tears-batch
{ input x 4 6; node Concat 'x x' y "$(int axis 0)"; output y; } | model concat-of-samples
{ input x 4 6; node ReduceMean x y "$(ints axes 0)"; output y; } | model mean-of-samples
{ input x 4 6; node Softmax x y "$(int axis 0)"; output y; } | model softmax-of-samples
{ input x 4 6; integers i 6; node Gather 'x i' y "$(int axis 1)"; output y; } | model gather-beyond-axis
{ input x 4 6; node Transpose x y "$(ints perm 0 0)"; output y; } | model transpose-repeats-axis
{ input x 4 6; node Reshape 'x x' y; output y; } | model computed-shape
{ input x 1 4; node Add 'x c' y
  echo 'initializer { name: "c" data_type: 1 dims: 4 raw_data: "1234" }'; output y; } | model data-too-short
{ input x 1 4; node Add 'x c' y
  echo 'initializer { name: "c" data_type: 8 dims: 4 }'; output y; } | model text-tensor
