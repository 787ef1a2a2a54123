// An extension module that calls what it is given, with C frames of its own in the middle:
// through_extension(function, value) and a type whose instances can be called.

#define Py_LIMITED_API 0x03070000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

__attribute__((noipa)) static PyObject* call_inside(PyObject* function, PyObject* value) {
  PyObject* volatile result = PyObject_CallFunctionObjArgs(function, value, NULL);
  return result;
}

__attribute__((noipa)) static PyObject* through_extension(PyObject* self, PyObject* args) {
  (void)self;
  PyObject* function = NULL;
  PyObject* value = NULL;
  if (!PyArg_ParseTuple(args, "OO", &function, &value)) return NULL;
  PyObject* volatile result = call_inside(function, value);
  return result;
}

static PyMethodDef methods[] = {
    {"through_extension", through_extension, METH_VARARGS, "Calls function(value) from C."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "python_extension", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_python_extension(void) { return PyModule_Create(&module); }
