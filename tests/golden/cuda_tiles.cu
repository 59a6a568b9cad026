#include <ua/kernel.cuh>


extern "C" __global__ void __launch_bounds__(64) tiles_0(const float* __restrict__ x0, const float* __restrict__ x1, float* __restrict__ y0, const int dim_rows) {
  UA_DYNAMIC_SHARED(shared);
  unsigned tile = blockIdx.x;
  const int i1 = tile % 3u;
  tile /= 3u;
  const int i0 = tile;
  typedef ua::FmaTile<float, 16, 32, 32, 2, 4, ua::Operand::k_inner, ua::Operand::k_outer> Block;
  static_assert(Block::ATile::bytes + Block::BTile::bytes == 6144, "near bytes");
  Block::Accumulator acc;
  acc.clear();
  auto* const a_near = reinterpret_cast<Block::Element*>(shared + 0);
  constexpr int a_near_stage = Block::ATile::bytes / sizeof(Block::Element);
  auto* const b_near = reinterpret_cast<Block::Element*>(shared + 6144);
  constexpr int b_near_stage = Block::BTile::bytes / sizeof(Block::Element);
  const auto fill = [&](int step, int stage) {
    const int i2 = step * 32;
    ua::copy_tile_async<Block::ATile, 64, 16>(a_near + stage * a_near_stage, x0 + (i0 * 1024 + i2), 64, ua::min_index(16, (-i0 * 16 + dim_rows)), 32, ua::thread_index());
    ua::copy_tile_async<Block::BTile, 64, 16>(b_near + stage * b_near_stage, x1 + (i1 * 32 + i2 * 96), 96, 32, 32, ua::thread_index());
  };
  const auto use = [&](int stage) {
    Block::mma(acc, a_near + stage * a_near_stage, b_near + stage * b_near_stage);
  };
  ua::stream_tiles<3>(2, fill, use);
  Block::for_each_run<4>(acc, [&](int row, int col, auto* values) {
    if (row < ua::min_index(16, (-i0 * 16 + dim_rows))) {
      const int i3 = (i0 * 16) + row;
      const int first_col = (i1 * 32) + col;
      {
        ua::Vector<float, 4> out0;
        UA_UNROLL
        for (int e = 0; e < 4; ++e) {
          out0[e] = values[e];
        }
        ua::store(&y0[(first_col + i3 * 96)], out0);
      }
    }
  });
}
UA_KERNEL(tiles_0)
