"""The ways into inner.block: each runs in a thread of its own."""

import asyncio
import ctypes
import functools
import itertools

import inner
import middle

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int)


def nested():
    middle.decorated_function()


def over_lines():
    inner.block_over_lines(
        1,
        (
            2 +
            3
        ),
    )


def chained():
    return (
        middle.Model()
        .layer
        .forward(
        )
    )


def generator():
    for value in middle.delegate():
        value += 1


def next_of_generator():
    values = middle.generate(9)
    while True:
        next(values)


def list_comprehension():
    return [
        inner.block()
        for i in range(3)
        if i
    ]


def dict_comprehension():
    return {i: {inner.block() for j in "ab"} for i in range(3)}


def generator_expression():
    return sum(inner.block() for i in range(3))


def lambdas():
    outer = lambda function: (  # noqa: E731
        function()
    )
    return outer(lambda: inner.block())


def sorted_by_c():
    return sorted(
        [3, 1, 2],
        key=lambda item: inner.block(),
    )


def mapped_by_c():
    return list(map(lambda item: inner.block() if item == 2 else item, range(4)))


def reduced_by_c():
    return functools.reduce(lambda a, b: inner.block(), [1, 2, 3])


def compared_by_c():
    return min(middle.Model(), middle.Model())


def ctypes_callback():
    return CALLBACK(callback_by_c)()


def callback_by_c():
    inner.block()
    return 0


def class_body():
    class Body:
        value = 1
        other = inner.block()

    return Body


def module_level():
    import module_body  # noqa: F401


def compiled():
    text = "\n" * 70000 + "def f():\n  return g(\n   1)\ndef g(x):\n  " + "x = x * 1 + 0; " * 40 + "block()\nf()\n"
    code = compile(text, "größe \U0001f600.py", "exec")
    exec(code, {"block": inner.block})


def unicode_names():
    def größe():
        名前()

    def 名前():
        𠀋()

    def 𠀋():
        inner.block()

    größe()


def surrogate_file():
    eval(compile("block()", "broken\udcff.py", "eval"), {"block": inner.block})


def specialised_init():
    for i in range(300):
        middle.Model(i == 299)


def specialised_derived_init():
    for i in range(300):
        middle.Derived(i == 299)


def specialised_getitem():
    model = middle.Model()
    for i in range(60):
        model[i]


def specialised_property():
    models = [middle.Model() for i in range(50)]
    for model in models:
        model.layer
    models[0].slow_property


def with_statement():
    with middle.Model() as model:
        model.blocks = True
        model.layer


def with_manager():
    with middle.manager() as value:
        value += 1


def handler():
    try:
        try:
            raise ValueError("x")
        except ValueError:
            inner.block()
        finally:
            inner.PIPE
    finally:
        pass


def finally_block():
    try:
        return 1
    finally:
        inner.block()


def recursion(depth=40):
    if depth:
        return recursion(depth - 1)
    return inner.block()


def formatted():
    return f"""{
        inner.block()
    }"""


def asynchronous():
    asyncio.run(middle.awaited(3))


def asynchronous_generator():
    async def consume():
        async for value in middle.async_generate():
            value += 1

    asyncio.run(consume())


def far_lines():
    middle.far_down()


def iterated():
    return list(itertools.chain([1], middle.generate(9)))


def partial_call():
    return functools.partial(inner.block_over_lines, 1)(
        2)


CASES = [
    nested, over_lines, chained, generator, next_of_generator, list_comprehension, dict_comprehension,
    generator_expression, lambdas, sorted_by_c, mapped_by_c, reduced_by_c, compared_by_c, ctypes_callback, class_body,
    module_level, compiled, unicode_names, surrogate_file, specialised_init, specialised_derived_init,
    specialised_getitem, specialised_property, with_statement, with_manager, handler, finally_block, recursion,
    formatted, asynchronous, asynchronous_generator, far_lines, iterated, partial_call,
]
