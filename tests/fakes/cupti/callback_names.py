#!/usr/bin/env python3
"""Makes the names that cuptiGetCallbackName gives from CUPTI's headers.

usage: callback_names.py RUNTIME_HEADER DRIVER_HEADER > names.inc
"""

import re
import sys

for domain, path in zip(("runtime", "driver"), sys.argv[1:3], strict=True):
    print(f"constexpr FakeName k_{domain}_names[] = {{")
    with open(path, encoding="utf-8") as header:
        for name, number in re.findall(r"_TRACE_CBID_(\w+)\s*=\s*(\d+)", header.read()):
            if name not in ("INVALID", "SIZE", "FORCE_INT"):
                print(f'    {{{number}, "{name}"}},')
    print("};")
