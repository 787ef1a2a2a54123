"""What the programs of stacks/ print of their own stacks, compared with any other account."""

import bisect
import functools
import re
import subprocess

VDSO = "[vdso]"
VDSO_BYTES = 8192
JIT = "[jit]"  # machine code made at run time: functions of one size, one behind the other
JIT_BYTES = 64 * 1024
JIT_FUNCTION_BYTES = 25
MAX_NATIVE_FRAMES = 256  # a deeper stack is cut, and says so
# "stack_cases_rust::apply", "<stack_cases_rust::Kept as stack_cases_rust::Service>::serve", and the
# latter as a demangler for C++ has it.
RUST_NAME = re.compile(r"^(<|_\$LT\$)?stack_cases_rust(::|\.\.).*?(?=\w+$)|^stack_cases_rust::")
PYTHON_MODULE = re.compile(r"/(libpython_calls\.so|python_extension\.)")  # of python_stacks
SYSTEM_LIBRARY = re.compile(r"/(libc|libm|libstdc\+\+|libgcc_s|libpthread|ld-linux-x86-64)[.-]")


def plain_name(symbol):
    """A demangled name without parameters, return type, Rust's hash and the mark of a cold part."""
    symbol = re.sub(r" \[clone \.cold\]|\.cold\b|::h[0-9a-f]{16}$", "", symbol)
    depth = 0
    begin, end = 0, len(symbol)
    for i, character in enumerate(symbol):
        if character in "<>":
            depth += 1 if character == "<" else -1
        elif depth == 0 and character == "(" and not symbol.startswith("(anonymous namespace)", i):
            end = i
            break
        elif depth == 0 and character == " " and not symbol[:i].endswith("(anonymous"):
            begin = i + 1
    return symbol[begin:end]


class Symbols:
    """The functions of a file, by its symbol table."""

    def __init__(self, path):
        text = subprocess.run(["nm", "--demangle", "--print-size", "--defined-only", path],
                              capture_output=True, text=True, check=True).stdout
        rows = re.findall(r"^([0-9a-f]+) (?:([0-9a-f]+) )?[tTwWi] (.*)$", text, re.M)
        # Of names for one place, the one with a size.
        self.rows = sorted((int(address, 16), int(size or "0", 16), plain_name(name))
                           for address, size, name in rows)
        self.addresses = [row[0] for row in self.rows]
        self.names = {name for _, _, name in self.rows}

    def find(self, address):
        index = bisect.bisect_right(self.addresses, address) - 1
        if index < 0:
            return None
        begin, size, name = self.rows[index]
        return name if address < begin + size else None


@functools.cache
def load_symbols(path):
    return Symbols(path)


class Programs:
    """What is known of the programs in a folder: which functions are their own (a static one has
    the C library's too), and where the symbols of the stripped one are."""

    def __init__(self, folder):
        self.own = set()
        for name in ("stack_cases", "libfirst_plugin.so", "libsecond_plugin.so"):
            self.own |= load_symbols(str(folder / name)).names
        self.own -= {"_start", "_init", "_fini"}
        self.twins = {str(folder / "stack_cases_stripped"): str(folder / "stack_cases")}

    def find_own(self, name):
        """The name that a program gives its own function, None where it is not its own."""
        if name in self.own:
            return name
        return RUST_NAME.sub("", name) if RUST_NAME.match(name) and "{{" not in name else None


class Modules:
    """The files of one sample, as the program printed them."""

    def __init__(self, rows, programs):
        self.rows = rows
        self.programs = programs

    def find(self, address):
        """The own function that holds an address; None outside of them."""
        for row in self.rows:
            offset = address - row["bias"]
            if row["path"] in (VDSO, JIT):
                if row["path"] == VDSO and 0 <= offset < VDSO_BYTES:
                    return VDSO
                if row["path"] == JIT and 0 <= offset < JIT_BYTES:
                    return f"jit_{offset // JIT_FUNCTION_BYTES}"
                continue
            path = self.programs.twins.get(row["symbols"], row["symbols"])
            name = load_symbols(path).find(offset)
            if name is not None:
                return self.programs.find_own(name)
        return None

    def name_frame(self, address, expected):
        """The own function of a frame, None for others. A return address may be the first byte
        behind its function, an interrupted instruction the first of its function: of two answers,
        the one that is expected."""
        names = (self.find(address - 1), self.find(address))
        return names[1] if names[1] == expected else names[0]

    def has_file(self, path):
        return any(row["path"] == path for row in self.rows)

    def is_stripped(self, path):
        return any(row["path"] == path and row["symbols"] in self.programs.twins
                   for row in self.rows)


def add_own_name(names, name):
    """Appends a function's name. How many functions of the vDSO one call goes through depends on the machine's clock source:
    a program knows that it is in the vDSO, no more."""
    if name != VDSO or names[-1:] != [VDSO]:
        names.append(name)


def name_own_frames(addresses, expected, modules):
    """The own functions of a stack's addresses, as far as they go."""
    names = []
    for address in addresses:
        following = expected[len(names)] if len(names) < len(expected) else None
        name = modules.name_frame(address, following)
        if name is not None:
            add_own_name(names, name)
    return names


def check_own_account(truth, modules):
    """What is wrong with a program's two accounts of one sample, its shadow stack and libgcc's walk
    of the real one; None when they agree."""
    addresses, start = truth["addresses"], truth["start"]
    inside = len(addresses) - len(start)
    if addresses[inside:] != start:
        return "libgcc's walk does not reach the start"
    names = name_own_frames(addresses[:inside], truth["frames"], modules)
    return None if names == truth["frames"] else f"shadow {truth['frames']}\nlibgcc {names}"


def compare_stack(truth, call, modules, whole_end="complete"):
    """What is wrong with the record of one sample; None when it is the whole stack, exactly."""
    frames = [frame for frame in call["user_stack"] if not frame.get("inlined")]
    end = call.get("user_stack_end", "(absent)")
    addresses, start = truth["addresses"], truth["start"]
    is_cut = len(addresses) > MAX_NATIVE_FRAMES
    if end != ("cut" if is_cut else whole_end):
        return f"the end is {end}"
    wrong = compare_addresses(frames, addresses[:MAX_NATIVE_FRAMES])
    if wrong:
        return wrong
    # Of a stack that is cut some frames around the outermost function may be left.
    own_frames = frames[:len(addresses) - len(start)]
    return compare_names(own_frames, truth["frames"], modules, is_cut)


def same_addresses(seen, true):
    """A return address may be given as it is on the stack or as the call before it."""
    return len(seen) == len(true) and all(b - a in (0, 1) for a, b in zip(seen, true, strict=True))


def compare_addresses(frames, addresses):
    seen = [frame["address"] for frame in frames]
    # The program looks at its stack from the calling function, not from the very call.
    if seen and same_addresses(seen[1:], addresses[1:]):
        return None
    differences = [b - a for a, b in zip(seen, addresses)]
    place = next((i for i, off in enumerate(differences) if i > 0 and off not in (0, 1)),
                 len(differences))
    return f"frame {place} of {len(addresses)} has another address; {len(seen)} frames are recorded"


def compare_names(frames, expected, modules, is_cut):
    names = []
    for frame in frames:
        following = expected[len(names)] if len(names) < len(expected) else None
        module = frame.get("module", "").removesuffix(" (deleted)")
        if frame.get("kind") == "jit":
            names.append(frame["symbol"])
        elif module == VDSO or modules.has_file(module):
            name = modules.name_frame(frame["address"], following)
            if name is None:
                continue
            add_own_name(names, name)
            symbol = frame.get("symbol", "")
            if name != VDSO and modules.programs.find_own(plain_name(symbol)) != name and \
                    not (symbol == "" and modules.is_stripped(module)):
                return f"{name} is called {symbol!r}"
        elif not SYSTEM_LIBRARY.search(module):
            names.append(f"{module or '(no module)'} {frame.get('symbol', '')} "
                         f"0x{frame['address']:x}")
    if names == (expected[:len(names)] if is_cut else expected):
        return None
    return "other functions are recorded: " + " ".join(names)


def compare_python_stack(truth, call):
    """As compare_stack, for python_stacks: every Python frame, and the C functions of ours."""
    end = call.get("user_stack_end", "(absent)")
    if end != "complete":
        return f"the end is {end}"
    frames = [frame for frame in call["user_stack"] if not frame.get("inlined")]
    python, merged = [], []
    for frame in frames:
        if frame.get("kind") == "python":
            python.append([frame["symbol"], frame["file"], frame["line"]])
            merged.append(python[-1])
        elif PYTHON_MODULE.search(frame.get("module", "")):
            merged.append(plain_name(frame["symbol"]))
    if python != truth["python"]:
        place = next((i for i, (a, b) in enumerate(zip(python, truth["python"])) if a != b),
                     min(len(python), len(truth["python"])))
        return f"Python frame {place} of {len(truth['python'])} is another"
    if merged != truth["merged"]:
        return "the C functions are not between the Python functions that they were between"
    if frames[-1].get("kind") == "python":
        return "the interpreter's own start is missing"
    return None
