#pragma once

// A driver that has memory to give, for memory_paths: its truth, and a limit.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Most it gives at once of what lies on a GPU; 0 = without end.
void standin_set_capacity(uint64_t bytes);
// Given and not taken back, bytes. 0 = on a GPU, 1 = managed, 2 = pinned, 3 = registered.
uint64_t standin_get_live(int kind);

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuDevicePrimaryCtxReset_v2(int device);
int cuMemAlloc_v2(uint64_t* address, uint64_t bytes);
int cuMemAllocPitch_v2(uint64_t* address, uint64_t* pitch, uint64_t width, uint64_t height,
                       unsigned element);
int cuMemAllocAsync(uint64_t* address, uint64_t bytes, void* stream);
int cuMemAllocAsync_ptsz(uint64_t* address, uint64_t bytes, void* stream);
int cuMemAllocFromPoolAsync(uint64_t* address, uint64_t bytes, void* pool, void* stream);
int cuMemAllocManaged(uint64_t* address, uint64_t bytes, unsigned flags);
int cuMemAllocHost_v2(void** address, uint64_t bytes);
int cuMemHostAlloc(void** address, uint64_t bytes, unsigned flags);
int cuMemHostRegister_v2(void* address, uint64_t bytes, unsigned flags);
int cuMemFree_v2(uint64_t address);
int cuMemFreeAsync(uint64_t address, void* stream);
int cuMemFreeHost(void* address);
int cuMemHostUnregister(void* address);
int cuMemCreate(uint64_t* handle, uint64_t bytes, const void* properties, uint64_t flags);
int cuMemMap(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle, uint64_t flags);
int cuMemUnmap(uint64_t address, uint64_t bytes);
int cuMemRelease(uint64_t handle);
struct standin_array {
  uint64_t width, height;
  unsigned format, channels;
};
int cuArrayCreate_v2(void** array, const struct standin_array* description);
int cuArrayDestroy(void* array);

#ifdef __cplusplus
}
#endif
