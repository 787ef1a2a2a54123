"""Runs every case in a thread of its own until it blocks in C code, prints what Python says of the threads' frames,
and waits for a line on standard input.

    thread IDENT CASE
    frame LINE FILE FUNCTION    (innermost first; text in hexadecimal of UTF-8)
    end
"""

import sys
import threading
import time

import cases
import inner

DEADLINE_SECONDS = 30


def encode(text):
    # What cannot be written as UTF-8, the daemon replaces.
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text).encode().hex() or "-"


def print_thread(name, ident, frame):
    print("thread", ident, name)
    while frame is not None:
        code = frame.f_code
        function = getattr(code, "co_qualname", code.co_name)
        print("frame", frame.f_lineno or 0, encode(code.co_filename), encode(function))
        frame = frame.f_back


def is_asleep(native_id):
    with open("/proc/self/task/%d/stat" % native_id) as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "S"


def report(threads):
    """Once all threads block: a thread that waits for the interpreter sleeps, too, but not in os.read for long."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    quiet = 0
    while quiet < 10 and time.monotonic() < deadline:
        arrived = all(thread.ident in inner.blocking for thread in threads)
        quiet = quiet + 1 if arrived and all(is_asleep(thread.native_id) for thread in threads) else 0
        time.sleep(0.02)
    frames = sys._current_frames()
    for thread in threads:
        print_thread(thread.name, thread.ident, frames[thread.ident])
    print("end", flush=True)


def main():
    threads = []
    for case in cases.CASES:
        threads.append(threading.Thread(target=case, name=case.__name__, daemon=True))
        threads[-1].start()
    # The main thread blocks as well; another one reports.
    threading.Thread(target=report, args=(threads + [threading.main_thread()],), daemon=True).start()
    inner.blocking.append(threading.get_ident())
    sys.stdin.readline()
    # The threads never return.
    sys.stdout.flush()
    inner.os._exit(0)


main()
