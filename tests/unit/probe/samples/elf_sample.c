/* A small library with every kind of symbol the reader tells apart. Its text is not called. */
#include <stdio.h>

int sample_data = 7;

__attribute__((noinline, used)) static int sample_local(int x) { return x * 3; }

int sample_plain(int x) { return sample_local(x) + sample_data; }

__attribute__((weak)) int sample_weak(int x) { return x - 1; }

/* Two versions of one name; programs linked today get the second. */
__asm__(".symver sample_old, sample_versioned@V1");
__asm__(".symver sample_new, sample_versioned@@V2");
int sample_old(int x) { return x + 1; }
int sample_new(int x) { return x + 2; }

static int sample_chosen(int x) { return x + 5; }
static int (*sample_resolve(void))(int) { return sample_chosen; }
int sample_indirect(int x) __attribute__((ifunc("sample_resolve")));

int sample_imports(void) { return puts("imported"); }
