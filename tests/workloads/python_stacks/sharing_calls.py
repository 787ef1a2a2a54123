"""Samples that share frames of Python with the sample before: outer functions stay in a loop, or come again at the
same line or another one, while those inside stay as they are or change."""

import collections
import functools
import random

import own_stack

chosen = random.Random(1)
MAX_DEPTH = 14


def take_next():
    sample = own_stack.next_sample()
    return own_stack.library.stack_target(own_stack.print_stack(sample))


def go_on(depth):
    """Some rounds of samples from here, and of calls."""
    for _ in range(chosen.randint(1, 3)):
        if depth >= MAX_DEPTH or chosen.random() < 0.3:
            take_next()
        else:
            chosen.choice(STEPS)(depth + 1)


def from_two_lines(depth):
    if chosen.random() < 0.5:
        go_on(depth)
    else:
        go_on(depth)


def twin(depth):
    go_on(depth)


def other_twin(depth):
    go_on(depth)


# Code that is gone before its stack has a name has none. Later the memory is used anew.
recent_code = collections.deque(maxlen=300)


# Each time other code, that differs in its lines only.
def in_new_code(depth):
    names = {"go_on": go_on}
    text = "\n" * chosen.randint(0, 50) + "def made(depth):\n    go_on(depth)\n"
    exec(compile(text, "<made by a test>", "exec"), names)
    recent_code.append(names["made"])
    recent_code[-1](depth)


def generate(depth):
    while True:
        yield go_on(depth)


# Frames that live on, called from different ones.
kept = []


def in_kept_generator(depth):
    if not kept or chosen.random() < 0.1:
        kept.append(generate(MAX_DEPTH))
    generator = kept.pop()
    if chosen.random() < 0.5:
        next(generator)
    else:
        next(generator)
    kept.append(generator)


async def in_coroutine(depth):
    go_on(depth)


def drive_coroutine(depth):
    try:
        in_coroutine(depth).send(None)
    except StopIteration:
        pass


def in_partial(depth):
    functools.partial(go_on)(depth)


# Two stacks of the same functions at the same lines, natively too, of which one calls through C where the other one
# does not, and the other way round.
plan = [None, None, None, None]


def hop(depth):
    function, argument = plan[0], plan[1]
    return function(argument, depth)


def second_hop(depth_or_function, depth=None):
    function, argument = plan[2], plan[3]
    return function(argument, depth_or_function if depth is None else depth)


def last_hop(depth_or_function, depth=None):
    return take_next()


def through_c_at_one_of_two_places(depth):
    through = own_stack.extension and own_stack.extension.through_extension
    if not through:
        return go_on(depth)
    inner = ["call_inside", "through_extension"]
    for is_first in (True, False, chosen.random() < 0.5):
        if is_first:
            plan[:] = through, second_hop, last_hop, None
        else:
            plan[:] = second_hop, None, through, last_hop
        own_stack.C_CALLS["hop"] = inner if is_first else []
        own_stack.C_CALLS["second_hop"] = [] if is_first else inner
        hop(depth)
    return None


STEPS = (from_two_lines, twin, other_twin, in_new_code, in_kept_generator, drive_coroutine, in_partial,
         through_c_at_one_of_two_places)


def work():
    try:
        while True:
            from_two_lines(0)
    except own_stack.Finished:
        pass
