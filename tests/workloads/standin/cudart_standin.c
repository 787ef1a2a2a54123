/* Stand-in for libcudart: host memory plays the device, calls take a few microseconds, and some
 * fail by a fixed plan so that errors can be counted: every 10th cudaMalloc of the process runs out
 * of memory, every 2nd cudaEventQuery is not ready (which is no error). cudaDeviceSynchronize takes
 * 8 ms every 25th time, so that there is a slow call to look at. */

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_standin.h"

struct standin_stream {
  int unused;
};
struct standin_event {
  int unused;
};

static void busy_us(long duration_us) {
  struct timespec start;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 <
           duration_us);
}

static void sleep_ms(long duration_ms) {
  struct timespec left = {0, duration_ms * 1000000};
  while (nanosleep(&left, &left) != 0) {
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  busy_us(1);
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  static atomic_ulong calls;
  busy_us(3);
  *pointer = NULL;
  if (atomic_fetch_add(&calls, 1) % 10 == 9) return cudaErrorMemoryAllocation;
  *pointer = malloc(bytes);
  return *pointer != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void* pointer) {
  busy_us(2);
  free(pointer);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  (void)flags;
  busy_us(5);
  *pointer = malloc(bytes);
  return *pointer != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void* pointer) {
  free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  (void)kind;
  if (to == NULL || from == NULL) return cudaErrorInvalidValue;
  memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  (void)kind;
  (void)stream;
  if (to == NULL || from == NULL) return cudaErrorInvalidValue;
  memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  (void)stream;
  if (pointer == NULL) return cudaErrorInvalidValue;
  memset(pointer, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  busy_us(10);
  *stream = malloc(sizeof(**stream));
  return *stream != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  (void)stream;
  busy_us(50);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  free(stream);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = malloc(sizeof(**event));
  return *event != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  (void)stream;
  return event != NULL ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  static atomic_ulong calls;
  (void)event;
  return atomic_fetch_add(&calls, 1) % 2 == 1 ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  busy_us(20);
  return event != NULL ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  free(event);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  static atomic_ulong calls;
  if (atomic_fetch_add(&calls, 1) % 25 == 24) {
    sleep_ms(8);
  } else {
    busy_us(100);
  }
  return cudaSuccess;
}
