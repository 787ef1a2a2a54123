// A kernel whose instructions come from its own lines, from a function that was inlined, and from one that was not. Compiled
// to lines.cubin; README.md says how.
__device__ __forceinline__ float twice(const float* values, int i) {
  return values[i] * 2.0f;
}
__device__ __noinline__ float root(float value) {
  return sqrtf(value);
}
__global__ void square(float* values, int count) {
  float sum = values[count + 1];
  if (sum > 1) values[count + 2] = sum * 3;
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    sum += twice(values, i);
  }
  values[count] = root(sum);
}
extern "C" __global__ void copy_kernel(const float* from, float* to) {
  to[threadIdx.x] = from[threadIdx.x];
}
