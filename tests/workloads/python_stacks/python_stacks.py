"""Calls stack_target from Python stacks of 20 functions and more over three files, and prints each:

  {"sample":7,"pid":71,"tid":72,"python":[["take_sample",".../inner_calls.py",9],...],
   "merged":[["take_sample",...],"call_back",["through_ctypes",...],...]}

innermost first. python: every Python frame by sys._getframe, the standard library's too, with the
qualified name where this Python has it (3.11). merged: the same, and the C functions of ours.

usage: python_stacks.py LIBRARY EXTENSION_FOLDER --samples N --pause-us N --target-us N --threads N
                        --wait-for-file PATH --linger-for-file PATH --sharing
"""

import argparse
import functools
import os
import threading
import time

import own_stack
import sharing_calls
from middle_calls import choose_middle


def in_sort_key(sample):
    return sorted([sample], key=choose_middle)


def in_reduce(sample):
    return functools.reduce(lambda total, value: total + len(in_sort_key(value)), [sample], 0)


def in_map(sample):
    return list(map(in_reduce,
                    [sample]))


def in_handler(sample):
    try:
        raise ValueError(sample)
    except ValueError as error:
        return in_map(error.args[0])


def choose_outer(sample):
    return (in_handler, in_map, choose_middle, in_sort_key)[sample // 5 % 4](sample)


def work():
    while True:
        try:
            sample = own_stack.next_sample()
        except own_stack.Finished:
            return
        choose_outer(sample)


def warm_up_until(path):
    while path and not os.path.exists(path):
        own_stack.library.stack_target(0)
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("extension_folder")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--pause-us", type=int, default=2500)
    parser.add_argument("--target-us", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--wait-for-file", default="")
    parser.add_argument("--linger-for-file", default="")
    parser.add_argument("--sharing", action="store_true", help="one thread, by sharing_calls.py")
    options = parser.parse_args()
    own_stack.load(options.library, options.extension_folder)
    own_stack.library.set_stack_target_ns(options.target_us * 1000)
    own_stack.last_sample = options.samples
    own_stack.pause_seconds = options.pause_us / 1e6
    warm_up_until(options.wait_for_file)

    if options.sharing:
        sharing_calls.work()
        options.threads = 0
    threads = [threading.Thread(target=work) for _ in range(options.threads - 1)]
    for thread in threads:
        thread.start()
    if options.threads > 0:
        work()
    for thread in threads:
        thread.join()
    while options.linger_for_file and not os.path.exists(options.linger_for_file):
        time.sleep(0.001)


if __name__ == "__main__":
    main()
