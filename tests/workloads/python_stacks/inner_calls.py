"""The inner ten functions: closures, recursion, C in the middle, and the sample itself."""

import functools

import own_stack


def take_sample(sample):
    return own_stack.library.stack_target(own_stack.print_stack(sample))


def recurse(sample, rounds):
    if rounds == 0:
        return take_sample(sample)
    return recurse(sample, rounds - 1)


def through_ctypes(function, sample):
    callback = own_stack.PYTHON_CALLBACK(function)
    return own_stack.library.call_back(callback, sample)


def through_ctypes_twice(function, sample):
    callback = own_stack.PYTHON_CALLBACK(function)
    return own_stack.library.call_back_twice(callback,
                                             sample)


def through_extension(function, sample):
    return own_stack.extension.through_extension(function, sample)


def in_closure(sample):
    rounds = sample % 7

    def closure(value):
        return recurse(value, rounds)

    return closure(sample)


def in_lambda(sample):
    return (lambda value: in_closure(value))(sample)


def in_partial(sample):
    return functools.partial(in_lambda)(sample)


EXECUTED = """\
# The third line of a file that is nowhere.

def executed(function, value):
    # not this line
    return function(value)
"""
executed_names = {}
exec(compile(EXECUTED, "<executed by a test>", "exec"), executed_names)


def in_executed_code(sample):
    return executed_names["executed"](in_partial, sample)


def choose_inner(sample):
    crossings = (through_ctypes, through_ctypes_twice, through_extension)
    if own_stack.extension is None:
        crossings = crossings[:2]
    crossing = crossings[sample % len(crossings)]
    return crossing((in_executed_code, in_closure, in_partial)[sample // 3 % 3], sample)
