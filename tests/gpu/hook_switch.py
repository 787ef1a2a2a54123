"""Switches the launch hooks of this process, which the injected library has, between two tokens: what the kernel writes
into their semaphores for as long as a daemon listens is taken away and given back. So both ways are measured in one
process, milliseconds apart."""

import ctypes
import pathlib
import statistics
import struct


def read_semaphores(path):
    """Address in the file's memory of each note's semaphore, by the note's name."""
    data = pathlib.Path(path).read_bytes()
    table, size, count, names = (struct.unpack_from(form, data, at)[0] for form, at in (
        ("<Q", 40), ("<H", 58), ("<H", 60), ("<H", 62)))
    sections = [struct.unpack_from("<IIQQQQ", data, table + number * size) for number in range(count)]
    first = sections[names][4]
    found = {}
    for name, _, _, _, offset, length in sections:
        if not data[first + name:].startswith(b".note.stapsdt\0"):
            continue
        at = offset
        while at < offset + length:
            owner, description, _ = struct.unpack_from("<III", data, at)
            body = at + 12 + (owner + 3) // 4 * 4
            _, _, semaphore = struct.unpack_from("<QQQ", data, body)
            _, word = data[body + 24:body + description].split(b"\0")[:2]
            found[word.decode()] = semaphore
            at = body + (description + 3) // 4 * 4
    return found


class HookSwitch:
    """Of some notes. What was there must not change meanwhile: no daemon comes or goes."""

    def __init__(self, notes):
        mapped = [line for line in pathlib.Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
                  if line.endswith("/libgpuperf_injector.so")]
        path = mapped[0].split(maxsplit=5)[5]  # also of a program that was attached to
        base = min(int(line.split("-")[0], 16) for line in mapped)
        addresses = read_semaphores(path)
        self.words = [ctypes.c_uint16.from_address(base + addresses[note]) for note in notes]
        self.values = [word.value for word in self.words]
        if not all(self.values):
            raise RuntimeError(f"nobody listens to {notes}: {self.values}")

    def set(self, is_on):
        for word, value in zip(self.words, self.values):
            word.value = value if is_on else 0

    def compare(self, count, measure):
        """(on, off) of what `measure` returns, so many times; which of a pair is first changes."""
        rows = []
        for number in range(count):
            row = {}
            for is_on in (True, False)[::-1 if number % 2 else 1]:
                self.set(is_on)
                row[is_on] = measure()
            rows.append((row[True], row[False]))
        self.set(True)
        return rows


def find_middle(values):
    """The median, and its 95 % confidence interval."""
    values, half = sorted(values), 0.98 * len(values) ** 0.5
    low, high = max(int(len(values) / 2 - half), 0), min(int(len(values) / 2 + half), len(values) - 1)
    return statistics.median(values), values[low], values[high]
