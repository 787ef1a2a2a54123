"""Prints what the injected library finds of this Python, each beside what Python says itself.

usage: own_python_probe.py PROBE_LIBRARY LAYOUT_BYTES
"""

import ctypes
import sys

probe = ctypes.PyDLL(sys.argv[1])
layout_bytes = int(sys.argv[2])


class OwnPython(ctypes.Structure):
    _fields_ = [("runtime", ctypes.c_uint64),
                ("layout", ctypes.c_uint16 * (layout_bytes // 2)),
                ("find_thread", ctypes.PYFUNCTYPE(ctypes.c_void_p))]


probe.find_python.restype = ctypes.POINTER(OwnPython)
found = probe.find_python().contents
ctypes.pythonapi.PyThreadState_Get.restype = ctypes.c_void_p
runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
version = sys.version_info.major << 8 | sys.version_info.minor
print(found.runtime, runtime, found.find_thread(), ctypes.pythonapi.PyThreadState_Get(), version,
      bytes(found.layout).hex())
