/* Accessors of tensors as ggml has them. SAMPLE_GRAD: with the field that builds before 2025 have. SAMPLE_ODD: one of them does
 * something else. */
#include <stdint.h>

struct tensor {
  int32_t type;
  void *buffer;
  int64_t ne[4];
  uint64_t nb[4];
  int32_t op;
  int32_t op_params[16];
  int32_t flags;
#ifdef SAMPLE_GRAD
  struct tensor *grad;
#endif
  struct tensor *src[10];
  struct tensor *view_src;
  uint64_t view_offs;
  void *data;
  char name[64];
  void *extra;
};

static const char *const kNames[] = {"NONE", "DUP", "MUL_MAT", "MUL_MAT_ID", "GLU"};

const char *ggml_op_name(uint32_t op) { return kNames[op]; }
const char *ggml_get_name(const struct tensor *tensor) { return tensor->name; }
int64_t ggml_nelements(const struct tensor *tensor) {
  return tensor->ne[0] * tensor->ne[1] * tensor->ne[2] * tensor->ne[3];
}
int32_t ggml_get_unary_op(const struct tensor *tensor) {
  if (tensor->op != 3) __builtin_trap();
  return tensor->op_params[0];
}
void ggml_set_input(struct tensor *tensor) { tensor->flags |= 1; }
#ifdef SAMPLE_ODD
void *ggml_get_data(const struct tensor *tensor) { return tensor ? tensor->data : 0; }
#else
void *ggml_get_data(const struct tensor *tensor) { return tensor->data; }
#endif
