"""The Python rules that Bazel 4 has built in, under rules_python's names."""

py_binary = native.py_binary
py_library = native.py_library
py_test = native.py_test
