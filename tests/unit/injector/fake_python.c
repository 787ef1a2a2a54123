/* What a CPython exports, as far as the injected library looks for it. VERSION: of the one it is taken for. */
#include <stdint.h>

uint64_t _PyRuntime[96];
void *PyGILState_GetThisThreadState(void) { return _PyRuntime; }

#if VERSION >= 0x030b
unsigned long Py_Version;
#endif
#if VERSION >= 0x030a
void PyModule_AddObjectRef(void) {}
#endif
#if VERSION >= 0x0309
void PyObject_CallNoArgs(void) {}
#endif
#if VERSION >= 0x0308
void PyCode_NewWithPosOnlyArgs(void) {}
#endif
