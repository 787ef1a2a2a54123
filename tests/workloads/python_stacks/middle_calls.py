"""The middle functions: generators, comprehensions, classes, decorators, coroutines."""

import asyncio
import functools

from inner_calls import choose_inner


def generate(sample):
    yield 1
    yield choose_inner(sample)


def delegate(sample):
    yield from generate(sample)


def in_generator(sample):
    total = 0
    for value in delegate(sample):
        total += value
    return total


def in_comprehensions(sample):
    return sum([sum(in_generator(value)
                    for value in [sample])
                for _ in range(1)])


def in_dict_comprehension(sample):
    return {key: in_comprehensions(sample) for key in ("one",)}


def counted(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return function(*args, **kwargs)
    wrapper.calls = 0
    return wrapper


class Service:
    def __init__(self, sample):
        self.sample = sample

    @property
    def value(self):
        return in_dict_comprehension(self.sample)

    @counted
    def serve(self, *, retries=0):
        return self.value if retries == 0 else self.serve(retries=retries - 1)

    @classmethod
    def make(cls, sample):
        return cls(sample).serve(retries=sample % 3)

    @staticmethod
    def make_static(sample):
        return Service.make(sample)

    def __enter__(self):
        self.entered = Service.make_static(self.sample)
        return self

    def __exit__(self, *_):
        return False


def in_with(sample):
    with Service(sample) as service:
        return service.entered


async def leaf_coroutine(sample):
    await asyncio.sleep(0)
    return in_with(sample)


async def gather_values(sample):
    values = [value async for value in produce(sample)]
    return values[0]


async def produce(sample):
    yield await leaf_coroutine(sample)


async def main_coroutine(sample):
    return await asyncio.create_task(gather_values(sample))


def in_coroutine(sample):
    return asyncio.run(main_coroutine(sample))


def in_class_body(sample):
    class Body:
        value = in_with(sample)

    return Body.value


def choose_middle(sample):
    return (in_coroutine, in_with, in_class_body, in_comprehensions)[sample % 4](sample)
