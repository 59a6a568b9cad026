#include <ua/kernel.cuh>


struct softmax_f32_f32 {
  struct State {
    float at0;
    float at1;
  };
  static UA_METHOD State merge(const State a, const State b) {
    const float a0 = a.at0;
    const float a1 = a.at1;
    const float b0 = b.at0;
    const float b1 = b.at1;
    const float t1 = ua::maximum(a0, b0);
    const float t2 = ((t1 == (-ua::infinity())) ? 0x0.0p+0f : t1);
    return {ua::maximum(a0, b0), ((a1 * ua::exp((a0 - t2))) + (b1 * ua::exp((b0 - t2))))};
  }
};

extern "C" __global__ void __launch_bounds__(128) rows_0(const float* __restrict__ x0, float* __restrict__ y0) {
  const int i0 = blockIdx.x;
  {
    const int i1 = ua::warp_index();
    float i4 = (-ua::infinity());
    float i5 = 0x0.0p+0f;
    for (int i2 = ua::lane_index(); i2 < 64; i2 += 32) {
      const auto in0 = ua::load<4>(&x0[(i0 * 1024 + i1 * 256 + i2 * 4)]);
      UA_UNROLL
      for (int i3 = 0; i3 < 4; ++i3) {
        const float point0 = in0[i3];
        {
          const float t1 = ua::maximum(i4, point0);
          const float t2 = ((t1 == (-ua::infinity())) ? 0x0.0p+0f : t1);
          const float next_i4 = ua::maximum(i4, point0);
          const float next_i5 = ((i5 * ua::exp((i4 - t2))) + (0x1.0000000000000p+0f * ua::exp((point0 - t2))));
          i4 = next_i4;
          i5 = next_i5;
        }
      }
    }
    const softmax_f32_f32::State i4_all = ua::warp_reduce<softmax_f32_f32>({i4, i5});
    i4 = i4_all.at0;
    i5 = i4_all.at1;
    for (int i6 = ua::lane_index(); i6 < 64; i6 += 32) {
      {
        const auto in0 = ua::load<4>(&x0[(i0 * 1024 + i1 * 256 + i6 * 4)]);
        ua::Vector<float, 4> out0;
        UA_UNROLL
        for (int i7 = 0; i7 < 4; ++i7) {
          out0[i7] = (ua::exp((in0[i7] - i4)) / i5);
        }
        ua::store(&y0[(i0 * 1024 + i1 * 256 + i6 * 4)], out0);
      }
    }
  }
}
UA_KERNEL(rows_0)
