"""The layouts of the binary contracts, bpf/*.h, injector/session_abi.h and injector/attach_abi.h, as a compiler's debug
information has them, and the recorded ones in layouts.inc, which every compiler that reads the contracts checks (layouts.h).

usage: layouts.py BPFTOOL CLANG FLAG...     adds what was appended to the contracts to layouts.inc

Run it by `cmake --build build --target record_layouts`. It refuses where a recorded field moved, changed its size or is
gone: the other side of the contract may be older. Padding (fields named pad...) may become fields. To break a contract
on purpose, delete the struct's rows in layouts.inc first.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE / "layouts.inc"
SOURCE = HERE.parent.parent
HEADERS = ("bpf/stack_records.h", "bpf/records.h", "bpf/hook_notes.h", "injector/session_abi.h",
           "injector/attach_abi.h")


def read_layouts(bpftool, clang):
    """Of every struct of the headers, in their order: {struct: (size, {field: (offset, size)})}, all in bytes."""
    names = [name for header in HEADERS
             for name in re.findall(r"^struct (\w+) \{", (SOURCE / header).read_text(), re.MULTILINE)]
    lines = [f'#include "{SOURCE / header}"' for header in reversed(HEADERS)]
    lines += [f"struct {name} *{name};" for name in names]  # an unused type is not in the BTF
    with tempfile.NamedTemporaryFile(suffix=".o") as object_file:
        subprocess.run([*clang, "-c", "-x", "c", "-", "-o", object_file.name], input="\n".join(lines), text=True,
                       check=True)
        btf = subprocess.run([bpftool, "--json", "btf", "dump", "file", object_file.name], capture_output=True,
                             check=True)
    types = {row["id"]: row for row in json.loads(btf.stdout)["types"]}

    def size_of(type_id):
        row = types[type_id]
        if row["kind"] == "ARRAY":
            return row["nr_elems"] * size_of(row["type_id"])
        return row["size"] if "size" in row else size_of(row["type_id"])

    structs = {row["name"]: row for row in types.values() if row["kind"] == "STRUCT"}
    return {name: (structs[name]["size"],
                   {member["name"]: (member["bits_offset"] // 8, size_of(member["type_id"]))
                    for member in structs[name]["members"]})
            for name in names}


def parse(text):
    """The layouts in the rows of layouts.inc."""
    layouts = {}
    for struct, size in re.findall(r"^STRUCT\((\w+), (\d+)\)$", text, re.MULTILINE):
        layouts[struct] = (int(size), {})
    for struct, field, offset, size in re.findall(r"^FIELD\((\w+), (\w+), (\d+), (\d+)\)$", text, re.MULTILINE):
        layouts[struct][1][field] = (int(offset), int(size))
    return layouts


def write(layouts):
    lines = ["/* Written by layouts.py. */"]
    for struct, (struct_size, fields) in layouts.items():
        lines.append(f"STRUCT({struct}, {struct_size})")
        lines += [f"FIELD({struct}, {field}, {offset}, {size})" for field, (offset, size) in fields.items()]
    return "\n".join(lines) + "\n"


def find_breaks(recorded, present):
    """What a program built against the recorded layouts would misread."""
    breaks = []
    for struct, (struct_size, fields) in recorded.items():
        new_size, new_fields = present.get(struct, (0, {}))
        if new_size < struct_size:
            breaks.append(f"{struct}: {struct_size} bytes, now {new_size}")
        breaks += [f"{struct}.{field}: recorded (offset, size) {place}, now {new_fields.get(field)}"
                   for field, place in fields.items()
                   if new_fields.get(field) != place and not field.startswith("pad")]
    return breaks


def main():
    present = read_layouts(sys.argv[1], sys.argv[2:])
    breaks = find_breaks(parse(RECORDED.read_text()), present)
    if breaks:
        sys.exit("the contracts are append-only:\n" + "\n".join(breaks))
    RECORDED.write_text(write(present))


if __name__ == "__main__":
    main()
