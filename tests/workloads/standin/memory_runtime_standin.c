/* Stand-in for libcudart: what asks libcuda for memory. */

#include "memory_standin.h"

int cudaMalloc(void** address, uint64_t bytes) {
  int status = cuMemAlloc_v2((uint64_t*)address, bytes);

  __asm__ volatile("" : : "r"(status)); /* no jump */
  return status;
}

int cudaFree(void* address) {
  int status = cuMemFree_v2((uint64_t)address);

  __asm__ volatile("" : : "r"(status));
  return status;
}
