"""What lies between a thread's start and inner.block, one way to get there each."""

import contextlib
import functools

import inner


def decorate(function):
    @functools.wraps(function)
    def decorated(*arguments):
        return function(*arguments)

    return decorated


@decorate
@decorate
def decorated_function(
    value=1,
):
    if value:
        inner.block()


def generate(count):
    for i in range(count):
        if i == 3:
            yield inner.block()
        yield i


def delegate():
    yield 0
    yield from generate(5)


class Model:
    """Methods, and what Python calls by itself."""

    def __init__(self, blocks=False):
        self.blocks = blocks
        if blocks:
            inner.block()

    def forward(self):
        return self.layer.apply(inner.block)

    @property
    def layer(self):
        return self

    @staticmethod
    def apply(function):
        return function()

    @property
    def slow_property(self):
        return inner.block()

    def __getitem__(self, index):
        return inner.block() if index == 40 else index

    def __lt__(self, other):
        inner.block()
        return True

    def __enter__(self):
        return self

    def __exit__(self, *details):
        inner.block()


class Derived(Model):
    def __init__(self, blocks=False):
        super().__init__(
            blocks
        )


@contextlib.contextmanager
def manager():
    yield 1
    inner.block()


async def awaited(depth):
    if depth:
        return await awaited(depth - 1)
    inner.block()


async def async_generate():
    yield 1
    await awaited(2)
    yield 2


def far_down():
    value = 1
    # The next line is more than 127 lines away: no table says that in one step.
    if value:





















































































































































        inner.block()
    return value
