import inner

value = [
    1,
    inner.block(),
]
