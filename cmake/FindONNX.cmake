# The protobuf classes of ONNX files. Debian's ONNXConfig.cmake makes unqualified targets
# (onnx_proto), other versions differ, so header and library are looked for directly.
find_package(Protobuf REQUIRED)
find_path(ONNX_INCLUDE_DIR onnx/onnx_pb.h)
find_library(ONNX_PROTO_LIBRARY onnx_proto)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ONNX REQUIRED_VARS ONNX_PROTO_LIBRARY ONNX_INCLUDE_DIR)
if(ONNX_FOUND AND NOT TARGET ONNX::onnx_proto)
  add_library(ONNX::onnx_proto UNKNOWN IMPORTED)
  set_target_properties(ONNX::onnx_proto PROPERTIES
    IMPORTED_LOCATION "${ONNX_PROTO_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${ONNX_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS "ONNX_NAMESPACE=onnx;ONNX_ML=1"
    INTERFACE_LINK_LIBRARIES protobuf::libprotobuf)
endif()
