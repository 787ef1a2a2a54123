/* Stand-in for libcublas: takes its time, computes nothing. cublasCreate_v2 sleeps 30 ms, as
 * loading the real library's kernels does; a null handle is CUBLAS_STATUS_NOT_INITIALIZED. */

#include <stdlib.h>
#include <time.h>

#include "cuda_standin.h"

#define CUBLAS_STATUS_SUCCESS 0
#define CUBLAS_STATUS_NOT_INITIALIZED 1
#define CUBLAS_STATUS_ALLOC_FAILED 3
#define CUBLAS_STATUS_INVALID_VALUE 7

struct standin_cublas {
  cudaStream_t stream;
};

static void sleep_us(long duration_us) {
  struct timespec left = {0, duration_us * 1000};
  while (nanosleep(&left, &left) != 0) {
  }
}

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  sleep_us(30000);
  *handle = calloc(1, sizeof(**handle));
  return *handle != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (handle == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  if (handle == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op,
                              int m, int n, int k, const float* alpha, const float* a, int lda,
                              const float* b, int ldb, const float* beta, float* c, int ldc) {
  (void)a_op, (void)b_op, (void)alpha, (void)beta;
  if (handle == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (a == NULL || b == NULL || c == NULL || lda < m || ldb < k || ldc < m || n < 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  sleep_us(200);
  return CUBLAS_STATUS_SUCCESS;
}
