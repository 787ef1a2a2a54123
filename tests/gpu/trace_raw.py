"""A capture as it lies on disk (proto/gpuperf/v1/stored_capture.proto), as the rows of trace_reader: without the
library of Protocol Buffers, which a GPU host may not have. Only what the tests compare is read."""

import itertools

from trace_reader import Launch, Trace, Work

# Fields of StoredCapture.
HEAD, TEXTS, TABLES, LAUNCHES, WORK, GAPS, CAPTURE_SITES = 1, 2, 3, 5, 6, 8, 9
# Of StoredTables.
PROCESS_PID, THREAD_PROCESS, THREAD_TID, FUNCTION_NAME, KERNEL_NAME = 1, 10, 11, 14, 15
FRAME_SYMBOL, FRAME_MODULE, STACK_FRAME_COUNT, STACK_FRAME = 17, 18, 25, 27
STREAM_DEVICE = 34
MATCHES = ("exact", "ambiguous", "no_hit", "no_call")
KINDS = ("kernel", "copy", "set", "graph")


def read_varint(content, place):
    value, shift = 0, 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 0x7f) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def read_fields(content):
    """(number, value) of each field of a message: whole numbers, or bytes."""
    place = 0
    while place < len(content):
        key, place = read_varint(content, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = read_varint(content, place)
        elif kind == 2:
            length, place = read_varint(content, place)
            value, place = content[place:place + length], place + length
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
            value, place = int.from_bytes(content[place:place + length], "little"), place + length
        else:
            raise ValueError(f"this is no capture: field {number} has the wire type {kind}")
        if place > len(content):
            raise ValueError(f"the capture ends within field {number}")
        yield number, value


def unpack(value):
    """Of a packed column."""
    if isinstance(value, int):
        return [value]
    numbers, number, shift = [], 0, 0
    for byte in value:
        number |= (byte & 0x7f) << shift
        if byte < 0x80:
            numbers.append(number)
            number, shift = 0, 0
        else:
            shift += 7
    return numbers


class Columns:
    """The columns of one message; those that are not there hold zeros."""

    def __init__(self, content=b""):
        self.columns = {}
        self.add(content)

    def add(self, content):
        for number, value in read_fields(content):
            self.columns.setdefault(number, []).extend(unpack(value))

    def get(self, number, count=0):
        return self.columns.get(number) or [0] * count

    def sums(self, number, count=0):
        """Of a column of signed differences."""
        return list(itertools.accumulate(value >> 1 ^ -(value & 1) for value in self.get(number, count)))

    def rows(self):
        return max(map(len, self.columns.values()), default=0)


class Tables:
    def __init__(self, content_of):
        self.columns, self.texts = Columns(), []
        for content in content_of[TEXTS]:
            self.texts += [value.decode(errors="replace") for number, value in read_fields(content) if number == 1]
        for content in content_of[TABLES]:
            self.columns.add(content)
        self.frames = [self.texts[symbol] or self.texts[module] for symbol, module in zip(
            self.columns.get(FRAME_SYMBOL),
            self.columns.get(FRAME_MODULE, len(self.columns.get(FRAME_SYMBOL))))]
        self.stacks, place = [], 0
        frames = self.columns.get(STACK_FRAME)
        for count in self.columns.get(STACK_FRAME_COUNT):
            self.stacks.append(tuple(self.frames[frame] for frame in frames[place:place + count]))
            place += count

    def thread(self, index):
        """(pid, tid) of a thread's index plus one; zeros where none is known."""
        if index == 0:
            return 0, 0
        process = self.columns.get(THREAD_PROCESS)[index - 1]
        pid = self.columns.get(PROCESS_PID)[process - 1] if process else 0
        return pid, self.columns.get(THREAD_TID)[index - 1]

    def text(self, column, index):
        return self.texts[self.columns.get(column)[index - 1]] if index else ""


def read_launches(content, tables):
    block = Columns(content)
    count = block.rows()
    for start, duration, thread, function, stack, correlation, match in zip(
            block.sums(1, count), block.get(2, count), block.get(3, count), block.get(4, count),
            block.get(5, count), block.sums(7, count), block.get(8, count)):
        pid, tid = tables.thread(thread)
        yield Launch(pid, tid, start, duration, tables.text(FUNCTION_NAME, function), correlation,
                     MATCHES[match], tables.stacks[stack - 1] if stack else None)


def read_work(content, tables, launches, capture_sites):
    block = Columns(content)
    count = block.rows()
    for start, duration, size, kind, kernel, stream, launch, site, graph, node in zip(
            block.sums(1, count), block.get(2, count), block.get(3, count), block.get(4, count),
            block.get(6, count), block.get(7, count), block.sums(8, count), block.get(9, count),
            block.get(11, count), block.get(12, count)):
        device = tables.columns.get(STREAM_DEVICE)[stream - 1] if stream else 0
        yield Work(KINDS[kind], tables.text(KERNEL_NAME, kernel) or KINDS[kind], (device, stream), start, duration,
                   launches[launch - 1] if launch else None, 1 if launch else 0, size, graph, node,
                   capture_sites[site - 1] if site else None)


def read_stored(content):
    """Rows of a capture's file. Times are those of CLOCK_MONOTONIC."""
    content_of = {number: [] for number in (HEAD, TEXTS, TABLES, LAUNCHES, WORK, GAPS, CAPTURE_SITES)}
    for number, value in read_fields(content):
        if number in content_of:
            content_of[number].append(value)
    if not content_of[HEAD]:
        raise ValueError("this is no capture: it has no head")
    tables = Tables(content_of)
    launches, sites = ([launch for block in content_of[kind] for launch in read_launches(block, tables)]
                       for kind in (LAUNCHES, CAPTURE_SITES))
    work = [piece for block in content_of[WORK] for piece in read_work(block, tables, launches, sites)]
    gaps = [{"cause": tables.texts[cause]} for block in map(Columns, content_of[GAPS])
            for cause in block.get(4, block.rows())]
    return Trace(launches, work, gaps, 0)
