"""The C++ rules that Bazel 4 has built in, under rules_cc's names.

Bazel's own BUILD files ask for them; this project holds no C++.
"""

cc_binary = native.cc_binary
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
objc_library = native.objc_library
