#include <ua/kernel.cuh>


extern "C" __global__ void __launch_bounds__(256) map_0(const float* __restrict__ x0, const float* __restrict__ x1, float* __restrict__ y0, const int dim_rows) {
  const int i0 = blockIdx.x;
  if (const int i1 = ua::thread_index(); i1 < ua::min_index(256, (-i0 * 256 + dim_rows * 16))) {
    {
      const auto in0 = ua::load<4>(&x1[((i1 % 16) * 4)]);
      const auto in1 = ua::load<4>(&x0[(i0 * 1024 + i1 * 4)]);
      ua::Vector<float, 4> out0;
      UA_UNROLL
      for (int i2 = 0; i2 < 4; ++i2) {
        out0[i2] = (in1[i2] + in0[i2]);
      }
      ua::store(&y0[(i0 * 1024 + i1 * 4)], out0);
    }
  }
}
UA_KERNEL(map_0)
