/* Stand-in for libcuda with memory to give. An address is given out anew at once, while the call
 * that took it back is still on its way, as the real driver's are. */

#include "memory_standin.h"

#include <pthread.h>
#include <time.h>

#define OUT_OF_MEMORY 2
#define INVALID_VALUE 1
#define PLACES 65536
#define FIRST_ADDRESS 0x7f0000000000ull
#define PLACE_BYTES 0x200000ull
#define RETURN_NS 20000
#define FLOAT_BYTES 4

enum kind { ON_GPU, MANAGED, PINNED, REGISTERED, KINDS };

struct place {
  uint64_t bytes; /* 0 = free */
  enum kind kind;
  int references;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct place places[PLACES];
static int free_places[PLACES], free_count, next_place;
static uint64_t live[KINDS], capacity;
static struct { uint64_t address, bytes; } registered[PLACES];

static void wait_inside(void) {
  struct timespec time = {0, RETURN_NS};

  nanosleep(&time, 0);
}

static int give(uint64_t* address, uint64_t bytes, enum kind kind) {
  int place;

  pthread_mutex_lock(&lock);
  if ((kind == ON_GPU && capacity && live[ON_GPU] + bytes > capacity) ||
      (!free_count && next_place == PLACES)) {
    pthread_mutex_unlock(&lock);
    return OUT_OF_MEMORY;
  }
  place = free_count ? free_places[--free_count] : next_place++;
  places[place].bytes = bytes;
  places[place].kind = kind;
  places[place].references = 1;
  live[kind] += bytes;
  *address = FIRST_ADDRESS + (uint64_t)place * PLACE_BYTES;
  pthread_mutex_unlock(&lock);
  return 0;
}

static struct place* find(uint64_t address) {
  uint64_t place = (address - FIRST_ADDRESS) / PLACE_BYTES;

  return address >= FIRST_ADDRESS && place < PLACES && places[place].bytes ? &places[place] : 0;
}

/* Another thread may have it before this returns. */
static int take_back(uint64_t address) {
  struct place* place;

  if (!address) return 0;
  pthread_mutex_lock(&lock);
  place = find(address);
  if (place && --place->references == 0) {
    live[place->kind] -= place->bytes;
    place->bytes = 0;
    free_places[free_count++] = (int)(place - places);
  }
  pthread_mutex_unlock(&lock);
  wait_inside();
  return place ? 0 : INVALID_VALUE;
}

void standin_set_capacity(uint64_t bytes) { capacity = bytes; }

uint64_t standin_get_live(int kind) { return live[kind]; }

int cuInit(unsigned flags) { return flags == 0 ? 0 : INVALID_VALUE; }

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &live;
  return device == 0 ? 0 : INVALID_VALUE;
}

int cuDevicePrimaryCtxReset_v2(int device) {
  int place;

  pthread_mutex_lock(&lock);
  for (place = 0; place < next_place; place++) {
    if (!places[place].bytes) continue;
    live[places[place].kind] -= places[place].bytes;
    places[place].bytes = 0;
    free_places[free_count++] = place;
  }
  pthread_mutex_unlock(&lock);
  return device == 0 ? 0 : INVALID_VALUE;
}

int cuMemAlloc_v2(uint64_t* address, uint64_t bytes) { return give(address, bytes, ON_GPU); }

int cuMemAllocPitch_v2(uint64_t* address, uint64_t* pitch, uint64_t width, uint64_t height,
                       unsigned element) {
  *pitch = width;
  return element ? give(address, width * height, ON_GPU) : INVALID_VALUE;
}

int cuMemAllocAsync(uint64_t* address, uint64_t bytes, void* stream) {
  (void)stream;
  return give(address, bytes, ON_GPU);
}

int cuMemAllocAsync_ptsz(uint64_t* address, uint64_t bytes, void* stream) {
  (void)stream;
  return give(address, bytes, ON_GPU);
}

int cuMemAllocFromPoolAsync(uint64_t* address, uint64_t bytes, void* pool, void* stream) {
  (void)pool;
  (void)stream;
  return give(address, bytes, ON_GPU);
}

int cuMemAllocManaged(uint64_t* address, uint64_t bytes, unsigned flags) {
  return flags ? give(address, bytes, MANAGED) : INVALID_VALUE;
}

int cuMemAllocHost_v2(void** address, uint64_t bytes) {
  return give((uint64_t*)address, bytes, PINNED);
}

int cuMemHostAlloc(void** address, uint64_t bytes, unsigned flags) {
  (void)flags;
  return give((uint64_t*)address, bytes, PINNED);
}

int cuMemHostRegister_v2(void* address, uint64_t bytes, unsigned flags) {
  int i = 0;

  (void)flags;
  pthread_mutex_lock(&lock);
  while (i < PLACES - 1 && registered[i].bytes) i++;
  registered[i].address = (uint64_t)address;
  registered[i].bytes = bytes;
  live[REGISTERED] += bytes;
  pthread_mutex_unlock(&lock);
  return 0;
}

int cuMemHostUnregister(void* address) {
  int i = 0;

  pthread_mutex_lock(&lock);
  while (i < PLACES - 1 && !(registered[i].bytes && registered[i].address == (uint64_t)address))
    i++;
  live[REGISTERED] -= registered[i].bytes;
  registered[i].bytes = 0;
  pthread_mutex_unlock(&lock);
  return 0;
}

int cuMemFree_v2(uint64_t address) { return take_back(address); }

int cuMemFreeAsync(uint64_t address, void* stream) {
  (void)stream;
  return take_back(address);
}

int cuMemFreeHost(void* address) { return take_back((uint64_t)address); }

/* A handle is the address of the memory here; mappings are wherever the caller says. */
static struct { uint64_t address, handle; } mappings[PLACES];

int cuMemCreate(uint64_t* handle, uint64_t bytes, const void* properties, uint64_t flags) {
  (void)properties;
  (void)flags;
  return give(handle, bytes, ON_GPU);
}

int cuMemMap(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle, uint64_t flags) {
  struct place* place;
  int i = 0;

  (void)bytes;
  (void)offset;
  (void)flags;
  pthread_mutex_lock(&lock);
  place = find(handle);
  if (place) {
    place->references++;
    while (i < PLACES - 1 && mappings[i].handle) i++;
    mappings[i].address = address;
    mappings[i].handle = handle;
  }
  pthread_mutex_unlock(&lock);
  return place ? 0 : INVALID_VALUE;
}

int cuMemUnmap(uint64_t address, uint64_t bytes) {
  uint64_t handle = 0;
  int i;

  (void)bytes;
  pthread_mutex_lock(&lock);
  for (i = 0; i < PLACES && !handle; i++) {
    if (!mappings[i].handle || mappings[i].address != address) continue;
    handle = mappings[i].handle;
    mappings[i].handle = 0;
  }
  pthread_mutex_unlock(&lock);
  return handle ? take_back(handle) : INVALID_VALUE;
}

int cuMemRelease(uint64_t handle) { return take_back(handle); }

int cuArrayCreate_v2(void** array, const struct standin_array* description) {
  return give((uint64_t*)array,
              description->width * description->height * description->channels * FLOAT_BYTES,
              ON_GPU);
}

int cuArrayDestroy(void* array) { return take_back((uint64_t)array); }
