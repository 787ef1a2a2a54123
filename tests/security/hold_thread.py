#!/usr/bin/env python3
"""Holds one thread of another process for good where it is about to enter a system call, as a disk does that no longer answers.

usage: hold_thread.py TID SYSCALL

Prints a line once the thread is held. It goes on when this program is killed.
"""

import ctypes
import os
import sys

SEIZE, INTERRUPT, SYSCALL, PEEKUSER = 0x4206, 0x4207, 24, 3
MARK_SYSCALLS = 1        # option: stops at system calls have WAIT_SYSCALL
WAIT_SYSCALL = 0x85
NUMBER_OFFSET = 15 * 8   # of the system call's number (orig_rax) in struct user
WAIT_ALL = 0x40000000    # __WALL: threads, too


def main():
    tid, wanted = int(sys.argv[1]), int(sys.argv[2])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long

    def trace(request, address=0, data=0):
        answer = libc.ptrace(request, tid, address, data)
        if answer == -1:
            sys.exit(f"thread {tid}: ptrace {request:#x}: {os.strerror(ctypes.get_errno())}")
        return answer

    trace(SEIZE, 0, MARK_SYSCALLS)
    trace(INTERRUPT)
    while True:
        _, status = os.waitpid(tid, WAIT_ALL)
        if not os.WIFSTOPPED(status):
            sys.exit(f"thread {tid} has ended")
        if os.WSTOPSIG(status) == WAIT_SYSCALL and trace(PEEKUSER, NUMBER_OFFSET) == wanted:
            break
        trace(SYSCALL)
    print("held", flush=True)
    os.waitpid(tid, WAIT_ALL)  # until its process ends


main()
