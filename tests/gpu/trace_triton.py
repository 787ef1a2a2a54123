"""Two kernels of Triton and how they are launched. A file of its own: Triton reads its source."""

import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def sum_kernel(left, right, out, count, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)
    inside = places < count
    tl.store(out + places, tl.load(left + places, mask=inside) + tl.load(right + places, mask=inside),
             mask=inside)


@triton.jit
def product_kernel(left, right, out, count, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)
    inside = places < count
    tl.store(out + places, tl.load(left + places, mask=inside) * tl.load(right + places, mask=inside),
             mask=inside)


def launch_sum(left, right, out):
    sum_kernel[(triton.cdiv(out.numel(), BLOCK),)](left, right, out, out.numel(), block=BLOCK)


def launch_product(left, right, out):
    product_kernel[(triton.cdiv(out.numel(), BLOCK),)](left, right, out, out.numel(), block=BLOCK)
