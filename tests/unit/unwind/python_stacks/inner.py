"""Where every thread ends up: in a C function that does not return."""

import os
import threading

PIPE = os.pipe()[0]  # nobody writes to it
blocking = []  # idents of the threads about to block


def block():
    blocking.append(threading.get_ident())
    os.read(PIPE, 1)


def block_over_lines(first, second):
    blocking.append(threading.get_ident())
    return (
        first,
        os.read(
            PIPE,
            second,
        ),
    )
